#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `viaduct bench -- SERVER -- CLIENT`: its figures, its errors, what it leaves behind.

usage: pair.py VIADUCT. No figure is judged: only their presence.
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from ports import free_port  # noqa: E402

VIADUCT = os.path.abspath(sys.argv[1])
DESCRIPTION = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                           "../../docs/bench-json.md")

SERVER = """
import os, signal, socket, sys
port, how = int(sys.argv[1]), sys.argv[2]
if how == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if how == "background" and os.fork():
    os._exit(0)
if how == "background":
    os.setsid()
if len(sys.argv) > 3:
    with open(sys.argv[3], "a") as f:
        print(os.getpid(), file=f)
s = socket.create_server(("127.0.0.1", port))
while how == "fragile":
    s.accept()
    print("I am fragile", flush=True)
    os._exit(7)
while True:
    c, _ = s.accept()
    while data := c.recv(65536):
        c.sendall(data)
    c.close()
"""
CLIENT = """
import socket, sys
c = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
for i in range(int(sys.argv[2])):
    c.sendall(b"x" * 100)
    got = 0
    while got < 100:
        data = c.recv(100 - got)
        if not data:
            sys.exit("the server went away")
        got += len(data)
"""

# A message in two parts, as python3 -m http.server writes an answer.
PARTS = """
import socket, sys
c = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
for i in range(60):
    c.sendall(b"x" * 50)
    c.sendall(b"y" * 50)
    got = 0
    while got < 100:
        got += len(c.recv(100 - got))
"""
# Answers whole messages.
WHOLE = """
import socket, sys
s = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    c, _ = s.accept()
    while data := c.recv(100, socket.MSG_WAITALL):
        c.sendall(data)
"""


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition):
    end = time.monotonic() + 60
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("waited in vain")
        time.sleep(0.01)


