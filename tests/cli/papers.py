#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `viaduct papers`: each row's smallest form works, --resume runs nothing twice, and the page and
the results hold every row. No time is judged.

usage: papers.py VIADUCT MANUAL
"""
import html
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

VIADUCT, MANUAL = map(os.path.abspath, sys.argv[1:3])
ENV = {**os.environ, "VIADUCT_CONFIG": ""}
# Without programs of other packages, and short.
HERE = {"sovia-6a", "sovia-6b", "vmmc2-3", "vmmc2-6", "shah-3", "shah-4", "shah-5", "shah-6",
        "shah-7", "shah-t1", "wsdlite-3", "wsdlite-4", "wsdlite-5", "wsdlite-6", "wsdlite-7",
        "wsdlite-smp", "wsdlite-t1", "scilan-5a", "scilan-t2a", "scilan-t2b", "scilan-6a",
        "scilan-6b", "vmmc2-8", "vmmc2-t3", "wsdlite-8-barnes"}


class Papers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name, "made")

    def papers(self, *args):
        return subprocess.run([VIADUCT, "papers", *args], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=900, env=ENV, check=False)

    def lines(self):
        text = (self.out / "papers.jsonl").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]

    def names(self):
        listed = self.papers("--list")
        self.assertEqual((listed.returncode, listed.stderr), (0, ""))
        return [line.split()[0] for line in listed.stdout.splitlines()]

    def check_line(self, line):
        self.assertIn(line["state"], ("measured", "cannot"), line)
        if line["state"] == "cannot":
            self.assertTrue(line["reason"])
            self.assertNotIn(line["row"], HERE)
            return
        self.assertTrue(line["command"])
        self.assertTrue(line["cells"])
        for cell in line["cells"]:
            self.assertEqual(cell["errors"], [], line["row"])
            self.assertTrue(cell["unit"])

    def test_every_row(self):
        names = self.names()
        self.assertEqual(len(names), len(set(names)))
        self.assertGreaterEqual(len(names), 48)
        made = self.papers("--smallest", "-o", str(self.out))
        self.assertEqual((made.returncode, made.stderr), (0, ""), made.stdout)
        head, *lines = self.lines()
        self.assertEqual((head["kind"], head["level"]), ("papers", "smallest"))
        self.assertEqual([line["row"] for line in lines], names)
        for line in lines:
            self.check_line(line)
        page = (self.out / "papers.html").read_text(encoding="utf-8")
        text = html.unescape(page)
        self.assertEqual(re.findall(r'class="row" id="([^"]+)"', page), names)
        for line in lines:
            self.assertIn(line["what"], text)
            self.assertIn(line["reason"], text)
        self.assertNotRegex(page, r"<script|<link|<img|https?://(?!www\.w3\.org/2000/svg\b)")
        # Nothing that was measured is run again.
        again = self.papers("--smallest", "--resume", "-o", str(self.out))
        self.assertEqual(again.returncode, 0, again.stderr)
        measured = {line["row"] for line in lines if line["state"] == "measured"}
        self.assertEqual(self.lines()[:len(names) + 1], [head, *lines])
        self.assertFalse(measured & {line["row"] for line in self.lines()[len(names) + 1:]})
        self.assertIn(f"{len(measured)} rows are there already", again.stdout)

    def test_a_cut_line_is_run_again(self):
        some = ("--smallest", "--only", "wsdlite-t1,wsdlite-9", "-o", str(self.out))
        self.assertEqual(self.papers(*some).returncode, 0)
        head, first, last = (self.out / "papers.jsonl").read_text().splitlines()
        threads = json.loads(last)
        self.assertEqual(threads["cells"][0]["values"], {"tcp": [1.0], "viaduct": [1.0]})
        self.assertEqual(json.loads(first)["state"], "cannot")
        (self.out / "papers.jsonl").write_text(f"{head}\n{last[:40]}")
        self.assertEqual(self.papers(*some, "--resume").returncode, 0)
        self.assertEqual([line.get("row") for line in self.lines()],
                         [None, "wsdlite-9", "wsdlite-t1"])

    def test_refused(self):
        for args, words in ((["--fast"], "--fast"), (["--only", "usenix"], "usenix"),
                            (["--quick", "--smallest"], "give one"), (["--out"], "out"),
                            (["rows"], "rows")):
            refused = self.papers(*args)
            self.assertEqual((refused.returncode, refused.stdout), (2, ""), args)
            said, usage = refused.stderr.splitlines()
            self.assertTrue(said.startswith("viaduct papers: "), said)
            self.assertIn(words, said)
            self.assertEqual(usage, "usage: see `viaduct papers --help`")

    def test_results_are_kept(self):
        some = ("--only", "wsdlite-9", "-o", str(self.out))
        self.assertEqual(self.papers(*some, "--smallest").returncode, 0)
        for more, words in (((), "--resume goes on with it"), (["--resume"], "smallest")):
            kept = self.papers(*some, *more)
            self.assertEqual(kept.returncode, 1)
            self.assertIn(words, kept.stderr)
            self.assertEqual(kept.stderr.count("\n"), 1)

    def test_manual(self):
        manual = pathlib.Path(MANUAL).read_text().replace("\\-", "-")
        told = self.papers("--help")
        self.assertEqual((told.returncode, told.stderr), (0, ""))
        options = re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", told.stdout, re.M)
        self.assertGreaterEqual(len(options), 7)
        for option in options:
            self.assertIn(option, manual)


unittest.main(argv=sys.argv[:1])
