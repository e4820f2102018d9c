#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each case of statically linked programs, plain and under Viaduct: what it says is the same.

usage: edges.py VIADUCT REFUSED PROGRAM...
"""
import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import machine  # noqa: E402

VIADUCT = os.path.abspath(sys.argv[1])
os.environ["EDGES_REFUSED"] = os.path.abspath(sys.argv[2])
PROGRAMS = [os.path.abspath(p) for p in sys.argv[3:]]
FOLLOWS = [VIADUCT, "run", "--static", "follow", "--upgrade-after", "0", "--"]


def says(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False, text=True, timeout=60)
    return done.returncode, done.stdout


class Edges(unittest.TestCase):
    def test_cases(self):
        for program in PROGRAMS:
            for name in says([program])[1].split():
                with self.subTest(program=os.path.basename(program), case=name):
                    plain = says([program, name])
                    self.assertEqual(plain[0], 0, plain[1])
                    self.assertEqual(says([*FOLLOWS, program, name]), plain)


if __name__ == "__main__":
    machine.skip_where(machine.lacks_for_static())
    unittest.main(argv=sys.argv[:1])
