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
KERNELS = 100
QUICK_BYTES = 64
# All other calls, as those with more bytes, take more than twice as many instructions.
OTHER_BYTES = 300


def places(program):
    text = subprocess.run(["nm", program], check=True, stdout=subprocess.PIPE, text=True).stdout
    symbols = {line.split()[-1]: line.split()[0] for line in text.splitlines()}
    return [symbols[mark] for mark in MARKS]


class Inject(unittest.TestCase):
    def instructions(self, program, size, how):
        """How many lie between the marks, at each of which there was a signal."""
        said = subprocess.run(
            [INJECT, *places(program), VIADUCT, "run", "--static", "follow",
             "--upgrade-after", "0", "--", program, str(size), how],
            stdout=subprocess.PIPE, check=False, text=True)
        self.assertEqual(said.returncode, 0, said.stdout)
        return int(said.stdout.split()[0])

    def test_everywhere(self):
        for program in PROGRAMS:
            with self.subTest(program=os.path.basename(program)):
                others = self.instructions(program, OTHER_BYTES, WAYS[0])
            for how in WAYS:
                with self.subTest(program=os.path.basename(program), how=how):
                    here = self.instructions(program, QUICK_BYTES, how)
                    print(f"{os.path.basename(program)} {how}: {here} of {others}")
                    self.assertGreater(here, KERNELS)
                    self.assertLess(2 * here, others, "not made by the quick way")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
