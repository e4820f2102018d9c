# SPDX-License-Identifier: Apache-2.0
"""Runs the rows, one after another, and writes a line of JSON for each as soon as it is there."""
import datetime
import json
import os
import platform
import sys
import time

from .guests import TWO
from .row import Cannot, Failed

NAME = "papers.jsonl"


def machine():
    cpu = "unknown"
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
        for line in f:
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
                break
    return {"kernel": platform.release(), "cpu": cpu, "cpus": os.cpu_count()}


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class Results:
    """The lines of DIR/papers.jsonl. The last one of a row counts."""

    def __init__(self, folder, resume, level):
        self.path, self.level = os.path.join(folder, NAME), level
        self.head, self.rows = {"kind": "papers", "schema": 1, "started": now(),
                                "level": level.name, "machine": machine()}, {}
        if resume and os.path.exists(self.path):
            self.read()
        else:
            self.write(self.head)

    def read(self):
        """A last line that was cut off by a crash is none."""
        with open(self.path, encoding="utf-8") as f:
            whole = [line for line in f if line.endswith("\n")]
        lines = [json.loads(line) for line in whole]
        if not lines or lines[0].get("kind") != "papers":
            raise ValueError("these are no results of `viaduct papers`")
        if lines[0].get("level") != self.level.name:
            raise ValueError(f"these are of a run that was {lines[0].get('level')}, and this one "
                             f"is to be {self.level.name}")
        self.head = lines[0]
        self.rows = {line["row"]: line for line in lines[1:]}
        with open(self.path, "w", encoding="utf-8") as f:
            f.writelines(whole)

    def write(self, line):
        with open(self.path, "a", encoding="utf-8") as f:
            f.write(json.dumps(line) + "\n")

    def add(self, line):
        self.rows[line["row"]] = line
        self.write(line)

    def has(self, row):
        return self.rows.get(row.name, {}).get("state") == "measured"


def measure(row, viaduct, level):
    begin = time.monotonic()
    line = {"row": row.name, "paper": row.paper, "what": row.what, "level": level.name,
            "command": row.measure.command_at(level), "load": os.getloadavg()[0],
            "state": "measured", "reason": "", "cells": []}
    try:
        line["cells"] = row.measure.run(viaduct, level)
        if errors := [e for c in line["cells"] for e in c["errors"]]:
            line.update(state="failed", reason=errors[0])
    except Cannot as e:
        line.update(state="cannot", reason=str(e))
    except Failed as e:
        line.update(state="failed", reason=str(e))
    line["seconds"] = round(time.monotonic() - begin, 2)
    return line


def left(done, todo, began):
    """Said of what is to come, from how long the rows took so far."""
    if not done:
        return ""
    seconds = (time.monotonic() - began) / done * todo
    return f", {seconds / 60:.0f} min left" if seconds > 90 else f", {seconds:.0f} s left"


def run(rows, results, viaduct, level):
    """True where no row failed."""
    todo = [row for row in rows if not results.has(row)]
    if len(todo) < len(rows):
        count = len(rows) - len(todo)
        print(f"{count} {'row is' if count == 1 else 'rows are'} there already")
    # Guests that wait take a little of the processors: they are not there before their rows.
    todo.sort(key=lambda row: row.between)
    try:
        return run_all(todo, results, viaduct, level)
    finally:
        TWO.leave()


def run_all(todo, results, viaduct, level):
    began, good = time.monotonic(), True
    for done, row in enumerate(todo):
        if sys.stderr.isatty():
            text = f"{done + 1} of {len(todo)}: {row.name}{left(done, len(todo) - done, began)}"
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
        line = measure(row, viaduct, level)
        results.add(line)
        good = good and line["state"] != "failed"
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        said = f": {line['reason']}" if line["reason"] else ""
        print(f"{row.name:<22} {line['state']}{said}", flush=True)
    return good
