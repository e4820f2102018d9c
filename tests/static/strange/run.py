#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Statically linked programs that no compiler makes: carried as they are, or refused.

usage: run.py VIADUCT FOLDER
"""
import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import machine  # noqa: E402

VIADUCT, FOLDER = (os.path.abspath(p) for p in sys.argv[1:3])


def says(*command):
    done = subprocess.run([VIADUCT, "run", "--static", "follow", "--upgrade-after", "0", "--",
                           *command], check=False, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, timeout=60)
    return done.returncode, done.stdout


def carried(name):
    """What it says under Viaduct, which does not start a program that it cannot carry."""
    return says(os.path.join(FOLDER, "strange-" + name))


def followed(name):
    """The same where a shell starts it, which starts any."""
    return says("sh", "-c", os.path.join(FOLDER, "strange-" + name) + "; exit $?")


LACKS = machine.lacks_for_static()


class Strange(unittest.TestCase):
    @unittest.skipIf(LACKS, LACKS)
    def test_calls(self):
        self.assertEqual(carried("calls"), (0, "48, sent 5, read 5: hello\n"))

    @unittest.skipIf(LACKS, LACKS)
    def test_bounds(self):
        self.assertEqual(carried("bounds"), (7, "said\nsaid\n"))

    def test_table(self):
        for name in ("table", "table-pie"):
            self.assertEqual(carried(name), (126, ""))
            self.assertEqual(followed(name), (0, "9090900f054889c74889c690909090c3\n"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
