#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A thread cancelled at the instructions of a receive, in a statically linked program under Viaduct: its destructor runs.

usage: cancel_at.py VIADUCT CANCEL_AT PROGRAM STEP KIND...
"""
import os
import pathlib
import re
import subprocess
import sys
import unittest

from marks import places

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import machine  # noqa: E402

VIADUCT, CANCEL_AT, PROGRAM = map(os.path.abspath, sys.argv[1:4])
STEP, *KINDS = sys.argv[4:]
# More are looked at than lie between the marks where the program makes the call itself.
LEAST = 90


class CancelAt(unittest.TestCase):
    def test_everywhere(self):
        for kind in KINDS:
            with self.subTest(kind=kind):
                said = subprocess.run(
                    [CANCEL_AT, *places(PROGRAM), kind, "1", STEP, VIADUCT, "run", "--static", "follow", "--upgrade-after", "0",
                     "--", PROGRAM], stdout=subprocess.PIPE, check=False, text=True)
                print(said.stdout)
                self.assertEqual(said.returncode, 0, said.stdout)
                self.assertGreater(int(re.search(r"(\d+) instructions", said.stdout).group(1)), LEAST)


if __name__ == "__main__":
    machine.skip_where(machine.lacks_for_static())
    unittest.main(argv=sys.argv[:1])
