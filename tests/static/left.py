#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A statically linked program is not started by `viaduct run`, unless the setting says so.

usage: left.py VIADUCT PROGRAM
"""
import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import machine  # noqa: E402

VIADUCT, PROGRAM = (os.path.abspath(p) for p in sys.argv[1:3])


class TestLeft(unittest.TestCase):
    def test_is_left(self):
        done = subprocess.run([VIADUCT, "run", "--", PROGRAM, "--list"], check=False,
                              capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (126, ""))
        self.assertIn(machine.lacks_for_static() or "--static follow", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
