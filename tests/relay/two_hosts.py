#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processes on two hosts meet through their daemons, or learn why not:
two_hosts.py VIADUCTD CLIENT [TEST...]"""
import contextlib
import os
import pathlib
import random
import select
import signal
import socket
import struct
import subprocess
import time

from hosts import KEYS, PROGRAMS, TwoHosts, main
from rig import (ADDRESS, ANSWER, ASK, ASKED, DAEMON_UID, DONE, GONE, KEY, NETNS, NEWNET, NOBODY, OK, OWNER, PORT,
                 PROBE, PROBED, PUBLISH, RATE, REFUSED, RULE, SECONDS, SILENT, UNREACHABLE, WITHDRAW,
                 Host, Said, call, end_of, ends, libc, wait_for)

TWO = "two = " + "22" * 32
PIDFD_GETFD = 438


def processes_with(word):
    """Those with that in their command line; others, of other tests, may end while this looks."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if word.encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


class Meeting(TwoHosts):
    def test_both_ways_and_both_families(self):
        self.daemons()
        for address in ("10.9.0.2", "fd09::2"):
            client, server = self.pair(address)
            p, q = self.process(self.da), self.process(self.db)
            self.meet(p, q, ends(client), ends(server))
            self.meet(q, p, ends(server), ends(client), hello=bytes(1024))
            self.meet(p, q, ends(client), ends(server), hello=b"")
        # One link for each pair of addresses and direction, and not one for each question.
        self.assertEqual(self.da.text().count("link made"), 2)
        self.assertEqual(self.db.text().count("link made"), 2)

    def test_the_published_hello_answers(self):
        self.daemons()
        client, server = self.pair()
        p, q = self.process(self.da), self.process(self.db)
        self.published(q, ends(server), b"first")
        self.published(q, ends(server), b"second")
        _, asked = self.asked(p, q, ends(client), ends(server))
        q.say(ANSWER, id=asked.id)
        done = p.hear(DONE)
        self.assertEqual((done.status, done.hello), (OK, b"second"))

    def test_who_asks_and_who_answers(self):
        self.daemons()
        client, server = self.pair(client_uid=1001, server_uid=1002)
        p, q = self.process(self.da, uid=1001), self.process(self.db, uid=1002)
        asked, done = self.meet(p, q, ends(client), ends(server))
        self.assertEqual((asked.uid, done.uid), (1001, 1002))

    def test_refused(self):
        self.daemons()
        client, server = self.pair()
        p, q = self.process(self.da), self.process(self.db)
        self.published(q, ends(server))
        _, asked = self.asked(p, q, ends(client), ends(server))
        q.say(ANSWER, id=asked.id, status=REFUSED)
        done = p.hear(DONE)
        self.assertEqual((done.status, done.hello, done.uid), (REFUSED, b"", 0))

    def test_nobody_published(self):
        self.daemons()
        client, server = self.pair()
        p, q = self.process(self.da), self.process(self.db)
        self.assertEqual(self.status(p, ends(client)), NOBODY)
        self.published(q, ends(server))
        self.assertEqual(self.status(q, ends(server), WITHDRAW), OK)
        self.assertEqual(self.status(p, ends(client)), NOBODY)
        # Its own, published on its own side, answers no question from there.
        self.published(p, ends(client))
        self.assertEqual(self.status(p, ends(client)), NOBODY)

    def test_many_at_once(self):
        self.daemons()
        p, q = self.process(self.da), self.process(self.db)
        pairs = [self.pair() for _ in range(50)]
        for _, server in pairs:
            self.published(q, ends(server), b"x")
        ids = {p.say(ASK, tuple=ends(client), hello=bytes([i])): i
               for i, (client, _) in enumerate(pairs)}
        asked = [q.hear(ASKED) for _ in pairs]
        for a in reversed(asked):
            q.say(ANSWER, id=a.id, hello=b"to " + a.hello)
        for _ in pairs:
            done = p.hear(DONE)
            self.assertEqual((done.status, done.hello), (OK, b"to " + bytes([ids.pop(done.id)])))
        self.assertFalse(ids)

    def test_a_daemon_that_speaks_for_another_network(self):
        lines = {"a": ["peer = 10.9.0.2 for 192.168.9.0/24"],
                 "b": ["peer = 10.9.0.1 for 192.168.9.1"]}
        self.da = self.daemon(self.a, "a", lines=lines["a"])
        self.db = self.daemon(self.b, "b", lines=lines["b"])
        client, server = self.pair("192.168.9.2", "192.168.9.1")
        self.meet(self.process(self.da), self.process(self.db), ends(client), ends(server))
        self.da.wait_log("peer 10.9.0.2:7430 has proved key one: link made")

    def test_the_library_of_a_process(self):
        """Two small programs that speak by src/daemon_client/caller.c."""
        self.daemons()
        client, server = self.pair("fd09::2")
        told = []
        for daemon, connection, verb in ((self.db, server, "publish"), (self.da, client, "ask")):
            connection.set_inheritable(True)
            told.append(subprocess.Popen(
                [PROGRAMS[1], verb, daemon.socket, str(connection.fileno())], text=True,
                stdout=subprocess.PIPE, pass_fds=[connection.fileno()],
                preexec_fn=daemon.host.__enter__))
            if verb == "publish":
                self.assertEqual(told[0].stdout.readline(), "published\n")
        self.assertEqual(told[1].communicate(timeout=SECONDS)[0], "answer: I am the holder\n")
        self.assertEqual(told[0].communicate(timeout=SECONDS)[0], "asked: I am the asker\n")
        self.assertEqual([t.returncode for t in told], [0, 0])


