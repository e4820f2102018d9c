#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The calls of the fast path, and a start, must not need more instructions than they are known to.

usage: steps.py VIADUCT STEPS [SAME]

SAME is STEPS for another C library: a round trip in shared memory must not need a tenth more than with STEPS.
What a call needs without Viaduct is taken off: C libraries differ in that.
A bound that a change makes too tight or too loose is to be changed with it, in the same
commit, with the reason. Compilers differ a little: hence the room. Stepped through, sends
are so rare that each notes when it was made (src/conn/info.c): 6 instructions of send and write.
On TCP the count of a call and the note of it are one critical section, at its begin and at its end: 13 instructions.
A poll that may sleep works on a copy of its array, which is 75 of its instructions.
Bytes that SO_RCVLOWAT leaves in the ring are asked for by each poll and receive: 11 and 5 instructions. What an
edge-triggered registration asks of TCP is its own: 17 of an instance.
Of TCP, gcc 14 makes 4 instructions more than gcc 12.
A start looks up each function of the C library that Viaduct stands before, 600 to 800 instructions each.
"""
import json
import os
import subprocess
import sys
import tempfile

SKIP = 77  # the process may not be traced
ROOM = 1.10
BOUNDS = {"send-64": 288, "recv-64": 267, "write-64": 272, "read-64": 286,
          "recv-nothing": 710, "poll-ready": 748, "poll-nothing": 795, "instance": 2476, "start": 245000}
# The same on a connection that has not earned its upgrade, and both ends of a connection of one round trip, from
# socket to close.
TCP_BOUNDS = {"send-64": 164, "recv-64": 164, "write-64": 164, "read-64": 164, "instance": 1311,
              "connection": 1865}


class Failed(Exception):
    def __init__(self, status):
        super().__init__(status)
        self.status = status


def counts_of(*command):
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if run.returncode:
        raise Failed(run.returncode if run.returncode == SKIP else 1)
    counts = {name: int(count) for name, count in map(str.split, run.stdout.splitlines())}
    return {name: count - counts["nothing"] for name, count in counts.items()}


def counted(viaduct, upgrade_after, *steps):
    """The counts, and the lines of the report."""
    with tempfile.TemporaryDirectory(prefix="steps-") as tmp:
        report = os.path.join(tmp, "report")
        counts = counts_of(viaduct, "run", "--upgrade-after", str(upgrade_after), "--report",
                           report, "--", *steps)
        with open(report, encoding="utf-8") as f:
            return counts, [json.loads(line) for line in f]


def judged(kind, counts, plain, bounds):
    """Whether all of bounds are held."""
    held = True
    for name, count in counts.items():
        count -= plain.get(name, 0)
        bound = bounds.get(name)
        verdict = ""
        if bound is not None and count > bound * ROOM:
            verdict = f" MORE than {bound}"
            held = False
        print(f"{kind} {name}: {count} instructions more{verdict}")
    if set(bounds) - set(counts):
        print("not counted:", set(bounds) - set(counts))
        held = False
    return held


def compared(viaduct, steps, same):
    """The other library's calls beside the first one's, of which two there and two back are judged."""
    sides = [counted(viaduct, 0, program) for program in (steps, same)]
    for _, lines in sides:
        if not any(line["upgraded"] >= 2 and line["rx_direct_bytes"] for line in lines):
            print("the connection was not upgraded:", lines)
            return False
    first, second = (side[0] for side in sides)
    for name, count in second.items():
        print(f"ring {name}: {first[name]} and {count} instructions")
    turn = ("send-64", "recv-64", "write-64", "read-64")
    return sum(second[name] for name in turn) <= sum(first[name] for name in turn) * ROOM


def main():
    viaduct, steps, *same = sys.argv[1:]
    try:
        if same:
            return 0 if compared(viaduct, steps, *same) else 1
        plain = counts_of(steps, "connection")
        direct, lines = counted(viaduct, 0, steps, "start")
        if not any(line["upgraded"] >= 2 and line["rx_direct_bytes"] for line in lines):
            print("the connection was not upgraded:", lines)
            return 1
        tcp, lines = counted(viaduct, 1000000, steps, "connection")
        if any(line["upgraded"] for line in lines) or not any(line["rx_tcp_bytes"] for line in lines):
            print("the connection was not on TCP:", lines)
            return 1
    except Failed as failure:
        return failure.status
    held = judged("ring", direct, plain, BOUNDS)
    return 0 if judged("TCP", tcp, plain, TCP_BOUNDS) and held else 1


sys.exit(main())
