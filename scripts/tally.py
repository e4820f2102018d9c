#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the results of `make check`: what the test runner logged, and each build step.

usage: tally.py [--count] FOLDER. It holds Meson's test logs as *.json, and `steps`, one line
`ok NAME` or `failed NAME` for each step that is not a test. Fails when something failed
or nothing ran. With --count only the last line, which has the numbers.
"""
import json
import os
import pathlib
import sys
import textwrap

PASSED = {"OK", "EXPECTEDFAIL"}
SKIPPED = {"SKIP"}
# Lines of what a failed test printed that are shown: its log may be out of reach.
SHOWN = 30


def results(folder):
    for log in sorted(folder.glob("*.json")):
        for line in log.read_text().splitlines():
            test = json.loads(line)
            printed = (test.get("stdout", "") + test.get("stderr", "")).splitlines()
            yield test["result"], f"{log.stem}: {test['name']}", printed
    steps = folder / "steps"
    if steps.exists():
        for line in steps.read_text().splitlines():
            result, name = line.split(" ", 1)
            yield "OK" if result == "ok" else "FAIL", f"step: {name}", []


def why_skipped(printed):
    """The last line that a skipped test printed says why."""
    return printed[-1].strip()[:100] if printed else "it does not say why"


def not_built(results):
    """What the last line says of builds that failed: their tests are in none of its numbers."""
    builds = [name.removeprefix("step: build with ") for result, name, _ in results
              if result not in PASSED and name.startswith("step: build with ")]
    return "".join(f"; the build with {name} failed, and its tests did not run"
                   for name in builds)


def show_failure(result, name, printed):
    print(f"{result}: {name}")
    for line in printed[-SHOWN:]:
        print(f"  {line[:200]}")


def show_skipped(skipped):
    for why, names in sorted(skipped.items()):
        print(f"skipped, {len(names)}: {why}")
        print(textwrap.fill(", ".join(names), 78, initial_indent="  ", subsequent_indent="  "))
    if skipped and os.geteuid() != 0:
        print("Tests that are skipped for want of rights run as root: sudo ./check")


def main():
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    brief = sys.argv[1] == "--count"
    skipped = {}
    found = list(results(pathlib.Path(sys.argv[-1])))
    for result, name, printed in found:
        if result in PASSED:
            counts["passed"] += 1
        elif result in SKIPPED:
            counts["skipped"] += 1
            skipped.setdefault(why_skipped(printed), []).append(name)
        else:
            counts["failed"] += 1
            if not brief:
                show_failure(result, name, printed)
    if not brief:
        show_skipped(skipped)
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**counts) + not_built(found))
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