class Owners(TwoHosts):
    def setUp(self):
        super().setUp()
        self.daemons()

    def test_another_users_connection(self):
        client, server = self.pair(client_uid=1001)
        p, q = self.process(self.da, uid=1002), self.process(self.db)
        self.published(q, ends(server))
        for type in (ASK, PUBLISH):
            self.assertEqual(self.status(p, ends(client), type), OWNER)
        root = self.process(self.da)
        self.assertEqual(self.status(root, ends(client), PUBLISH), OWNER)
        self.da.wait_log("denied: no such connection belongs to the user of the process")
        own = self.process(self.da, uid=1001)
        self.assertEqual(self.status(own, ends(client), PUBLISH), OK)

    def test_no_connection(self):
        client, server = self.pair()
        local, peer = ends(client)
        p = self.process(self.da)
        for wrong in ((local[:-1] + bytes([local[-1] ^ 1]), peer), (peer, local)):
            self.assertEqual(self.status(p, wrong), OWNER)
        # Nor is an attempt that nobody has answered.
        with self.a, socket.socket() as attempt:
            attempt.setblocking(False)
            self.assertNotEqual(attempt.connect_ex(("10.9.0.77", 1)), 0)
            own = end_of(attempt.getsockname()), end_of(("10.9.0.77", 1))
            self.assertEqual(self.status(p, own), OWNER)
        # A listener is none.
        with self.a, socket.create_server(("10.9.0.1", 0)) as listener:
            self.assertEqual(self.status(p, (end_of(listener.getsockname()), peer)), OWNER)

    def test_another_network_namespace(self):
        client, _ = self.pair()
        c = Host()
        self.addCleanup(c.close)
        stranger = self.process(self.da, host=c)
        for type in (ASK, PUBLISH):
            self.assertEqual(self.status(stranger, ends(client), type), NETNS)

    def test_addresses_of_one_host(self):
        p = self.process(self.da)
        with self.a, socket.create_server(("127.0.0.1", 0)) as listener, \
                socket.create_connection(listener.getsockname()) as client:
            self.assertEqual(self.status(p, ends(client), PUBLISH), ADDRESS)
        with self.a, socket.create_server(("10.9.0.1", 0)) as listener, \
                socket.create_connection(listener.getsockname()) as client:
            self.assertEqual(self.status(p, ends(client)), ADDRESS)

    def test_closed_but_not_withdrawn(self):
        client, server = self.pair()
        p, q = self.process(self.da), self.process(self.db)
        self.published(q, ends(server))
        tuple, other = ends(client), ends(server)
        server.close()
        wait_for("the close", lambda: self.status(p, tuple) == NOBODY)
        # Also a new connection of the same addresses is not the one that was published.
        client.close()
        self.assertEqual(self.status(q, other, WITHDRAW), OK)

    def test_the_same_tuple_anew(self):
        client, server = self.pair()
        q = self.process(self.db)
        self.published(q, ends(server))
        tuple, other = ends(client), ends(server)
        with self.b:
            listener = socket.socket()
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(server.getsockname())
        source = client.getsockname()
        reset = b"\1\0\0\0\0\0\0\0"  # no TIME_WAIT
        server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        server.close()
        with self.assertRaises(ConnectionResetError):
            client.settimeout(SECONDS)
            client.recv(1)
        client.close()
        listener.listen()
        with self.a:
            client = socket.create_connection(listener.getsockname(), SECONDS, source)
        server = listener.accept()[0]
        self.assertEqual((ends(client), ends(server)), (tuple, other))
        self.assertEqual(self.status(self.process(self.da), tuple), NOBODY)
        for s in (client, server, listener):
            s.close()

    def test_the_last_process_of_the_user_counts(self):
        client, server = self.pair()
        p, q, heir = self.process(self.da), self.process(self.db), self.process(self.db)
        self.published(q, ends(server))
        self.published(heir, ends(server), b"heir")
        # The first cannot take it away any more, nor does its end.
        self.assertEqual(self.status(q, ends(server), WITHDRAW), OK)
        q.close()
        _, asked = self.asked(p, heir, ends(client), ends(server))
        heir.say(ANSWER, id=asked.id)
        self.assertEqual(p.hear(DONE).hello, b"heir")

    def test_only_who_was_asked_may_answer(self):
        client, server = self.pair()
        p, q, thief = self.process(self.da), self.process(self.db), self.process(self.db)
        self.published(q, ends(server))
        _, asked = self.asked(p, q, ends(client), ends(server))
        for id in (asked.id, asked.id + 1, asked.id + 1024):
            thief.say(ANSWER, id=id, hello=b"thief")
        self.assertEqual(self.status(thief, ends(server), WITHDRAW), OK)  # it was all read
        q.say(ANSWER, id=asked.id, hello=b"owner")
        q.say(ANSWER, id=asked.id, hello=b"twice")
        self.assertEqual(p.hear(DONE).hello, b"owner")


