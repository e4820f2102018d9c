#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Peers that lie, repeat, forge and stall, and processes that flood: the daemon answers them, ends
them, and serves the others. hostile.py VIADUCTD [TEST...]"""
import array
import os
import random
import resource
import select
import signal
import socket
import struct
import time

import sealed
from hosts import TwoHosts, main
from rig import (ANSWER, ASK, ASKED, DONE, FOREIGN, FULL, KEY, MALFORMED, NOBODY, OK, OWNER,
                 PORT, PUBLISH, SECONDS, SILENT, UNREACHABLE, VERSION, WITHDRAW, Process, end_of,
                 ends, message, wait_for, waits_for)
from sealed import REFUSAL, Closed, Peer

RESET = struct.pack("ii", 1, 0)  # SO_LINGER: a close leaves nothing behind


class Askers(TwoHosts):
    """The daemon is on b; whoever connects to it from a is ours."""
    def setUp(self):
        super().setUp()
        self.db = self.daemon(self.b, "b")

    def connect(self, address="10.9.0.2", source=None, host=None, **options):
        peer = sealed.connect(host or self.a, address, source, **options)
        self.addCleanup(peer.close)
        return peer

    def holder(self, **pair):
        """A connection, whose end on b is published."""
        client, server = self.pair(**pair)
        q = self.process(self.db)
        self.published(q, ends(server))
        return q, ends(client)

    def answered(self, peer, q, tuple):
        """The peer asks, and the holder says yes."""
        peer.say(sealed.question(7, *tuple, b"hello"))
        asked = q.hear(ASKED)
        q.say(ANSWER, id=asked.id, hello=b"yes")
        got = sealed.Answer(peer.hear())
        self.assertEqual((got.id, got.status, got.hello), (7, OK, b"yes"))

    def test_the_page_is_right(self):
        for address in ("10.9.0.2", "fd09::2"):
            q, tuple = self.holder(address=address)
            peer = self.connect(address).shake()
            self.answered(peer, q, tuple)
            other = (tuple[0], tuple[1][:-1] + bytes([tuple[1][-1] ^ 1]))
            self.assertEqual(peer.ask(9, *other).status, NOBODY)

    def test_wrong_keys(self):
        for options in ({"key": b"\x12" * 32}, {"id": b"other"}):
            with self.assertRaises(Closed) as closed:
                self.connect(**options).shake()
            self.assertEqual(closed.exception.args[0], sealed.head(REFUSAL, KEY))
        self.db.wait_log("has not the key that it names")
        self.db.wait_log("names a key that is not in our file")

    def test_no_viaductd(self):
        for data in (b"GET / HTTP/1.0\r\n\r\n", bytes(100), b"viaductx" + bytes(100)):
            peer = self.connect()
            peer.write(data)
            peer.ended()
        for version in (1, 3):
            peer = self.connect()
            peer.write(sealed.head(1, version=version) + bytes(80))
            with self.assertRaises(Closed) as closed:
                peer.read(100)
            self.assertEqual(closed.exception.args[0], sealed.head(REFUSAL, VERSION))
        self.db.wait_log("is refused: it speaks another version")

    def test_a_session_repeated(self):
        q, tuple = self.holder()
        with self.a:
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            sock.connect(("10.9.0.2", PORT))
        peer, name = Peer(sock), sock.getsockname()
        peer.shake()
        self.answered(peer, q, tuple)
        said = list(peer.sent)
        peer.close()
        self.db.wait_log("has closed the link")
        # From the same port, or else not even the first message fits.
        with self.a:
            sock = socket.create_connection(("10.9.0.2", PORT), SECONDS, name)
        again = Peer(sock)
        self.addCleanup(again.close)
        again.write(said[0])
        again.read(sealed.REPLY_BYTES)
        again.write(b"".join(said[1:]))
        self.assertTrue(again.ended())
        self.db.wait_log("has not the key that it names")
        self.assertEqual(self.status(q, (bytes(18), bytes(18)), WITHDRAW), OK)  # heard nothing

    def frames(self, change, log):
        q, tuple = self.holder()
        peer = self.connect().shake()
        self.answered(peer, q, tuple)
        change(peer, sealed.question(8, *tuple, b"x"))
        self.assertTrue(peer.ended())
        self.db.wait_log(log)
        self.assertEqual(self.status(q, tuple[::-1], WITHDRAW), OK)  # heard nothing

    def test_a_frame_repeated(self):
        self.frames(lambda peer, _: peer.write(peer.sent[-1]), "a frame has come twice")

    def test_a_frame_left_out(self):
        def skip(peer, plain):
            peer.frame(plain)
            peer.say(plain)
        self.frames(skip, "a frame is forged, changed or missing")

    def test_two_frames_exchanged(self):
        def swap(peer, plain):
            first = peer.frame(plain)
            peer.write(peer.frame(plain) + first)
        self.frames(swap, "a frame is forged, changed or missing")

    def test_a_frame_cut_short(self):
        """Its end never comes, and the link's does: nothing of it was heard."""
        q, tuple = self.holder()
        peer = self.connect().shake()
        self.answered(peer, q, tuple)
        peer.write(peer.frame(sealed.question(8, *tuple, b"x"))[:-1])
        peer.socket.shutdown(socket.SHUT_WR)
        self.assertTrue(peer.ended())
        self.db.wait_log("has closed the link")
        self.assertEqual(self.status(q, tuple[::-1], WITHDRAW), OK)  # heard nothing

    def test_a_frame_changed(self):
        def flip(peer, plain):
            data = bytearray(peer.frame(plain))
            data[20] ^= 1
            peer.write(data)
        self.frames(flip, "a frame is forged, changed or missing")

    def test_a_frame_too_long(self):
        self.frames(lambda peer, _: peer.write(struct.pack(">HHQ", 60000, 0, peer.sealed)),
                    "a frame of no possible length")

    def test_no_question(self):
        for plain in (b"", b"\0", sealed.answer(1), bytes(48), b"\1" + bytes(1000)):
            peer = self.connect().shake()
            peer.say(plain)
            self.assertTrue(peer.ended())
        self.db.wait_log("what it says makes no sense")

    def test_about_no_connection(self):
        """What a daemon asks for a PROBE: it learns that we are there, and nothing else."""
        a, b, other = (end_of((name, 0)) for name in ("10.9.0.1", "10.9.0.2", "192.168.9.1"))
        peer = self.connect().shake()
        got = peer.ask(3, a, b)
        self.assertEqual((got.id, got.status, got.hello, got.uid), (3, NOBODY, b"", 0))
        self.assertEqual(peer.ask(4, other, b).status, FOREIGN)

    def test_another_ones_address(self):
        """The tuple is real and published, but its address is not that of the link."""
        q, tuple = self.holder(address="192.168.9.2", source="192.168.9.1")
        peer = self.connect().shake()
        self.assertEqual(peer.ask(1, *tuple).status, FOREIGN)
        self.db.wait_log("which is not its address: refused")
        own = self.connect("192.168.9.2", "192.168.9.1").shake()
        self.answered(own, q, tuple)
        # The link's other address does not matter, its own does.
        mixed = self.connect("192.168.9.2", "10.9.0.1")
        self.assertEqual(mixed.shake().ask(1, *tuple).status, FOREIGN)

    def test_strangers_do_not_stay(self):
        """Who proves nothing gets four places and three seconds."""
        peers = [self.connect() for _ in range(4)]
        q, tuple = self.holder(address="fd09::2")
        self.assertTrue(self.connect().ended())
        self.db.wait_log("is turned away: it connects too often")
        other = self.connect("fd09::2", host=self.a).shake()
        self.answered(other, q, tuple)
        for peer in peers:
            self.assertTrue(peer.ended())
        self.db.wait_log("has proved no key in time")
        wait_for("a place", self.try_shake)

    def try_shake(self):
        try:
            return self.connect().shake().ask(1, bytes(18), bytes(18))
        except (Closed, OSError):
            return None

    def test_more_questions_than_places(self):
        q, tuple = self.holder()
        peer = self.connect().shake()
        for id in range(70):
            peer.say(sealed.question(id, *tuple))
        full = [sealed.Answer(peer.hear()) for _ in range(6)]
        self.assertEqual({a.status for a in full}, {FULL})
        for _ in range(64):
            q.say(ANSWER, id=q.hear(ASKED).id, hello=b"yes")
        self.assertEqual({sealed.Answer(peer.hear()).status for _ in range(64)}, {OK})

    def test_a_flood_of_questions_without_reading(self):
        q, tuple = self.holder()
        peer = self.connect().shake()
        other = (tuple[0], tuple[1][:-1] + bytes([tuple[1][-1] ^ 1]))
        with self.assertRaises(OSError):
            while True:
                peer.write(b"".join(peer.frame(sealed.question(1, *other)) for _ in range(50)))
                peer.sent.clear()
        self.db.wait_log("does not read: ended")
        self.answered(self.connect("10.9.0.2").shake(), q, tuple)

    def test_random_messages(self):
        """Sealed nonsense: the link ends, and nobody else notices."""
        chance = random.Random(8)
        q, tuple = self.holder(address="fd09::2")
        good = sealed.question(1, *tuple, bytes(100))
        for i in range(20):
            peer = self.connect()
            data = bytearray(good)
            for _ in range(chance.randrange(1, 5)):
                data[chance.randrange(12)] = chance.randrange(256)
            try:
                peer.shake().say(bytes(data[:chance.randrange(len(data) + 1)]))
                peer.hear()
            except (Closed, ConnectionError):
                pass
            peer.close()
        wait_for("a place", self.try_shake)

    def test_a_restart_with_links(self):
        q, tuple = self.holder()
        peer = self.connect().shake()
        self.answered(peer, q, tuple)
        self.db.kill()
        self.assertTrue(peer.ended())
        self.db.start()
        self.assertEqual(self.connect().shake().ask(1, *tuple).status, NOBODY)


