#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The calls of the fast path, and a start, must not need more instructions than they are known to.

usage: steps.py VIADUCT STEPS

A bound that a change makes too tight or too loose is to be changed with it, in the same
commit, with the reason. Compilers differ a little: hence the room.
"""
import json
import os
import subprocess
import sys
import tempfile

SKIP = 77  # the process may not be traced
ROOM = 1.10
BOUNDS = {"send-64": 301, "recv-64": 281, "write-64": 278, "read-64": 297,
          "recv-nothing": 700, "poll-ready": 705, "poll-nothing": 790, "start": 218000}


def main():
    viaduct, steps = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="steps-") as tmp:
        report = os.path.join(tmp, "report")
        run = subprocess.run([viaduct, "run", "--upgrade-after", "0", "--report", report, "--",
                              steps], stdout=subprocess.PIPE, text=True, check=False)
        if run.returncode:
            return run.returncode if run.returncode == SKIP else 1
        with open(report, encoding="utf-8") as f:
            lines = [json.loads(line) for line in f]
    if not any(line["upgraded"] == 2 and line["rx_direct_bytes"] for line in lines):
        print("the connection was not upgraded:", lines)
        return 1
    failed = 0
    counts = {name: int(count) for name, count in map(str.split, run.stdout.splitlines())}
    for name, count in counts.items():
        count -= counts["nothing"]
        bound = BOUNDS.get(name)
        verdict = ""
        if bound is not None and count > bound * ROOM:
            verdict = f" MORE than {bound}"
            failed = 1
        print(f"{name}: {count} instructions{verdict}")
    if set(BOUNDS) - set(counts):
        print("not counted:", set(BOUNDS) - set(counts))
        failed = 1
    return failed


sys.exit(main())
