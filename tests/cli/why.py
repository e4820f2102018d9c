#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What reports and logs say of connections that are on TCP.

usage: why.py VIADUCT
"""
import json
import os
import subprocess
import sys
import unittest

from bed import Bed

VIADUCT = os.path.abspath(sys.argv[1])
PYTHON = os.path.realpath(sys.executable)
# It answers each connection, in whatever way `code` makes it serve; the port is told first.
SERVER = """
import os, socket, subprocess, sys
def serve(c):
    while data := c.recv(4096):
        c.sendall(data)
l = socket.create_server(("127.0.0.1", 0))
print(l.getsockname()[1], flush=True)
"""
CLIENT = """
import socket, subprocess, sys
s = socket.socket()
def rounds(count, size):
    for i in range(count):
        s.sendall(b"x" * size)
        s.recv(size, socket.MSG_WAITALL)
def connect():
    s.connect(("127.0.0.1", int(sys.argv[1])))
"""
ONE = "c = l.accept()[0]; serve(c); c.close()"
TIMED = "setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 2)"


class Why(Bed):
    def start(self, name, code, *args):
        log = f"debug:{self.tmp / name}.log"
        command = [VIADUCT, "run", "--report", str(self.tmp / name), "--log", log, "--",
                   PYTHON, "-c", code, *map(str, args)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=self.env)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def both(self, server, client):
        """Both to their ends."""
        a = self.start("server", SERVER + server)
        b = self.start("client", CLIENT + client, a.stdout.readline().strip())
        for process in (b, a):
            self.assertEqual(process.wait(60), 0)

    def sums(self, name):
        """Of all processes: the counts, and the reasons."""
        counts, reasons = {}, {}
        for line in (self.tmp / name).read_text().splitlines():
            for key, value in json.loads(line).items():
                if isinstance(value, int):
                    counts[key] = counts.get(key, 0) + value
            for key, value in json.loads(line)["reasons"].items():
                reasons[key] = reasons.get(key, 0) + value
        return counts, reasons

    def test_option_before_connect(self):
        self.both(ONE, f"s.{TIMED}; connect(); rounds(50, 100)")
        counts, reasons = self.sums("client")
        self.assertEqual((counts["connections"], reasons), (1, {"option": 1}))
        self.assertIn("SO_RCVLOWAT is the kernel's", (self.tmp / "client.log").read_text())

    def test_option_inherited(self):
        self.both(f"l.{TIMED}; {ONE}", "connect(); rounds(50, 100)")
        counts, reasons = self.sums("server")
        self.assertEqual((counts["connections"], reasons), (1, {"option": 1}))
        self.assertIn("SO_RCVLOWAT is the kernel's", (self.tmp / "server.log").read_text())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[2:]])
