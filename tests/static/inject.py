#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A signal at each instruction of a send and of a receive, in a statically linked program under Viaduct.

usage: inject.py VIADUCT INJECT PROGRAM...
"""
import os
import pathlib
import signal
import subprocess
import sys
import unittest

from marks import places

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import machine  # noqa: E402

VIADUCT, INJECT, *PROGRAMS = map(os.path.abspath, sys.argv[1:])
WAYS = ["own", "alternate", "disarms", "vforks", "nests", "nests_alternate", "nests_disarmed", "leaves", "leaves_alternate",
        "same", "forks", "closes", "replaces", "again", "again_alternate", "again_leaves", "again_leaves_alternate"]
# At the end of a handler that has interrupted a call.
END_WAYS = ["ends", "ends_alternate", "ends_disarmed", "ends_leaves", "ends_leaves_alternate", "ends_again", "ends_again_leaves"]
LONG_WAYS = ["own", "leaves", "same", "forks"]
# More instructions than lie between the marks where the kernel makes the call.
KERNELS = 100
FEW_BYTES = 64
# More than are copied at once.
MORE_BYTES = 300
# Calls that are not made by the quick way take more than half as many instructions again.
OTHERS = "vectors"
# glibc's, whose handler is to find the thread where the program makes the call. None of these is made by the quick way.
CANCEL = 32


class Inject(unittest.TestCase):
    def instructions(self, program, size, how, sent=signal.SIGUSR1):
        """How many lie between the marks, at each of which there was a signal."""
        said = subprocess.run(
            [INJECT, str(int(sent)), *places(program), VIADUCT, "run", "--static", "follow",
             "--upgrade-after", "0", "--", program, str(size), how],
            stdout=subprocess.PIPE, check=False, text=True)
        self.assertEqual(said.returncode, 0, said.stdout)
        return int(said.stdout.split()[0])

    def test_everywhere(self):
        for program in PROGRAMS:
            with self.subTest(program=os.path.basename(program)):
                others = self.instructions(program, FEW_BYTES, OTHERS)
                if not program.endswith("-musl"):
                    self.instructions(program, FEW_BYTES, "comes_back", CANCEL)
            for how in END_WAYS:
                with self.subTest(program=os.path.basename(program), how=how):
                    self.assertGreater(self.instructions(program, FEW_BYTES, how), KERNELS)
            for how, size in [(how, FEW_BYTES) for how in WAYS] + [(how, MORE_BYTES) for how in LONG_WAYS]:
                with self.subTest(program=os.path.basename(program), how=how, size=size):
                    here = self.instructions(program, size, how)
                    print(f"{os.path.basename(program)} {how} {size}: {here} of {others}")
                    self.assertGreater(here, KERNELS)
                    self.assertLess(3 * here, 2 * others, "not made by the quick way")


if __name__ == "__main__":
    machine.skip_where(machine.lacks_for_static())
    unittest.main(argv=sys.argv[:1])
