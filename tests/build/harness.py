#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The unit harness fails, skips and passes when it should: harness.py PROGRAM."""
import subprocess
import sys

EXPECTED = {
    ("passes",): (0, "ok   passes"),
    ("settled",): (0, "ok   settled"),
    ("check",): (1, "CHECK(1 == 2) failed"),
    ("check_eq",): (1, "got 1 (0x1), want 2 (0x2)"),
    ("check_str",): (1, 'got "a", want "b"'),
    ("check_str_null",): (1, 'got "(null)", want "b"'),
    ("require",): (1, "REQUIRE(1 == 2) failed"),
    ("leak",): (1, "was left open: /dev/null"),
    ("closes_what_it_found",): (1, "descriptor 0 was closed"),
    ("skips",): (77, "SKIP skips: on purpose"),
    ("skips", "passes"): (0, "1 passed, 0 failed, 1 skipped"),
    ("passes", "check", "skips"): (1, "1 passed, 1 failed, 1 skipped"),
    ("no_such_test",): (1, "0 passed, 0 failed, 0 skipped"),
}


def main():
    wrong = 0
    for names, (status, text) in EXPECTED.items():
        run = subprocess.run([sys.argv[1], *names], stdin=subprocess.DEVNULL, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if run.returncode != status or text not in run.stdout:
            wrong += 1
            print(f"{names}: status {run.returncode}, not {status}, or not `{text}`:\n"
                  f"{run.stdout}")
    print(f"{len(EXPECTED) - wrong} of {len(EXPECTED)} as expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
