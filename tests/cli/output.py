#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a command prints is written, or it says that it is not, by a line and by its exit status;
and a standard descriptor that is closed does not become another file.

usage: output.py VIADUCT [VIADUCTD]
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

COMMANDS = ("run", "stat", "bench", "trace", "doctor", "config", "report", "papers", "explain")


def called(words, shell):
    """The command by a shell, with redirections."""
    return subprocess.run(["sh", "-c", f'exec "$@" {shell}', "sh", *words], timeout=100,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)


class Output(unittest.TestCase):
    def fails(self, words):
        for shell in (">/dev/full", ">&-"):
            with self.subTest(words=words, shell=shell):
                done = called(words, shell)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn("cannot be written", done.stderr)
                self.assertNotIn("Traceback", done.stderr)

    def test_help(self):
        self.fails([VIADUCT, "--help"])
        self.fails([VIADUCT, "--version"])
        for command in COMMANDS:
            if command not in ("run", "papers"):
                self.fails([VIADUCT, command, "--help"])
        for command in ("run", "papers"):
            done = called([VIADUCT, command, "--help"], ">/dev/full")
            self.assertEqual(done.returncode, 1)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            self.assertIn("cannot be written", done.stderr)

    def test_daemon(self):
        if not VIADUCTD:
            self.skipTest("viaductd is not built")
        for words in (["--help"], ["--version"], ["--new-key", "a"]):
            self.fails([*VIADUCTD, *words])
        self.assertEqual(called([*VIADUCTD, "--bogus"], ">/dev/full").returncode, 2)
        done = called([*VIADUCTD, "--version", "x"], "")
        self.assertEqual((done.returncode, done.stdout), (2, ""))

    def test_daemon_names_what_is_wrong(self):
        """The log that cannot be written, also by --check, and the address that is not here."""
        if not VIADUCTD:
            self.skipTest("viaductd is not built")
        with tempfile.TemporaryDirectory() as d:
            conf, key = pathlib.Path(d) / "conf", pathlib.Path(d) / "key"
            key.touch(0o600)
            key.write_text(called([*VIADUCTD, "--new-key", "a"], "").stdout)
            for line, status, words, option in (
                    (f"log = info:{d}/log", 0, "", "--check"),
                    (f"log = info:{d}/none/log", 1, f"{d}/none/log: ", "--check"),
                    (f"log = info:{d}", 1, f"{d}: ", "--foreground"),
                    ("listen = 192.0.2.1", 1, "listen = 192.0.2.1: ", "--foreground")):
                conf.write_text(f"key-file = {key}\nsocket = {d}/s\n{line}\n")
                done = called([*VIADUCTD, "--config", str(conf), option], "")
                self.assertEqual(done.returncode, status, line)
                self.assertEqual(len(done.stderr.splitlines()), status, done.stderr)
                self.assertIn(words, done.stderr)
            self.assertFalse((pathlib.Path(d) / "log").exists())

    def test_lines_are_lines(self):
        """Whatever word was wrong."""
        told = [[VIADUCT], [VIADUCT, "help"], [VIADUCT, "stat"], [VIADUCT, "bench", "--patterns"],
                VIADUCTD, VIADUCTD and [*VIADUCTD, "--new-key"]]
        for words in filter(None, told):
            done = called([*words, "a\nb\33[31m"], "")
            self.assertEqual(done.returncode, 2)
            self.assertIn("a?b?[31m", done.stderr)

    def test_usage_errors_stay(self):
        self.assertEqual(called([VIADUCT, "stat", "--bogus"], ">/dev/full").returncode, 2)

    def test_closed(self):
        """The table does not go into the file that gets the table's descriptor."""
        with tempfile.TemporaryDirectory() as d:
            results = pathlib.Path(d) / "results.json"
            done = called([VIADUCT, "bench", "--quick", "--pairs", "1", "--patterns", "rtt",
                           "--sizes", "64", "--over", "tcp", "--json", str(results)], ">&-")
            self.assertTrue(json.loads(results.read_text()))
            self.assertEqual(done.returncode, 1)
            self.assertIn("cannot be written", done.stderr)

    def test_program(self):
        """A program gets its descriptors as they are."""
        code = "import os; os.path.exists('/proc/self/fd/1') or os.write(2, b'closed')"
        done = called([VIADUCT, "run", "--", sys.executable, "-c", code], ">&-")
        self.assertIn("closed", done.stderr)


if __name__ == "__main__":
    VIADUCT = os.path.abspath(sys.argv[1])
    VIADUCTD = [os.path.abspath(p) for p in sys.argv[2:]]
    unittest.main(argv=sys.argv[:1])