class Rules(TwoHosts):
    def test_users_networks_ports_programs(self):
        self.da = self.daemon(self.a, "a", lines=[
            "deny uid=1001", "deny port=1", "deny addr=fd09::/64", "deny program=no-program",
            "allow addr=10.9.0.0/24", "deny"])
        self.db = self.daemon(self.b, "b")
        client, server = self.pair()
        p, q = self.process(self.da), self.process(self.db)
        self.meet(p, q, ends(client), ends(server))
        self.assertEqual(self.status(self.process(self.da, uid=1001), ends(client)), RULE)
        for address, source in (("fd09::2", None), ("192.168.9.2", "192.168.9.1")):
            client, server = self.pair(address, source)
            for type in (ASK, PUBLISH):
                self.assertEqual(self.status(p, ends(client), type), RULE)
            # The other side does not even get its handshake.
            self.published(q, ends(server))
            self.assertEqual(self.status(q, ends(server)), UNREACHABLE)
        self.da.wait_log("denied: a rule of viaductd.conf denies it")

    def test_too_many_requests(self):
        self.daemons(lines=["rate-uid = 1"])
        client, _ = self.pair(client_uid=1001)
        p = self.process(self.da, uid=1001)  # which costs one of the four
        self.assertEqual(self.status(p, ends(client), WITHDRAW), OK)  # and this none
        # All of it is heard at one moment, however long the test takes to say it.
        with self.da.stopped():
            for _ in range(50):
                p.say(PUBLISH, tuple=ends(client))
            late = self.process(self.da, uid=1001)
        got = [p.hear(DONE) for _ in range(50)]
        self.assertEqual([g.status for g in got][:3], [OK] * 3)
        self.assertEqual(got[-1].status, RATE)
        self.assertGreater(got[-1].wait, 0)
        self.assertEqual(late.hear(DONE).status, RATE)
        with self.assertRaises((EOFError, ConnectionResetError)):
            late.hear(DONE)
        other = self.process(self.da, uid=1002)
        self.assertEqual(self.status(other, ends(client)), OWNER)

    def test_too_many_questions_of_a_host(self):
        self.da = self.daemon(self.a, "a")
        self.db = self.daemon(self.b, "b", lines=["rate-peer = 1"])
        client, _ = self.pair()
        p = self.process(self.da)
        for _ in range(50):
            p.say(ASK, tuple=ends(client))
        got = [p.hear(DONE) for _ in range(50)]
        self.assertEqual(got[0].status, NOBODY)
        self.assertEqual(got[-1].status, RATE)


