#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A forked child must not touch more pages for the library than it is known to, nor its parent after
the fork.

usage: forks.py VIADUCT FORKS

Each costs a copy, or a fresh page: servers that fork for each connection pay it each time. The kernel
maps some pages around one that is touched, where it has them at hand, so one run differs from the next
by a few, also without the library: medians count. How many it has depends on how the files have come
into the page cache: a C library that lies there in larger pieces spares the plain child two.
"""
import statistics
import subprocess
import sys

RUNS = 9
# 12, 24 and 5 are known, and each two more.
MOST = {"a child": 14, "a child that answers": 27, "its parent": 9}


def main():
    viaduct, forks = sys.argv[1:]
    plain, under = (
        [statistics.median(all) for all in
         zip(*([int(n) for n in subprocess.run([*run, forks], stdout=subprocess.PIPE,
                                               check=True).stdout.split()]
               for _ in range(RUNS)))]
        for run in ((), (viaduct, "run", "--")))
    for whose, was, now in zip(MOST, plain, under):
        print(f"page faults of {whose}: {was} plain, {now} under Viaduct")
    if under == plain:
        print("that was without the library")
        return 1
    return any(now - was > most for was, now, most in zip(plain, under, MOST.values()))


sys.exit(main())
