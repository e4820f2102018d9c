#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A peer of another user takes back what it has shown: what poll and its like have told of is there
for a blocking receive, and what MSG_PEEK has shown is what is read.

usage: fickle.py VIADUCT FICKLE WAY..."""
import os
import subprocess
import sys

SKIP = 77
USER = "54321"
HANG_S = 200  # no judgement of speed: a bound on a test that would never end


def may_become(fickle):
    try:
        subprocess.run([fickle], user=int(USER), check=False)
    except OSError as e:
        print(f"needs root, and a build that other users can run: {e!r}")
        return False
    return os.geteuid() == 0


def main():
    viaduct, fickle, *ways = sys.argv[1:]
    if not may_become(fickle):
        return SKIP
    failed = 0
    for way in ways:
        run = subprocess.run([viaduct, "run", "--upgrade-after", "0", "--", fickle, way, USER],
                             stdout=subprocess.PIPE, text=True, check=False, timeout=HANG_S)
        said = run.stdout.split()
        good = {"same"} if way == "peek" else {"read", "reset"}
        held = run.returncode == 0 and said and set(said) <= good
        print(f"{way}: {' '.join(said)}{'' if held else f' FAILED, status {run.returncode}'}")
        failed += not held
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