class Keys(TwoHosts):
    def test_no_key_in_common(self):
        for name, other in (("a", "one = " + "12" * 32), ("b", TWO)):
            with self.subTest(other=other):
                da = self.daemon(self.a, "a" + name)
                db = self.daemon(self.b, "b" + name, keys=[other])
                client, server = self.pair()
                p, q = self.process(da), self.process(db)
                self.published(q, ends(server))
                done = p.done(ASK, tuple=ends(client))
                self.assertEqual(done.status, KEY)
                self.assertGreater(done.wait, 5000)
                # It is remembered, and not tried at each question.
                done = p.done(ASK, tuple=ends(client))
                self.assertEqual(done.status, KEY)
                self.assertEqual(da.text().count("refuses us"), 1)
                for d in (da, db):
                    self.assertIn("key", d.text().split("ready")[1])
                    d.kill()

    def test_a_key_is_exchanged(self):
        """Each daemon in its turn, and never a refusal."""
        one = KEYS[0]
        self.daemons()
        for keys in ([one, TWO], [TWO, one], [TWO]):
            for daemon in (self.da, self.db):
                daemon.kill(signal.SIGTERM)
                daemon.set_keys(keys)
                daemon.start()
                client, server = self.pair()
                p, q = self.process(self.da), self.process(self.db)
                self.meet(p, q, ends(client), ends(server))
                self.meet(q, p, ends(server), ends(client))
        self.assertNotIn("refuse", self.da.text() + self.db.text())
        self.assertIn("has proved key two", self.da.text())

    def test_no_start_without_good_files(self):
        self.da = self.daemon(self.a, "a")
        self.da.kill(signal.SIGTERM)
        folder = self.da.folder

        def check(*arguments):
            def become():
                os.setresgid(*[65533] * 3)
                os.setresuid(*[65533] * 3)
            return subprocess.run([PROGRAMS[0], "--config", folder / "conf", *arguments],
                                  preexec_fn=become, stderr=subprocess.PIPE, text=True,
                                  timeout=SECONDS)
        self.assertEqual(check("--check").returncode, 0)
        for wrong in ("--nonsense", "argument"):
            run = check(wrong)
            self.assertEqual(run.returncode, 2)
            first, second = run.stderr.splitlines()
            self.assertTrue(first.startswith("viaductd: ") and wrong in first, first)
            self.assertEqual(second, "usage: see `viaductd --help`")
        self.da.start()
        with self.a:
            run = check("--foreground")
        self.assertEqual(run.returncode, 1)
        self.assertIn("Address already in use", run.stderr)
        self.da.kill(signal.SIGTERM)
        (folder / "key").chmod(0o644)
        run = check("--check")
        self.assertEqual(run.returncode, 1)
        self.assertIn("other users may read it", run.stderr)
        self.assertEqual(check("--foreground").returncode, 1)
        (folder / "key").chmod(0o600)
        self.da.set_lines(["allow everybody"])
        self.assertIn(f"{folder}/conf:4: ", check("--check").stderr)
        self.da.set_lines([])
        (folder / "conf").chmod(0o666)
        self.assertIn("other users can write to it", check("--check").stderr)
        # In the background the log needs a file.
        (folder / "conf").chmod(0o644)
        self.assertEqual(check().returncode, 2)
        conf = (folder / "conf").read_text()
        (folder / "conf").write_text(conf.replace(":stderr", f":{folder}/log2"))
        with self.a:
            self.assertEqual(check().returncode, 0)
        client, _ = self.pair()
        self.assertEqual(self.status(self.process(self.da), ends(client), PUBLISH), OK)
        pids = processes_with(str(folder))
        self.assertEqual(len(pids), 1)
        pidfd = os.pidfd_open(pids[0])
        signal.pidfd_send_signal(pidfd, signal.SIGTERM)
        self.assertEqual(select.select([pidfd], [], [], SECONDS)[0], [pidfd])
        os.close(pidfd)
        self.assertIn("it ends, as it was told to", (folder / "log2").read_text())
        self.da.start()


    def hold(self, come):
        """In a process of its own: listens as the daemon does, and leaves that to a child."""
        call("setns", self.a.fd, NEWNET)
        ports = [socket.create_server((address, PORT), family=family)
                 for address, family in (("0.0.0.0", socket.AF_INET), ("::", socket.AF_INET6))]
        local = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        local.bind(str(self.da.socket))
        os.chown(self.da.socket, DAEMON_UID, DAEMON_UID)
        os.chmod(self.da.socket, 0o666)
        local.listen()
        if os.fork():
            return
        os.write(come, b"%d" % os.getpid())
        local.accept()
        local.close()
        time.sleep(0.2)
        for port in ports:
            port.close()

    def test_start_after_a_death(self):
        """A process that was killed listened there, and its child still holds what it had, until the daemon has
        asked; the port a moment longer."""
        self.da = self.daemon(self.a, "a")
        self.da.kill(signal.SIGTERM)
        self.da.socket.unlink(missing_ok=True)
        come, come_child = os.pipe()
        parent = os.fork()
        if not parent:
            with contextlib.suppress(OSError):
                self.hold(come_child)
            os._exit(0)
        os.close(come_child)
        os.waitpid(parent, 0)
        child = os.pidfd_open(int(os.read(come, 20)))
        try:
            self.da.start()
            client, _ = self.pair()
            self.assertEqual(self.status(self.process(self.da), ends(client), PUBLISH), OK)
            # It has asked.
            self.assertTrue(select.select([child], [], [], SECONDS)[0])
        finally:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(child, signal.SIGKILL)
            os.close(child)
            os.close(come)


    def test_start_after_an_end(self):
        """A child that has just begun has what its parent had, and is not done with it."""
        self.da = self.daemon(self.a, "a")
        process = os.pidfd_open(self.da.process.pid)
        copies = []
        for fd in os.listdir(f"/proc/{self.da.process.pid}/fd"):
            copy = libc.syscall(PIDFD_GETFD, process, int(fd), 0)
            self.assertGreaterEqual(copy, 0)
            copies.append(copy)
        try:
            self.da.kill(signal.SIGTERM)
            self.da.start()
        finally:
            for copy in (*copies, process):
                os.close(copy)


