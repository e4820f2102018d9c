#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Daemons that start at one moment: one of them gets the names of the sockets, and the others say so and end.
names.py VIADUCTD SLOW_UNLINK.so"""
import os
import pathlib
import signal
import socket
import struct
import subprocess
import unittest

import hosts
from rig import NEWNET, PORT, SECONDS, Host, call, folder, wait_for

DAEMONS = 4
ROUNDS = 10
NOBODY = 65534


def holder(path):
    """The process that listens at a name, or None."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        try:
            s.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return None
        return struct.unpack("3i", s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]


class Names(unittest.TestCase):
    def setUp(self):
        made = folder()
        self.addCleanup(made.cleanup)
        self.host = Host()
        self.addCleanup(self.host.close)
        self.folder = pathlib.Path(made.name)
        self.names = [self.folder / "s", self.folder / "near"]
        key = self.folder / "key"
        key.write_text("one = " + "11" * 32 + "\n")
        key.chmod(0o600)

    def conf(self, number, port):
        conf = self.folder / f"conf{number}"
        conf.write_text(f"socket = {self.names[0]}\nnear-socket = {self.names[1]}\nport = {port}\n"
                        f"key-file = {self.folder}/key\nlog = debug:stderr\n")
        return conf

    def begin(self, count, ports, user=None):
        """Daemons that start at one moment."""
        def become():
            call("setns", self.host.fd, NEWNET)
            if user:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
            call("prctl", 1, signal.SIGKILL, 0, 0, 0)

        gate, shut = os.pipe()
        daemons = []
        for i in range(count):
            log = self.folder / f"log{i}"
            with open(log, "wb") as said:
                daemon = subprocess.Popen(
                    ["bash", "-c", f"read -u {gate}; exec \"$@\"", "bash", hosts.PROGRAMS[0], "--foreground",
                     "--config", self.conf(i, ports(i))], stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                    preexec_fn=become, pass_fds=[gate], env={**os.environ, "LD_PRELOAD": hosts.PROGRAMS[1]})
            daemon.log = log
            self.addCleanup(self.end, daemon)
            daemons.append(daemon)
        os.close(gate)
        os.close(shut)
        return daemons

    @staticmethod
    def end(daemon):
        daemon.kill()
        daemon.wait(SECONDS)

    def settled(self, daemons):
        """Each serves, or has ended."""
        return all(d.poll() is not None or "ready: processes by" in d.log.read_text() for d in daemons)

    def one_serves(self, daemons):
        wait_for("daemons that serve or end", lambda: self.settled(daemons), 2 * SECONDS)
        alive = [d for d in daemons if d.poll() is None]
        said = "\n".join(d.log.read_text() for d in daemons)
        self.assertEqual(len(alive), 1, said)
        for name in self.names:
            self.assertEqual(holder(name), alive[0].pid, said)
        for daemon in daemons:
            if daemon is not alive[0]:
                self.assertEqual(daemon.returncode, 1)
                self.assertIn(f"{self.names[0]}: Address already in use", daemon.log.read_text())
        self.assertEqual(list(self.folder.glob("*.lock")), [])
        return alive[0]

    def rounds(self, how, ports):
        last = self.one_serves(self.begin(DAEMONS, ports))
        for _ in range(ROUNDS):
            last.send_signal(how)
            last.wait(SECONDS)
            daemons = self.begin(DAEMONS, ports)
            last = self.one_serves(daemons)
            self.assertIn("slow unlink", "".join(d.log.read_text() for d in daemons))

    def test_after_a_death(self):
        self.rounds(signal.SIGKILL, lambda i: PORT)

    def test_after_a_death_with_ports_of_their_own(self):
        """No port says which of them is one too many."""
        self.rounds(signal.SIGKILL, lambda i: PORT + i)

    def test_after_an_end(self):
        self.rounds(signal.SIGTERM, lambda i: PORT)

    def left_lock(self):
        lock = self.folder / "s.lock"
        lock.touch(0o600)
        for path in [self.folder, self.folder / "key"]:
            try:
                os.chown(path, NOBODY, NOBODY)
            except OSError:
                self.skipTest("there is no other user")
        return lock

    def test_another_users_lock(self):
        """Left by a daemon that was ended as it began."""
        self.left_lock()
        self.one_serves(self.begin(1, lambda i: PORT, NOBODY))

    def test_says_which_file_is_in_the_way(self):
        lock = self.left_lock()
        lock.unlink()
        lock.mkdir()
        daemon = self.begin(1, lambda i: PORT, NOBODY)[0]
        self.assertEqual(daemon.wait(SECONDS), 1)
        self.assertIn(f"{lock}: Is a directory", daemon.log.read_text())


if __name__ == "__main__":
    hosts.main(2)