class Answerers(TwoHosts):
    """The daemon is on a; whoever answers it on b is ours."""
    def setUp(self):
        super().setUp()
        self.da = self.daemon(self.a, "a")
        with self.b:
            self.listener = socket.create_server(("10.9.0.2", PORT))
        self.listener.settimeout(SECONDS)
        self.addCleanup(self.listener.close)
        self.client, _ = self.pair()
        self.p = self.process(self.da)
        self.ask()

    def ask(self):
        self.id = self.p.say(ASK, tuple=ends(self.client), hello=b"hello")

    def accept(self, **options):
        with self.b:
            peer = Peer(self.listener.accept()[0], initiator=False, **options)
        self.addCleanup(peer.close)
        return peer

    def heard(self, status):
        done = self.p.hear(DONE)
        self.assertEqual((done.id, done.status), (self.id, status))
        return done

    def question(self):
        peer = self.accept().respond()
        plain = peer.hear()
        id, = struct.unpack_from(">I", plain, 4)
        self.assertEqual(plain, sealed.question(id, *ends(self.client), b"hello"))
        return peer, id

    def test_the_page_is_right(self):
        peer, id = self.question()
        peer.say(sealed.answer(id, hello=b"yes", uid=5))
        done = self.heard(OK)
        self.assertEqual((done.hello, done.uid), (b"yes", 5))

    def test_gone_at_each_step(self):
        self.accept().close()
        self.heard(UNREACHABLE)
        for step in ("hello", "reply", "question"):
            # Until the daemon tries again: it connects, however late, or says that it does not.
            self.ask()
            while self.listener not in select.select([self.listener, self.p.socket], [], [], SECONDS)[0]:
                time.sleep(self.heard(UNREACHABLE).wait / 1000)
                self.ask()
            peer = self.accept()
            if step == "hello":
                peer.read(50)
            elif step == "reply":
                peer.read(sealed.HELLO_BYTES)
                peer.write(bytes(10))
            else:
                peer.respond()
                peer.hear()
            peer.close()
            self.heard(UNREACHABLE)

    def test_silent(self):
        self.accept()
        self.heard(UNREACHABLE)
        self.da.wait_log("has proved no key in time")

    def test_without_the_key(self):
        peer = self.accept(key=b"\x12" * 32)
        peer.hello = peer.read(sealed.HELLO_BYTES)
        peer.write(peer.reply_message())
        self.heard(KEY)
        self.assertTrue(peer.ended())

    def test_a_daemon_behind_another_address(self):
        """What comes to 10.9.0.2 is carried on to 192.168.9.2, word for word."""
        db = self.daemon(self.b, "b", lines=["listen = 192.168.9.2"])
        near = self.accept()
        with self.b:
            far = socket.create_connection(("192.168.9.2", PORT), SECONDS)
        far.sendall(near.read(sealed.HELLO_BYTES))
        self.assertEqual(far.recv(100), sealed.head(REFUSAL, KEY))
        near.write(sealed.head(REFUSAL, KEY))
        far.close()
        self.heard(KEY)
        self.assertIn("has not the key that it names", db.text())

    def test_answers_that_nobody_waits_for(self):
        peer, id = self.question()
        for wrong in (id + 1, id + 1024, 0xffffffff):
            peer.say(sealed.answer(wrong, hello=b"no"))
        peer.say(sealed.answer(id, hello=b"yes"))
        peer.say(sealed.answer(id, hello=b"twice"))
        self.assertEqual(self.heard(OK).hello, b"yes")
        self.ask()
        id, = struct.unpack_from(">I", peer.hear(), 4)
        peer.say(sealed.answer(id, hello=b"again"))
        self.assertEqual(self.heard(OK).hello, b"again")

    def test_more_questions_than_one_process_may_have(self):
        peer = self.accept().respond()
        for _ in range(69):
            self.p.say(ASK, tuple=ends(self.client))
        self.assertEqual({self.p.hear(DONE).status for _ in range(6)}, {FULL})
        for _ in range(64):
            id, = struct.unpack_from(">I", peer.hear(), 4)
            peer.say(sealed.answer(id))
        self.assertEqual({self.p.hear(DONE).status for _ in range(64)}, {OK})

    def test_answers_that_are_none(self):
        peer, id = self.question()
        peer.say(sealed.answer(id, status=OWNER))
        self.heard(UNREACHABLE)
        self.assertTrue(peer.ended())
        self.da.wait_log("what it says makes no sense")

    def test_a_repeated_answer(self):
        peer, id = self.question()
        peer.say(sealed.answer(id + 1))
        peer.write(peer.sent[-1])
        self.heard(UNREACHABLE)
        self.da.wait_log("a frame has come twice")


