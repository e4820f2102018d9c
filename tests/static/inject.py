#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A signal at each instruction of a send and of a receive, in a statically linked program under Viaduct.

usage: inject.py VIADUCT INJECT PROGRAM...
"""
import os
import subprocess
import sys
import unittest

VIADUCT, INJECT, *PROGRAMS = map(os.path.abspath, sys.argv[1:])
WAYS = ["own", "alternate", "disarms", "vforks", "nests", "nests_alternate", "nests_disarmed", "leaves", "leaves_alternate",
        "same", "forks", "closes", "replaces"]
MARKS = ["mark_begin", "mark_end"]
# More instructions than lie between the marks where the kernel makes the call.
LED_AWAY = 100


def places(program):
    text = subprocess.run(["nm", program], check=True, stdout=subprocess.PIPE, text=True).stdout
    symbols = {line.split()[-1]: line.split()[0] for line in text.splitlines()}
    return [symbols[mark] for mark in MARKS]


class Inject(unittest.TestCase):
    def test_everywhere(self):
        for program in PROGRAMS:
            for how in WAYS:
                with self.subTest(program=os.path.basename(program), how=how):
                    said = subprocess.run(
                        [INJECT, *places(program), VIADUCT, "run", "--static", "follow",
                         "--upgrade-after", "0", "--", program, "64", how],
                        stdout=subprocess.PIPE, check=False, text=True)
                    self.assertEqual(said.returncode, 0, said.stdout)
                    self.assertGreater(int(said.stdout.split()[0]), LED_AWAY)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
