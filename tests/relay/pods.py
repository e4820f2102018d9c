# SPDX-License-Identifier: Apache-2.0
"""Programs under Viaduct in two pods: network, pid and mount namespaces of their own, and users.

Of the daemon they have the folder with its socket, and nothing else in common. With SANITIZER=address or
SANITIZER=thread the library is one that was built so: the sanitizer's runtime comes behind it, and no
complaint may be left.
"""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import unittest

import hosts
from rig import SECONDS, Daemon, Host, cable, folder, sh, wait_for

PYTHON = "/usr/bin/python3"
OWN, OTHER = 4321, 4322  # user ids that nobody has
# Enters the folder, and becomes a user.
POD = """mount -t tmpfs none /run && mkdir -p /run/viaduct/near &&
if [ -d "$1" ]; then mount --bind "$1" /run/viaduct/near; fi && shift && exec "$@" """

SERVER = """
import contextlib, socket, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
conn, _ = listener.accept()
tag = sys.argv[3].encode()
# A client that dies with something unread resets the connection.
with conn, contextlib.suppress(ConnectionResetError):
    while data := conn.recv(65536):
        conn.sendall(bytes(b ^ tag[0] for b in data) if len(data) < 4096 else data)
"""
# Small messages, which come back in the server's own way, until it is told to end.
CLIENT = """
import os, select, socket, sys
address, source, port, own, tag, rounds, megabytes = sys.argv[1:]
conn = socket.create_connection((address, int(port)), 60, (source, int(own)) if own != "0" else None)

def all_of(n):
    got = b""
    while len(got) < n:
        piece = conn.recv(n - len(got))
        if not piece:
            sys.exit("the server has gone")
        got += piece
    return got

def talk(n):
    for _ in range(n):
        said = os.urandom(64)
        conn.sendall(said)
        if all_of(64) != bytes(b ^ ord(tag) for b in said):
            sys.exit("a message came back changed")

talk(4)
print("half", flush=True)
talk(int(rounds))
while not select.select([0], [], [], 0)[0]:
    talk(50)
talk(3000)
"""
# Parents that read a little, and leave the connection to a child.
FORKED_SERVER = SERVER.replace("with conn,", """conn.sendall(bytes(b ^ tag[0] for b in conn.recv(64)))
if os.fork():
    conn.close()
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
with conn,""").replace("import", "import os,")
BULK_SERVER = """
import socket, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
conn, _ = listener.accept()
with conn:
    while data := conn.recv(100000):
        conn.sendall(data)
"""
BULK_CLIENT = """
import hashlib, os, random, select, socket, sys, threading
address, source, port, own, tag, rounds, megabytes = sys.argv[1:]
conn = socket.create_connection((address, int(port)), 60)
sent, got = hashlib.sha256(), hashlib.sha256()

def send():
    dice = random.Random(1)
    left = int(megabytes) << 20
    while left:
        piece = os.urandom(min(left, dice.choice((1, 64, 1000, 40000, 300000))))
        sent.update(piece)
        conn.sendall(piece)
        left -= len(piece)
    conn.shutdown(socket.SHUT_WR)

print("half", flush=True)
while not select.select([0], [], [], 0)[0]:
    conn.sendall(b"x")
    if conn.recv(1) != b"x":
        sys.exit("another byte came back")
thread = threading.Thread(target=send)
thread.start()
while data := conn.recv(70000):
    got.update(data)
thread.join()
if got.digest() != sent.digest():
    sys.exit("other bytes came back")
"""

SERVICE = b"""
table ip service {
  chain before {
    type nat hook prerouting priority -100;
    ip daddr 10.96.0.1 tcp dport 5000 dnat to 10.9.2.2
  }
}
"""

SANITIZER = os.environ.get("SANITIZER")


def sanitized(test):
    """What comes behind the library, the settings, and what the program is started by."""
    if not SANITIZER:
        return "", [], []
    name = {"address": "libasan.so", "thread": "libtsan.so"}[SANITIZER]
    runtime = subprocess.run(["gcc", f"-print-file-name={name}"], stdout=subprocess.PIPE, check=True,
                             text=True).stdout.strip()
    log = f"log_path={test.tmp}/complaint"
    signals = " ".join(f"handle_{name}=0" for name in ("segv", "sigbus", "abort", "sigfpe", "sigill"))
    return ":" + os.path.realpath(runtime), [
        f"ASAN_OPTIONS=detect_leaks=0 verify_asan_link_order=0 {log}",
        f"UBSAN_OPTIONS=print_stacktrace=1 {log}",
        f"TSAN_OPTIONS={signals} exitcode=0 die_after_fork=0 {log}"], ["setarch", "-R"]


