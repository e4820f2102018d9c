#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Statically linked programs, plain and under Viaduct: what they say is the same, and the report shows
that their connections were direct.

usage: run.py VIADUCT PROGRAM...
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

VIADUCT = os.path.abspath(sys.argv[1])
PROGRAMS = [os.path.abspath(p) for p in sys.argv[2:]]
DIRECT = ("basic", "storm", "nested", "alt", "jump", "threads", "storm_threads", "forks",
          "fork_threads", "dup")
OTHERS = ("eintr", "errors", "exec")


def says(command, env=None):
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False, text=True, timeout=120,
                          env={**os.environ, **(env or {})})
    return done.returncode, done.stdout


class Static(unittest.TestCase):
    def direct(self, program, name):
        """Returns what it says under Viaduct, and how many of its connections were upgraded."""
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder, "report")
            said = says([VIADUCT, "run", "--static", "follow", "--upgrade-after", "0", "--report",
                         str(report), "--", program, name])
            lines = [json.loads(line) for line in report.read_text().splitlines()]
        return said, sum(line["upgraded"] for line in lines)

    def test_cases(self):
        for program in PROGRAMS:
            for name in DIRECT + OTHERS:
                with self.subTest(program=os.path.basename(program), case=name):
                    said, upgraded = self.direct(program, name)
                    self.assertEqual(said, says([program, name]))
                    if name in DIRECT:
                        self.assertGreater(upgraded, 0)

    def test_is_left(self):
        done = subprocess.run([VIADUCT, "run", "--", PROGRAMS[0]], check=False,
                              stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 126)
        self.assertIn("--static follow", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
