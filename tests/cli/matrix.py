#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `viaduct bench --matrix`: the product is whole, and the list below 1.0 is right.

usage: matrix.py VIADUCT MANUAL. No figure that was measured is judged: lists are tested on
figures that are given.
"""
import csv
import html.parser
import itertools
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

from drawn import drawn
from length import length

VIADUCT, MANUAL = map(os.path.abspath, sys.argv[1:3])
TWO = len(os.sched_getaffinity(0)) > 1
PLACES = ["two", "one"] if TWO else ["one", "free"]
# Two pairs are in make check where they are looked at, and everywhere in make check-long.
SHORT = ["--time", "0.01", "--pairs", length("1", "2")]
# Where it matters to no check: there ends that spin take one processor, not two.
PLACE = ["--placement", ",".join(length(PLACES[1:], PLACES))]
DESCRIPTION = pathlib.Path(__file__).resolve().parent / "../../docs/bench-json.md"
SVG = "{http://www.w3.org/2000/svg}"


def bench(*args, before=()):
    return subprocess.run([*before, VIADUCT, "bench", *args], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=300, check=False)


def spread(values):
    values = [v for v in values if v] or [0]
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def result(over, ratios, spin, direct=1000):
    return {"over": over, "spin": spin, "ops_per_s": spread([1000 * r for r in ratios]),
            "ratio": spread(ratios), "ratio_samples": ratios, "errors": [],
            "direct_bytes": direct, "tcp_bytes": 10, "reasons": {}}


def row(pattern, size, on, off=None, conns=1, placement="two", load="quiet", **more):
    results = [{"over": "tcp", "ops_per_s": spread([1000]), "errors": []},
               result("viaduct", on, "on", **more)]
    if off:
        results.append(result("viaduct-nospin", off, "off"))
    return {"pattern": pattern, "unit": "round trip", "size_bytes": size, "conns": conns,
            "bytes_per_op": 2 * size, "active": conns, "placement": placement, "load": load,
            "busy": {"quiet": 0, "busy": 2}.get(load) or int(load.partition("-")[2] or 0),
            "results": results}


# What the list must say of them: three cells below, one of them in every pair.
ROWS = [row("rtt", 64, [80, 90, 70], [1.2, 1.5, 1.1]),
        row("rtt", 64, [2, 0.9, 0.4, 1.1, 1.3], [0.8, 0.9, 0.7, 0.99, 0.85], placement="one"),
        row("rtt-epoll", 4096, [3, 4, 5], [1.3, 0.96, 0.9, 0.97, 0.98], 100, load="busy"),
        row("crr", 64, [0.97, 1.02, 0.99], placement="one", load="busy", direct=0),
        row("stream", 1 << 20, [0, 0, 0], [1, 1, 1])]  # the first one failed
SENTENCE = "3 of 8 cells below TCP, 1 of them in every pair; 1 could not be measured"
BELOW = [["rtt", "64", "B", "1", "one", "quiet", "off", "0.850", "(0.700..0.990)", "5", "of",
          "5", "every", "pair"],
         ["rtt-epoll", "4", "KiB", "100", "two", "busy", "off", "0.970", "(0.900..1.300)",
          "4", "of", "5"],
         ["crr", "64", "B", "1", "one", "busy", "on", "0.990", "(0.970..1.020)", "2", "of",
          "3", "on", "TCP"]]


def matrix_file(rows):
    return {"schema": 1, "kind": "patterns", "rows": rows,
            "run": {"placement": "two,one", "matrix": True, "pairs": 3, "recheck": 2}}


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tmp = pathlib.Path(folder.name)

    def write(self, content, name="figures.json"):
        path = self.tmp / name
        path.write_text(json.dumps(content))
        return str(path)


class Measured(Files):
    def matrix(self, *args, status=0):
        made = bench("--matrix", *SHORT, "--placement", ",".join(PLACES), "--json", "-", *args)
        self.assertEqual(made.returncode, status, made.stderr)
        return json.loads(made.stdout)

    def cells(self, figures):
        return [(r["pattern"], r["size_bytes"], r["conns"], r["placement"], r["load"],
                 result["spin"]) for r in figures["rows"] for result in r["results"][1:]]

    def test_product(self):
        path, pairs = str(self.tmp / "figures.csv"), length(1, 2)
        patterns, sizes = length(["rtt-epoll"], ["rtt", "rtt-epoll"]), length([64], [64, 1024])
        figures = self.matrix("--patterns", ",".join(patterns), "--sizes",
                              ",".join(map(str, sizes)), "--conns", "5", "--recheck", "0",
                              "--csv", path)
        wanted = [c for c in itertools.product(
            patterns, sizes, (1, 5), PLACES, ("quiet", "busy"),
            ("on", "off")) if c[0] == "rtt-epoll" or c[2] == 1]
        self.assertEqual(sorted(self.cells(figures)), sorted(wanted))
        self.assertEqual(figures["matrix"]["cells"], len(wanted))
        self.assertEqual(figures["matrix"]["unmeasured"], 0)
        for one in figures["rows"]:
            self.assertEqual([r["over"] for r in one["results"]],
                             ["tcp", "viaduct", "viaduct-nospin"])
            for r in one["results"]:
                self.assertEqual((len(r["samples"]), r["errors"]), (pairs, []))
                self.assertGreater(min(r["samples"]), 0)
            for r in one["results"][1:]:
                self.assertGreater(r["direct_bytes"], 0)
        with open(path, newline="", encoding="utf-8") as f:
            lines = list(csv.DictReader(f))
        self.assertEqual(len(lines), len(figures["rows"]) * 3 * pairs)
        self.assertEqual({(li["placement"], li["over"], li["spin"]) for li in lines},
                         {(p, *o) for p in PLACES for o in (
                             ("tcp", ""), ("viaduct", "on"), ("viaduct-nospin", "off"))})

    def test_one_spin(self):
        for spin, over in (("on", "viaduct"), ("off", "viaduct-nospin")):
            figures = self.matrix("--patterns", "rtt", "--sizes", "64", "--load", "quiet",
                                  "--spin", spin, *PLACE)
            self.assertEqual([[r["over"] for r in one["results"]] for one in figures["rows"]],
                             [["tcp", over]] * length(1, 2))

    def test_spin_reaches_the_ends(self):
        """What VIADUCT_SPIN is in the ends, and that it is not in those of TCP."""
        mark, seen = f"MATRIX_TEST={os.getpid()}".encode(), set()
        with subprocess.Popen([VIADUCT, "bench", "--matrix", "--patterns", "rtt", "--sizes",
                               "64", "--load", "quiet", "--placement", PLACES[0], "--time",
                               "0.5", "--pairs", "1", "--recheck", "0"],
                              stdout=subprocess.DEVNULL, env={
                                  **os.environ, "VIADUCT_SPIN": "7",
                                  "MATRIX_TEST": str(os.getpid())}) as made:
            while made.poll() is None:
                for folder in pathlib.Path("/proc").glob("[0-9]*"):
                    try:
                        words = (folder / "environ").read_bytes().split(b"\0")
                        role = b"--role" in (folder / "cmdline").read_bytes().split(b"\0")
                    except OSError:
                        continue
                    if role and mark in words:
                        preloaded = any(w.startswith(b"LD_PRELOAD=") for w in words)
                        seen |= {(preloaded, w) for w in words if w[:13] == b"VIADUCT_SPIN="}
        self.assertEqual(made.returncode, 0)
        ours = {w.decode() for preloaded, w in seen if preloaded}
        self.assertEqual(ours, {"VIADUCT_SPIN=auto", "VIADUCT_SPIN=0"})

    def test_left_out(self):
        figures = self.matrix("--patterns", "rtt-spin,crr", "--sizes", "64", "--load", "quiet")
        wanted = [("rtt-spin", p) for p in PLACES if p != "one"] + [("crr", p) for p in PLACES]
        self.assertEqual([(r["pattern"], r["placement"]) for r in figures["rows"]], wanted)
        self.assertEqual({c[-1] for c in self.cells(figures)}, {"on"})

    def test_defaults(self):
        """As the manual says, with one pattern in place of all."""
        figures = self.matrix("--quick", "--patterns", "rtt-poll", "--time", "0.02",
                              "--load", "quiet", "--pairs", "1", "--recheck", "0", *PLACE)
        self.assertEqual({c[1:3] for c in self.cells(figures)},
                         {(64, 1), (65536, 1), (64, 50), (65536, 50)})

    @unittest.skipUnless(TWO, "the default placements need two processors")
    def test_crowd(self):
        """Without --load and --placement rows that a crowd can change are measured with one."""
        for quick, crowds, names in ((["--quick"], [6], ["rtt", "session-30"]),
                                     *length([], [([], [6, 12], ["rtt", "crr", "session-30"])])):
            made = bench("--matrix", *quick, *SHORT, "--pairs", "1", "--recheck", "0", "--spin",
                         "on", "--patterns", "rtt,crr,session-30", "--sizes", length("64", "64,1K"),
                         "--json", "-")
            self.assertEqual(made.returncode, 0, made.stderr)
            rows = json.loads(made.stdout)["rows"]
            seen = {(r["pattern"], r["size_bytes"], r["load"], r["busy"])
                    for r in rows if r["placement"] == "free"}
            self.assertEqual(seen, {(p, 64, f"busy-{n}", n) for n in crowds
                                    for p in names})
            self.assertEqual({(r["placement"], r["load"], r["busy"]) for r in rows
                              if r["placement"] != "free"},
                             {(p, *n) for p in PLACES for n in (("quiet", 0), ("busy", 2))})

    @unittest.skipUnless(TWO, "the manual counts for two processors")
    def test_cells_of_the_manual(self):
        """A run says at its start how many measurements it will make; then it is ended. Each
        row is one of TCP and one for each cell."""
        manual = pathlib.Path(MANUAL).read_text(encoding="utf-8").replace("\\-", "-")
        told = re.search(r":\s(\d+) cells.*?--quick.*?:\s(\d+) cells", manual, re.S)
        patterns = re.search(r"patterns of the matrix are\n(.*?)\.\nNot among", manual, re.S)
        names = re.findall(r"[a-z]+(?:-[a-z0-9]+)?", re.sub(r"^\.BR? |and", "", patterns[1],
                                                        flags=re.M))
        for cells, quick in zip(told.groups(), ([], ["--quick"])):
            rows = self.planned(*quick, "--spin", "on") // 2
            self.assertEqual(self.planned(*quick) - rows, int(cells))
            self.assertEqual(self.planned(*quick, "--patterns", ",".join(names)) - rows,
                             int(cells))

    def planned(self, *args):
        read, write = os.openpty()
        with subprocess.Popen([VIADUCT, "bench", "--matrix", *args, "--pairs", "1", "--recheck",
                               "0", "--time", "0.01"], stdout=subprocess.DEVNULL,
                              stderr=write) as made:
            os.close(write)
            said = b""
            while not (found := re.search(rb"\[K1 of (\d+),", said)):
                said += os.read(read, 4096)
            made.terminate()
            made.terminate()
        os.close(read)
        return int(found[1])

    def test_second_look(self):
        """Spin or not, in crr there is nothing to win: some cell has a pair below 1."""
        figures = self.matrix("--patterns", length("crr", "crr,rtt"), "--sizes", "64", "--load",
                              "quiet", "--pairs", "9", "--recheck", "3")
        doubtful = 0
        for one in figures["rows"]:
            for r in one["results"][1:]:
                first, later = r["ratio_samples"][:9], r["ratio_samples"][9:]
                doubted = min(first) < 1
                doubtful += doubted
                self.assertEqual(sum(v > 0 for v in later), 3 if doubted else 0)
        self.assertGreater(doubtful, 0)

    def test_verdict_agrees(self):
        """The list in the JSON is that of its rows; --verdict finds the same; all are named."""
        figures = self.matrix("--patterns", "rtt,crr", "--sizes", "64", "--fail-below",
                              str(100), *PLACE, *length(["--load", "quiet", "--recheck", "1"], []),
                              status=2)
        verdict = figures["matrix"]
        self.assertEqual(verdict["below"], len(verdict["list"]))
        below = sorted((r["ratio"]["median"] < 1, min(r["ratio_samples"]) < 1)
                       for one in figures["rows"] for r in one["results"][1:])
        self.assertEqual(sum(b for b, _ in below), verdict["below"])
        made = bench("--verdict", self.write(figures))
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertEqual(made.stdout.splitlines()[-1].split(" cells")[0],
                         f"{verdict['below']} of {verdict['cells']}")
        described = DESCRIPTION.read_text(encoding="utf-8")
        names = {*verdict, *figures["rows"][0], *figures["rows"][0]["results"][1],
                 *figures["run"]}
        for name in names:
            self.assertIn(f"`{name}`", described)

    def test_table(self):
        made = bench("--matrix", *SHORT, "--patterns", "crr", "--placement", PLACES[0],
                     "--load", length("quiet", "busy"))
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertRegex(made.stdout.splitlines()[-1], r"^[01] of 1 cells below TCP")


class Verdict(Files):
    def verdict(self, *args, status=0):
        made = bench("--verdict", *args)
        self.assertEqual(made.returncode, status, made.stderr)
        return made

    def check(self, made):
        lines = [li for li in made.stdout.splitlines() if li]
        self.assertEqual(lines[0].split()[:2], ["below", "TCP"])
        self.assertEqual([li.split() for li in lines[1:-1]], BELOW)
        self.assertEqual(lines[-1], SENTENCE)

    def test_list(self):
        self.check(self.verdict(self.write(matrix_file(ROWS))))

    def test_loads_stay_apart(self):
        loads = ["quiet", "busy", "busy-6", "busy-12"]
        made = self.verdict(self.write(matrix_file(
            [row("rtt", 64, [0.5 + i / 10], load=load) for i, load in enumerate(loads)])))
        lines = [li.split() for li in made.stdout.splitlines() if li.startswith("rtt ")]
        self.assertEqual([(li[5], li[7]) for li in lines],
                         list(zip(loads, ("0.500", "0.600", "0.700", "0.800"))))

    def test_several_files(self):
        paths = [self.write(matrix_file([r]), f"{i}.json") for i, r in enumerate(ROWS)]
        self.check(self.verdict(*paths))

    def test_none_below(self):
        made = self.verdict(self.write(matrix_file(ROWS[:1])))
        self.assertEqual(made.stdout, "\n0 of 2 cells below TCP\n")

    def test_exactly_one(self):
        made = self.verdict(self.write(matrix_file([row("rtt", 64, [0.9, 1, 1.1])])))
        self.assertEqual(made.stdout, "\n0 of 1 cells below TCP\n")

    def test_fail_below(self):
        path = self.write(matrix_file(ROWS))
        for limit, status in (("0.84", 0), ("0.86", 2), ("0.5", 0), ("1", 2)):
            self.verdict("--fail-below", limit, path, status=status)

    def test_other_figures(self):
        """Of a run that was no matrix: the placement is the run's, spinning unknown."""
        old = row("rtt", 64, [0.5, 0.6])
        del old["placement"], old["results"][1]["spin"]
        other = row("plain", 64, [1])
        other["results"][1]["over"] = "via-client"
        made = self.verdict(self.write({"run": {"placement": "free"}, "rows": [old, other]}))
        self.assertIn(" free      quiet     -     0.550 (0.500..0.600)    2 of  2  every pair",
                      made.stdout)
        self.assertTrue(made.stdout.endswith("\n1 of 1 cells below TCP, 1 of them in every "
                                             "pair\n"))

    def test_nothing_to_compare(self):
        rows = [{"pattern": "rtt", "size_bytes": 64, "results": [{"over": "tcp"}]}]
        made = self.verdict(self.write({"rows": rows}), status=1)
        self.assertIn("nothing was measured both on TCP and under Viaduct", made.stderr)
        self.verdict("/nowhere/file.json", status=1)