class End:
    """A program in a pod."""
    count = 0

    def __init__(self, test, host, uid, viaduct, code, *arguments):
        End.count += 1
        self.report = test.tmp / f"report{End.count}"
        behind, options, start = sanitized(test)
        settings = [f"LD_PRELOAD={str(test.library) + behind if viaduct else ''}", "VIADUCT_UPGRADE_AFTER=0",
                    f"VIADUCT_REPORT={self.report}", "VIADUCT_CONFIG=", *options]
        self.process = subprocess.Popen(
            ["nsenter", f"--net=/proc/{os.getpid()}/fd/{host.fd}", "unshare", "--mount", "--pid",
             "--fork", "--kill-child", "--mount-proc", "sh", "-c", POD, "sh", test.near,
             "setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *start, "env", *settings,
             PYTHON, "-S", "-c", code, *map(str, arguments)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/")
        test.addCleanup(self.close)

    def hears(self, line):
        said = self.process.stdout.readline()
        assert said == line, (said, line)

    def says(self, line):
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def ends(self):
        return self.process.wait(SECONDS * 4)

    def fate(self):
        said = [json.loads(line) for line in self.report.read_text().splitlines()]
        if any(each["tx_direct_bytes"] for each in said):
            return "direct"
        return " ".join(reason for each in said for reason in each["reasons"])

    def close(self):
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(BrokenPipeError):  # of what was said to one that has died
            self.process.stdin.close()
        self.process.stdout.close()


class Pods(unittest.TestCase):
    def setUp(self):
        self.folder = folder()
        self.addCleanup(self.folder.cleanup)
        self.tmp = pathlib.Path(self.folder.name) / "tmp"
        self.tmp.mkdir()
        self.tmp.chmod(0o777)
        self.library = self.tmp / "libviaduct-preload.so"
        self.library.write_bytes(pathlib.Path(hosts.PROGRAMS[1]).read_bytes())
        self.library.chmod(0o755)
        self.home, self.a, self.b, self.a2, self.b2 = (self.host() for _ in range(5))
        for one, other in ((self.a, self.b), (self.a2, self.b2)):
            cable(one, other, ["10.9.0.1/24"], ["10.9.0.2/24"])
        self.near = f"{self.folder.name}/d"
        self.near_line = f"near-socket = {self.near}/near.sock"
        self.daemon = Daemon(hosts.PROGRAMS[0], self.home, self.near, hosts.KEYS, (self.near_line,))
        self.addCleanup(self.daemon.close)

    def tearDown(self):
        said = [log.read_text() for log in self.tmp.glob("complaint*")]
        self.assertFalse(said, "\n".join(said))

    def host(self):
        host = Host()
        self.addCleanup(host.close)
        return host

    def pair(self, tag="A", users=(OWN, OWN), rounds=0, own=0, port=5000, pods=None,
             code=(SERVER, CLIENT), megabytes=0, viaduct=(True, True)):
        """Server and client, which waits amid its messages."""
        a, b = pods or (self.a, self.b)
        server = End(self, b, users[1], viaduct[1], code[0], "10.9.0.2", port, tag)
        server.hears(b"ready\n")
        client = End(self, a, users[0], viaduct[0], code[1], "10.9.0.2", "10.9.0.1", port, own, tag, rounds,
                     megabytes)
        return server, client

    def routed(self):
        """Two pods behind a node that leads an address of its own, and of nobody, to the second one."""
        if not shutil.which("nft"):
            self.skipTest("no nft")
        node, client, server = self.host(), self.host(), self.host()
        for pod, net in ((client, 1), (server, 2)):
            cable(pod, node, [f"10.9.{net}.2/24"], [f"10.9.{net}.1/24"])
            with node:
                sh("ip", "link", "set", "v0", "down")
                sh("ip", "link", "set", "v0", "name", f"pod{net}")
                sh("ip", "link", "set", f"pod{net}", "up")
            with pod:
                sh("ip", "route", "add", "default", "via", f"10.9.{net}.1")
        with node:
            try:
                pathlib.Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
            except OSError as error:
                self.skipTest(f"no forwarding: {error}")
            if subprocess.run(["nft", "-f", "-"], input=SERVICE, stderr=subprocess.DEVNULL, check=False).returncode:
                self.skipTest("no address translation")
        return client, server

    def met(self, pairs):
        """So many have met."""
        wait_for("a meeting", lambda: self.daemon.text().count("meet, of two namespaces") >= pairs)

    def run_on(self, server, client):
        client.says(b"on\n")
        self.assertEqual((client.ends(), server.ends()), (0, 0))
        return server.fate(), client.fate()

    def test_direct(self):
        for i, users in enumerate(((OWN, OWN), (OWN, OTHER))):
            server, client = self.pair(users=users)
            client.hears(b"half\n")
            self.met(i + 1)
            self.assertEqual(self.run_on(server, client), ("direct", "direct"), self.daemon.text())

    def test_bytes(self):
        server, client = self.pair(code=(BULK_SERVER, BULK_CLIENT), megabytes=24)
        client.hears(b"half\n")
        self.met(1)
        self.assertEqual(self.run_on(server, client), ("direct", "direct"))

    def test_a_child_goes_on(self):
        """The parent has begun to look for the other end; the child begins anew."""
        server, client = self.pair(code=(FORKED_SERVER, CLIENT))
        client.hears(b"half\n")
        parent = self.program(server)
        # The parent may have met it, too, and left.
        wait_for("a meeting of the child", lambda: any(
            int(pid) != parent for pid in re.findall(r"and (\d+) meet, of two", self.daemon.text())))
        self.assertEqual(self.run_on(server, client), ("direct", "direct"))

    def test_crossed(self):
        """The same four numbers in four pods, at the same time."""
        both = [self.pair(tag, own=40000, pods=pods)
                for tag, pods in (("A", (self.a, self.b)), ("B", (self.a2, self.b2)))]
        for _, client in both:
            client.hears(b"half\n")
        self.met(2)
        for server, client in both:
            self.assertEqual(self.run_on(server, client), ("direct", "direct"))

    def test_crossed_without_the_true_peer(self):
        """Of two connections with the same numbers one end each is not under Viaduct."""
        both = [self.pair(tag, own=40000, pods=pods, viaduct=viaduct)
                for tag, pods, viaduct in (("A", (self.a, self.b), (True, False)),
                                           ("B", (self.a2, self.b2), (False, True)))]
        for _, client in both:
            client.hears(b"half\n")
        wait_for("a try", lambda: "no way between two namespaces" in self.daemon.text())
        for server, client in both:
            client.says(b"on\n")
            self.assertEqual((client.ends(), server.ends()), (0, 0))
        self.assertNotIn("meet, of two namespaces", self.daemon.text())

    def test_no_daemon(self):
        self.daemon.kill()
        server, client = self.pair(rounds=400)
        client.hears(b"half\n")
        self.assertEqual(self.run_on(server, client), ("plain-peer", "plain-peer"))

    def test_rule(self):
        self.daemon.kill()
        self.daemon.set_lines((self.near_line, "deny addr=10.9.0.0/24"))
        self.daemon.start()
        server, client = self.pair(rounds=400)
        client.hears(b"half\n")
        self.assertEqual(self.run_on(server, client), ("rule", "rule"))

    def test_service(self):
        """A service's address is rewritten on the node, which neither pod can see: TCP. The pod's own one is direct."""
        pods = self.routed()
        for port, address, rounds in ((5000, "10.96.0.1", 400), (5001, "10.9.2.2", 0)):
            server = End(self, pods[1], OWN, True, SERVER, "10.9.2.2", port, "A")
            server.hears(b"ready\n")
            client = End(self, pods[0], OWN, True, CLIENT, address, "", port, 0, "A", rounds, 0)
            client.hears(b"half\n")
            if address == "10.9.2.2":
                self.met(1)
                self.assertEqual(self.run_on(server, client), ("direct", "direct"))
            else:
                self.assertEqual(self.run_on(server, client), ("plain-peer", "plain-peer"))
                self.assertNotIn("meet, of two namespaces", self.daemon.text())

    def test_daemon_dies(self):
        server, client = self.pair()
        client.hears(b"half\n")
        self.met(1)
        self.daemon.kill()
        self.assertEqual(self.run_on(server, client), ("direct", "direct"))

    def test_daemon_comes_later(self):
        self.daemon.kill()
        server, client = self.pair()
        client.hears(b"half\n")
        # Some have asked nobody by now; others ask one that dies.
        self.daemon.start()
        self.daemon.kill()
        self.daemon.start()
        self.met(1)
        self.assertEqual(self.run_on(server, client), ("direct", "direct"))

    def test_ends_die(self):
        """The other end hears of it, on the ring or not yet."""
        for is_met in (False, True):
            for dies in (0, 1):
                before = self.daemon.text().count("meet, of two namespaces")
                ends = self.pair()
                ends[1].hears(b"half\n")
                if is_met:
                    self.met(before + 1)
                os.kill(self.program(ends[dies]), signal.SIGKILL)
                # A client without a server says so; a server without a client is done.
                self.assertEqual(ends[not dies].ends(), 0 if dies else 1)

    @staticmethod
    def program(end):
        """The program's number here: the child of what has made its namespaces."""
        pid = end.process.pid
        name = f"/proc/{pid}/task/{pid}/children"
        children = pathlib.Path(name).read_text().split()
        return int(children[0]) if children else None


if __name__ == "__main__":
    hosts.main(2)
