# SPDX-License-Identifier: Apache-2.0
"""Kills at random moments: of viaductd, of the client, of the server, in two pods.

Each end knows what the other is to send. So whatever dies, what has come is a beginning of that; without
a death of an end it is all of it; and nobody waits for ever.

usage: storm.py VIADUCTD LIBRARY [ROUNDS [SEED]]
"""
import contextlib
import os
import random
import re
import signal
import sys
import time
import unittest

import hosts
import pods
from rig import wait_for

ROUNDS, SEED = 12, 0
VICTIMS = ("daemon", "client", "server", "daemon twice", "daemon and client")

# Both ends send, at once, bytes that depend on the position alone, in pieces of any size.
COMMON = """
import random, select, socket, sys, threading, time
BLOCK = random.Random(7).randbytes(1 << 20)

def piece(at, n, key):
    at = (at + key * 4099) % len(BLOCK)
    out = BLOCK[at:at + n]
    while len(out) < n:
        out += BLOCK[:n - len(out)]
    return out

def fail(text):
    print(text, file=sys.stderr, flush=True)
    import os
    os._exit(3)

class Way(threading.Thread):
    def __init__(self, conn, key):
        super().__init__()
        self.conn, self.key, self.at, self.broken = conn, key, 0, False

class Out(Way):
    def run(self):
        dice = random.Random(self.key)
        try:
            left = 400
            while left:
                n = dice.choice((1, 40, 700, 4000, 30000, 100000))
                left -= is_told.is_set()
                self.conn.sendall(piece(self.at, n, self.key))
                self.at += n
                if dice.random() < 0.05:
                    time.sleep(0.002)
            # The last word is how much that was.
            self.conn.sendall(b"the end.%20d" % self.at)
            self.conn.shutdown(socket.SHUT_WR)
        except OSError:
            self.broken = True

class In(Way):
    def run(self):
        dice, tail = random.Random(-self.key), b""
        self.whole = False
        try:
            while data := self.conn.recv(dice.choice((1, 64, 5000, 70000))):
                tail += data
                if len(tail) > 28:
                    sure, tail = tail[:-28], tail[-28:]
                    if sure != piece(self.at, len(sure), self.key):
                        fail("other bytes behind %d" % self.at)
                    self.at += len(sure)
        except OSError:
            self.broken = True
        if tail == b"the end.%20d" % self.at:
            self.whole = True
        elif tail != piece(self.at, len(tail), self.key)[:len(tail)] and \\
                not any((piece(self.at, n, self.key) + b"the end.%20d" % (self.at + n)).startswith(tail)
                        for n in range(29)):
            fail("other last bytes behind %d: %r" % (self.at, tail))

# Until it is told to, an end goes on.
is_told = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), is_told.set()), daemon=True).start()

def talk(conn, own, theirs):
    out, come = Out(conn, own), In(conn, theirs)
    out.start()
    come.start()
    out.join()
    come.join()
    print("whole" if come.whole and not out.broken else "part", come.at, flush=True)
"""
SERVER = COMMON + """
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
conn, _ = listener.accept()
talk(conn, 1, 2)
"""
CLIENT = COMMON + """
conn = socket.create_connection((sys.argv[1], int(sys.argv[3])), 60)
conn.settimeout(None)
print("half", flush=True)
talk(conn, 2, 1)
"""


class Storm(pods.Pods):
    """Not the tests of that, but its pods."""
    def meetings(self):
        return len(re.findall("meet, of two namespaces", self.daemon.text()))

    def kill(self, victim, ends, dice):
        if "daemon" in victim:
            self.daemon.kill()
        if "twice" in victim:
            self.daemon.start()
            time.sleep(0.1 * dice.random())
            self.daemon.kill()
        for name in ends:
            if name in victim:
                os.kill(self.program(ends[name]), signal.SIGKILL)
        if "daemon" in victim:
            self.daemon.start()

    def round(self, dice, victim, is_late):
        """True: bytes went directly."""
        before = self.meetings()
        server = pods.End(self, self.b, pods.OWN, True, SERVER, "10.9.0.2", 5000)
        server.hears(b"ready\n")
        client = pods.End(self, self.a, dice.choice((pods.OWN, pods.OTHER)), True, CLIENT,
                          "10.9.0.2", "10.9.0.1", 5000)
        client.hears(b"half\n")
        ends = {"client": client, "server": server}
        if is_late:
            wait_for("a meeting", lambda: self.meetings() > before)
        time.sleep(dice.choice((0, 0.01, 0.05, 0.2)) * dice.random())
        self.kill(victim, ends, dice)
        left = {name: ends[name] for name in ends if name not in victim}
        for end in left.values():
            with contextlib.suppress(BrokenPipeError):
                end.says(b"on\n")
        said = {}
        for name, end in left.items():
            self.assertEqual(end.ends(), 0, name)
            said[name] = end.process.stdout.read().split()[0]
        if len(left) == 2:
            self.assertEqual(set(said.values()), {b"whole"})
        is_direct = any(end.fate() == "direct" for end in left.values())
        for end in ends.values():
            end.close()
        return is_direct

    def test_storm(self):
        dice, direct = random.Random(SEED), 0
        for i in range(ROUNDS):
            victim = dice.choice(VICTIMS) if i else "daemon"
            is_late = dice.random() < 0.6 or i == 0
            with self.subTest(round=i, seed=SEED, victim=victim, is_late=is_late):
                direct += self.round(dice, victim, is_late)
        print(f"{ROUNDS} rounds with seed {SEED}: {self.meetings()} meetings, {direct} with direct bytes",
              flush=True)
        self.assertGreater(direct, 0)


def load_tests(*_):
    return unittest.TestSuite([Storm("test_storm")])


if __name__ == "__main__":
    if len(sys.argv) > 3:
        ROUNDS = int(sys.argv[3])
    SEED = int(sys.argv[4]) if len(sys.argv) > 4 else random.randrange(1 << 30)
    del sys.argv[3:]
    hosts.main(2)
