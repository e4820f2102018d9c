#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A forked child must have no more pages of its own for the library than it is known to, nor may its
parent touch more after the fork.

usage: forks.py VIADUCT FORKS

Each costs a copy, or a fresh page: servers that fork for each connection pay it each time. The page
faults of the children are printed alone: they are more than their pages, by those of files, and of
these one fault maps as many as lie together in the page cache, which the library has no part in.
"""
import statistics
import subprocess
import sys

RUNS = 5
# 8, 11 and 6 are known.
MOST = {"pages of a child": 8, "pages of a child that answers": 14,
        "page faults of its parent": 7}
PRINTED = ["page faults of a child", "page faults of a child that answers"]


def main():
    viaduct, forks = sys.argv[1:]
    plain, under = (
        [statistics.median(all) for all in
         zip(*([int(n) for n in subprocess.run([*run, forks], stdout=subprocess.PIPE,
                                               check=True).stdout.split()]
               for _ in range(RUNS)))]
        for run in ((), (viaduct, "run", "--")))
    for name, was, now in zip([*MOST, *PRINTED], plain, under):
        print(f"{name}: {was} plain, {now} under Viaduct")
    if under == plain:
        print("that was without the library")
        return 1
    return any(now - was > most for was, now, most in zip(plain, under, MOST.values()))


sys.exit(main())