class Deaths(TwoHosts):
    def setUp(self):
        super().setUp()
        self.daemons()
        self.client, self.server = self.pair()
        self.p, self.q = self.process(self.da), self.process(self.db)

    def begin(self):
        self.published(self.q, ends(self.server))
        return self.asked(self.p, self.q, ends(self.client), ends(self.server))

    def again(self):
        """After whatever has happened, two processes meet: waiting as they are told."""
        p, q = self.process(self.da), self.process(self.db)
        self.published(q, ends(self.server))

        def met():
            id = p.say(ASK, tuple=ends(self.client))
            # Whenever it comes: one that is left would be answered in the place of the next one, and so on for ever.
            while q.socket in select.select([p.socket, q.socket], [], [], SECONDS)[0]:
                q.say(ANSWER, id=q.hear(ASKED).id)
            done = p.hear(DONE)
            self.assertEqual(done.id, id)
            return done.status == OK
        wait_for("a meeting", met)

    def test_the_holder_dies(self):
        self.begin()
        self.q.close()
        self.assertEqual(self.p.hear(DONE).status, GONE)
        self.assertEqual(self.status(self.p, ends(self.client)), NOBODY)
        self.again()

    def test_the_holder_withdraws(self):
        _, asked = self.begin()
        self.assertEqual(self.status(self.q, ends(self.server), WITHDRAW), OK)
        self.q.say(ANSWER, id=asked.id, hello=b"late")
        self.assertEqual(self.p.hear(DONE).status, GONE)

    def test_the_holder_is_silent(self):
        _, asked = self.begin()
        self.assertEqual(self.p.hear(DONE).status, SILENT)
        self.q.say(ANSWER, id=asked.id, hello=b"late")
        self.again()
        # Its daemon has said so, and not the asker's daemon lost its patience with the link.
        self.assertEqual(self.da.text().count("link made"), 1)

    def test_the_asker_dies(self):
        _, asked = self.begin()
        self.p.close()
        self.q.say(ANSWER, id=asked.id, hello=b"to nobody")
        self.again()

    def test_the_holders_daemon_is_killed(self):
        self.begin()
        self.db.kill()
        done = self.p.hear(DONE)
        self.assertEqual(done.status, UNREACHABLE)
        with self.assertRaises((EOFError, ConnectionResetError)):
            self.q.hear(ASKED)
        done = self.p.done(ASK, tuple=ends(self.client))
        self.assertEqual(done.status, UNREACHABLE)
        self.assertGreater(done.wait, 0)
        self.db.start()
        self.again()

    def test_the_askers_daemon_is_killed(self):
        _, asked = self.begin()
        self.da.kill()
        with self.assertRaises((EOFError, ConnectionResetError)):
            self.p.hear(DONE)
        self.db.wait_log("has closed the link")
        self.q.say(ANSWER, id=asked.id, hello=b"to nobody")
        self.da.start()
        self.again()

    def test_restarted_politely(self):
        self.begin()
        self.assertEqual(self.da.kill(signal.SIGTERM), 0)
        self.assertFalse(self.da.socket.exists())
        self.da.start()
        self.again()

    def test_the_holders_daemon_is_stopped(self):
        self.begin()
        self.db.process.send_signal(signal.SIGSTOP)
        self.assertEqual(self.p.hear(DONE).status, SILENT)
        # Now there is no link, and a new one gets no handshake.
        wait_for("no handshake", lambda: self.status(self.p, ends(self.client)) == UNREACHABLE)
        self.da.wait_log("has proved no key in time")
        self.db.process.send_signal(signal.SIGCONT)
        self.again()

    def test_the_cable_is_cut(self):
        self.begin()
        with self.a:
            subprocess.run(["ip", "link", "set", "v0", "down"], check=True)
        self.assertIn(self.p.hear(DONE).status, (SILENT, UNREACHABLE))
        self.assertIn(self.status(self.p, ends(self.client)), (SILENT, UNREACHABLE))
        with self.a:
            subprocess.run(["ip", "link", "set", "v0", "up"], check=True)
        self.again()

    def test_no_daemon_there(self):
        self.db.kill()
        for _ in range(5):
            self.p.say(ASK, tuple=ends(self.client))
        self.assertEqual({self.p.hear(DONE).status for _ in range(5)}, {UNREACHABLE})
        # One attempt, and then silence until it is worth another.
        self.assertEqual(self.da.text().count("cannot be connected"), 1)


