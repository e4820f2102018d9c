#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Statically linked programs that no compiler makes: carried as they are, or refused.

usage: run.py VIADUCT FOLDER
"""
import os
import subprocess
import sys
import unittest

VIADUCT, FOLDER = (os.path.abspath(p) for p in sys.argv[1:3])


def carried(name):
    """What it says under Viaduct, which does not start a program that it cannot carry."""
    done = subprocess.run([VIADUCT, "run", "--static", "follow", "--upgrade-after", "0", "--",
                           os.path.join(FOLDER, "strange-" + name)], check=False, text=True,
                          stdout=subprocess.PIPE, timeout=60)
    return done.returncode, done.stdout


class Strange(unittest.TestCase):
    def test_calls(self):
        self.assertEqual(carried("calls"), (0, "48, sent 5, read 5: hello\n"))

    def test_bounds(self):
        self.assertEqual(carried("bounds"), (7, "said\nsaid\n"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
