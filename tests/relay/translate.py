# SPDX-License-Identifier: Apache-2.0
"""viaductd tells processes how the kernel rewrites the addresses of their own connections, and of no others.

A daemon in a namespace of its own; a, whose packet filter leads port 80 to 8080; and users there.
"""
import os
import pathlib
import signal
import socket
import struct
import subprocess
import time
import unittest

from rig import (ADDRESS, DONE, FULL, MALFORMED, NETNS, OK, OWNER, RATE, RIGHTS, RULE, TRANSLATE, TRANSLATED, UNSEEN,
                 Daemon, Host, Process, cable, end_of, ends, folder, message, user, wait_for)
import hosts

SO_COOKIE = 57
RULES = """
add table inet t
add chain inet t o { type nat hook output priority -100; }
add chain inet t p { type nat hook postrouting priority 100; }
add rule inet t o ip daddr 10.77.0.1 tcp dport 80 dnat ip to 127.0.0.1:8080
add rule inet t o tcp dport 80 redirect to :8080
add rule inet t p tcp dport 8080 tcp sport 30001 snat ip to 127.0.0.1:30002
"""


def number(sock):
    return struct.unpack("=Q", sock.getsockopt(socket.SOL_SOCKET, SO_COOKIE, 8))[0]


def forget_all(host):
    """Empties the table of connections: IPCTNL_MSG_CT_DELETE without one's name."""
    with host, socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) as nl:
        nl.send(struct.pack("=IHHII4x", 20, 1 << 8 | 2, 5, 1, 0))
        assert struct.unpack_from("=i", nl.recv(4096), 16) == (0,)


class Asker(Process):
    """A process that has connected to the socket for namespaces."""
    def __init__(self, daemon, host, uid):
        super().__init__(daemon, host, uid, "near")

    def ask(self, tcp, accepted, cookie=None, tuple=None):
        return self.say(TRANSLATE, tuple=tuple or ends(tcp),
                        hello=struct.pack("=QII", number(tcp) if cookie is None else cookie, accepted, 0))

    def told(self, tcp, accepted, **how):
        """The status; and of OK the ends, as the other end has them, and its cookie."""
        id = self.ask(tcp, accepted, **how)
        said = self.hear(TRANSLATED)
        assert said.id == id, (said.id, id)
        if said.status != OK:
            assert said.tuple == (bytes(18), bytes(18)) and said.hello == b"", said.tuple
            return said.status
        return (OK, said.tuple, struct.unpack("=Q", said.hello)[0])


