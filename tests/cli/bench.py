#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `viaduct bench`: what it measures, what it says, and that it notices bad bytes.

usage: bench.py VIADUCT CORRUPT-LIBRARY MANUAL. No figure is judged: only their presence.
"""
import csv
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

from drawn import drawn
from fields import names_of
from length import LONG, length, long

VIADUCT, CORRUPT, MANUAL = map(os.path.abspath, sys.argv[1:4])
# Two pairs are in make check where they are looked at, and everywhere in make check-long.
SHORT = ["--time", "0.02", "--pairs", length("1", "2")]
TWICE = ["--pairs", "2"]
PLACE = ["--placement", "two" if len(os.sched_getaffinity(0)) > 1 else "free"]


DESCRIPTION = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                           "../../docs/bench-json.md")


def bench(*args, **env):
    return subprocess.run([VIADUCT, "bench", *args], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, env={**os.environ, **env})


# Listens as the server, and writes as the client. FAIL ends with status 1.
PEER = """
import socket, sys
words = sys.argv
at = next(i for i, w in enumerate(words) if w in ("-p", "-B", "-P") and words[i + 1].isdigit())
port = int(words[at + 1])
if "127.0.0.1" in words:
    socket.create_connection(("127.0.0.1", port)).recv(1)
    sys.stdout.write(TEXT)
    sys.exit(TEXT.startswith("FAIL"))