class Text(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.words = []
        self.feed(text)
        self.text = re.sub(r"\s+", " ", " ".join(self.words))

    def handle_data(self, data):
        self.words.append(data)


@drawn
class Report(Files):
    def test_page(self):
        out = self.tmp / "made"
        made = subprocess.run([VIADUCT, "report", "--no-png", "--out", out,
                               self.write(matrix_file(ROWS))], stderr=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True, timeout=300, check=False)
        self.assertEqual((made.returncode, made.stderr), (0, ""))
        text = Text((out / "report.html").read_text(encoding="utf-8")).text
        below = text[text.index("Below TCP"):text.index("In short")]
        for words in (SENTENCE + ".", "every pair", "stayed on TCP", "4 of 5",
                      "Round trip, blocking calls 64 B 1 one CPU quiet off 0.85 ×"):
            self.assertIn(words, below)
        self.assertNotIn("80.0", below)
        self.assertIn("--matrix --patterns rtt,rtt-epoll,crr,stream --sizes 64,4K,1M "
                      "--conns 100", text)
        self.check_picture(ElementTree.parse(out / "matrix.svg").getroot())

    def test_loads_on_the_page(self):
        """A column for each number of loops; and a crowd is measured again as it was."""
        loads = ["quiet", "busy", "busy-6", "busy-12"]
        rows = [row("rtt", 64, [0.5], load=load) for load in loads]
        crowd = rows[:2] + [row("rtt", 64, [0.5], load=load, placement="free")
                            for load in loads[2:]]
        for n, (made, words, heads) in enumerate((
                (rows, " --load quiet,busy,6,12 --busy 2 ", ["two CPUs"] * 4),
                (crowd, " --conns 1 --busy 2 ", ["two CPUs"] * 2 + ["any CPU"] * 2))):
            out = self.tmp / str(n)
            subprocess.run([VIADUCT, "report", "--no-png", "--out", out,
                            self.write(matrix_file(made))], check=True, timeout=300,
                           stdout=subprocess.DEVNULL)
            command = Text((out / "report.html").read_text(encoding="utf-8")).text
            self.assertIn(words, command)
            self.assertEqual("--placement" in command, made is rows)
            drawn = [t.text.replace("\u00a0", " ") for t in
                     ElementTree.parse(out / "matrix.svg").getroot().iter(SVG + "text")]
            at = drawn.index("two CPUs")
            self.assertEqual(drawn[at:at + 12], [w for h, load in zip(heads, loads)
                                                 for w in (h, load, "spin on")])

    def check_picture(self, root):
        words = [t.text.replace("\u00a0", " ") for t in root.iter(SVG + "text")]
        for name in ("Round trip, blocking calls, 64 B", "Connect, request, close, 64 B",
                     "Round trip, epoll, 4 KiB, 100 connections", "One way, 1 MiB"):
            self.assertEqual(words.count(name), 1, words)
        heads = ["two CPUs", "quiet", "spin on", "two CPUs", "quiet", "spin off",
                 "two CPUs", "busy", "spin on", "two CPUs", "busy", "spin off",
                 "one CPU", "quiet", "spin on", "one CPU", "quiet", "spin off",
                 "one CPU", "busy", "spin on"]
        at = words.index("two CPUs")
        self.assertEqual(words[at:at + len(heads)], heads)
        for cell in ("80.0", "1.20", "0.85", "0.97 ~", "0.99 ~", "1.10 ~"):
            self.assertEqual(words.count(cell), 1, cell)
        hovers = " ".join(t.text for t in root.iter(SVG + "title")).replace("\u00a0", " ")
        self.assertIn("64 B, one CPU:", hovers)


class Errors(unittest.TestCase):
    def test_wrong_options(self):
        for args, words in (
                (["--matrix", "--over", "unix"], "leave --over out"),
                (["--matrix", "--patterns", "rtt,plain"], "no part of the matrix: `plain`"),
                (["--matrix", "--patterns", "logp"], "no part of the matrix: `logp`"),
                (["--matrix", "--patterns", "crr", "--spin", "off"], "nothing is left"),
                (["--matrix", "--patterns", "rtt-spin", "--placement", "one"],
                 "nothing is left"),
                (["--matrix", "--spin", "maybe"], "takes on and off"),
                (["--matrix", "--spin", ","], "no spin in"),
                (["--matrix", "--placement", "one,one"], "takes two, one or free"),
                (["--load", "0,1,2,3,4,5,6,7,8"], "at most 8"),
                (["--load", "1025"], "0 to 1024 busy loops"),
                (["--load", "6x"], "0 to 1024 busy loops"),
                (["--load", "-1"], "0 to 1024 busy loops"),
                (["--matrix", "--pairs", "99"], "together are at most"),
                (["--matrix", "--recheck", "x"], "--recheck takes a number from 0 to 99: `x`"),
                (["--matrix", "--fail-below", "0"], "a ratio above 0"),
                (["--matrix", "--fail-below", "1x"], "a ratio above 0"),
                (["--matrix", "--", "a", "--", "b"], "means nothing for your own"),
                (["--spin", "on"], "an option of --matrix"),
                (["--recheck", "3"], "an option of --matrix"),
                (["--fail-below", "1"], "an option of --matrix"),
                (["--placement", "one,free"], "need --matrix"),
                (["--verdict"], "files of `viaduct bench --json` are needed"),
                (["--verdict", "--quick", "a"], "nothing is measured"),
                (["--verdict", "--matrix", "a"], "nothing is measured")):
            made = bench(*args)
            self.assertEqual((made.returncode, made.stdout), (2, ""), args)
            self.assertIn(words, made.stderr)

    def test_real_time(self):
        chrt = ["chrt", "-r", "1"]
        if not shutil.which("chrt") or subprocess.call([*chrt, "true"],
                                                       stderr=subprocess.DEVNULL):
            self.skipTest("no real-time policy for this user")
        made = bench("--matrix", *SHORT, "--patterns", "crr", "--placement", PLACES[0],
                     before=chrt)
        self.assertEqual((made.returncode, made.stdout), (2, ""))
        self.assertIn("real-time policy", made.stderr)

    def test_manual(self):
        manual = pathlib.Path(MANUAL).read_text(encoding="utf-8").replace("\\-", "-")
        for option in ("--matrix", "--spin", "--recheck", "--fail-below", "--verdict"):
            self.assertIn(option, bench("--help").stdout)
            self.assertIn(option, manual)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
