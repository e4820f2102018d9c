#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the experiments of `viaduct bench`: copy, copy-cold, setup and setup-spin.

usage: experiments.py VIADUCT CORRUPT-LIBRARY MANUAL. No figure is judged: only their presence,
and that the findings follow from them.
"""
import csv
import ctypes
import glob
import json
import os
import platform
import statistics
import struct
import subprocess
import sys
import tempfile
import unittest

from drawn import drawn
from fields import names_of
from length import length

VIADUCT, CORRUPT, MANUAL = map(os.path.abspath, sys.argv[1:4])
DESCRIPTION = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                           "../../docs/bench-json.md")
# Two pairs are in make check where they are looked at, and everywhere in make check-long.
SHORT = ["--time", "0.02", "--pairs", length("1", "2")]
TWICE = ["--pairs", "2"]
TWO = len(os.sched_getaffinity(0)) > 1
PLACE = ["--placement", "two" if TWO else "free"]
CALLS = {"x86_64": (310, 311), "aarch64": (270, 271)}.get(platform.machine())
COPIES = "process_vm_readv", "process_vm_writev"


def bench(*args, preexec_fn=None, **env):
    return subprocess.run([VIADUCT, "bench", *SHORT, *args], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=300,
                          preexec_fn=preexec_fn, env={**os.environ, **env})


def largest_cache():
    sizes = [0]
    for path in glob.glob("/sys/devices/system/cpu/cpu0/cache/index*/size"):
        with open(path, encoding="ascii") as f:
            sizes.append(int(f.read().strip().rstrip("K")) << 10)
    return max(sizes)


def forbid_copies():
    """A seccomp filter that answers the two calls with EPERM."""
    allow, refuse = 0x7FFF0000, 0x00050001
    program = [(0x20, 0, 0, 0), (0x15, 1, 0, CALLS[0]), (0x15, 0, 1, CALLS[1]),
               (0x06, 0, 0, refuse), (0x06, 0, 0, allow)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *i) for i in program))
    filters = struct.pack("HxxxxxxQ", len(program), ctypes.addressof(code))
    prctl = ctypes.CDLL(None).prctl
    if prctl(38, 1, 0, 0, 0) or prctl(22, 2, filters, 0, 0):
        os._exit(99)


class Experiments(unittest.TestCase):
    def figures(self, *args, **more):
        result = bench(*PLACE, "--json", "-", *args, **more)
        self.assertEqual(result.returncode, 0, result.stderr + result.stdout)
        return json.loads(result.stdout)

    def check_described(self, figures):
        with open(DESCRIPTION, encoding="utf-8") as f:
            described = f.read()
        for name in names_of(figures):
            self.assertTrue(f"`{name}`" in described, name + " is not described")


class Default(Experiments):
    def test_asked_for_only(self):
        figures = self.figures("--over", "ring,vm-write")
        self.assertLessEqual({r["pattern"] for r in figures["rows"]},
                             {"plain", "plain-spin", "plain-stream"})
        self.assertEqual(figures["findings"], [])


@unittest.skipIf(not TWO, "both ends spin")
class Copy(Experiments):
    @classmethod
    def setUpClass(cls):
        figures = cls().figures("--patterns", "copy", "--sizes", "64")
        if figures["findings"][0]["forbidden"]:
            raise unittest.SkipTest(figures["findings"][0]["forbidden"][0])

    def test_figures(self):
        pairs = length(1, 2)
        figures = self.figures("--patterns", "copy,copy-cold", "--sizes", "1,300K", "--pairs", str(pairs))
        self.check_described(figures)
        seen = [(r["pattern"], r["size_bytes"]) for r in figures["rows"]]
        self.assertEqual(seen, [(p, s) for p in ("copy", "copy-cold")
                                for s in (1, 307200)])
        wins = []
        for row in figures["rows"]:
            self.assertEqual([r["over"] for r in row["results"]],
                             ["ring", "vm-write", "vm-read"])
            for result in row["results"]:
                self.assertEqual((result["errors"], len(result["samples"])), ([], pairs))
                self.assertGreater(min(result["samples"]), 0)
            wins += [(row["pattern"], row["size_bytes"], r["over"])
                     for r in row["results"][1:]
                     if r["ratio"]["median"] >= 1.03 and r["ratio"]["min"] > 1]
        finding, = figures["findings"]
        self.assertEqual((finding["compared"], finding["forbidden"]), (8, []))
        self.assertGreaterEqual(finding["cold_bytes"], min(2 * largest_cache(), 512 << 20))
        self.assertEqual([(w["pattern"], w["size_bytes"], w["over"])
                          for w in finding["wins"]], wins)
        self.assertIn("a single copy wins on" if wins else "wins at no size",
                      finding["sentence"])

    def test_sizes(self):
        figures = self.figures("--quick", *SHORT, "--patterns", "copy", "--over", "ring")
        self.assertEqual([r["size_bytes"] for r in figures["rows"]],
                         [4096, 65536, 1 << 20, 16 << 20])
        self.assertIn("was not compared", figures["findings"][0]["sentence"])

    @drawn
    def test_page(self):
        with tempfile.TemporaryDirectory() as folder:
            result = bench("--patterns", "copy", "--sizes", "4K,64K", "--report", folder)
            self.assertEqual(result.returncode, 0, result.stderr)
            with open(os.path.join(folder, "results.json"), encoding="utf-8") as f:
                sentence = json.load(f)["findings"][0]["sentence"]
            with open(os.path.join(folder, "report.html"), encoding="utf-8") as f:
                page = f.read()
            self.assertIn(sentence, page)
            self.assertNotIn("nothing to compare", page)
            self.assertIn("\n" + sentence + "\n", result.stdout)

    def test_bad_bytes(self):
        for over in ("vm-write", "vm-read"):
            result = bench("--patterns", "copy", "--sizes", "4K", "--over", over,
                           LD_PRELOAD=CORRUPT, CORRUPT="copy")
            self.assertEqual(result.returncode, 1, result.stdout)
            self.assertIn("checks of content failed", result.stdout)

    @unittest.skipIf(not CALLS, "the numbers of the calls are not known")
    def test_forbidden(self):
        figures = self.figures("--patterns", "copy", "--sizes", "4K",
                               preexec_fn=forbid_copies)
        self.assertEqual([r["over"] for r in figures["rows"][0]["results"]], ["ring"])
        finding, = figures["findings"]
        self.assertEqual((finding["compared"], finding["wins"]), (0, []))
        for call, text in zip(reversed(COPIES), finding["forbidden"]):
            self.assertTrue(text.startswith(call + ": Operation not permitted ("), text)
            self.assertIn("not permitted here: " + text, finding["sentence"])

    def test_one_processor(self):
        result = bench("--patterns", "copy", "--placement", "one")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("was not compared", result.stdout)


class Setup(Experiments):
    def check_finding(self, finding, lines):
        """lines: the samples of its row, by (over, pair)."""
        cost, gain = [], []
        for pair in "12":
            tcp, viaduct = lines["tcp", pair], lines["viaduct", pair]
            if min(tcp["round_trip_ns"], viaduct["round_trip_ns"]) > 0:  # else it is noise
                cost.append(viaduct["connection_ns"] - tcp["connection_ns"])
                gain.append(tcp["round_trip_ns"] - viaduct["round_trip_ns"])
        paid = [max(0, 2 * c / g) for c, g in zip(cost, gain) if g > 0]
        # The samples are rounded to six digits.
        rounded = max(abs(v) for line in lines.values() for v in line.values()) / 1e4 + 1
        for name, values in ("cost_ns", cost), ("gain_ns", gain):
            self.assertAlmostEqual(finding[name]["median"],
                                   statistics.median(values or [0]), delta=rounded)
        self.assertAlmostEqual(finding["paid_after_ops"]["median"],
                               statistics.median(paid or [0]),
                               delta=max(paid or [0]) / 10 + 1)
        self.assertIn(f"upgraded after {finding['default_ops']}." if cost else
                      "nothing can be said", finding["sentence"])

    def test_figures(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "figures.csv")
            figures = self.figures("--patterns", "setup,setup-spin" if TWO else "setup",
                                   "--csv", path, "--time", "0.2", *TWICE)
            with open(path, newline="", encoding="utf-8") as f:
                lines = list(csv.DictReader(f))
        self.check_described(figures)
        self.assertEqual(len(figures["findings"]), len(figures["rows"]))
        for row, finding in zip(figures["rows"], figures["findings"]):
            self.assertEqual((row["pattern"], row["size_bytes"], row["unit"]),
                             (finding["pattern"], 64, "connection"))
            tcp, viaduct = (r["setup"] for r in row["results"])
            self.assertEqual([r["errors"] for r in row["results"]], [[], []])
            self.assertEqual(tcp["switch_ns"]["max"], 0)
            self.assertGreater(viaduct["switch_ns"]["min"], 0)
            self.assertGreater(viaduct["switch_round_trips"]["min"], 0)
            direct = row["results"][1]
            self.assertGreater(direct["direct_bytes"], direct["tcp_bytes"])
            self.check_finding(finding, {
                (l["over"], l["pair"]): {k: float(v) for k, v in l.items() if "_ns" in k and v}
                for l in lines if l["pattern"] == row["pattern"]})
        with open(MANUAL, encoding="utf-8") as f:
            manual = f.read()
        self.assertEqual([c for c in lines[0] if c not in manual], [])

    def test_nothing_upgraded(self):
        figures = self.figures("--patterns", "setup", VIADUCT_RULES="deny")
        self.assertIn("nothing was upgraded", figures["findings"][0]["sentence"])
        figures = self.figures("--patterns", "setup", "--over", "tcp")
        self.assertEqual(figures["findings"], [])

    def test_sizes(self):
        figures = self.figures("--patterns", "setup", "--sizes", "1,9,20K", "--over", "tcp")
        self.assertEqual([r["size_bytes"] for r in figures["rows"]], [1, 9, 20480])

    def test_bad_bytes(self):
        result = bench(*PLACE, "--patterns", "setup", "--over", "tcp", LD_PRELOAD=CORRUPT,
                       CORRUPT="early")
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("checks of content failed", result.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
