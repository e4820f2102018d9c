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
  limited   both; the service limits its records, and so its connections stay libtirpc's
  die       both; the service is killed amid a call
  lies      both; a client of hostile.py, and then a service of it

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
# Without records of several fragments, and batched ones, of which libtirpc's service loses some there.
LIMITED = ["small", "control", "times", "auth", "shared", "threads", "signal", "anew",
           "quit"]


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


def run(serve, call, ending, before_serve, before_call):
    """What both have printed, their statuses, and what the client said of its operations. `serve`
    has the place of its port put behind its first words, `call` the port. `ending`: the client that
    ends the service, where `call` does not."""
    with tempfile.TemporaryDirectory() as tmp:
        place = os.path.join(tmp, "port")
        server = subprocess.Popen([*before_serve, *serve[0], place, *serve[1]],
                                  stdout=subprocess.PIPE)
        try:
            client = subprocess.run([*before_call, *call[0], port_of(place, server), *call[1]],
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            if ending:
                subprocess.run([ending, port_of(place, server), "quit"], check=True,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
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


def compare(viaduct, mode, call, pair):
    """Both plain, then as the mode says. Returns what is wrong, and what the counters say."""
    after = 124 if mode == "late" else 0
    plain, whose = run(*pair, [], [])
    if any("libviaduct" in x for x in whose):
        return ["the module is in the plain client"], []
    with tempfile.TemporaryDirectory() as tmp:
        report = os.path.join(tmp, "report")
        ours, whose = run(*pair, under(viaduct, report, after, mode != "client"),
                          under(viaduct, report, after, mode != "server"))
        counts = read_report(report)
    wrong = []
    if ours != plain:
        wrong.append("the transcripts differ")
        wrong += difflib.unified_diff(plain, ours, "plain", "viaduct", lineterm="", n=2)
    if any(("libviaduct-rpc.so" in x) != (mode != "server") for x in whose):
        wrong.append(f"operations: {set(whose)}")
    if not whose and call in pair[1][0]:
        wrong.append("the client has not said whose operations it has")
    print(f"{len(plain)} lines are compared")
    return wrong, counts


def pairs(mode, serve, call):
    """What is to be compared: what `run` takes."""
    hostile = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                            "hostile.py")]
    loop = mode if mode in ("poll", "select") else "run"
    if mode == "lies":
        count = subprocess.run([*hostile, "count"], stdout=subprocess.PIPE, check=True)
        yield ([serve], ["run"]), ([*hostile, "client"], []), call
        yield ([*hostile, "serve"], []), ([call], ["lies", count.stdout.decode().strip()]), None
    else:
        loop = [loop, str(100 << 20)] if mode == "limited" else [loop]
        cases = {"die": ["die"], "limited": LIMITED}.get(mode, CASES)
        yield ([serve], loop), ([call], cases), None


def main():
    viaduct, serve, call, mode = sys.argv[1:]
    wrong, counts = [], []
    for pair in pairs(mode, serve, call):
        more, counted = compare(viaduct, mode, call, pair)
        wrong += more
        counts += counted
        if mode not in ("client", "server") and not any(x["upgraded"] for x in counted):
            wrong.append("no connection was upgraded")

    def total(key):
        return sum(line[key] for line in counts)

    if mode in ("client", "server"):
        if total("upgraded"):
            wrong.append("a connection was upgraded that has one end only")
    elif not total("tx_direct_bytes"):
        wrong.append("no byte went over the direct path")
    elif mode not in ("die", "lies", "limited") and not total("downgraded"):
        wrong.append("no connection went back to TCP")
    if mode == "late" and not total("tx_tcp_bytes"):
        wrong.append("nothing went over TCP first")
    print("\n".join(wrong) if wrong else
          f"{mode}: upgraded {total('upgraded')}, went back {total('downgraded')} times")
    return 1 if wrong else 0


sys.exit(main())