class TestTranslate(unittest.TestCase):
    def setUp(self):
        self.folder = folder()
        self.addCleanup(self.folder.cleanup)
        self.home, self.a = self.host(), self.host()
        self.rewrite(self.a)
        self.near_line = f"near-socket = {self.folder.name}/d/near"
        self.daemon = self.start(self.home)

    def start(self, host, rights="root", name="d"):
        daemon = Daemon(hosts.PROGRAMS[0], host, f"{self.folder.name}/{name}", hosts.KEYS,
                        (f"near-socket = {self.folder.name}/{name}/near",), rights)
        self.addCleanup(daemon.close)
        return daemon

    def host(self):
        host = Host()
        self.addCleanup(host.close)
        return host

    @staticmethod
    def rewrite(host):
        with host:
            subprocess.run(["ip", "addr", "add", "10.77.0.1/32", "dev", "lo"], check=True)
            done = subprocess.run(["nft", "-f", "-"], input=RULES.encode(), check=False)
        if done.returncode:
            raise unittest.SkipTest("no nft")

    def asker(self, uid=0, host=None, daemon=None):
        asker = Asker(daemon or self.daemon, host or self.a, uid)
        self.addCleanup(asker.close)
        return asker

    def pair(self, address="127.0.0.1", port=80, users=(0, 0), host=None, own=0, listen=8080):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with host or self.a:
            with user(users[1]):
                listener = socket.create_server(("::1" if ":" in address else "127.0.0.1", listen), family=family)
            with user(users[0]):
                client = socket.socket(family)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if own:
                    client.bind(("127.0.0.1", own))
                client.connect((address, port))
            with user(users[1]):
                server = listener.accept()[0]
            listener.close()
        for sock in (client, server):
            self.addCleanup(sock.close)
        # Both directions have been seen.
        client.send(b"x")
        server.recv(1)
        server.send(b"y")
        client.recv(1)
        return client, server

    def assert_told(self, client, server, askers):
        self.assertEqual(askers[0].told(client, 0), (OK, ends(server), number(server)))
        self.assertEqual(askers[1].told(server, 1), (OK, ends(client), number(client)))

    # ---- what is told ----

    def test_both_ends_are_told(self):
        askers = self.asker(1001), self.asker(1002)
        for address in ("127.0.0.1", "10.77.0.1", "::1"):
            client, server = self.pair(address, users=(1001, 1002))
            self.assertNotEqual(ends(client), ends(server)[::-1])
            self.assert_told(client, server, askers)
            # Nothing of the connection has changed.
            client.send(b"bytes")
            self.assertEqual(server.recv(100), b"bytes")

    def test_the_source_as_well(self):
        client, server = self.pair(own=30001)
        self.assertEqual(server.getpeername(), ("127.0.0.1", 30002))
        self.assert_told(client, server, [self.asker()] * 2)

    def test_what_is_not_rewritten(self):
        client, server = self.pair(port=8080)
        self.assert_told(client, server, [self.asker()] * 2)

    def test_in_the_namespace_of_viaductd(self):
        """It enters none, and needs no right to."""
        daemon = self.start(self.a, "+net_admin", "own")
        self.assert_told(*self.pair(), [self.asker(daemon=daemon)] * 2)

    def test_as_the_service(self):
        """A user with the rights that the unit may be given, and no others, in another network namespace."""
        unit = pathlib.Path(__file__).parents[2] / "packaging/systemd/viaductd.service"
        given = dict(line[1:].split("=", 1) for line in unit.read_text(encoding="utf-8").splitlines()
                     if line.startswith("#") and "Capabilit" in line and "=CAP_" in line)
        self.assertEqual(given["AmbientCapabilities"], given["CapabilityBoundingSet"])
        rights = given["AmbientCapabilities"].lower().replace("cap_", "+").replace(" ", ",")
        daemon = self.start(self.host(), rights, "service")
        self.assert_told(*self.pair(), [self.asker(daemon=daemon)] * 2)

    def test_crossed(self):
        """One client's accepted end is the reverse of another's client end."""
        first, second = self.pair(own=30010), self.pair(port=8080, own=30010)
        self.assertEqual(ends(second[0]), ends(first[1])[::-1])
        asker = self.asker()
        self.assert_told(*first, [asker] * 2)
        self.assert_told(*second, [asker] * 2)

    def test_the_same_numbers_in_two_namespaces(self):
        b = self.host()
        self.rewrite(b)
        first, second = self.pair(own=30003), self.pair(own=30003, host=b)
        self.assertEqual(ends(first[0]), ends(second[0]))
        here, there = self.asker(), self.asker(host=b)
        self.assert_told(*first, [here] * 2)
        self.assert_told(*second, [there] * 2)
        # The namespace is that of who asks.
        self.assertEqual(there.told(first[0], 0), OWNER)

    # ---- what is not ----

    def test_others_connections(self):
        client, server = self.pair(users=(1001, 1002))
        for uid in (0, 1002, 1003):
            self.assertEqual(self.asker(uid).told(client, 0), OWNER)
        mine = self.asker(1001)
        self.assertEqual(mine.told(client, 0, cookie=number(server)), OWNER)
        self.assertEqual(mine.told(client, 0, tuple=ends(server)), OWNER)
        # It has connected, and the entry says so.
        self.assertEqual(mine.told(client, 1), UNSEEN)
        self.assertEqual(self.asker(1001, host=self.home).told(client, 0), OWNER)
        self.assertEqual(mine.told(client, 0)[0], OK)

    def test_where_the_other_end_is_elsewhere(self):
        """Of a server on another host nothing is told but that."""
        b = self.host()
        cable(self.a, b, ["10.9.0.1/24"], ["10.9.0.2/24"])
        with self.a:
            subprocess.run(["nft", "insert rule inet t o ip daddr 10.77.0.2 tcp dport 80 dnat ip to 10.9.0.2:8080"],
                           check=True)
            subprocess.run(["ip", "route", "add", "10.77.0.2/32", "dev", "v0"], check=True)
        with b:
            listener = socket.create_server(("10.9.0.2", 8080))
        with self.a:
            client = socket.create_connection(("10.77.0.2", 80), 30)
        server = listener.accept()[0]
        for sock in (listener, client, server):
            self.addCleanup(sock.close)
        client.send(b"x")
        server.recv(1)
        self.assertEqual(self.asker().told(client, 0), UNSEEN)

    def test_without_an_entry(self):
        client, server = self.pair()
        forget_all(self.a)
        self.assertEqual(self.asker().told(client, 0), UNSEEN)
        self.assertEqual(self.asker().told(server, 1), UNSEEN)

    def test_a_connection_that_ends(self):
        client, server = self.pair()
        said = ends(client), number(client)
        client.close()
        self.assertEqual(self.asker().told(server, 0, cookie=said[1], tuple=said[0]), OWNER)

    def test_rules(self):
        self.daemon.kill()
        self.daemon.set_lines((self.near_line, "deny port=80"))
        self.daemon.start()
        client, server = self.pair()
        asker = self.asker()
        self.assertEqual(asker.told(client, 0), RULE)
        self.assertEqual(asker.told(server, 1)[0], OK)

    def test_without_rights(self):
        client, _ = self.pair()
        for name, rights in (("none", None), ("net", "+net_admin")):
            daemon = self.start(self.host(), rights, name)
            self.assertEqual(self.asker(daemon=daemon).told(client, 0), RIGHTS)
            self.assertIn("CAP_SYS_ADMIN", daemon.text())

    def test_the_right_to_enter_is_given_up(self):
        client, _ = self.pair()
        self.assertEqual(self.asker().told(client, 0)[0], OK)  # both have begun
        with open(f"/proc/{self.daemon.process.pid}/status", encoding="ascii") as f:
            effective = int(next(line for line in f if line.startswith("CapEff")).split()[1], 16)
        self.assertEqual((effective >> 21 & 1, effective >> 12 & 1), (0, 1))
        with open(f"/proc/{self.child()}/status", encoding="ascii") as f:
            permitted = int(next(line for line in f if line.startswith("CapPrm")).split()[1], 16)
        self.assertEqual(permitted, 1 << 21 | 1 << 12)

    # ---- hostile ----

    def test_other_messages(self):
        client, server = self.pair()
        hello = struct.pack("=QII", number(client), 0, 0)
        for said, fds in ((message(TRANSLATE, 1, ends(client), hello[:-1]), []),
                          (message(TRANSLATE, 1, ends(client), hello + b"x"), []),
                          (message(TRANSLATE, 1, ends(client), struct.pack("=QII", 1, 2, 0)), []),
                          (message(TRANSLATE, 1, ends(client), struct.pack("=QII", 1, 0, 1)), []),
                          (message(TRANSLATE, 1, ends(client), hello, status=1), []),
                          (message(TRANSLATED, 1, ends(client), hello), [])):
            bad = self.asker()
            bad.socket.send(said)
            self.assertEqual(bad.hear(DONE).status, MALFORMED)
            self.assertEqual(bad.socket.recv(100), b"")
        asker = self.asker()
        self.assertEqual(asker.told(client, 0, tuple=(end_of(("127.0.0.1", 0)), ends(client)[1])), ADDRESS)
        # Nobody needs to send descriptors along.
        bad = self.asker()
        socket.send_fds(bad.socket, [message(TRANSLATE, 9, ends(client), hello)], [0, 1, client.fileno()])
        bad.is_hung_up_on()
        self.assertEqual(asker.told(client, 0)[0], OK)
        p = Process(self.daemon)
        self.addCleanup(p.close)
        self.assertEqual(p.done(TRANSLATE, tuple=ends(client), hello=hello).status, NETNS)
        self.assert_told(client, server, [asker] * 2)

    def test_floods(self):
        """One user's questions are no other's trouble."""
        client, server = self.pair(users=(1001, 0))
        askers = [self.asker(1001) for _ in range(100)]
        said = set()
        for asker in askers:
            for _ in range(20):
                asker.ask(client, 0)
        other = self.asker()
        self.assertEqual(other.told(server, 1)[0], OK)
        for asker in askers:
            for _ in range(20):
                said.add(asker.hear(TRANSLATED).status)
        self.assertEqual(said, {OK, RATE})
        self.assertEqual(other.told(server, 1)[0], OK)

    def test_who_has_gone(self):
        client, server = self.pair()
        for _ in range(200):
            gone = self.asker()
            gone.ask(client, 0)
            gone.close()
        self.assert_told(client, server, [self.asker()] * 2)

    def test_namespaces_are_let_go(self):
        """What was asked about a namespace does not keep it."""
        asker = self.asker()
        client, server = self.pair()
        self.assert_told(client, server, [asker] * 2)
        kept = os.fstat(self.a.fd).st_ino
        child = self.child()
        self.assertNotEqual(os.stat(f"/proc/{child}/ns/net").st_ino, kept)
        # The line, itself, its home, and nothing else.
        wait_for("its descriptors", lambda: len(os.listdir(f"/proc/{child}/fd")) == 2)

    @staticmethod
    def child_of(pid):
        """The number of its first child, or 0."""
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
            return int((f.read().split() or [0])[0])

    def keeper(self):
        """The child that makes the one that asks, which it has itself."""
        return self.child_of(self.daemon.process.pid)

    def child(self):
        return self.child_of(self.keeper())

    def told_again(self, client, server, asker, gone):
        """Another one asks the kernel by now. Until viaductd has heard of it, whoever asks is to come back."""
        wait_for("another child", lambda: self.child() not in (0, gone))
        while asker.told(client, 0) == FULL:
            time.sleep(0.5)
        self.assert_told(client, server, [asker] * 2)

    # ---- deaths ----

    def test_the_child_dies(self):
        client, server = self.pair()
        asker = self.asker()
        self.assert_told(client, server, [asker] * 2)
        first = self.child()
        os.kill(first, signal.SIGKILL)
        wait_for("its end", lambda: "the child that asks conntrack has ended" in self.daemon.text())
        self.told_again(client, server, asker, first)
        # It has what its predecessor had, and no more.
        with open(f"/proc/{self.child()}/status", encoding="ascii") as f:
            permitted = int(next(line for line in f if line.startswith("CapPrm")).split()[1], 16)
        self.assertEqual(permitted, 1 << 21 | 1 << 12)
        self.assertEqual(len(os.listdir(f"/proc/{self.child()}/fd")), 2)

    def test_the_child_dies_while_others_wait(self):
        client, server = self.pair()
        askers = [self.asker(1000 + i) for i in range(20)]
        child = self.child()
        os.kill(child, signal.SIGSTOP)
        for asker in askers:
            asker.ask(client, 0)
        os.kill(child, signal.SIGKILL)
        self.assertLessEqual({asker.hear(TRANSLATED).status for asker in askers}, {FULL, OWNER})
        self.told_again(client, server, self.asker(), child)

    def test_the_child_dies_again_and_again(self):
        """Each time it takes longer until there is another one."""
        client, server = self.pair()
        asker = self.asker()
        waits = []
        for _ in range(2):
            child = self.child()
            began = time.monotonic()
            os.kill(child, signal.SIGKILL)
            self.told_again(client, server, asker, child)
            waits.append(time.monotonic() - began)
        self.assertTrue(waits[0] >= 1 and waits[1] >= 2, waits)

    def test_who_makes_the_child_dies(self):
        client, server = self.pair()
        asker = self.asker()
        self.assert_told(client, server, [asker] * 2)
        child, keeper = self.child(), self.keeper()
        os.kill(keeper, signal.SIGKILL)
        wait_for("the end of both", lambda: not os.path.exists(f"/proc/{child}"))
        wait_for("a word about it", lambda: "restart viaductd" in self.daemon.text())
        self.assertEqual(asker.told(client, 0), RIGHTS)

    def test_the_child_hangs(self):
        client, server = self.pair()
        asker, other = self.asker(), self.asker()
        child = self.child()
        os.kill(child, signal.SIGSTOP)
        asker.ask(client, 0)
        other.ask(client, 0)
        # Meanwhile others are served.
        p = Process(self.daemon)
        self.addCleanup(p.close)
        self.assertEqual(p.done(2).status, OK)
        self.assertEqual([each.hear(TRANSLATED).status for each in (asker, other)], [FULL] * 2)
        self.told_again(client, server, asker, child)

    def test_restart(self):
        client, server = self.pair()
        asker = self.asker()
        self.assert_told(client, server, [asker] * 2)
        child = self.child()
        self.daemon.kill()
        self.assertEqual(asker.socket.recv(100), b"")
        wait_for("the child's end", lambda: not os.path.exists(f"/proc/{child}"))
        self.daemon.start()
        self.assert_told(client, server, [self.asker()] * 2)


if __name__ == "__main__":
    hosts.main(1)
