#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `viaduct report`: pictures that parse, a page that holds all figures, clear errors.

usage: report.py VIADUCT MANUAL
"""
import html.parser
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

from drawn import drawn_or_skipped
from length import LONG

VIADUCT, MANUAL = map(os.path.abspath, sys.argv[1:3])
SVG = "{http://www.w3.org/2000/svg}"


def spread(median, width=1.1):
    return {"median": median, "min": median / width, "max": median * width}


def result(over, rate, ratio=None, **more):
    r = {"over": over, "ops_per_s": spread(rate), "samples": [rate], "errors": [],
         "cpu_ns_per_op": 1e9 / rate, "ops_per_cpu_s": spread(rate), **more}
    if ratio:
        r["ratio"] = spread(ratio)
    return r


def row(pattern, size, *results, **more):
    return {"pattern": pattern, "size_bytes": size, "bytes_per_op": size, "conns": 1,
            "line_ns": 90.0, "results": list(results), "a field of the future": [1], **more}


def direct(n=1000):
    return {"direct_bytes": n, "tcp_bytes": 10, "reasons": {} if n else {"off": 3}}


def logp(ns):
    return {name: spread(ns) for name in ("half_rtt_ns", "latency_ns", "send_ns", "recv_ns",
                                          "gap_ns", "gap_ns_per_byte")}


def pair(pattern, size, tcp, times, **more):
    return row(pattern, size, result("tcp", tcp),
               result("viaduct", tcp * times, times, **direct()),
               result("unix", 2 * tcp, 2), **more)


def figures(count=None):
    """A run with a row of each kind: 20 us against 0.25 us, and one that loses. Or so many of them, where
    the others would only take time to draw."""
    rows = [pair("rtt", 64, 50000, 80), pair("rtt", 4096, 40000, 40),
            pair("rtt-epoll", 64, 40000, 30), pair("rtt-epoll", 1 << 20, 2000, 0.62),
            pair("rtt-epoll", 64, 90000, 3, conns=100, active=10),
            pair("stream", 64, 250000, 60), pair("stream", 65536, 80000, 11),
            pair("rtt", 64, 20000, 1.01, busy=2, load="busy"),
            pair("crr", 64, 18000, 0.99),
            pair("think", 64, 30000, 2, think_us=100, unit="round trip"),
            row("plain", 64, result("tcp", 18000),
                result("via-client", 17800, 0.99, **direct(0)),
                result("via-server", 18900, 1.04, **direct(0))),
            row("logp", 64, result("tcp", 50000, logp=logp(9000)),
                result("viaduct", 4e6, 80, **direct(),
                       logp={**logp(110), "latency_ns": {"median": -5, "min": -9, "max": 1}}),
                unit="round trip")]
    return {"format": 1, "schema": 1, "kind": "patterns", "viaduct": "0.1.0",
            "started": "2026-01-31T12:00:00Z",
            "machine": {"kernel": "6.1.0-test", "cpu": "A <cpu> & \"more\"", "cpus": 8,
                        "memory_bytes": 8 << 30, "load": "0.10 0.20 0.30 1/200 1"},
            "floor": {"line_ns": 70.0, "ring_rtt_64_ns": 110.0, "ring_64_per_s": 6e7,
                      "ring_16k_bytes_per_s": 6e10},
            "run": {"pairs": 5, "time_s": 0.5, "placement": "two", "busy": 2,
                    "congestion": "cubic", "cpus": [1, 0],
                    "peers": [{"over": "ucx", "program": "ucx_perftest",
                               "package": "ucx-utils", "found": False}]},
            "rows": rows[:count]}


class Page(html.parser.HTMLParser):
    """Its text, and everything by which a page would fetch something."""
    VOID = {"meta", "br", "link", "img", "input"}

    def __init__(self, text):
        super().__init__()
        self.open, self.texts, self.fetches = [], [], []
        self.feed(text)
        self.close()
        self.text = re.sub(r"\s+", " ", "".join(self.texts))  # also the unbreakable ones
        self.fetches += re.findall(r"@import|url\(|https?://(?!www\.w3\.org/2000/svg\b)", text)

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.open.append(tag)
        if tag in ("script", "link", "img", "iframe", "object", "image", "use", "base"):
            self.fetches.append(tag)
        self.fetches += [a for a, _ in attrs if a in ("src", "href", "xlink:href", "srcset")]

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.texts.append(data)


class Report(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tmp = pathlib.Path(folder.name)
        self.out = self.tmp / "made" # by the command

    def run_report(self, *args, **env):
        return subprocess.run([VIADUCT, "report", *args], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=300, cwd=self.tmp,
                              env={**os.environ, **env})

    def write(self, content):
        path = self.tmp / "results.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    def make(self, content, *args):
        made = self.run_report(self.write(content), "-o", str(self.out), "--no-png", *args)
        self.assertEqual((made.returncode, made.stderr), (0, ""))
        self.assertIn(str(self.out / "report.html"), made.stdout)
        page = Page((self.out / "report.html").read_text(encoding="utf-8"))
        self.assertEqual(page.open, [])
        self.assertEqual(page.fetches, [])
        return page

    def pictures(self):
        return {path.stem: ElementTree.parse(path).getroot()
                for path in self.out.glob("*.svg")}

    def check_picture(self, name, root):
        self.assertEqual(root.tag, SVG + "svg")
        left, top, width, height = map(float, root.get("viewBox").split())
        self.assertEqual((left, top), (0, 0))
        for text in root.iter(SVG + "text"):
            x, y, words = float(text.get("x")), float(text.get("y")), text.text
            style = text.get("style")
            size = float(re.search(r"\bfont(?:-size)?:[^;]*?([0-9.]+)px", style)[1])
            length = 0.45 * size * len(words) # a low estimate
            anchor = re.search(r"text-anchor: (\w+)", style)[1]
            x -= {"start": 0, "middle": length / 2, "end": length}[anchor]
            self.assertTrue(0 <= x and x + length <= width and 0 < y < height,
                            f"{name}: `{words}` is cut off")
            self.assertGreaterEqual(size * min(1, 350 / width) if "ratio" not in name else size,
                                    8, f"{name}: `{words}` is too small on a telephone")
        numbers = re.findall(r'"[^"]*\b(?:nan|inf)\b[^"]*"', ElementTree.tostring(root, "unicode"))
        self.assertEqual(numbers, [], name)


class Content(Report):
    @classmethod
    def setUpClass(cls):
        """What nothing is changed in is drawn once."""
        maker = cls()
        maker.setUp()
        cls.addClassCleanup(maker.doCleanups)
        cls.plain, cls.plain_out = maker.make(figures()), maker.out

    def test_page_has_the_figures(self):
        text = self.plain.text
        for words in ("20.0 µs on TCP, 0.25 µs on Viaduct", "80.0 ×", "15.0 M/s", "70.0 ns",
                      "57.7 GB/s",
                      "6.1.0-test", "A <cpu> & \"more\"", "8 processors", "8 GiB",
                      "100 connections", "10 active", "2026-01-31T12:00:00Z",
                      "viaduct bench --report DIR",
                      "--patterns rtt,rtt-epoll,stream,crr,think,plain,logp",
                      "--sizes 64,4K,64K,1M --conns 100 --active 10 --load quiet,busy --busy 2",
                      "--think 100 --pairs 5 --time 0.5",
                      "UCX: not installed (Debian: ucx-utils)"):
            self.assertIn(words, text)

    def test_losers_are_named(self):
        text = self.plain.text
        self.assertIn("faster in 7, as fast (within 5 %) in 4, and slower in 1.", text)
        slower = text[text.index("Slower"):text.index("As fast")]
        self.assertIn("Round trip, epoll, 1 MiB: 500 µs on TCP, 806 µs on Viaduct, 0.62 ×",
                      slower)
        same = text[text.index("As fast"):text.index("Faster")]
        for words in ("Connect, request, close, 64 B", "Round trip, blocking calls, 64 B, busy",
                      "Viaduct at client", "Viaduct at server"):
            self.assertIn(words, same)
        self.assertNotIn("Before you believe it", text)

    def test_doubts_are_named(self):
        content = figures(4)
        content["machine"]["load"] = "7.50 1.00 1.00 1/200 1"
        content["rows"][1]["line_ns"] = 380.0
        content["rows"][0]["results"][1].update(direct(0))
        content["rows"][2]["results"][2].update(ops_per_s=spread(0), errors=["it <broke>"])
        for r in content["rows"]:
            for one in r["results"]:
                one["ops_per_s"] = spread(one["ops_per_s"]["median"], 2)
                if "ratio" in one:
                    one["ratio"] = spread(one["ratio"]["median"], 2)
        text = self.make(content).text
        for words in ("it <broke>", "Nothing went direct", "off (3)", "noisy", "4.0 times",
                      "from 90 to 380 ns", "its load was 7.5", "the pairs disagree"):
            self.assertIn(words, text)

    def test_pictures(self):
        page, self.out = self.plain, self.plain_out
        pictures = self.pictures()
        self.assertEqual(set(pictures), {
            "ratio", "latency-rtt", "latency-rtt-epoll", "throughput-stream",
            "connections-rtt-epoll-64", "cpu-rtt", "cpu-rtt-epoll", "cpu-message-stream",
            "cpu-kib-stream", "bars-crr", "bars-think", "bars-plain", "busy-rtt", "logp-64"})
        for name, root in pictures.items():
            self.check_picture(name, root)
            title = root.get("aria-label")
            self.assertIn(re.sub(r"\s+", " ", title), page.text, name)
        cells = [t.text for t in pictures["ratio"].iter(SVG + "text")]
        for ratio in ("80.0", "0.62", "1.04 ~", "0.99 ~", "3.00"):
            self.assertIn(ratio, cells)
        self.assertIn("none: overlap", [t.text for t in pictures["logp-64"].iter(SVG + "text")])
        hovers = " ".join(t.text for t in pictures["latency-rtt"].iter(SVG + "title"))
        self.assertIn("Viaduct, 64 B: 0.25 µs (0.23 µs to 0.28 µs)",
                      hovers.replace("\u00a0", " "))
        names = {t.text for t in pictures["latency-rtt"].iter(SVG + "text")}
        self.assertLessEqual({"TCP", "Viaduct", "AF_UNIX"}, names)

    def test_absent_fields(self):
        """As the first format had it, or less: what is missing leaves its plot out."""
        rows = [{"pattern": "rtt", "size_bytes": 64, "conns": 1,
                 "results": [{"over": "tcp", "ops_per_s": {"median": 1000}}]}]
        text = self.make({"rows": rows}).text
        self.assertIn("nothing to compare", text)
        self.assertIn("1.00 ms", text)
        self.assertEqual(set(self.pictures()), {"bars-rtt"})

    def test_nothing_succeeded(self):
        rows = [row("rtt", s, {"over": "tcp", "ops_per_s": spread(0), "errors": ["no way"]})
                for s in (64, 128)]
        text = self.make({"rows": rows}).text
        self.assertIn("no way", text)
        self.assertIn("failed", text)
        self.assertEqual(self.pictures(), {})

    def test_impossible_figures(self):
        """Of which products are infinite, or 0: they count as absent."""
        tiny = result("tcp", 1)
        tiny["ops_per_s"]["min"] = 1e-300
        content = figures()
        content["rows"] = [row("stream", size, tiny, bytes_per_op=1e-200) for size in (64, 128)]
        content["rows"] += [pair("rtt", size, 1e-200, 2) for size in (1e200, 64)]
        self.make(content)
        for name, root in self.pictures().items():
            self.check_picture(name, root)

    def test_hostile_words(self):
        content = figures(4)
        content["machine"]["cpu"] = "</td><script>x</script>\u0001é"
        content["rows"][0]["pattern"] = "../../<b>" + "é" * 200
        content["rows"][1]["results"][1]["over"] = "\"><i>" + "é" * 200
        content["rows"][2].update(size_bytes=1e300, conns=1e300, active=1e299, think_us=1e300)
        content["rows"][3].update(size_bytes=-5, line_ns="x", results=[{"over": "tcp"}])
        self.make(content)
        for path in self.out.iterdir():
            self.assertRegex(path.name, r"^[a-z0-9-]+\.(svg|html)$")
        self.pictures() # parses them

    def test_same_names(self):
        """Two pictures that would have one name are two files."""
        content = figures()
        content["rows"] = [pair(p, s, 50000, 2, unit="message")
                           for p in ("x!", "x?") for s in (64, 128)]
        self.make(content)
        names = set(self.pictures())
        self.assertLessEqual({"throughput-x-", "throughput-x--2"}, names)

    def test_many(self):
        """More contenders, sizes and rows than a picture can hold."""
        rows = [row("rtt", 64 + n, *[result(f"other-{i}" if i else "tcp", 1000 + n + i, 1.5)
                                     for i in range(30)]) for n in range(100)]
        self.make({"rows": rows})
        self.assertIn("latency-rtt", self.pictures())

    def test_programs(self):
        state = {"elapsed_s": spread(2.0), "client_cpu_s": spread(1.0),
                 "server_cpu_s": spread(1.5)}
        content = {"kind": "programs", "machine": {"kernel": "6.1"}, "pairs": 5,
                   "server": ["serve", "<x>", ""], "client": ["ask", "it's"], "plain": state,
                   "under_viaduct": {**state, "elapsed_s": spread(0.5)},
                   "ratio": spread(4.0), "connections": 3, "upgraded": 2,
                   "sentence": "It is worth it."}
        text = self.make(content).text
        for words in ("It is worth it.", "serve '<x>' ''", "ask 'it'\\''s'",
                      "4.00 ×", "2.00 s", "500 ms", "Of 3 connections 2"):
            self.assertIn(words, text)
        for name, root in self.pictures().items():
            self.check_picture(name, root)
        del content["plain"], content["under_viaduct"]
        failed = self.run_report(self.write(content), "--out", str(self.out))
        self.assertEqual(failed.returncode, 1)
        self.assertIn("holds no times", failed.stderr)


class Bench(Report):
    SHORT = ["--time", "0.02", "--pairs", "2", "--placement", "free"]

    def bench(self, status, *args):
        made = subprocess.run([VIADUCT, "bench", *args], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=300, cwd=self.tmp)
        self.assertEqual(made.returncode, status, made.stdout + made.stderr)
        return made

    def page(self):
        return Page((self.out / "report.html").read_text(encoding="utf-8")).text

    def test_report(self):
        self.out.mkdir()
        (self.out / "results.json").write_text("of an older run")
        made = self.bench(0, *self.SHORT, "--patterns", "rtt,stream,crr", "--sizes", "64,4K",
                          "--over", "tcp,viaduct,unix", "--report", str(self.out))
        self.assertIn(f"{self.out}/report.html", made.stdout)
        self.assertIn("Of 5 comparisons", self.page())
        self.assertLessEqual({"ratio", "latency-rtt", "throughput-stream", "bars-crr"},
                             set(self.pictures()))
        results = json.loads((self.out / "results.json").read_text(encoding="utf-8"))
        self.assertEqual(len(results["rows"]), 5)

    def test_programs(self):
        serve = ("import socket as s; a = s.create_server(('127.0.0.1', 0));\n"
                 "open('port', 'w').write(str(a.getsockname()[1]))\n"
                 "while True:\n c = a.accept()[0]\n while c.recv(1): c.sendall(b'x')\n")
        ask = ("import socket as s; c = s.create_connection(('127.0.0.1', int(open('port')"
               ".read())))\nfor i in range(99): c.sendall(b'x'); c.recv(1)")
        self.bench(0, "--pairs", "1", "--report", str(self.out), "--", sys.executable, "-c",
                   serve, "--", sys.executable, "-c", ask)
        self.assertIn("Your programs, plain and under Viaduct", self.page())

    def test_errors(self):
        for args in (["--report", "d", "--json", "j"], ["--json", "j", "--report", "d"],
                     ["--report", ""]):
            self.assertIn("viaduct bench: ", self.bench(2, *args).stderr)
        made = self.bench(1, "--report", str(self.out / "a/b"))
        self.assertIn("cannot make the folder", made.stderr)
        self.out.mkdir()
        (self.out / "results.json").mkdir()
        self.assertIn("cannot replace", self.bench(1, "--report", str(self.out)).stderr)
        (self.out / "results.json").rmdir()
        (self.out / "results.json").write_text("of an older run")
        self.bench(127, "--report", str(self.out), "--", "/none", "--", "/none")
        self.assertFalse((self.out / "report.html").exists())


class Png(Report):
    def test_png(self):
        content = figures()
        if not LONG:
            del content["rows"][6:-2]
        made = self.run_report(self.write(content), "--out", str(self.out), "--png")
        self.assertEqual((made.returncode, made.stderr), (0, ""))
        self.assertNotEqual(list(self.out.glob("*.svg")), [])
        for svg in self.out.glob("*.svg"):
            png = svg.with_suffix(".png").read_bytes()
            self.assertEqual(png[:8], b"\x89PNG\r\n\x1a\n")
            width = float(ElementTree.parse(svg).getroot().get("width"))
            self.assertAlmostEqual(int.from_bytes(png[16:20], "big"), 2 * width, delta=1)

    def test_cannot_write(self):
        """Without --png the page counts, and what is missing is said."""
        path = self.write(figures(1))
        (self.out / "ratio.png").mkdir(parents=True)
        for args, status in (([], 0), (["--png"], 1)):
            made = self.run_report(path, "--out", str(self.out), *args)
            self.assertEqual(made.returncode, status)
            self.assertIn("viaduct report: no PNG: cannot write", made.stderr)
            self.assertTrue((self.out / "report.html").exists())


class Packages(Report):
    def lacking(self, module):
        """An environment in which Python does not have the module, wherever it is installed."""
        (self.tmp / "sitecustomize.py").write_text(
            "import sys\nclass None_:\n def find_spec(self, name, *_):\n"
            f"  if name == {module!r}: raise ModuleNotFoundError(name)\n"
            "sys.meta_path.insert(0, None_())\n")
        return {"PYTHONPATH": str(self.tmp)}

    def test_named(self):
        path = self.write(figures())
        for module in ("matplotlib", "jinja2"):
            made = self.run_report(path, "--out", str(self.out), **self.lacking(module))
            self.assertEqual((made.returncode, made.stdout), (1, ""))
            self.assertIn(f"lacks {module} (Debian: apt-get install python3-{module})",
                          made.stderr)
            self.assertFalse(self.out.exists())

    def test_before_a_measurement(self):
        made = subprocess.run([VIADUCT, "bench", "--quick", "--report", str(self.out)],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=300, cwd=self.tmp,
                              env={**os.environ, **self.lacking("jinja2")})
        self.assertEqual((made.returncode, made.stdout), (1, ""))
        self.assertIn("apt-get install python3-jinja2", made.stderr)
        self.assertFalse(self.out.exists())

    def test_no_python(self):
        made = self.run_report(self.write(figures()), "--out", str(self.out), PATH=str(self.tmp))
        self.assertEqual((made.returncode, made.stdout), (1, ""))
        self.assertIn("apt-get install python3 ", made.stderr)


class Errors(Report):
    def refused(self, status, words, *args, **env):
        made = self.run_report(*args, **env)
        self.assertEqual((made.returncode, made.stdout), (status, ""), made.stderr)
        self.assertIn(words, made.stderr)
        self.assertIn("viaduct report", made.stderr)

    def test_bad_input(self):
        self.refused(1, "No such file", str(self.tmp / "nothing.json"))
        self.refused(1, "cannot read", str(self.tmp))
        for content, words in (("", "not JSON"), ("{\"rows\": [", "not JSON: line 1"),
                               ("[]", "holds no figures"), ("{}", "holds no figures"),
                               ({"rows": []}, "holds no figures"),
                               ({"rows": 3}, "holds no figures"),
                               ({"rows": [{"size_bytes": 64}]}, "rows[0]"),
                               ({"rows": [row("rtt", 64)]}, "rows[0]"),
                               ({"rows": [row("rtt", 64, {})]}, "rows[0]"),
                               ({"rows": [pair("rtt", 64, 1, 1), "x"]}, "rows[1]"),
                               ("[" * 100000, "not JSON")):
            self.refused(1, words, self.write(content), "--out", str(self.out))
        self.assertFalse(self.out.exists())

    def test_cannot_write(self):
        path = self.write(figures(1))
        self.refused(1, "cannot", path, "--out", path)
        self.refused(1, "cannot make the folder", path, "--out", str(self.out / "a/b"))
        self.out.mkdir()
        (self.out / "report.html").symlink_to("/dev/full")
        self.refused(1, "No space left", path, "--out", str(self.out))

    def test_ring_without_a_processor(self):
        """Nothing that uses a ring is much quicker than one: there is no figure then."""
        content = figures(2)
        for row_, rate in zip(content["rows"], (6e6, 1500)):
            row_["results"].append(result("floor", rate, 1))
        made = self.run_report(self.write(content), "--out", str(self.out), "--no-png")
        self.assertEqual(made.returncode, 0, made.stderr)
        page = Page((self.out / "report.html").read_text())
        self.assertIn("too busy for a comparison with the raw ring in 1 row:", page.text)
        self.assertRegex(page.text, r"Against raw ring: faster in 0 of 1")

    def test_usage(self):
        for args in ([], ["a", "b"], ["--nonsense"], ["--out"]):
            self.refused(2, "usage:", *args)
        made = self.run_report("--help")
        self.assertEqual((made.returncode, made.stderr), (0, ""))
        manual = pathlib.Path(MANUAL).read_text(encoding="utf-8").replace("\\-", "-")
        options = re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", made.stdout, re.M)
        self.assertEqual(len(options), 4)
        for option in options:
            self.assertIn(option, manual)


if __name__ == "__main__":
    drawn_or_skipped()
    unittest.main(argv=sys.argv[:1])
