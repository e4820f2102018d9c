#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the RPC client and service plain and under Viaduct; what both have seen must be equal.

usage: rpc.py VIADUCT SERVE CALL MODE

  both      both ends under Viaduct; the service in svc_run
  late      the same, with the upgrade in the middle of the calls
  client    the client alone
  server    the service alone
  poll      both; the service in a loop of its own, of poll
  select    both; the service in a loop of its own, of select
  die       both; the service is killed amid a call

The counters must show that calls went over the direct path where both ends could have it, and the
client that its calls were the module's.
"""
import difflib
import json
import os
import subprocess
import sys
import tempfile
import time

CASES = ["simple", "sizes", "errors", "control", "times", "batch", "auth", "shared", "threads",
         "signal", "fork", "bounce", "anew", "quit"]


def under(viaduct, report, after, ours):
    if not ours:
        return []
    return [viaduct, "run", "--report", report, "--upgrade-after", str(after), "--"]


def port_of(path, server):
    while not os.path.exists(path):
        if server.poll() is not None:
            sys.exit(f"the service has ended with status {server.returncode}")
        time.sleep(0.01)
    with open(path, encoding="ascii") as f:
        return f.read().strip()


def run(serve, call, loop, cases, before_serve, before_call):
    """What both have printed, their statuses, and what the client said of its operations."""
    with tempfile.TemporaryDirectory() as tmp:
        place = os.path.join(tmp, "port")
        server = subprocess.Popen([*before_serve, serve, place, loop], stdout=subprocess.PIPE)
        try:
            client = subprocess.run([*before_call, call, port_of(place, server), *cases],
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            if client.returncode != 0:
                print(client.stderr.decode())
                server.kill()
            out = server.communicate()[0]
        finally:
            server.kill()
    lines = client.stdout.decode().splitlines() + out.decode().splitlines()
    lines.append(f"statuses {client.returncode} {server.returncode}")
    return lines, [x for x in client.stderr.decode().splitlines() if x.startswith("operations")]


def read_report(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def main():
    viaduct, serve, call, mode = sys.argv[1:]
    cases = ["die"] if mode == "die" else CASES
    loop = mode if mode in ("poll", "select") else "run"
    after = 124 if mode == "late" else 0
    plain, whose = run(serve, call, loop, cases, [], [])
    if any("libviaduct" in x for x in whose):
        sys.exit("the module is in the plain client")
    with tempfile.TemporaryDirectory() as tmp:
        report = os.path.join(tmp, "report")
        ours, whose = run(serve, call, loop, cases,
                          under(viaduct, report, after, mode != "client"),
                          under(viaduct, report, after, mode != "server"))
        counts = read_report(report)
    wrong = []

    def total(key):
        return sum(line[key] for line in counts)

    if ours != plain:
        wrong.append("the transcripts differ")
        wrong += difflib.unified_diff(plain, ours, "plain", "viaduct", lineterm="", n=2)
    if not whose or any(("libviaduct-rpc.so" in x) != (mode != "server") for x in whose):
        wrong.append(f"operations: {set(whose)}")
    if mode in ("client", "server"):
        if total("upgraded"):
            wrong.append("a connection was upgraded that has one end only")
    elif not total("upgraded") or not total("tx_direct_bytes"):
        wrong.append("no byte went over the direct path")
    elif mode != "die" and not total("downgraded"):
        wrong.append("no connection went back to TCP")
    if mode == "late" and not total("tx_tcp_bytes"):
        wrong.append("nothing went over TCP first")
    print("\n".join(wrong) if wrong else f"{mode}: {len(plain)} lines are equal; upgraded "
          f"{total('upgraded')}, went back {total('downgraded')} times")
    return 1 if wrong else 0


sys.exit(main())