socket.create_server(("127.0.0.1", port)).accept()
"""


class Bench(unittest.TestCase):
    def figures(self, *args, **env):
        result = bench(*SHORT, *PLACE, "--json", "-", *args, **env)
        self.assertEqual(result.returncode, 0, result.stderr + result.stdout)
        return json.loads(result.stdout)

    def check_rows(self, figures, over):
        for row in figures["rows"]:
            names = [r["over"] for r in row["results"]]
            self.assertEqual(names, over, row["pattern"])
            for result in row["results"]:
                self.assertEqual(result["errors"], [])
                self.assertEqual(len(result["samples"]), figures["run"]["pairs"])
                self.assertGreater(min(result["samples"]), 0)
                self.check_cpu(row, result)

    def check_cpu(self, row, result):
        for end in ("client", "server"):
            samples = result[end + "_cpu_samples"]
            spread = result[end + "_cpu_ns_per_op"]
            self.assertEqual(len(samples), len(result["samples"]))
            # The kernel brings the server's up to date at its ticks: 0 is not known.
            known = sorted(s for s in samples if s > 0) or [0]
            self.assertEqual([spread["min"], spread["max"]], [known[0], known[-1]])
            self.assertAlmostEqual(
                result[end + "_cpu_ns_per_byte"]["min"] * row["bytes_per_op"],
                spread["min"], delta=spread["min"] / 1e4)
        self.assertGreater(min(result["client_cpu_samples"]), 0)

    def test_processor_time(self):
        figures = self.figures("--patterns", length("rtt,stream", "rtt,stream,crr"),
                               "--sizes", "64", "--over", "tcp,viaduct", "--time", "0.3")
        for row in figures["rows"]:
            for result in row["results"]:
                self.assertGreater(min(result["server_cpu_samples"]), 0)
                self.assertGreater(result["ops_per_cpu_s"]["min"], 0)
                self.assertAlmostEqual(
                    result["bytes_per_cpu_s"]["min"],
                    result["ops_per_cpu_s"]["min"] * row["bytes_per_op"],
                    delta=result["bytes_per_cpu_s"]["min"] / 1e4)

    def test_head(self):
        figures = self.figures("--patterns", "logp", "--sizes", "64",
                               "--over", "tcp,viaduct")
        with open(DESCRIPTION, encoding="utf-8") as f:
            described = f.read()
        for name in names_of(figures):
            self.assertTrue(f"`{name}`" in described, name + " is not described")
        self.assertEqual((figures["format"], figures["schema"]), (1, 1))
        self.assertEqual(figures["kind"], "patterns")
        machine = figures["machine"]
        self.assertEqual(machine["kernel"], os.uname().release)
        self.assertEqual(machine["cpus"], os.cpu_count())
        self.assertGreater(machine["memory_bytes"], 1 << 20)
        for name in ("cpu", "idle_governor", "frequency_governor", "guest_halt_poll_ns",
                     "system_congestion", "clocksource", "load"):
            self.assertNotEqual(machine[name], "")

    def test_length_is_said(self):
        """Before it begins."""
        result = bench("--patterns", "rtt", "--sizes", "64", "--over", "tcp,unix", "--pairs", "2",
                       "--time", "0.5", *PLACE)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout.split("\n\n")[0], r"(?m)^takes +2 s or more: 4 measurements$")

    def test_unknown_names(self):
        """With those that there are."""
        for args, says in ((["--patterns", "rt"], "of rtt, rtt-spin, "),
                           (["--sizes", "64KB"], "with K or M behind")):
            result = bench(*args)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertIn(says, result.stderr)

    def test_patterns(self):
        names = "rtt,rtt-spin,rtt-epoll,rtt-poll,stream,bidir,crr"
        over, sizes = length(["tcp"], ["tcp", "unix"]), length([64, 102400], [1, 64, 102400])
        figures = self.figures("--patterns", names, "--sizes", ",".join(map(str, sizes)),
                               "--over", ",".join(over))
        self.check_rows(figures, over)
        seen = [(r["pattern"], r["size_bytes"]) for r in figures["rows"]]
        wanted = [(n, s) for n in names.split(",")[:-1] for s in sizes]
        self.assertEqual(seen, wanted + [("crr", 64)])

    @long  # small: many connections
    def test_connections(self):
        figures = self.figures("--patterns", "rtt-epoll,rtt-poll", "--sizes", "64,1M",
                               "--over", "tcp", "--conns", "7")
        self.check_rows(figures, ["tcp"])
        self.assertEqual([r["conns"] for r in figures["rows"]], [1, 1, 7, 7] * 2)

    def test_many_connections(self):
        sizes = length([64], [64, 102400])
        figures = self.figures("--patterns", "rtt-epoll,rtt-poll", "--sizes",
                               ",".join(map(str, sizes)), "--over", "tcp,viaduct",
                               "--conns", "10,200", "--active", "20")
        self.check_rows(figures, ["tcp", "viaduct"])
        wanted = [(*n, size) for n in ((1, 1), (10, 10), (200, 20)) for size in sizes]
        seen = [(r["conns"], r["active"], r["size_bytes"]) for r in figures["rows"]]
        self.assertEqual(seen, wanted * 2)
        for row in figures["rows"]:
            result = row["results"][1]
            self.assertGreater(result["direct_bytes"], result["tcp_bytes"])

    def test_latencies(self):
        """Percentiles of a distribution, and the median near the time that the speed says."""
        figures = self.figures("--patterns", length("rtt,rtt-epoll,stream",
                                                    "rtt,rtt-epoll,think,stream,crr"),
                               "--sizes", "64", "--over", "tcp,viaduct,floor", "--conns", "8",
                               "--pairs", length("1", "2"))
        for row in figures["rows"]:
            for result in row["results"]:
                at = [result.get(name, {}).get("median")
                      for name in ("p50_ns", "p99_ns", "p999_ns")]
                if row["unit"] != "round trip":
                    self.assertEqual(at, [None] * 3)
                elif result["over"] == "floor":
                    self.assertEqual(at, [0] * 3)
                else:
                    self.assertTrue(0 < at[0] <= at[1] <= at[2], (row["pattern"], result))

    def test_rate(self):
        """No more is begun than the rate; each pattern and number of connections keeps it."""
        time, rate = 0.2, 200
        figures = self.figures("--rate", str(rate), "--sizes", length("64", "64,100K"), "--over",
                               "tcp,viaduct,floor", "--conns", "8", "--time", str(time), "--pairs", "1")
        seen = {(r["pattern"], r["conns"]) for r in figures["rows"]}
        self.assertEqual(seen, {("rtt", 1), ("rtt-spin", 1), ("rtt-epoll", 1), ("rtt-poll", 1),
                                ("rtt-epoll", 8), ("rtt-poll", 8), ("plain", 1),
                                ("plain-spin", 1)})
        self.assertEqual(figures["run"]["rate_per_s"], rate)
        for row in figures["rows"]:
            self.assertEqual(row["rate_per_s"], rate)
            self.assertNotIn("floor", [r["over"] for r in row["results"]])
            first = row["results"][0]
            for result in row["results"]:
                self.assertEqual(result["errors"], [])
                self.assertLessEqual(result["ops_per_s"]["max"], rate * 1.1)
                self.assertGreater(result["p50_ns"]["min"], 0)
            for result in row["results"][1:]:
                self.assertAlmostEqual(result["ratio"]["median"] * result["p50_ns"]["median"],
                                       first["p50_ns"]["median"],
                                       delta=0.01 * first["p50_ns"]["median"])

    def test_rate_of_what_has_none(self):
        for args in (["--patterns", "rtt,stream"], ["--patterns", "think"], ["--matrix"]):
            result = bench("--rate", "10", *args)
            self.assertEqual(result.returncode, 2)
            self.assertIn("--rate", result.stderr)

    def test_open_files(self):
        command = f"ulimit -n 500; exec {VIADUCT} bench " + " ".join(
            SHORT + PLACE + ["--patterns rtt-epoll --sizes 64 --conns 1000"])
        nobody = ["setpriv", "--reuid", "65534", "--clear-groups", "--bounding-set=-all",
                  "--inh-caps=-all"] if os.geteuid() == 0 else []
        result = subprocess.run([*nobody, "sh", "-c", command + " --over tcp"],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                timeout=60)
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("1000 connections need 1300 open files", result.stderr)
        self.assertIn("hard limit is 500", result.stderr)

    def test_think(self):
        figures = self.figures("--patterns", "think,think-sleep", "--over", "tcp,viaduct",
                               "--think", "2000")
        self.check_rows(figures, ["tcp", "viaduct"])
        seen = [(r["pattern"], r["size_bytes"], r["think_us"]) for r in figures["rows"]]
        self.assertEqual(seen, [("think", 64, 2000), ("think-sleep", 64, 2000)])
        for row in figures["rows"]:
            self.assertGreater(row["results"][1]["direct_bytes"], 0)

    def test_logp(self):
        over = length(["tcp", "viaduct"], ["tcp", "viaduct", "unix"])
        figures = self.figures("--patterns", "logp", "--over", ",".join(over),
                               "--sizes", length("4,2M", "4,64,2M"))
        self.check_rows(figures, over)
        for row in figures["rows"]:
            for result in row["results"]:
                logp = result["logp"]
                self.assertEqual(logp["size_bytes"], row["size_bytes"])
                for name in ("half_rtt_ns", "send_ns", "recv_ns", "gap_ns",
                             "gap_ns_per_byte"):
                    self.assertGreater(logp[name]["max"], 0, name)
                self.assertNotEqual(logp["latency_ns"]["max"], 0)
            self.assertGreater(row["results"][1]["direct_bytes"], 0)

    def test_loads_and_csv(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "figures.csv")
            figures = self.figures("--patterns", "rtt,logp", "--sizes", "64",
                                   "--load", "quiet,busy", "--over", "tcp,viaduct",
                                   "--csv", path, *TWICE)
            with open(path, newline="", encoding="utf-8") as f:
                lines = list(csv.DictReader(f))
        self.check_rows(figures, ["tcp", "viaduct"])
        seen = [(r["pattern"], r["load"], r["busy"]) for r in figures["rows"]]
        self.assertEqual(seen, [("rtt", "quiet", 0), ("rtt", "busy", 2),
                                ("logp", "quiet", 0), ("logp", "busy", 2)])
        self.assertEqual(len(lines), 4 * 2 * 2)
        with open(MANUAL, encoding="utf-8") as f:
            manual = f.read()
        for line in lines:
            row = next(r for r in figures["rows"] if r["pattern"] == line["pattern"] and
                       r["load"] == line["load"])
            result = next(r for r in row["results"] if r["over"] == line["over"])
            pair = int(line["pair"]) - 1
            self.assertEqual(float(line["ops_per_s"]), result["samples"][pair])
            self.assertEqual(float(line["client_cpu_ns_per_op"]),
                             result["client_cpu_samples"][pair])
            self.assertEqual(line["ratio"] == "", line["over"] == "tcp")
            self.assertEqual(line["gap_ns"] == "", line["pattern"] == "rtt")
            self.assertEqual(line["tcp_bytes"] == "", line["over"] == "tcp")
            for column in line:
                self.assertIn(column, manual)

    @long  # small: loads, and the matrix's crowd
    def test_numbers_of_loops(self):
        """Each once; busy is what --busy says, wherever it stands."""
        for args, wanted in (
                (["--load", "busy,3,2,quiet,2", "--busy", "3"],
                 [("busy", 3), ("busy-2", 2), ("quiet", 0)]),
                (["--load", "0,2,6"], [("quiet", 0), ("busy", 2), ("busy-6", 6)]),
                (["--busy", "5"], [("busy", 5)])):
            figures = self.figures("--patterns", "rtt", "--sizes", "64", "--over", "tcp", *args)
            self.check_rows(figures, ["tcp"])
            self.assertEqual([(r["load"], r["busy"]) for r in figures["rows"]], wanted)
            self.assertEqual(figures["run"]["busy"], max(n for _, n in wanted))

    def test_sessions(self):
        for name, trips in (("session", 12), *length([], [("crr", 1), ("session-30", 30),
                                                          ("session-100", 100)])):
            figures = self.figures("--patterns", name, "--over", "tcp,viaduct")
            self.check_rows(figures, ["tcp", "viaduct"])
            self.assertEqual([(r["unit"], r["size_bytes"], r["bytes_per_op"])
                              for r in figures["rows"]], [("connection", 64, 2 * 64 * trips)])

    def peers(self, text, **env):
        """Runs with stand-ins for the peers' programs that write such text."""
        with tempfile.TemporaryDirectory() as folder:
            for name, lines in text.items():
                path = os.path.join(folder, name)
                with open(path, "w", encoding="utf-8") as f:
                    f.write(f"#!{sys.executable} -IS" + PEER.replace("TEXT", repr(lines)))
                os.chmod(path, 0o755)
            return bench(*SHORT, *TWICE, "--patterns", "rtt,stream,rtt-spin", "--sizes", "64",
                         "--json", "-", "--over", "tcp,ucx,fi", PATH=folder, **env)

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "peers need two processors")
    def test_peers(self):
        result = self.peers({
            "ucx_perftest": "| header |\n+---+\nFinal: 300 0.1 0.2 0.5 17.1 17.2 3 2000\n",
            "fi_pingpong": "bytes #sent #ack\n64 20k =20k 2.4m 0.64s 3.98 2.50 0.06\n"})
        self.assertEqual(result.returncode, 0, result.stderr + result.stdout)
        figures = json.loads(result.stdout)
        self.assertEqual([p["found"] for p in figures["run"]["peers"]], [True, True])
        rows = [{r["over"]: r["samples"] for r in row["results"]}
                for row in figures["rows"]]
        self.assertEqual([list(row) for row in rows],
                         [["tcp", "ucx", "fi"], ["tcp", "ucx"], ["tcp"]])
        self.assertEqual(rows[0]["ucx"], [1e6, 1e6])
        self.assertEqual(rows[0]["fi"], [2e5, 2e5])
        self.assertEqual(rows[1]["ucx"], [2000, 2000])

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "peers need two processors")
    def test_peers_that_fail(self):
        for text, message in (*length([], [("no device\n", "no figure in what it wrote")]),
                              ("FAIL no device\n", "no device")):
            result = self.peers({"ucx_perftest": text})
            self.assertEqual(result.returncode, 1)
            errors = json.loads(result.stdout)["rows"][0]["results"][1]["errors"]
            self.assertEqual(len(errors), 2)
            self.assertIn(message, errors[0])

    def test_absent_peers(self):
        result = bench(*SHORT, *PLACE, "--patterns", "rtt", "--sizes", "64", "--over",
                       "tcp,ucx,fi", PATH="/nowhere")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("ucx_perftest (install ucx-utils), fi_pingpong (install "
                      "libfabric-bin)\n", result.stdout)

    @long  # small: the matrix's placements
    def test_placements(self):
        for place in ("one", "free"):
            figures = self.figures("--patterns", "rtt", "--sizes", "64", "--over", "tcp",
                                   "--placement", place, "--busy", "2")
            self.check_rows(figures, ["tcp"])

    @long  # small: many connections, and thinking
    def test_viaduct(self):
        figures = self.figures("--patterns", "rtt,stream", "--sizes", "64,4K",
                               "--over", "tcp,viaduct", *TWICE)
        self.check_rows(figures, ["tcp", "viaduct"])
        for row in figures["rows"]:
            self.assertGreater(row["results"][1]["direct_bytes"], 0)

    def test_one_end(self):
        figures = self.figures("--patterns", "plain")
        self.check_rows(figures, ["tcp", "via-client", "via-server"])
        for result in figures["rows"][0]["results"][1:]:
            self.assertEqual(result["direct_bytes"], 0)

    def test_bad_bytes(self):
        for pattern in ("rtt", "stream", *length([], ["bidir", "think", "logp"])):
            for how in ("early", "late"):
                result = bench(*SHORT, *TWICE, *PLACE, "--patterns", pattern, "--sizes", "4K",
                               "--over", "tcp", LD_PRELOAD=CORRUPT, CORRUPT=how)
                self.assertEqual(result.returncode, 1, result.stdout)
                self.assertIn("checks of content failed", result.stdout)
                # Which measurements, and why, also where nobody looks at the table. On a busy
                # machine one of the two may end before the byte that is late.
                self.assertRegex(result.stderr, r"[12] measurements? failed:\n"
                                 rf"(  {pattern}.* 4 KiB, tcp, pair [12]: .*content failed\n)+")

    def interrupt(self, sig, *args):
        """Starts it, waits for the table's first row, and sends the signal."""
        # The rest would take so long that the signal comes before its end on any machine.
        with subprocess.Popen([VIADUCT, "bench", *PLACE, "--patterns", "rtt,stream,bidir", "--time",
                               "0.3", "--pairs", "2", "--over", "tcp,unix", *args],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as made:
            for line in made.stdout:
                if re.match(r"rtt .* unix ", line):
                    break
            made.send_signal(sig)
            rest, errors = made.communicate(timeout=600)
        self.assertEqual(made.returncode, -sig, errors)
        self.assertRegex(errors, r"ended early, by a signal: (1 row was|([02-9]|\d\d+) rows were) "
                                 r"measured, and whole\n")
        return rest

    @drawn
    def test_interrupted(self):
        """What was measured until then is whole."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "report")
            self.interrupt(signal.SIGINT, "--report", path)
            with open(os.path.join(path, "results.json"), encoding="utf-8") as f:
                figures = json.load(f)
            self.assertIs(figures["interrupted"], True)
            self.assertGreater(len(figures["rows"]), 0)
            self.assertLess(len(figures["rows"]), 16)
            for row in figures["rows"]:
                for result in row["results"]:
                    self.assertEqual(result["errors"], [])
                    self.assertGreater(min(result["samples"]), 0)
            self.assertTrue(os.path.exists(os.path.join(path, "report.html")))
            if not LONG:
                return
            table = os.path.join(folder, "samples.csv")
            self.interrupt(signal.SIGTERM, "--csv", table)
            with open(table, newline="", encoding="utf-8") as f:
                self.assertGreaterEqual(len(list(csv.DictReader(f))), 4)

    def test_progress(self):
        """How many measurements there are, and how long they will take."""
        read, write = os.openpty()
        made = subprocess.run([VIADUCT, "bench", *SHORT, *TWICE, *PLACE, "--patterns", "rtt", "--sizes",
                               "64,1K", "--over", "tcp,unix"], stdout=subprocess.DEVNULL,
                              stderr=write, timeout=120)
        self.assertEqual(made.returncode, 0)
        os.close(write)
        text = b""
        while True:
            try:
                more = os.read(read, 65536)
            except OSError:
                more = b""
            if not more:
                break
            text += more
        os.close(read)
        shown = re.findall(r"(\d+) of 8, (time left unknown|\d+ (?:s|min) left): rtt",
                           text.decode())
        self.assertEqual([int(n) for n, _ in shown], list(range(1, 9)))
        self.assertEqual([left == "time left unknown" for _, left in shown], [True] + [False] * 7)

    def test_width(self):
        args = [*SHORT, *PLACE, "--patterns", "rtt", "--sizes", "64",
                *length(["--over", "tcp,viaduct"], [])]
        for columns in (80, 100, 120):
            text = bench(*args, COLUMNS=str(columns)).stdout
            table = text[text.index("pattern "):].splitlines()
            lines = [line.rstrip() for line in table if not line.startswith("  !")]
            head = text[:text.index("pattern ")].splitlines()
            self.assertLessEqual(max(map(len, head)), columns, head)
            self.assertTrue(head[0].startswith("machine    Linux "))
            self.assertLessEqual(max(map(len, lines)), columns, lines)
            for head in ("pattern", "size", "over", "median", "times the first", "direct"):
                self.assertIn(head, lines[0])
            self.assertEqual("cpu of both" in lines[0], columns >= 120)
        with open("/proc/loadavg", encoding="ascii") as f:
            load = float(f.read().split()[0])
        said = float(re.search(r"processors?,\s+load\s+(\S+)", text)[1])
        self.assertEqual("the machine is not idle" in " ".join(text.split()), said > os.cpu_count() / 2,
                         (said, load))

    def test_wrong_options(self):
        for args in (["--patterns", "none"], ["--sizes", "0"], ["--sizes", "1,x"],
                     ["--pairs", "0"], ["--time", "x"], ["--placement", "three"],
                     ["--over", "tcp,ship"], ["--over", ""], ["--think", "0"],
                     ["--conns", "0"], ["--load", "loud"], ["--load", ""],
                     ["--conns", "10,x"], ["--active", "0"], ["--busy", "-1"],
                     ["--active", "2"], ["--active", "11", "--conns", "10"],
                     ["--unknown"], ["more"]):
            result = bench(*args)
            self.assertEqual(result.returncode, 2, args)
            self.assertEqual(result.stdout, "")
            self.assertLessEqual(len(result.stderr.splitlines()), 2, result.stderr)
            self.assertIn("see `viaduct bench --help`", result.stderr)
            self.assertIn(args[0], result.stderr)  # the option is named

    def test_range_is_named(self):
        for option, low, high in (("--pairs", 1, 99), ("--think", 1, 1000000),
                                  ("--active", 1, 25000), ("--busy", 0, 1024),
                                  ("--wait", 1, 3600), ("--rate", 1, 10000000)):
            for value in ("x", "-1", "", str(high + 1)):
                self.assertIn(f"{option} takes a number from {low} to {high}: `{value}`",
                              bench(option, value).stderr)

    def test_unwritable(self):
        for option in ("--json", "--csv"):
            result = bench(option, "/nowhere/file", "--patterns", "rtt", "--over", "tcp")
            self.assertEqual(result.returncode, 1)
            self.assertIn("cannot write /nowhere/file: No such file", result.stderr)

    def test_manual(self):
        help_text = bench("--help").stdout
        with open(MANUAL, encoding="utf-8") as f:
            manual = f.read().replace("\\-", "-")
        options = re.findall(r"^  (--[a-z]+)", help_text, re.M)
        self.assertGreater(len(options), 8)
        for option in options:
            self.assertIn(option, manual)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
