#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests bench/apps.sh: figures of every contender, honest ratios, nothing left behind.

usage: table.py VIADUCT BENCH_FOLDER
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

VIADUCT = os.path.abspath(sys.argv[1])
BENCH = pathlib.Path(sys.argv[2]).resolve()
sys.path.insert(0, str(BENCH))
from programs import table  # noqa: E402
from programs.sockmap import cgroup_root  # noqa: E402

LIMIT_S = 100
HAS_REDIS = shutil.which("redis-server") and shutil.which("redis-benchmark")


def apps(*options, script="apps.sh", **popen):
    first = [sys.executable] if script.endswith(".py") else []
    return subprocess.Popen([*first, BENCH / script, "--viaduct", VIADUCT, *options],
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, **popen)


def cgroup_of(process):
    return cgroup_root() / f"viaduct-apps.{process.pid}" if cgroup_root() else None


def row(lower, **values):
    return {"app": "program", "case": "case", "unit": "us", "lower_is_better": lower,
            "values": values, "errors": [], "missing": {}, "direct": None}


class Figures(unittest.TestCase):
    """What the table makes of figures that are known."""

    def test_more_is_better(self):
        found = table.summary(row(False, tcp=[10, 20, 30], unix=[20, 40, 60],
                                  viaduct=[30, 80, 60]))
        self.assertEqual(found["best"], "unix")
        self.assertEqual(found["times_tcp"], {"median": 3, "min": 2, "max": 4})
        self.assertEqual(found["times_best"], {"median": 1.5, "min": 1, "max": 2})

    def test_less_is_better(self):
        found = table.summary(row(True, tcp=[20], sockmap=[8], viaduct=[16]))
        self.assertEqual(found["best"], "sockmap")
        self.assertEqual(found["times_tcp"]["median"], 1.25)
        self.assertEqual(found["times_best"]["median"], 0.5)

    def test_a_run_without_a_figure(self):
        found = table.summary(row(False, tcp=[10, None, 10], viaduct=[None, 20, 30]))
        self.assertEqual(found["times_tcp"], {"median": 3, "min": 3, "max": 3})
        self.assertIsNone(table.summary(row(False, viaduct=[5]))["times_tcp"])

    def test_what_is_behind(self):
        self.assertEqual(table.behind([row(False, tcp=[10], unix=[5], viaduct=[9])]),
                         ["program case: 0.9 times tcp"])
        self.assertEqual(table.behind([row(True, tcp=[10], unix=[9], viaduct=[9])]), [])


class Run(unittest.TestCase):
    """A real program, briefly."""

    @unittest.skipUnless(HAS_REDIS, "no Redis")
    def test_redis(self):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "json")
            process = apps("--only", "redis", "--cases", "4 KB", "--pairs", "1",
                           "--seconds", "0.02", "--json", out)
            text = process.communicate(timeout=LIMIT_S)[0]
            self.assertEqual(process.returncode, 0, text)
            with open(out, encoding="utf-8") as f:
                rows = [json.loads(line) for line in f]
        self.assertEqual([r["case"] for r in rows], ["GET c50 4 KB"])
        for way in ("tcp", "unix", "viaduct"):
            self.assertGreater(rows[0]["medians"][way], 0, text)
        # Where it cannot be, it says why.
        self.assertTrue(rows[0]["medians"].get("sockmap") or rows[0]["missing"]["sockmap"])
        self.assertGreater(rows[0]["direct"]["direct_bytes"], 10_000, rows[0])
        self.assertFalse(cgroup_of(process) and cgroup_of(process).exists())

    def test_node(self):
        if not shutil.which("node"):
            self.skipTest("no node")
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rows"
            process = apps("--only", "node", "--contenders", "tcp,unix,viaduct", "--pairs", "1",
                           "--seconds", "0.5", "--json", str(path),
                           env=dict(os.environ, VIADUCT_UPGRADE_AFTER="0"))
            text = process.communicate(timeout=LIMIT_S)[0]
            self.assertEqual(process.returncode, 0, text)
            rows = [json.loads(line) for line in path.read_text().splitlines()]
        self.assertEqual([r["case"] for r in rows], ["echo 64 B c1", "echo 64 B c32", "http c32"])
        for one in rows:
            self.assertTrue(all(one["medians"].values()), text)
        self.assertGreater(rows[0]["direct"]["direct_bytes"], 0, rows[0])

    def stop_midway(self, number):
        """Returns its status and its cgroup. Only the cgroup's server runs."""
        if not HAS_REDIS or os.geteuid() or not cgroup_root():
            self.skipTest("no Redis, not root or no cgroup v2")
        with tempfile.TemporaryDirectory() as folder:
            process = apps("--only", "redis", "--contenders", "sockmap", "--seconds", "60",
                           env=dict(os.environ, TMPDIR=folder))
            try:
                procs = cgroup_of(process) / "cgroup.procs"
                end = time.monotonic() + LIMIT_S
                while not (procs.exists() and procs.read_text()):  # until a server is in it
                    if process.poll() is not None or time.monotonic() > end:
                        self.skipTest("no sockmap: `bench/apps.sh --only redis` says why")
                    time.sleep(0.02)
                process.send_signal(number)
                process.communicate(timeout=LIMIT_S)
                return process.returncode, procs.parent
            finally:
                if process.poll() is None:
                    process.terminate()
                    process.communicate(timeout=LIMIT_S)

    def test_it_is_ended(self):
        status, cgroup = self.stop_midway(signal.SIGTERM)
        self.assertEqual(status, 1)
        self.assertFalse(cgroup.exists())

    def test_it_is_killed(self):
        """What is left of it ends itself, and the server in the cgroup."""
        status, cgroup = self.stop_midway(signal.SIGKILL)
        self.assertEqual(status, -signal.SIGKILL)
        end = time.monotonic() + LIMIT_S
        while cgroup.exists() and time.monotonic() < end:
            time.sleep(0.02)
        self.assertFalse(cgroup.exists())

    def test_errors_are_clear(self):
        for options, expected in (
                (["--only", "nonsense"], "unknown: nonsense; known: redis,"),
                (["--contenders", "udp"], "unknown: udp; known: tcp,"),
                (["--viaduct", "/nowhere"], "/nowhere does not exist: run `make build`")):
            process = apps(*options, script="apps.py")
            text = process.communicate(timeout=LIMIT_S)[0]
            self.assertEqual(process.returncode, 2, text)
            self.assertIn(expected, text)

    def test_a_program_is_missing(self):
        process = apps("--only", "memcached", "--contenders", "tcp", script="apps.py",
                       env={"PATH": "/nowhere"})
        text = process.communicate(timeout=LIMIT_S)[0]
        self.assertIn("left out: memcached, memcaslap, memcslap not installed "
                      "(scripts/deps.sh bench)", text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
