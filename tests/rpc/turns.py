#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A service whose client is on the same processor gives its turn away before it sleeps, and only then;
and not for ever where that brings nothing. What is counted are its calls of sched_yield.

usage: turns.py VIADUCT TURNS

  together  both ends on one processor, one call after the other: it yields
  alone     the same, but the client calls only once the service sleeps: after a few yields in vain
            the next waits do without
  apart     each end on a processor of its own, where there are two: it never yields
  plain     together, without Viaduct: it never yields
"""
import json
import os
import subprocess
import sys
import tempfile
import time

LIMIT_S = 240
CALLS = {"together": 2000, "alone": 136, "apart": 2000, "plain": 2000}
# Of the calls of `alone`: four in 68, by what the library skips.
VAIN_MOST = CALLS["alone"] // 4


def on(cpu):
    return lambda: os.sched_setaffinity(0, {cpu})


def port_of(place, service):
    while not os.path.exists(place):
        if service.poll() is not None:
            sys.exit(f"the service has ended with status {service.returncode}")
        time.sleep(0.01)
    with open(place, encoding="ascii") as f:
        return f.read().strip()


def yields(way, viaduct, turns, places):
    """How many there were, and how many bytes went over the direct path."""
    with tempfile.TemporaryDirectory() as tmp:
        report, place = os.path.join(tmp, "report"), os.path.join(tmp, "port")
        run = [viaduct, "run", "--report", report, "--upgrade-after", "0", "--"]
        run = [] if way == "plain" else run
        service = subprocess.Popen([turns, "trap", *run, turns, "serve", place], stdout=subprocess.PIPE,
                                   preexec_fn=on(places[0]))
        try:
            # `viaduct run` executes the program in its own place: it has this number.
            awaited = [str(service.pid)] if way == "alone" else []
            subprocess.run([*run, turns, "call", port_of(place, service), str(CALLS[way]), *awaited],
                           check=True, timeout=LIMIT_S, preexec_fn=on(places[1]))
            out = service.communicate(timeout=LIMIT_S)[0].decode().split()
        finally:
            service.kill()
        counts = []
        if way != "plain":
            with open(report, encoding="utf-8") as f:
                counts = [json.loads(line) for line in f]
    return int(out[1]), sum(x["tx_direct_bytes"] for x in counts)


def main():
    viaduct, turns = sys.argv[1:]
    cpus = sorted(os.sched_getaffinity(0))
    wrong = []
    for way, least, most in (("together", 1, CALLS["together"] + 1), ("alone", 1, VAIN_MOST),
                             ("apart", 0, 0), ("plain", 0, 0)):
        places = [cpus[0], cpus[-1] if way == "apart" else cpus[0]]
        if way == "apart" and len(cpus) < 2:
            print("apart: there is one processor only")
            continue
        count, direct = yields(way, viaduct, turns, places)
        print(f"{way}: {count} yields in {CALLS[way]} calls")
        if not least <= count <= most:
            wrong.append(f"{way}: {count} yields, not {least} to {most}")
        if (direct > CALLS[way] * 24) != (way != "plain"):
            wrong.append(f"{way}: {direct} bytes went over the direct path")
    print("\n".join(wrong))
    return 1 if wrong else 0


sys.exit(main())