class Pair(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        os.mkdir(self.path("tmp"))
        self.port = str(free_port())
        for name, text in (("server.py", SERVER), ("client.py", CLIENT)):
            with open(self.path(name), "w", encoding="utf-8") as f:
                f.write(text)

    def tearDown(self):
        self.assertEqual(os.listdir(self.path("tmp")), [], "temporary files are left")

    def path(self, name):
        return os.path.join(self.folder, name)

    def server(self, how="plain"):
        return [sys.executable, self.path("server.py"), self.port, how, self.path("pids")]

    def client(self, rounds=200):
        return [sys.executable, self.path("client.py"), self.port, str(rounds)]

    def start(self, server, client, *options):
        return subprocess.Popen([VIADUCT, "bench", *options, "--", *server, "--", *client],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env={**os.environ, "TMPDIR": self.path("tmp")})

    def bench(self, server, client, *options):
        process = self.start(server, client, *options)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    def pids(self):
        with open(self.path("pids"), encoding="utf-8") as f:
            return [int(line) for line in f.read().split()]

    def check_gone(self):
        for pid in self.pids():
            self.assertFalse(alive(pid), pid)

    def test_figures(self):
        rc, out, err = self.bench(self.server(), self.client(), "--pairs", "2", "--json", "-")
        self.assertEqual((rc, err), (0, ""))
        figures = json.loads(out)
        with open(DESCRIPTION, encoding="utf-8") as f:
            described = f.read()
        for name in figures:
            self.assertIn(f"`{name}`", described)
        self.assertEqual((figures["schema"], figures["kind"]), (1, "programs"))
        self.assertEqual(figures["server"], self.server())
        self.assertEqual(figures["client"], self.client())
        for way in ("plain", "under_viaduct"):
            for name in ("elapsed_s", "client_cpu_s", "server_cpu_s"):
                samples = figures[way][name + "_samples"]
                self.assertEqual(len(samples), 2)
                self.assertGreater(min(samples), 0, name)
                self.assertEqual(figures[way][name]["min"], min(samples))
        self.assertEqual(len(figures["ratio_samples"]), 2)
        self.assertEqual((figures["connections"], figures["upgraded"]), (2, 2))
        self.assertGreater(figures["direct_bytes"], figures["tcp_bytes"])
        self.assertEqual(figures["direct_bytes"] + figures["tcp_bytes"], 2 * 2 * 200 * 100)
        self.assertIn(figures["verdict"], ("worth it", "not worth it", "open"))
        self.assertTrue(figures["sentence"].startswith(figures["verdict"] + ": "))
        self.assertIn("2 of 2 connections went direct", figures["sentence"])
        self.assertEqual(len(self.pids()), 4)
        self.check_gone()

    def test_reasons(self):
        path = self.path("json")
        rc, out, err = self.bench(self.server(), self.client(1), "--pairs", "1", "--json",
                                  path)
        self.assertEqual((rc, err), (0, ""))
        self.assertIn("1 of 1 connections stayed on TCP: too-short", out)
        self.assertIn("the connection has not earned an upgrade yet", out)
        with open(path, encoding="utf-8") as f:
            self.assertEqual(json.load(f)["reasons"], {"too-short": 1})

    def test_late_acknowledgements(self):
        """What the programs win by is named, where it is Nagle's algorithm."""
        with unittest.mock.patch.dict(os.environ, VIADUCT_UPGRADE_AFTER="0"):
            rc, out, err = self.bench([sys.executable, "-c", WHOLE, self.port],
                                      [sys.executable, "-c", PARTS, self.port], "--pairs", "1")
        self.assertEqual((rc, err), (0, ""))
        self.assertIn("TCP_NODELAY helps without Viaduct, too", out)
        rc, out, err = self.bench(self.server(), self.client(), "--pairs", "1")
        self.assertEqual((rc, err), (0, ""))
        self.assertNotIn("TCP_NODELAY", out)

    def test_no_connection(self):
        rc, out, err = self.bench(self.server(), ["true"], "--pairs", "1")
        self.assertEqual((rc, err), (0, ""))
        self.assertIn("no report tells of a TCP connection", out)

    def test_background_server(self):
        rc, out, err = self.bench(self.server("background"), self.client(), "--pairs", "1")
        self.assertEqual((rc, err), (0, ""))
        self.assertIn("1 of 1 connections went direct", out)
        self.check_gone()

    def test_stubborn_server(self):
        rc, _, err = self.bench(self.server("stubborn"), self.client(), "--pairs", "1")
        self.assertEqual((rc, err), (0, ""))
        self.check_gone()

    def test_server_errors(self):
        for command, message in ((["sh", "-c", "echo too early; exit 3"],
                                  "ended with status 3 before it listened"),
                                 (["sh", "-c", "echo too early; sleep 60"],
                                  "has not opened a listening TCP socket in 1 s"),
                                 (["sh", "-c", "echo too early; kill -9 $$"],
                                  "was killed by signal 9")):
            rc, _, err = self.bench(command, self.client(), "--wait", "1")
            self.assertEqual(rc, 1)
            self.assertIn(message, err)
            self.assertIn("    too early\n", err)

    def test_client_errors(self):
        rc, _, err = self.bench(self.server(), ["sh", "-c", "echo oh dear >&2; exit 4"])
        self.assertEqual(rc, 1)
        self.assertIn("`sh -c echo oh dear >&2; exit 4`, plain, ended with status 4", err)
        self.assertIn("    oh dear\n", err)
        self.check_gone()

    def test_server_that_fails_meanwhile(self):
        # A client that noticed it might end first.
        patient = [sys.executable, "-c", "import socket, time\n"
                   f"c = socket.create_connection(('127.0.0.1', {self.port}))\n"
                   "time.sleep(3600)"]
        rc, _, err = self.bench(self.server("fragile"), patient)
        self.assertEqual(rc, 1)
        self.assertIn("ended with status 7 meanwhile", err)
        self.assertIn("    I am fragile\n", err)

    def test_command_line(self):
        for words, status, message in (
                (["--", "true"], 2, "two programs are needed"),
                (["--", "--", "true"], 2, "two programs are needed"),
                (["--", "true", "--"], 2, "two programs are needed"),
                (["--quick", "--", "true", "--", "true"], 2, "`quick`"),
                (["--wait", "0", "--", "true", "--", "true"], 2, "--wait takes a number from 1 to 3600: `0`"),
                (["--", "/no/such", "--", "true"], 127, "the server: there is no program `/no/such`"),
                (["--", "true", "--", "/etc/passwd"], 126, "cannot be executed")):
            result = subprocess.run([VIADUCT, "bench", *words], stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE, text=True, timeout=60)
            self.assertEqual(result.returncode, status, words)
            self.assertIn(message, result.stderr)
            self.assertEqual(result.stdout, "")

    def test_under_viaduct(self):
        result = subprocess.run([VIADUCT, "run", "--", VIADUCT, "bench", "--", "true", "--",
                                 "true"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, timeout=60)
        self.assertEqual(result.returncode, 126)
        self.assertIn("nothing here would run plain", result.stderr)

    def test_interrupted(self):
        note = self.path("note")
        process = self.start(self.server("background"),
                             ["sh", "-c", f"sleep 60 & echo $! > {note}; wait"])
        wait_for(lambda: os.path.exists(note) and os.path.getsize(note))
        with open(note, encoding="utf-8") as f:
            client = int(f.read())
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 128 + signal.SIGINT)
        wait_for(lambda: not alive(client))
        for pid in self.pids():
            wait_for(lambda p=pid: not alive(p))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
