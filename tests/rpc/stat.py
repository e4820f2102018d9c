#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`viaduct stat` shows each call of a client and of its service, counted to the last one.

usage: stat.py VIADUCT SERVE COUNTED MANUAL. Of times only what cannot be otherwise is judged.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

VIADUCT, SERVE, COUNTED, MANUAL = sys.argv[1:5]
PROGRAM = 0x20000099
NOTHING, NEXT, NAP = 0, 1, 10
ROWS = 62


class Counted(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        place = os.path.join(folder.name, "port")
        self.service = self.start([SERVE, place, "run"])
        while not os.path.exists(place):
            self.assertIsNone(self.service.poll())
            time.sleep(0.01)
        with open(place, encoding="ascii") as f:
            self.client = self.start([COUNTED, f.read().strip()])
        while not self.processes(self.client.pid):  # it may still be `viaduct run`
            self.assertIsNone(self.client.poll())
            time.sleep(0.01)

    def start(self, command):
        p = subprocess.Popen([VIADUCT, "run", "--upgrade-after", "0", "--", *command],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end, p)
        return p

    def end(self, p):
        p.stdin.close()
        if p is self.service:
            p.kill()
        p.wait()
        p.stdout.close()

    def do(self, stage):
        self.client.stdin.write(stage + "\n")
        self.client.stdin.flush()
        self.assertEqual(self.client.stdout.readline(), "done\n")

    def stat(self, *args):
        return subprocess.run([VIADUCT, "stat", *map(str, args)], check=True,
                              stdout=subprocess.PIPE, text=True).stdout

    def processes(self, pid):
        return json.loads(self.stat("--json", "--pid", pid))["processes"]

    def calls(self, pid):
        """By program, version and procedure; the others by None."""
        found = {}
        for row in self.processes(pid)[0]["rpc"]:
            key = row["program"], row["version"], row["procedure"]
            key = None if key == (None, None, None) else key
            self.assertNotIn(key, found)
            self.assertGreater(row["mean_us"], 0)
            self.assertGreater(row["p99_us"], 0)
            found[key] = row
        return found

    def numbers(self, pid):
        return {key if key is None else key[2]: (row["calls"], row["errors"])
                for key, row in self.calls(pid).items()}

    def child(self):
        path = f"/proc/{self.client.pid}/task/{self.client.pid}/children"
        return int(pathlib.Path(path).read_text().split()[0])

    def settle(self, pid, numbers):
        """The service counts a call when the client has its answer already."""
        for _ in range(500):
            if self.numbers(pid) == numbers:
                return
            time.sleep(0.05)
        self.assertEqual(self.numbers(pid), numbers)

    def test_kinds(self):
        self.assertEqual(self.calls(self.client.pid), {})
        self.do("kinds")
        self.assertEqual(self.numbers(self.client.pid),
                         {NOTHING: (200, 0), NEXT: (50, 0), NAP: (2, 1), 99: (3, 3)})
        self.assertEqual(self.numbers(self.child()), {NEXT: (7, 0)})
        served = {NOTHING: (200, 0), NEXT: (57, 0), NAP: (2, 0), None: (3, 3)}
        # Nobody has taken the answer that was too late.
        self.settle(self.service.pid, served)
        calls = self.calls(self.client.pid)
        self.assertEqual({key[:2] for key in calls}, {(PROGRAM, 1)})
        self.assertEqual({row["side"] for row in calls.values()}, {"client"})
        self.assertEqual({row["side"] for row in self.calls(self.service.pid).values()},
                         {"service"})
        nap = calls[PROGRAM, 1, NAP]
        # The one took 60 ms, the other was given up after 20.
        self.assertGreaterEqual(nap["mean_us"], 40000)
        self.assertGreaterEqual(nap["p99_us"], 60000)
        nap = self.calls(self.service.pid)[PROGRAM, 1, NAP]
        self.assertGreaterEqual(nap["mean_us"], 180000)
        self.assertGreaterEqual(nap["p99_us"], 300000)

    def test_full(self):
        self.do("kinds")
        self.do("many")
        numbers = self.numbers(self.client.pid)
        self.assertEqual(len(numbers), ROWS + 1)
        self.assertEqual(numbers[None], (100 - (ROWS - 4), 100 - (ROWS - 4)))
        self.assertEqual(sum(calls for calls, _ in numbers.values()), 255 + 100)
        # What is there already goes on in its own row, and what a service has not takes none.
        self.do("kinds")
        self.assertEqual(self.numbers(self.client.pid)[NEXT], (100, 0))
        self.settle(self.service.pid,
                    {NOTHING: (400, 0), NEXT: (114, 0), NAP: (4, 0), None: (106, 106)})

    def test_other_user(self):
        if os.getuid() != 0:
            self.skipTest("needs root")
        self.do("kinds")
        self.do("leave")
        self.assertEqual(self.numbers(self.client.pid),
                         {NOTHING: (200, 0), NEXT: (55, 0), NAP: (2, 1), 99: (3, 3)})
        self.assertEqual(self.numbers(self.child()), {NEXT: (7, 0)})

    def test_table(self):
        self.assertRegex(self.stat("--rpc", "--pid", self.client.pid),
                         "^No remote procedure call has been counted there")
        self.do("kinds")
        table, notes = self.stat("--rpc", "--pid", self.client.pid).split("\n\n")
        head, *lines = table.split("\n")
        self.assertEqual(head.split(), ["PROCESS", "PID", "SIDE", "PROGRAM", "VERSION",
                                        "PROCEDURE", "CALLS", "ERRORS", "MEAN", "P99"])
        self.assertEqual([line.split()[5:8] for line in lines],
                         [["0", "200", "0"], ["1", "50", "0"], ["10", "2", "1"],
                          ["99", "3", "3"]])
        self.assertEqual(lines[0].split()[2:5], ["client", str(PROGRAM), "1"])
        self.assertTrue(notes.startswith("4 procedures\n"), notes)
        self.assertNotIn("PROGRAM", self.stat("--pid", self.client.pid))

    def test_rates(self):
        self.do("kinds")
        watch = self.stat("--rpc", "--watch=0.2", "--count", 2, "--pid", self.client.pid)
        heads = [line for line in watch.split("\n") if line.startswith("PROCESS")]
        self.assertEqual(["CALLS/s" in head for head in heads], [False, True])
        # Nobody has called meanwhile.
        last = watch.split("CALLS/s")[1].split("\n")[1:5]
        self.assertEqual([line.split()[6] for line in last], ["0"] * 4)

    def test_prometheus(self):
        self.do("kinds")
        text = self.stat("--prometheus", "--pid", self.client.pid)
        labels = (rf'pid="{self.client.pid}",program="rpc-counted",side="client",'
                  rf'rpc_program="{PROGRAM}",rpc_version="1",rpc_procedure="99"')
        self.assertRegex(text, rf"(?m)^viaduct_rpc_seconds_count{{{labels}}} 3$")
        self.assertRegex(text, rf"(?m)^viaduct_rpc_errors_total{{{labels}}} 3$")
        row = self.calls(self.client.pid)[PROGRAM, 1, 99]
        total = float(re.search(rf"(?m)^viaduct_rpc_seconds_sum{{{labels}}} (.*)$", text)[1])
        self.assertAlmostEqual(total, row["mean_us"] * 3 / 1e6, places=7)
        p99 = re.search(rf'(?m)^viaduct_rpc_seconds{{{labels},quantile="0.99"}} (.*)$', text)
        self.assertAlmostEqual(float(p99[1]), row["p99_us"] / 1e6, places=8)

    def test_manual(self):
        manual = pathlib.Path(MANUAL).read_text().replace("\\-", "-")
        self.do("kinds")
        row = self.calls(self.client.pid)[PROGRAM, 1, NEXT]
        for name in [*row, *self.stat("--rpc").split("\n")[0].split(), "CALLS/s", "--rpc"]:
            self.assertRegex(manual, rf"(?<![\w-]){name}(?![\w-])")


unittest.main(argv=sys.argv[:1])
