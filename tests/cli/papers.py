#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `viaduct papers`: each row's smallest form works, --resume runs nothing twice, and the page and
the results hold every row. No time is judged.

usage: papers.py VIADUCT MANUAL [TEST...]
"""
import contextlib
import html
import importlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock

from drawn import drawn
from length import LONG

VIADUCT, MANUAL = map(os.path.abspath, sys.argv[1:3])
ENV = {**os.environ, "VIADUCT_CONFIG": ""}
# Without programs of other packages, and short.
HERE = {"sovia-6a", "sovia-6a-thread", "sovia-6b", "vmmc2-3", "vmmc2-6", "shah-3", "shah-4", "shah-5", "shah-6",
        "shah-7", "shah-t1", "wsdlite-3", "wsdlite-4", "wsdlite-5", "wsdlite-6", "wsdlite-7",
        "wsdlite-smp", "wsdlite-t1", "scilan-5a", "scilan-t2a", "scilan-t2b", "scilan-6a",
        "scilan-6b", "vmmc2-8", "vmmc2-t3", "wsdlite-8-barnes"}
# Of each paper's, and of each way to run a row, one; make check-long runs all.
SOME = ["sovia-6a", "sovia-6b", "vmmc2-3", "vmmc2-8", "shah-3", "shah-7", "wsdlite-3", "wsdlite-9", "wsdlite-t1",
        "scilan-5a", "scilan-t2a"]


class Rig(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name, "made")

    def papers(self, *args):
        return subprocess.run([VIADUCT, "papers", *args], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=3000, env=ENV, check=False)

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


class Papers(Rig):
    @drawn
    def test_every_row(self):
        names = self.names()
        self.assertEqual(len(names), len(set(names)))
        self.assertGreaterEqual(len(names), 60)
        rows, names = names, [name for name in names if name in SOME or
                              (LONG and not name.endswith("-hosts"))]
        only = ["--only", ",".join(names)]
        made = self.papers("--smallest", *only, "-o", str(self.out))
        self.assertEqual((made.returncode, made.stderr), (0, ""), made.stdout)
        head, *lines = self.lines()
        self.assertEqual((head["kind"], head["level"]), ("papers", "smallest"))
        self.assertEqual([line["row"] for line in lines], names)
        for line in lines:
            self.check_line(line)
        page = (self.out / "papers.html").read_text(encoding="utf-8")
        text = html.unescape(page)
        self.assertEqual(re.findall(r'class="row" id="([^"]+)"', page), rows)
        for line in lines:
            self.assertIn(line["what"], text)
            self.assertIn(line["reason"], text)
        self.assertNotRegex(page, r"<script|<link|<img|https?://(?!www\.w3\.org/2000/svg\b)")
        # Nothing that was measured is run again.
        again = self.papers("--smallest", *only, "--resume", "-o", str(self.out))
        self.assertEqual(again.returncode, 0, again.stderr)
        measured = {line["row"] for line in lines if line["state"] == "measured"}
        self.assertEqual(self.lines()[:len(names) + 1], [head, *lines])
        self.assertFalse(measured & {line["row"] for line in self.lines()[len(names) + 1:]})
        self.assertRegex(again.stdout, rf"\b{len(measured)} rows? (is|are) there already")

    @drawn
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

    def test_mechanisms(self):
        if not (pathlib.Path(VIADUCT).parent / "bench/mechanisms/viaduct").exists():
            self.skipTest("`ninja mechanisms` has not been run")
        some = ("--only", "sovia-6a-combining,sovia-6b-mechanisms,scilan-5b", "--smallest", "-o", str(self.out))
        self.assertEqual(self.papers(*some).returncode, 0)
        _, *lines = self.lines()
        self.assertEqual([line["state"] for line in lines], ["measured"] * 3, lines)
        self.assertEqual([len(line["cells"][0]["values"]) for line in lines], [2, 4, 2])

    @drawn
    def test_refused(self):
        for args, words in ((["--fast"], "--fast"), (["--only", "usenix"], "usenix"),
                            (["--only", ""], "names no"), (["--only", ","], "names no"),
                            (["--quick", "--smallest"], "give one"), (["--out"], "out"),
                            (["--out", ""], "--out takes the name of a folder: ``"),
                            (["rows"], "rows")):
            refused = self.papers(*args)
            self.assertEqual((refused.returncode, refused.stdout), (2, ""), args)
            said, usage = refused.stderr.splitlines()
            self.assertTrue(said.startswith("viaduct papers: "), said)
            self.assertIn(words, said)
            self.assertEqual(usage, "usage: see `viaduct papers --help`")

    @drawn
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


class Kept(unittest.TestCase):
    """The guests of several rows, without guests: what a row does that fails there."""

    def setUp(self):
        sys.path.insert(0, str(pathlib.Path(VIADUCT).parent / "bench"))
        self.addCleanup(sys.path.pop, 0)
        self.guests = importlib.import_module("papers.guests")
        self.failure, self.missing = type("Failure", (Exception,), {}), type("Missing", (Exception,), {})
        there = types.SimpleNamespace(guest=types.SimpleNamespace(Failure=self.failure), Refused=KeyError,
                                      kernel=types.SimpleNamespace(Missing=self.missing))
        replaced = unittest.mock.patch.object(self.guests, "script", lambda _name: there)
        replaced.start()
        self.addCleanup(replaced.stop)
        self.two, self.done = self.guests.Two(), []
        self.two.boot = self.boot

    @contextlib.contextmanager
    def bed(self):
        try:
            yield "bed"
        except self.failure:
            print("told")
            raise
        finally:
            self.done.append("ended")

    def boot(self, _viaduct):
        self.two.held = contextlib.ExitStack()
        self.two.bed = self.two.held.enter_context(self.bed())
        self.done.append("booted")

    def row(self, error=None):
        with self.two.on(VIADUCT) as bed:
            self.assertEqual(bed, "bed")
            if error:
                raise error

    def test_one_boot_for_all(self):
        self.row()
        self.row()
        self.two.leave()
        self.two.leave()
        self.assertEqual(self.done, ["booted", "ended"])

    def test_a_failure_ends_them(self):
        failed, cannot = self.guests.Failed, self.guests.Cannot
        for error, means, words in ((self.failure("no\n answer"), failed, "no answer"),
                                    (KeyError("refused"), failed, "refused"), (OSError("x"), failed, "x"),
                                    (self.missing("no QEMU"), cannot, "no QEMU"), (cannot("y"), cannot, "y")):
            self.done.clear()
            with contextlib.redirect_stderr(io.StringIO()) as told, self.assertRaisesRegex(means, words):
                self.row(error)
            self.assertEqual(self.done, ["booted", "ended"])
            self.assertEqual("told" in told.getvalue(), isinstance(error, self.failure))
        self.row()
        self.assertEqual(self.done[2:], ["booted"])


@drawn
class Guests(Rig):
    """Rows between two guests, which are booted once: not a part of the tests that run by default."""

    def test_every_row(self):
        names = [name for name in self.names() if name.endswith("-hosts")]
        made = self.papers("--smallest", "--only", "hosts", "-o", str(self.out))
        self.assertEqual(made.returncode, 0, f"{made.stdout}\n{made.stderr}")
        lines = self.lines()[1:]
        self.assertEqual([line["row"] for line in lines], names)
        for line in lines:
            self.check_line(line)
        if any(line["state"] == "cannot" for line in lines):
            self.skipTest(made.stdout)
        by_name = {line["row"]: line["cells"][0]["values"] for line in lines}
        for row in ("sovia-6a-hosts", "sovia-6b-hosts", "vmmc2-3-hosts", "shah-6-hosts"):
            self.assertEqual(list(by_name[row]), ["tcp", "viaduct", "rsockets", "verbs"])
        self.assertEqual(list(by_name["vmmc2-t2-hosts"]), ["uc", "rc"])


unittest.main(argv=sys.argv[:1] + (sys.argv[3:] or ["Papers", "Kept"]))
