# SPDX-License-Identifier: Apache-2.0
"""viaductd between network namespaces of one host: who meets, and who never does.

A daemon in a namespace of its own; a and b, whose connections it is about; and a2 and b2, which
have the same addresses.
"""
import contextlib
import os
import pathlib
import signal
import socket
import struct
import time
import unittest

from rig import (DONE, FULL, MEET, MET, NETNS, OK, OWNER, RULE, WITHDRAW, Daemon, Host, Process,
                 Said, cable, call, connection, ends, folder, message, wait_for)
import hosts

KEYS = hosts.KEYS
PROGRAMS = hosts.PROGRAMS
NETLINK_SOCK_DIAG = 4
SO_COOKIE, SO_NETNS_COOKIE = 57, 71
NEWUSER, NEWNET = 0x10000000, 0x40000000


def number(sock, option):
    return struct.unpack("=Q", sock.getsockopt(socket.SOL_SOCKET, option, 8))[0]


def diag(host):
    with host:
        return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG)


def probe(host, address):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with host:
        sock = socket.socket(family, socket.SOCK_DGRAM)
        sock.bind((address, 0))
    return sock


class Near(Process):
    """A process that has connected to the socket for namespaces."""
    def __init__(self, daemon, host, uid=0):
        super().__init__(daemon, host, uid, "near")
        self.host = host

    def ask(self, tcp, accepted, fds=None, tuple=None):
        """A MEET; its number. The descriptors are what an honest process shows."""
        self.last += 1
        with contextlib.ExitStack() as stack:
            if fds is None:
                nl = stack.enter_context(diag(self.host))
                udp = stack.enter_context(probe(self.host, tcp.getsockname()[0]))
                fds = [nl.fileno(), self.host.fd, udp.fileno()]
            said = message(MEET, self.last, tuple or ends(tcp), struct.pack("=I", accepted))
            socket.send_fds(self.socket, [said], fds)
        return self.last

    def meet(self, tcp, accepted, **how):
        """The status of a MEET."""
        id = self.ask(tcp, accepted, **how)
        said = self.hear(DONE)
        assert said.id == id, (said.id, id)
        return said.status

    def met(self):
        """Of a MET: the user, the cookies, the line and the bell."""
        data, fds, flags, _ = socket.recv_fds(self.socket, 4096, 3, socket.MSG_CMSG_CLOEXEC)
        if not data:
            raise EOFError
        said = Said(data)
        assert said.type == MET and len(fds) == 2 and not flags & socket.MSG_CTRUNC
        return Met(said, *(socket.socket(fileno=fd) for fd in fds))

    def hears_nothing(self):
        with contextlib.suppress(BlockingIOError):
            self.socket.setblocking(False)
            return not self.socket.recv(4096, socket.MSG_PEEK)
        self.socket.settimeout(30)
        return True


class Met:
    def __init__(self, said, line, bell):
        self.id, self.uid = said.id, said.uid
        self.cookie, self.netns = struct.unpack("=QQ", said.hello)
        self.line, self.bell = line, bell
        for sock in (line, bell):
            sock.settimeout(30)

    def close(self):
        self.line.close()
        self.bell.close()


