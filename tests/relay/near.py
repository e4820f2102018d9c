# SPDX-License-Identifier: Apache-2.0
"""viaductd between network namespaces of one host: who meets, and who never does.

A daemon in a namespace of its own; a and b, whose connections it is about; and a2 and b2, which
have the same addresses.
"""
import contextlib
import ctypes
import fcntl
import os
import pathlib
import signal
import socket
import struct
import threading
import time
import unittest

from rig import (DONE, FULL, MEET, MET, NETNS, OK, OWNER, RULE, TRANSLATE, WITHDRAW, Daemon, Host, Process,
                 Said, cable, call, connection, ends, folder, message, slow, wait_for, waits_for)
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


class Held:
    """The lock of a UDP socket, held by a process that sends out of memory that does not come."""
    def __init__(self, udp, to):
        told, tell = os.pipe()
        self.child = os.fork()
        if self.child == 0:
            try:
                self.hold(udp, to)
                os.write(tell, b"x")
                signal.pause()
            finally:
                os._exit(1)
        os.close(tell)
        said = os.read(told, 1)
        os.close(told)
        if not said:
            self.let_go()
            raise unittest.SkipTest("no userfaultfd")

    @staticmethod
    def hold(udp, to):
        own = ctypes.CDLL(None, use_errno=True)
        own.mmap.restype = ctypes.c_void_p
        size = 4096
        page = own.mmap(None, ctypes.c_size_t(size), 3, 0x22, -1, ctypes.c_long(0))
        fault = own.syscall(323, 0)  # userfaultfd
        fcntl.ioctl(fault, 0xc018aa3f, struct.pack("QQQ", 0xaa, 0, 0))
        fcntl.ioctl(fault, 0xc020aa00, struct.pack("QQQQ", page, size, 1, 0))
        name = struct.pack("=HHI8x", socket.AF_INET, socket.htons(to[1]),
                           int.from_bytes(socket.inet_aton(to[0]), "little"))
        threading.Thread(target=own.sendto, args=(
            udp.fileno(), ctypes.c_void_p(page), ctypes.c_size_t(100), socket.MSG_MORE, name, 16)).start()
        os.read(fault, 32)  # It has come to the copy.

    def let_go(self):
        if self.child:
            os.kill(self.child, signal.SIGKILL)
            os.waitpid(self.child, 0)
            self.child = 0


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

    def test_where_capset_is_refused(self):
        """Who has no capability has none to give up."""
        self.daemon.kill()
        self.daemon.start(filtered=True)
        client, server = self.pair()
        self.meets(self.near(self.a), self.near(self.b), client, server)

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

    def test_two_wrong_pairs_part(self):
        """Of two crossed connections each end is tried with the other's first, one pair after the other."""
        how = {"source": "10.9.0.1", "ports": (40000, 5000)}
        first, second = self.pair(**how), self.pair(self.a2, self.b2, **how)
        p, q = self.near(self.a), self.near(self.b)
        p2, q2 = self.near(self.a2), self.near(self.b2)
        for process, tcp in ((q, first[1]), (q2, second[1])):
            self.assertEqual(process.meet(tcp, True), OK)
        self.assertEqual(p2.meet(second[0], False), OK)  # with the first that waits
        time.sleep(0.3)
        self.assertEqual(p.meet(first[0], False), OK)  # with who is left
        self.assert_met(p2, q2, *second)
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
                try:
                    call("unshare", NEWUSER | NEWNET)
                except OSError as refused:
                    os.write(write, bytes([OK, refused.errno]))
                    raise
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
            said = os.read(read, 2)
            if len(said) == 2:  # as in a chroot
                self.skipTest(f"no user namespace can be made here: {os.strerror(said[1])}")
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
            p.is_hung_up_on()
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
        for count in (3, 200) * 2:
            slow = self.slow()
            bad = self.near(self.a, 1001)
            # Ours is not to be the last descriptor.
            self.daemon.process.send_signal(signal.SIGSTOP)
            bad.ask(client, False, fds=[slow.fileno()] * count)
            slow.close()
            self.daemon.process.send_signal(signal.SIGCONT)
            bad.is_hung_up_on()
        del p
        self.meets(self.near(self.a), self.near(self.b), client, server)

    def slow(self):
        """A TCP socket that lingers, with bytes that nobody takes; its peer's end is kept."""
        one, peer = slow(self.a, "10.9.0.1")
        self.addCleanup(peer.close)
        return one

    def test_sockets_that_do_not_close_cost_no_time(self):
        """Lines with one of these each: the daemon waits for none of them, whatever they come with."""
        self.again("rate-uid = 1000000")
        client, server = self.pair(client_uid=1001)
        for said in (b"nothing that it knows", b"", message(WITHDRAW, 1, ends(client)),
                     message(TRANSLATE, 1, ends(client), bytes(16))):
            waits = waits_for(self.daemon, self.a, "10.9.0.1", lambda: self.near(self.a, 1001), said)
            self.assertLess(waits, 150)
        self.meets(self.near(self.a), self.near(self.b), *self.pair())
        self.again("rate-uid = 1")
        waits = waits_for(self.daemon, self.a, "10.9.0.1", lambda: self.near(self.a, 1001), b"?", 0, 300)
        self.assertLess(waits, 150)
        self.meets(self.near(self.a), self.near(self.b, 1002), *self.pair(server_uid=1002))

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.daemon.process.pid}/fd"))

    def children(self):
        """Those that have ended and are not buried count, too."""
        pid = self.daemon.process.pid
        return len(pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split())

    def test_a_socket_that_is_closed_later(self):
        """The daemon keeps it for what its process has not read: with a message that takes long to close."""
        keepers = self.children()
        p, q = self.near(self.a), self.near(self.b)
        client, server = self.pair()
        self.assertEqual(p.meet(client, False), OK)
        self.assertEqual(q.meet(server, True), OK)
        wait_for("a meeting", lambda: self.meetings() == 1)
        slow = self.slow()
        self.daemon.process.send_signal(signal.SIGSTOP)
        p.socket.send(b"nothing that it knows")
        socket.send_fds(p.socket, [b"more"], [slow.fileno()])
        slow.close()
        self.daemon.process.send_signal(signal.SIGCONT)
        self.daemon.wait_log("another version of the protocol")
        before = self.descriptors()
        p.close()
        wait_for("the end of the socket", lambda: self.descriptors() < before)
        for each in (q, client, server):
            each.close()
        wait_for("the burial of all children", lambda: self.children() == keepers)
        self.meets(self.near(self.a), self.near(self.b), *self.pair())

    def sleeps(self):
        """Five times in a row: a process that spins does not."""
        def state():
            time.sleep(0.01)
            return self.daemon.state()
        return all(state() == "S" for _ in range(5))

    def test_a_child_that_hangs_keeps_nobody_busy(self):
        """It has the socket of its process, too, which has ended."""
        client, server = self.pair(client_uid=1001, server_uid=1001)
        with diag(self.a) as nl, probe(self.a, "10.9.0.1") as udp, contextlib.ExitStack() as stack:
            p, q = self.near(self.a, 1001), self.near(self.b, 1001)
            self.assertEqual(p.meet(client, False, fds=[nl.fileno(), self.a.fd, udp.fileno()]), OK)
            held = Held(udp, ("10.9.0.2", 9))
            stack.callback(held.let_go)
            q.ask(server, True)
            self.daemon.wait_log("what it has shown of itself does not answer")
            p.close()
            q.close()
            wait_for("a daemon that sleeps", self.sleeps)

    def test_locks_that_are_held(self):
        """Whoever waits for such a lock waits as long as its holder likes: only children of its user do."""
        client, server = self.pair(client_uid=1001)
        with contextlib.ExitStack() as stack:
            nl, udp = stack.enter_context(diag(self.a)), stack.enter_context(probe(self.a, "10.9.0.1"))
            held = Held(udp, ("10.9.0.2", 9))
            stack.callback(held.let_go)
            bad = [self.near(self.a, 1001) for _ in range(3)]
            for each in bad:
                each.ask(client, False, fds=[nl.fileno(), self.a.fd, udp.fileno()])
            self.meets(self.near(self.a), self.near(self.b), *self.pair())
            for each in bad:
                self.assertEqual(each.socket.recv(100), b"")
            self.daemon.wait_log("what it has shown of itself does not answer")
            wait_for("a user who has no more children", self.is_hung_up_on)
            self.meets(self.near(self.a), self.near(self.b), *self.pair())
        # Once they have ended, this user is as any other.
        def meets_again():
            p = self.near(self.a, 1001)
            p.ask(client, False)
            data = p.socket.recv(4096)
            self.addCleanup(p.close)
            return data and Said(data).status == OK and p
        p, q = wait_for("a child", meets_again), self.near(self.b)
        self.assertEqual(q.meet(server, True), OK)
        self.assert_met(p, q, client, server)

    def is_hung_up_on(self):
        """Asks as a user whose children hang."""
        client, _ = self.pair(client_uid=1001)
        p = self.near(self.a, 1001)
        p.ask(client, False)
        return not p.socket.recv(100) and "too much of what this user has shown hangs" in self.daemon.text()

    def test_datagrams_of_no_byte(self):
        """Anybody may send some to the port of a proof, before it begins."""
        client, server = self.pair()
        p, q = self.near(self.a), self.near(self.b)
        with self.b:
            other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with other, diag(self.a) as nl, probe(self.a, "10.9.0.1") as udp:
            self.assertEqual(p.meet(client, False, fds=[nl.fileno(), self.a.fd, udp.fileno()]), OK)
            for _ in range(3):
                other.sendto(b"", udp.getsockname())
        self.assertEqual(q.meet(server, True), OK)
        self.assert_met(p, q, client, server)
        self.assertEqual(self.tries(), 0)

    def meetings(self):
        return self.daemon.text().count("meet, of two namespaces")

    def test_who_does_not_read(self):
        """Descriptors that nobody takes are the daemon's: there are no more than it says."""
        self.again("rate-uid = 100000")
        before = len(os.listdir(f"/proc/{self.daemon.process.pid}/fd"))
        p, q = self.near(self.a, 1001), self.near(self.b)
        pairs = [self.pair(client_uid=1001) for _ in range(70)]
        for i, (client, server) in enumerate(pairs):
            p.ask(client, False)
            self.assertEqual(q.meet(server, True), OK)
            if i < 64:
                q.met().close()
        wait_for("as many as there is room for", lambda: self.meetings() == 64)
        wait_for("one more try", lambda: self.tries() >= 1)
        self.assertEqual(self.meetings(), 64)
        self.meets(self.near(self.a), self.near(self.b), *self.pair())
        read = [0]

        def reads():
            with contextlib.suppress(BlockingIOError):
                while True:
                    p.socket.setblocking(False)
                    _, fds, _, _ = socket.recv_fds(p.socket, 4096, 3)
                    read[0] += len(fds) == 2
                    for fd in fds:
                        os.close(fd)
            return read[0] == 70
        wait_for("the others", reads)
        # What is unread when it is hung up on stays counted, and goes with its process.
        client, server = self.pair(client_uid=1001)
        p.ask(client, False)
        q.ask(server, True)
        wait_for("a meeting", lambda: self.meetings() == 72)
        p.socket.send(b"nothing that it knows")
        self.daemon.wait_log("another version of the protocol")
        time.sleep(0.3)
        self.assertGreater(len(os.listdir(f"/proc/{self.daemon.process.pid}/fd")), before + 1)
        p.close()
        q.close()
        wait_for("all descriptors", lambda: len(os.listdir(
            f"/proc/{self.daemon.process.pid}/fd")) <= before + 8)

    def child_faults(self):
        """Pages that ended children of the daemon have touched."""
        text = pathlib.Path(f"/proc/{self.daemon.process.pid}/stat").read_text()
        return int(text.rpartition(")")[2].split()[8])

    def test_a_flood_makes_no_children(self):
        self.again("rate-uid = 1")
        client, _ = self.pair(client_uid=1001)
        p = self.near(self.a, 1001)
        before = self.child_faults()
        for _ in range(60):
            p.ask(client, False)
        # Four seconds' worth; the others wait in its socket, which has room for no more.
        for _ in range(4):
            self.assertEqual(p.hear(DONE).status, OK)
        p.close()
        self.meets(self.near(self.a), self.near(self.b), *self.pair())
        self.assertLess(self.child_faults() - before, 2000)

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