class Processes(TwoHosts):
    def setUp(self):
        super().setUp()
        self.daemons(lines=["rate-uid = 1000000"])
        self.client, self.server = self.pair()

    def meets(self):
        p, q = self.process(self.da), self.process(self.db)
        self.meet(p, q, ends(self.client), ends(self.server))

    def test_malformed(self):
        tuple = ends(self.client)
        for data, status in ((b"\1", MALFORMED), (bytes(60), VERSION),
                             (message(ASK, tuple=tuple, version=2), VERSION),
                             (message(DONE), MALFORMED), (message(9), MALFORMED),
                             (message(ASK, tuple=tuple, uid=1), MALFORMED),
                             (message(ASK, tuple=tuple, hello=bytes(1025)), MALFORMED),
                             (message(ASK, tuple=tuple, hello=bytes(100000)), MALFORMED),
                             (message(WITHDRAW, tuple=tuple, hello=b"x"), MALFORMED)):
            p = self.process(self.da)
            p.socket.send(data)
            self.assertEqual(p.hear(DONE).status, status)
            with self.assertRaises((EOFError, ConnectionResetError)):
                p.hear(DONE)
        self.meets()

    def test_random_messages(self):
        chance = random.Random(8)
        good = [message(type, 7, ends(self.client), b"hello") for type in range(1, 7)]
        p = self.process(self.da)
        p.socket.setblocking(False)
        for i in range(20000):
            data = bytearray(chance.choice(good))
            for _ in range(chance.randrange(3)):
                data[chance.choice((0, 1, 2, 3, 4, 10, 30, 46, 50))] = chance.randrange(256)
            if chance.randrange(4) == 0:
                data = data[:chance.randrange(1, len(data))]
            try:
                p.socket.send(data)
                while p.socket.recv(4096):
                    pass
                raise EOFError
            except BlockingIOError:
                pass
            except (EOFError, ConnectionError, BrokenPipeError):
                p.close()
                p = Process(self.da)
                p.socket.setblocking(False)
        p.close()

        # Some were questions, and one may be on its way to the host that has a holder now.
        p, q = self.process(self.da), self.process(self.db)
        self.published(q, ends(self.server))
        id = p.say(ASK, tuple=ends(self.client), hello=b"the last")
        while (asked := q.hear(ASKED)).hello != b"the last":
            q.say(ANSWER, id=asked.id)
        self.assertEqual(asked.tuple, ends(self.server))
        q.say(ANSWER, id=asked.id, hello=b"yes")
        done = p.hear(DONE)
        self.assertEqual((done.id, done.status, done.hello), (id, OK, b"yes"))

    def test_a_process_that_does_not_read(self):
        p = self.process(self.da)
        with self.assertRaises((BrokenPipeError, ConnectionResetError)):
            while True:
                p.say(PUBLISH, tuple=ends(self.client))
        self.da.wait_log("does not read its answers: ended")
        self.meets()

    def test_a_holder_that_does_not_read(self):
        """It gets as much as fits into its socket, and keeps what it has published."""
        p, q = self.process(self.da), self.process(self.db)
        self.published(q, ends(self.server))
        statuses = []
        for _ in range(3):
            for _ in range(60):
                p.say(ASK, tuple=ends(self.client), hello=bytes(1024))
            statuses += [p.hear(DONE).status for _ in range(60)]
        self.assertEqual(sorted(statuses), [FULL] * 116 + [SILENT] * 64)
        for _ in range(64):
            q.say(ANSWER, id=q.hear(ASKED).id)
        id, asked = self.asked(p, q, ends(self.client), ends(self.server))
        q.say(ANSWER, id=asked.id, hello=b"awake")
        self.assertEqual(p.hear(DONE).hello, b"awake")

    def test_a_configured_socket_that_is_a_file(self):
        self.da.kill()
        self.da.socket.unlink()
        self.da.socket.write_text("precious")
        self.da.socket.chmod(0o666)
        with self.assertRaises(AssertionError):
            self.da.start()
        self.assertEqual(self.da.socket.read_text(), "precious")
        self.da.socket.unlink()
        self.da.start()

    def test_too_many_processes_of_one_user(self):
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1], limit[1]))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, limit)
        tuple = ends(self.client)
        crowd = [self.process(self.da, uid=1001) for _ in range(1024)]
        self.assertEqual(self.status(crowd[-1], tuple), OWNER)
        late = self.process(self.da, uid=1001)
        self.assertEqual(late.hear(DONE).status, FULL)
        self.meets()
        crowd[0].close()

        # As soon as the daemon has seen the close.
        wait_for("a place", lambda: self.admitted(tuple))

    def admitted(self, tuple):
        p = self.process(self.da, uid=1001)
        try:
            p.say(ASK, tuple=tuple)
            return p.hear(DONE).status == OWNER
        except (BrokenPipeError, ConnectionResetError):
            return False

    def test_subordinate_ids_leave_a_part(self):
        """Of one user's 65,536 ids each has a share, but all together not the whole."""
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1], limit[1]))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, limit)
        crowd = [self.process(self.da, uid=100000 + i // 500) for i in range(3072)]
        late = self.process(self.da, uid=165535)
        self.assertEqual(late.hear(DONE).status, FULL)
        own = self.process(self.da, uid=1001)
        own.say(WITHDRAW, tuple=ends(self.client))
        self.assertEqual(own.hear(DONE).status, OK)
        for p in crowd:
            p.close()

    def test_no_descriptor_is_left(self):
        self.da.kill()
        self.da.start(files=128)
        crowd = [self.process(self.da) for _ in range(150)]  # the last ones only queue
        self.da.wait_log("no descriptor or memory for another connection")
        self.assertEqual(self.status(crowd[0], ends(self.client), PUBLISH), OK)
        for p in crowd[1:100]:
            p.close()
        self.assertEqual(self.status(crowd[-1], ends(self.client), PUBLISH), OK)
        self.meets()

    def test_published_again_and_again(self):
        """A connection has one place, however often it is published."""
        q = self.process(self.db)
        for _ in range(100):
            for _ in range(50):
                q.say(PUBLISH, tuple=ends(self.server))
            self.assertEqual({q.hear(DONE).status for _ in range(50)}, {OK})

    def lingering(self):
        """A TCP socket whose close waits for a minute: its peer does not read."""
        client, _ = self.pair()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 60))
        client.setblocking(False)
        try:
            while True:
                client.send(bytes(100000))
        except BlockingIOError:
            return client

    def send_rights(self):
        """The daemon's is the last of the socket's descriptors."""
        held = self.lingering()
        p = self.process(self.da)
        self.da.process.send_signal(signal.SIGSTOP)
        try:
            p.socket.sendmsg([message(WITHDRAW, tuple=ends(self.client))],
                             [(socket.SOL_SOCKET, socket.SCM_RIGHTS,
                               array.array("i", [held.fileno()]))])
        except OSError:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)  # ours is the last
            raise
        finally:
            held.close()
            self.da.process.send_signal(signal.SIGCONT)

    def test_descriptors_sent_along(self):
        with socket.socket(socket.AF_UNIX) as s:
            try:
                s.setsockopt(socket.SOL_SOCKET, 83, 0)
            except OSError:
                self.skipTest("a kernel before 6.16")
        with self.assertRaises(PermissionError):
            self.send_rights()
        self.meets()

    def test_descriptors_sent_along_to_an_old_kernel(self):
        self.da.kill()
        self.da.start(old_kernel=True)
        self.send_rights()
        # The close of that waits; the minute is not over when the others are served.
        p = self.process(self.da)
        p.socket.settimeout(20)
        self.assertEqual(p.done(WITHDRAW, tuple=ends(self.client)).status, OK)
        said = message(WITHDRAW, tuple=ends(self.client))
        self.assertLess(waits_for(self.da, self.a, "10.9.0.1", lambda: self.process(self.da), said), 150)
        self.meets()

    def test_activation_by_systemd(self):
        """The sockets come from outside, and outlive the daemon."""
        self.da.kill()
        path = str(self.da.folder / "given")
        with self.a:
            given = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET),
                     socket.socket(socket.AF_INET6)]
            given[0].bind(path)
            os.chmod(path, 0o666)
            given[1].bind(("::", PORT))  # which is for IPv4 as well
        for s in given:
            s.listen()
            self.addCleanup(s.close)
        self.da.start(given=[s.fileno() for s in given])
        self.da.socket = path
        self.meets()
        p, q = self.process(self.db), self.process(self.da)
        self.meet(p, q, ends(self.server), ends(self.client))
        self.da.kill(signal.SIGTERM)
        waiting = self.process(self.da)  # nobody is there, and it does not fail
        self.da.start(given=[s.fileno() for s in given])
        self.assertEqual(self.status(waiting, ends(self.client), PUBLISH), OK)


if __name__ == "__main__":
    main(1)
