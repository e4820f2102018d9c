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

    def test_bytes_after_the_ring(self):
        """All are counted once, at both ends, though the connection is TCP's for good since a program has it without Viaduct."""
        self.both(ONE, "connect(); rounds(500, 100); subprocess.run('true', close_fds=False); s.set_inheritable(True); "
                       "subprocess.run('true', close_fds=False, env={'VIADUCT': 'off'}); rounds(500, 100)")
        for name in "client", "server":
            counts, _ = self.sums(name)
            self.assertEqual((counts["upgraded"], counts["downgraded"]), (1, 1))
            self.assertGreater(counts["tx_tcp_bytes"], 50000)
            for way in "tx", "rx":
                self.assertEqual(counts[f"{way}_direct_bytes"] + counts[f"{way}_tcp_bytes"], 100000, counts)

    def test_bytes_of_a_plain_peer(self):
        a = subprocess.Popen([PYTHON, "-c", SERVER + ONE], stdout=subprocess.PIPE, text=True, env=self.env)
        self.addCleanup(a.stdout.close)
        b = self.start("client", CLIENT + "connect(); rounds(500, 100)", a.stdout.readline().strip())
        self.assertEqual((b.wait(60), a.wait(60)), (0, 0))
        counts, reasons = self.sums("client")
        self.assertEqual(reasons, {"plain-peer": 1})
        self.assertEqual((counts["tx_tcp_bytes"], counts["rx_tcp_bytes"]), (50000, 50000))

    def test_forked_server(self):
        """The parent closes what its child goes on with: that is no connection which was too short."""
        forks = "c = l.accept()[0]; child = os.fork() or (serve(c), c.close(), sys.exit()); c.close(); os.wait()"
        self.both(forks, "connect(); rounds(500, 100)")
        counts, reasons = self.sums("server")
        self.assertEqual((counts["connections"], counts["upgraded"], reasons), (1, 1, {}))
        self.both(f"l.{TIMED}; {forks}", "connect(); rounds(500, 100)")
        counts, reasons = self.sums("server")
        self.assertEqual((counts["connections"], reasons), (2, {"option": 1}))
        self.assertEqual(counts["rx_direct_bytes"] + counts["rx_tcp_bytes"], 100000)

    def test_acceptor_tells(self):
        """The client of a server that stays on TCP is told the server's reason."""
        for server in (f"l.{TIMED}; {ONE}", f"c = l.accept()[0]; c.{TIMED}; serve(c); c.close()"):
            self.both(server, "connect(); rounds(200, 100)")
        counts, reasons = self.sums("client")
        self.assertEqual((counts["connections"], reasons), (2, {"option": 2}))

    def test_uid(self):
        """A server that has become another user after accept: both ends say so. One that only acts as one is carried."""
        if os.geteuid():
            self.skipTest("has to be root")
        self.tmp.chmod(0o777)
        for change, reasons in (("os.setresuid(65534, 65534, 65534)", {"uid": 1}),
                                ("os.setresuid(65534, 65534, 0)", {})):
            for name in "server", "client":
                (self.tmp / name).write_text("")
                (self.tmp / name).chmod(0o666)
            self.both(f"c = l.accept()[0]; {change}; serve(c)", "connect(); rounds(200, 100)")
            for name in "server", "client":
                counts, told = self.sums(name)
                self.assertEqual((counts["upgraded"], told), (not reasons, reasons), name)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[2:]])
