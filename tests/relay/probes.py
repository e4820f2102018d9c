#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A process asks its daemon whether that of another host answers, and learns exactly why not.
probes.py VIADUCTD [TEST...]"""
import errno
import signal
import socket
import struct

import sealed
from hosts import TwoHosts, main
from rig import (ADDRESS, BROKEN, CLOSED, CONNECT, DONE, FOREIGN, FULL, GONE, KEY, LOST,
                 MALFORMED, NETNS, NO_PROOF, NOBODY, OK, OTHER_VERSION, OWNER, PORT, PROBE,
                 PROBED, RATE, REFUSES_KEY, REFUSES_VERSION, RULE, SECONDS, SILENT, STRANGER,
                 UNREACHABLE, VERSION, WRONG_KEY, end_of, ends)
from sealed import REFUSAL, Peer

A, B = "10.9.0.1", "10.9.0.2"


class Probes(TwoHosts):
    """Whether the other daemon is there: asked about no connection."""
    def refused(self, process, *expected, a=A, b=B):
        self.assertEqual(process.probe(a, b)[0], expected)

    def test_both_ways_and_both_families(self):
        self.daemons()
        for a, b in ((A, B), ("fd09::1", "fd09::2")):
            for daemon, own, other in ((self.da, a, b), (self.db, b, a)):
                said, whole = self.process(daemon).probe(own, other)
                self.assertEqual(said, (OK, 0, 0))
                self.assertEqual(whole.tuple[1], end_of((other, PORT)))
                self.assertEqual((whole.uid, whole.wait), (0, 0))

    def test_the_daemon_of_another_network(self):
        self.da = self.daemon(self.a, "a", lines=["peer = 10.9.0.2 for 192.168.9.0/24"])
        self.db = self.daemon(self.b, "b", lines=["peer = 10.9.0.1 for 192.168.9.0/24"])
        said, whole = self.process(self.da).probe("192.168.9.1", "192.168.9.2")
        self.assertEqual(said, (OK, 0, 0))
        self.assertEqual(whole.tuple[1], end_of((B, PORT)))
        self.db.kill()
        self.db.set_lines([])
        self.db.start()
        p = self.process(self.da)
        self.refused(p, OK, 0, 0)  # its own address
        self.refused(p, FOREIGN, 0, 0, a="192.168.9.1", b="192.168.9.2")

    def test_no_daemon_there(self):
        self.da = self.daemon(self.a, "a")
        p = self.process(self.da)
        refused = UNREACHABLE, CONNECT, errno.ECONNREFUSED
        self.refused(p, *refused)
        # A failure that is remembered does not count: somebody may have mended it.
        client, _ = self.pair()
        self.assertEqual(self.status(p, ends(client)), UNREACHABLE)
        self.assertEqual(self.da.text().count("cannot be connected"), 1)
        self.refused(p, *refused)
        self.db = self.daemon(self.b, "b")
        self.refused(p, OK, 0, 0)
        self.assertEqual(self.status(p, ends(client)), NOBODY)

    def test_no_host_there(self):
        self.da = self.daemon(self.a, "a")
        p = self.process(self.da)
        self.refused(p, UNREACHABLE, CONNECT, errno.ENETUNREACH, b="10.8.0.2")
        self.refused(p, UNREACHABLE, CONNECT, errno.EADDRNOTAVAIL, a="10.9.0.7")
        (status, cause, error), _ = p.probe(A, "10.9.0.9")
        self.assertEqual((status, cause), (UNREACHABLE, CONNECT))
        self.assertIn(error, (errno.EHOSTUNREACH, errno.ETIMEDOUT))

    def test_other_keys(self):
        self.da = self.daemon(self.a, "a")
        self.db = self.daemon(self.b, "b", keys=["two = " + "22" * 32])
        self.refused(self.process(self.da), KEY, REFUSES_KEY, 0)

    def test_stopped(self):
        self.daemons()
        p = self.process(self.da)
        self.db.process.send_signal(signal.SIGSTOP)
        self.refused(p, UNREACHABLE, NO_PROOF, 0)
        self.db.process.send_signal(signal.SIGCONT)
        self.refused(p, OK, 0, 0)
        self.db.process.send_signal(signal.SIGSTOP)
        self.refused(p, SILENT, 0, 0)
        self.db.process.send_signal(signal.SIGCONT)

    def test_rules(self):
        self.da = self.daemon(self.a, "a", lines=[
            "deny uid=1001", "deny port=80", "allow uid=1002 port=443", "deny uid=1002",
            "deny addr=fd09::/64"])
        self.db = self.daemon(self.b, "b", lines=["deny addr=10.9.0.0/24"])
        self.refused(self.process(self.da, uid=1001), RULE, 0, 0)
        self.refused(self.process(self.da), RULE, 0, 0, a="fd09::1", b="fd09::2")
        # Some ports are as good as all. Who is shut out there learns no more than that.
        (*said, error), _ = self.process(self.da, uid=1002).probe(A, B)
        self.assertEqual(said, [UNREACHABLE, CLOSED])
        self.assertIn(error, (0, errno.ECONNRESET))
        self.da.wait_log("denied: a rule of viaductd.conf denies it")

    def test_who_may_not_ask(self):
        self.da = self.daemon(self.a, "a")
        p = self.process(self.da)
        for a, b in (("127.0.0.1", "127.0.0.2"), (A, A), (A, "fd09::2"),
                     ("fe80::1", "fe80::2")):
            self.refused(p, ADDRESS, 0, 0, a=a, b=b)
        self.refused(self.process(self.da, host=self.b), NETNS, 0, 0)
        p = self.process(self.da)
        p.say(PROBE, tuple=(end_of((A, 0)), end_of((B, 1))))
        self.assertEqual(p.hear(DONE).status, MALFORMED)

    def test_few_a_second(self):
        self.daemons()
        four, six = [[end_of((address, 0)) for address in pair] for pair in ((A, B), ("fd09::1", "fd09::2"))]
        p, other, same = (self.process(self.da, uid=uid) for uid in (1001, 1002, 1001))
        # All of it is heard at one moment, however long the test takes to say it.
        with self.da.stopped():
            for _ in range(30):
                p.say(PROBE, tuple=four)
            other.say(PROBE, tuple=four)
            same.say(PROBE, tuple=six)
        said = [p.hear(PROBED) for _ in range(30)]
        self.assertEqual({whole.status for whole in said}, {OK, RATE})
        refused = [whole for whole in said if whole.status == RATE]
        self.assertGreater(len(refused), 10)
        self.assertGreater(min(whole.wait for whole in refused), 0)
        # Of one host: whoever asks. Of one user: whatever host.
        self.assertEqual([each.hear(PROBED).status for each in (other, same)], [RATE] * 2)
        self.refused(self.process(self.da, uid=1002), OK, 0, 0, a="fd09::1", b="fd09::2")
        # What connections ask is not counted with it.
        client, _ = self.pair()
        self.assertEqual(self.status(self.process(self.da), ends(client)), NOBODY)


class Others(TwoHosts):
    """The daemon is on a; whoever answers it on b is ours."""
    def setUp(self):
        super().setUp()
        self.da = self.daemon(self.a, "a")
        with self.b:
            self.listener = socket.create_server((B, PORT))
        self.listener.settimeout(SECONDS)
        self.addCleanup(self.listener.close)
        self.p = self.process(self.da)
        self.probe()

    def probe(self):
        self.p.say(PROBE, tuple=(end_of((A, 0)), end_of((B, 0))))

    def accept(self, **options):
        with self.b:
            peer = Peer(self.listener.accept()[0], initiator=False, **options)
        self.addCleanup(peer.close)
        return peer

    def why(self, status, cause):
        said = self.p.hear(PROBED)
        self.assertEqual((said.status, *struct.unpack("=II", said.hello)), (status, cause, 0))

    def asked(self):
        """The very question: about port 0, with nothing in it."""
        peer = self.accept().respond()
        plain = peer.hear()
        id, = struct.unpack_from(">I", plain, 4)
        self.assertEqual(plain, sealed.question(id, end_of((A, 0)), end_of((B, 0))))
        return peer, id

    def test_each_answer(self):
        peer, id = self.asked()
        peer.say(sealed.answer(id, status=NOBODY))
        self.why(OK, 0)
        for status in (FOREIGN, FULL, GONE):
            self.probe()
            id, = struct.unpack_from(">I", peer.hear(), 4)
            peer.say(sealed.answer(id, status=status))
            self.why(status, 0)

    def test_hanging_up(self):
        peer = self.accept()
        peer.read(92)  # else the kernel would say a reset
        peer.close()
        self.why(UNREACHABLE, CLOSED)

    def test_no_viaductd(self):
        self.accept().write(b"SSH-2.0-OpenSSH_9.2\r\n")
        self.why(UNREACHABLE, STRANGER)

    def test_nothing_said(self):
        peer = self.accept()
        self.why(UNREACHABLE, NO_PROOF)
        peer.close()

    def test_versions(self):
        peer = self.accept()
        peer.read(92)
        peer.write(sealed.head(REFUSAL, VERSION, version=1))
        self.why(UNREACHABLE, REFUSES_VERSION)

    def test_another_version_in_a_reply(self):
        peer = self.accept()
        peer.read(92)
        peer.write(sealed.head(sealed.REPLY, version=1) + bytes(64))
        self.why(UNREACHABLE, OTHER_VERSION)

    def test_keys(self):
        peer = self.accept(key=b"\x12" * 32)
        peer.read(92)
        peer.write(sealed.head(sealed.REPLY) + peer.point + bytes(24 + 32))
        self.why(KEY, WRONG_KEY)

    def test_a_refusal_that_says_nothing(self):
        peer = self.accept()
        peer.read(92)
        peer.write(sealed.head(REFUSAL, OWNER))
        self.why(UNREACHABLE, STRANGER)

    def test_a_repeated_frame(self):
        peer, id = self.asked()
        peer.say(sealed.answer(id + 1, status=NOBODY))
        peer.write(peer.sent[-1])
        self.why(UNREACHABLE, BROKEN)

    def test_gone_with_the_question(self):
        peer, _ = self.asked()
        peer.close()
        self.why(UNREACHABLE, LOST)


if __name__ == "__main__":
    main(1)