class TestNear(unittest.TestCase):
    def setUp(self):
        self.folder = folder()
        self.addCleanup(self.folder.cleanup)
        self.home, self.a, self.b, self.a2, self.b2 = (self.host() for _ in range(5))
        for one, other in ((self.a, self.b), (self.a2, self.b2)):
            cable(one, other, ["10.9.0.1/24", "fd09::1/64"], ["10.9.0.2/24", "fd09::2/64"])
        self.near_line = f"near-socket = {self.folder.name}/d/near"
        self.daemon = Daemon(PROGRAMS[0], self.home, f"{self.folder.name}/d", KEYS, (self.near_line,))
        self.addCleanup(self.daemon.close)

    def host(self):
        host = Host()
        self.addCleanup(host.close)
        return host

    def again(self, *lines):
        """The daemon with other settings."""
        self.daemon.kill()
        self.daemon.set_lines((self.near_line, *lines))
        self.daemon.start()

    def near(self, host, uid=0):
        process = Near(self.daemon, host, uid)
        self.addCleanup(process.close)
        return process

    def pair(self, a=None, b=None, address="10.9.0.2", **how):
        client, server = connection(a or self.a, b or self.b, address, **how)
        self.addCleanup(client.close)
        self.addCleanup(server.close)
        return client, server

    def assert_met(self, p, q, client, server):
        one, other = p.met(), q.met()
        self.addCleanup(one.close)
        self.addCleanup(other.close)
        for met, peer in ((one, server), (other, client)):
            self.assertEqual((met.cookie, met.netns),
                             (number(peer, SO_COOKIE), number(peer, SO_NETNS_COOKIE)))
        secret = os.urandom(16)
        memory = os.memfd_create("m")
        os.write(memory, secret)
        socket.send_fds(other.line, [b"hello"], [memory])
        os.close(memory)
        data, fds, _, _ = socket.recv_fds(one.line, 100, 1)
        self.assertEqual((data, os.pread(fds[0], 16, 0)), (b"hello", secret))
        os.close(fds[0])
        for left, right in ((one, other), (other, one)):
            left.bell.send(b"ring")
            self.assertEqual(right.bell.recv(100), b"ring")
        return one, other

    def meets(self, p, q, client, server):
        self.assertEqual(p.meet(client, False), OK)
        self.assertEqual(q.meet(server, True), OK)
        return self.assert_met(p, q, client, server)

    # ---- who meets ----

    def test_two_ends_meet(self):
        for address in ("10.9.0.2", "fd09::2"):
            client, server = self.pair(address=address, client_uid=1001, server_uid=1002)
            p, q = self.near(self.a, 1001), self.near(self.b, 1002)
            one, other = self.meets(p, q, client, server)
            self.assertEqual((one.uid, other.uid), (1002, 1001))
            # Nothing of the connection has changed.
            client.send(b"bytes")
            self.assertEqual(server.recv(100), b"bytes")

    def test_many_connections_of_two_processes(self):
        p, q = self.near(self.a), self.near(self.b)
        pairs = [self.pair() for _ in range(20)]
        asked = {p.ask(client, False): (client, server) for client, server in pairs}
        for _ in pairs:
            self.assertEqual(p.hear(DONE).status, OK)
        for client, server in reversed(pairs):
            self.assertEqual(q.meet(server, True), OK)
            one, other = p.met(), q.met()
            self.assertEqual(asked[one.id], (client, server))
            self.assertEqual(one.cookie, number(server, SO_COOKIE))
            one.close()
            other.close()

    def test_bells_and_the_offering_line_take_no_descriptors(self):
        client, server = self.pair()
        one, other = self.meets(self.near(self.a), self.near(self.b), client, server)
        for sock in (one.bell, other.bell, one.line):
            with self.assertRaises(OSError):
                socket.send_fds(sock, [b"x"], [0])

    # ---- who does not ----

    def tries(self):
        return self.daemon.text().count("no way between two namespaces")

    def test_crossed_connections_never_meet(self):
        """The same four numbers twice: each end finds its own other end, in any order."""
        how = {"source": "10.9.0.1", "ports": (40000, 5000)}
        first, second = self.pair(**how), self.pair(self.a2, self.b2, **how)
        self.assertEqual(ends(first[0]), ends(second[0]))
        p, q = self.near(self.a), self.near(self.b)
        p2, q2 = self.near(self.a2), self.near(self.b2)
        # These alone are each other's mirror image, and are tried again and again.
        self.assertEqual(p.meet(first[0], False), OK)
        self.assertEqual(q2.meet(second[1], True), OK)
        wait_for("two tries", lambda: self.tries() >= 2)
        self.assertTrue(p.hears_nothing() and q2.hears_nothing())
        self.assertEqual(p2.meet(second[0], False), OK)
        self.assert_met(p2, q2, *second)
        self.assertTrue(p.hears_nothing())
        self.assertEqual(q.meet(first[1], True), OK)
        self.assert_met(p, q, *first)

    def test_no_way_to_an_address(self):
        """A connection that is not there any more at one end."""
        client, server = self.pair()
        p, q = self.near(self.a), self.near(self.b)
        self.assertEqual(p.meet(client, False), OK)
        with self.b:
            os.system("ip link set v0 down")
        self.assertEqual(q.meet(server, True), OK)
        wait_for("a try", lambda: self.tries() >= 1)
        self.assertTrue(p.hears_nothing() and q.hears_nothing())
        with self.b:
            os.system("ip link set v0 up")
        self.assert_met(p, q, client, server)

    def test_claims(self):
        client, server = self.pair(client_uid=1001)
        other = self.near(self.a, 1002)
        self.assertEqual(other.meet(client, False), OWNER)
        away = self.near(self.a2, 1001)
        # Its own namespace has no such address, or no such connection.
        with diag(self.a) as here, diag(self.a2) as there, probe(self.a, "10.9.0.1") as good, \
                probe(self.a2, "10.9.0.1") as foreign, probe(self.a, "0.0.0.0") as wild:
            self.assertEqual(away.meet(client, False,
                                       fds=[there.fileno(), self.a2.fd, foreign.fileno()]), OWNER)
            mine = self.near(self.a, 1001)
            for fds in ((here, self.a2.fd, good), (there, self.a.fd, good),
                        (here, self.a.fd, foreign), (here, self.a.fd, wild)):
                fds = [fd if isinstance(fd, int) else fd.fileno() for fd in fds]
                self.assertEqual(mine.meet(client, False, fds=fds), NETNS)
            self.assertEqual(mine.meet(client, False,
                                       fds=[here.fileno(), self.a.fd, good.fileno()]), OK)

    def test_a_user_of_no_number(self):
        client, _ = self.pair(client_uid=65534)
        self.assertEqual(self.near(self.a, 65534).meet(client, False), OWNER)

    def test_namespaces_of_another_owner(self):
        """Who is root in a user namespace of its own may have any address: it meets nobody else."""
        client, _ = self.pair(source="10.9.0.1", ports=(40000, 5000))
        p = self.near(self.a)
        self.assertEqual(p.meet(client, False), OK)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                call("unshare", NEWUSER | NEWNET)
                pathlib.Path("/proc/self/uid_map").write_text("0 0 1\n")
                os.system("ip link set lo up; ip addr add 10.9.0.1/32 dev lo;"
                          "ip addr add 10.9.0.2/32 dev lo")
                listener = socket.create_server(("10.9.0.2", 5000))
                forged = socket.create_connection(("10.9.0.2", 5000), 30, ("10.9.0.1", 40000))
                server = listener.accept()[0]
                fake = Near.__new__(Near)
                fake.last = 0
                fake.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                fake.socket.connect(str(self.daemon.folder / "near"))
                nl = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG)
                udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                udp.bind(("10.9.0.2", 0))
                space = os.open("/proc/self/ns/net", os.O_RDONLY)
                said = fake.meet(server, True, fds=[nl.fileno(), space, udp.fileno()])
                os.write(write, bytes([said]))
                time.sleep(60)
                status = forged is None
            finally:
                os._exit(status)
        os.close(write)
        try:
            said = os.read(read, 1)
            # Root's number is another one there, or it is a question that stays alone.
            self.assertIn(said, (bytes([OK]), bytes([OWNER])))
            for _ in range(3):
                client2, _ = self.pair()
                self.assertEqual(p.meet(client2, False), OK)
            self.assertEqual(self.tries(), 0)
            self.assertTrue(p.hears_nothing())
        finally:
            os.kill(child, 9)
            os.waitpid(child, 0)
            os.close(read)

    def test_rules(self):
        self.again("deny addr=10.9.0.2 port=5000")
        client, server = self.pair(source="10.9.0.1", ports=(40000, 5000))
        self.assertEqual(self.near(self.a).meet(client, False), RULE)
        self.assertEqual(self.near(self.b).meet(server, True), OK)

    # ---- hostile ----

    def test_other_messages_and_other_descriptors(self):
        client, server = self.pair()
        for said, fds in ((message(1, 1, ends(client), b"publish"), []),
                             (b"", [0]), (b"x" * 2000, []),
                             (message(MEET, 1, ends(client), b"\0\0\0\0"), [0]),
                             (message(MEET, 1, ends(client), b"\0\0\0\0"), [0, 0, 0]),
                             (message(MEET, 1, ends(client), b"\0\0\0\0"), [0] * 100),
                             (message(MEET, 1, ends(client), b"\0\0\0\0"),
                              [client.fileno(), self.a.fd, client.fileno()])):
            p = self.near(self.a)
            if fds:
                socket.send_fds(p.socket, [said], fds)
            else:
                p.socket.send(said)
            while p.socket.recv(4096):
                pass
        self.meets(self.near(self.a), self.near(self.b), client, server)
        p = Process(self.daemon)
        self.addCleanup(p.close)
        self.assertEqual(p.done(MEET, tuple=ends(client), hello=b"\0\0\0\0").status, NETNS)
        with self.assertRaises(OSError):
            socket.send_fds(p.socket, [b"x"], [0])

    def test_descriptors_that_do_not_close(self):
        """A TCP socket that lingers, with bytes that nobody takes: who closes it last waits."""
        client, server = self.pair()
        p = self.near(self.a, 1001)
        for _ in range(4):
            slow, peer = self.pair()
            slow.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while slow.send(bytes(1 << 16)):
                    pass
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 300))
            bad = self.near(self.a, 1001)
            # Ours is not to be the last descriptor.
            self.daemon.process.send_signal(signal.SIGSTOP)
            bad.ask(client, False, fds=[slow.fileno()] * (3 if peer.fileno() % 2 else 200))
            slow.close()
            self.daemon.process.send_signal(signal.SIGCONT)
            while bad.socket.recv(4096):
                pass
        del p
        self.meets(self.near(self.a), self.near(self.b), client, server)

    def test_floods(self):
        """One user's questions fill its share alone."""
        self.again("rate-uid = 100000")
        p = self.near(self.a, 1001)
        status, pairs = OK, []
        while status == OK:
            pairs.append(self.pair(client_uid=1001))
            status = p.meet(pairs[-1][0], False)
        self.assertEqual((status, len(pairs)), (FULL, 1025))
        client, server = self.pair()
        self.meets(self.near(self.a), self.near(self.b), client, server)
        self.assertEqual(p.done(WITHDRAW, tuple=ends(pairs[0][0])).status, OK)
        self.assertEqual(p.meet(pairs[-1][0], False), OK)

    # ---- deaths ----

    def test_deaths(self):
        for step in range(4):
            client, server = self.pair()
            p, q = self.near(self.a), self.near(self.b)
            if step == 0:  # before there is anybody
                self.assertEqual(p.meet(client, False), OK)
                p.close()
            elif step == 1:  # with the proof under way, or over
                p.ask(client, False)
                q.ask(server, True)
                p.close()
            elif step == 2:
                p.ask(client, False)
                q.ask(server, True)
                p.close()
                q.close()
            else:
                self.assertEqual(p.meet(client, False), OK)
                self.assertEqual(p.done(WITHDRAW, tuple=ends(client)).status, OK)
            self.meets(self.near(self.a), self.near(self.b), *self.pair())

    def test_restart(self):
        client, server = self.pair()
        p, q = self.near(self.a), self.near(self.b)
        self.assertEqual(p.meet(client, False), OK)
        self.daemon.kill()
        for process in (p, q):
            self.assertEqual(process.socket.recv(100), b"")
        self.daemon.start()
        one, other = self.meets(self.near(self.a), self.near(self.b), client, server)
        self.daemon.kill()
        one.bell.send(b"still")
        self.assertEqual(other.bell.recv(100), b"still")
        self.daemon.start()


if __name__ == "__main__":
    hosts.main(1)
