#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A forked child must not touch more pages for the library than it is known to.

usage: forks.py VIADUCT FORKS

Each costs a copy, or a fresh page: servers that fork for each connection pay it each time.
"""
import subprocess
import sys

MOST = 14  # 11 with gcc, 12 with clang


def main():
    viaduct, forks = sys.argv[1:]
    plain, under = (int(subprocess.run([*run, forks], stdout=subprocess.PIPE, check=True).stdout)
                    for run in ((), (viaduct, "run", "--")))
    print(f"page faults of a child: {plain} plain, {under} under Viaduct")
    if under == plain:
        print("that was without the library")
        return 1
    return 1 if under - plain > MOST else 0


sys.exit(main())