class Chaos(TwoHosts):
    """Everybody asks, answers, refuses, is silent and dies at random: each question has at most
    one answer, and that is the one to it, from the holder of its connection."""
    def setUp(self):
        super().setUp()
        self.daemons(lines=["rate-uid = 1000000", "rate-peer = 1000000"])
        self.chance = random.Random(8)
        self.pairs = [self.pair() for _ in range(6)]
        self.answered = self.number = self.probed = 0

    def come(self, daemon, side):
        process = self.process(daemon)
        process.side, process.asked = side, {}
        for pair in self.pairs:
            process.say(PUBLISH, tuple=ends(pair[side]))
        return process

    def one(self, process):
        """One message that has come, if any. False when the daemon is gone."""
        process.socket.setblocking(False)
        try:
            said = Said(process.socket.recv(4096))
        except BlockingIOError:
            return True
        except (ConnectionError, struct.error):
            return False
        finally:
            process.socket.settimeout(SECONDS)
        if said.type == ASKED:
            how = self.chance.randrange(10)
            if how < 7:
                process.say(ANSWER, id=said.id, hello=bytes([process.side]) + said.hello)
            elif how == 7:
                process.say(ANSWER, id=said.id, status=REFUSED)
        elif said.type == PROBED:
            self.probed += said.status == OK
        elif said.id in process.asked:
            hello = process.asked.pop(said.id)
            if said.status == OK:
                self.answered += 1
                self.assertEqual(said.hello, bytes([1 - process.side]) + hello)
        else:
            self.assertEqual(said.hello, b"")  # of a PUBLISH
        return True

    def step(self, process):
        """False when its daemon is gone, or it has died."""
        what = self.chance.randrange(100)
        try:
            if what < 20 and len(process.asked) < 20:
                self.number += 1
                hello, pair = b"%d" % self.number, self.chance.choice(self.pairs)
                process.asked[process.say(ASK, tuple=ends(pair[process.side]),
                                          hello=hello)] = hello
            if what == 20:
                process.say(PROBE, tuple=[end[:16] + bytes(2) for end in
                                          ends(self.pairs[0][process.side])])
            return what != 99 and self.one(process)
        except ConnectionError:
            return False

    def test_each_answer_is_to_its_question(self):
        sides = [(self.da, 0), (self.db, 1)]
        crowd = [self.come(*side) for side in sides for _ in range(3)]
        end, kill_at = time.monotonic() + 4 * SECONDS, 100
        while self.answered < 600:
            self.assertLess(time.monotonic(), end, self.answered)
            if self.answered >= kill_at:
                kill_at += 100
                daemon = self.chance.choice(sides)[0]
                daemon.kill(self.chance.choice((signal.SIGKILL, signal.SIGTERM)))
                daemon.start()
            at = self.chance.randrange(len(crowd))
            if not self.step(crowd[at]):
                crowd[at].close()
                crowd[at] = self.come(*sides[crowd[at].side])
            select.select([p.socket for p in crowd], [], [], 0.01)
        self.assertGreater(self.probed, 0)


if __name__ == "__main__":
    main(2)
