#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `viaduct trace`: what is in the file is what the programs said to each other.

usage: trace.py VIADUCT MANUAL. Without tshark, Redis or root the tests for these are skipped.
"""
import os
import pathlib
import re
import signal
import subprocess
import sys
import unittest

import pcapng
from trace_bed import Connection, MIB, NOBODY, PATIENCE, Process, Trace, Tracer, VIADUCT, until


class Bytes(Trace):
    def test_both_directions(self):
        for family, address in (("4", "127.0.0.1"), ("6", "::1"), ("mapped", "127.0.0.1")):
            if family == "6" and not os.path.exists("/proc/net/if_inet6"):
                continue
            connection = self.pair(family)
            tracers = [Tracer(self, end.pid) for end in connection.ends]
            for n, piece in ((1, 1), (700, 7), (16384, 16384), (100000, 4099), (300000, 99999)):
                connection.move(0, n, piece)
                connection.move(1, n, piece)
            for way, tracer in enumerate(tracers):
                tracer.end()
                self.assertEqual((tracer.status, tracer.lost), (0, 0), tracer.rest)
                file, total = self.check(tracer, connection, seen_by=way)
                self.assertEqual(total, 2 * (1 + 700 + 16384 + 100000 + 300000))
                self.assertEqual(total, tracer.bytes)
                self.assertEqual({p.source[0] for p in file.packets}, {address})
            self.check_direct(*connection.ends, least=total)

    def test_an_answer_comes_after_its_question(self):
        connection = self.pair()
        tracer = Tracer(self, connection.ends[0].pid)
        for _ in range(100):
            connection.move(0, 64)
            connection.move(1, 64)
        tracer.end()
        ways = [p.way for p in self.check(tracer, connection, seen_by=0)[0].packets]
        self.assertEqual(ways, [2, 1] * 100)
        for before, p in zip(tracer.read().packets, tracer.read().packets[1:]):
            self.assertEqual(p.ack, (before.seq + 64) % (1 << 32))

    def test_a_trace_before_the_connection(self):
        a, b = Process(self), Process(self)
        b.do("listen", "4")  # the library is in it by now
        tracer = Tracer(self, b.pid)
        self.assertIn("0 of its connections", tracer.begin)
        connections = [Connection(a, b) for _ in range(5)]
        for connection in connections:
            connection.move(0, 5000)
            connection.ends[0].do("close", connection.fds[0])
            connection.ends[1].do("close", connection.fds[1])
        tracer.end()
        self.assertIn(" 5 connections", tracer.rest)
        for connection in connections:
            self.check(tracer, connection)

    def test_around_the_end_of_the_buffer(self):
        connection = self.pair()
        tracer = Tracer(self, connection.ends[1].pid, "--buffer", "64K")
        for turn in range(1, 61):
            connection.both(8192, 1000 + turn)
            tracer.sees(turn * 2 * 8192)
        tracer.end()
        self.assertEqual((tracer.status, tracer.lost), (0, 0), tracer.rest)
        self.assertEqual(self.check(tracer, connection)[1], 60 * 2 * 8192)

    def test_what_is_lost_is_counted(self):
        connection = self.pair()
        tracer = Tracer(self, connection.ends[1].pid, "--buffer", "64K")
        connection.move(0, 20000)
        tracer.sees(20000)
        tracer.popen.send_signal(signal.SIGSTOP)
        connection.move(0, 3 * MIB, 5000)
        connection.move(1, 3 * MIB, 5000)
        tracer.popen.send_signal(signal.SIGCONT)
        # Now the reader finds out; and once it has, the rest is there.
        before = tracer.size()

        def next_comes():
            connection.move(0, 1000)
            return tracer.size() > before + 10000
        until(next_comes, "the tracer reads on")
        tracer.end()
        self.assertEqual(tracer.status, 3, tracer.rest)
        file, total = self.check(tracer, connection, covered=False)
        moved = sum(connection.sent) - 2 * 300
        self.assertGreater(tracer.lost, 5 * MIB)
        self.assertEqual(total + tracer.lost, moved)
        self.assertTrue(any("overwritten" in p.comment for p in file.packets))
        self.assertIn(f"{tracer.lost} bytes lost".encode(), file.end[1])

    def test_on_and_off_under_load(self):
        connection = self.pair()
        for turn in range(4):
            tracer = None

            def begun():
                nonlocal tracer
                tracer = tracer or Tracer(self, connection.ends[turn % 2].pid)
                return tracer.size() > 100000
            size = self.load(connection, begun)
            tracer.end(signal.SIGTERM)
            for end in connection.ends:
                self.assertEqual(end.answer(), size)
            self.assertIn(tracer.status, (0, 3), tracer.rest)
            self.check(tracer, connection, covered=False, seen_by=turn % 2)
        self.check_direct(*connection.ends, least=200 * MIB)

    def test_filters(self):
        a, b = Process(self), Process(self)
        one, two = Connection(a, b), Connection(a, b)
        tracers = [Tracer(self, b.pid, *arguments) for arguments in
                   (["--port", str(one.port)],)]
        one.move(0, 50)
        two.move(0, 50)
        ports = {port for p in tracers[0].end().read().packets
                 for port in (p.source[1], p.target[1])}
        self.assertIn(one.port, ports)
        self.assertNotIn(two.port, ports)
        tracer = Tracer(self, b.pid, "--fd", str(two.fds[1]))
        one.move(0, 50)
        two.move(0, 50)
        tracer.end()
        self.assertEqual(tracer.bytes, 50)
        self.check(tracer, two)
        tracer = Tracer(self, b.pid, "--snaplen", "60")
        one.move(0, 5000)
        packet = tracer.end().read().packets[0]
        self.assertEqual((len(packet.data), packet.length), (20, 5000))

    def test_end_by_time(self):
        tracer = Tracer(self, self.pair().ends[0].pid, "--seconds", "0.1").end(None)
        self.assertEqual(tracer.status, 0)
        self.assertIn("the time is over", tracer.rest)
        self.assertEqual(tracer.read().packets, [])

    def test_through_a_pipe(self):
        connection = self.pair()
        tracer = subprocess.Popen([VIADUCT, "trace", str(connection.ends[0].pid)], text=False,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env)
        with tracer:
            tracer.stderr.readline()
            connection.move(0, 1000)
            data = tracer.stdout.read1()
            while len(data) < 1000:
                data += tracer.stdout.read1()
            tracer.stdout.close()  # nobody reads on: it is to end
            connection.move(0, 1000)
            self.assertEqual(tracer.wait(PATIENCE), 1)
            self.assertIn(b"nobody reads the output", tracer.stderr.read())


class Ends(Trace):
    def test_close_and_shutdown(self):
        connection = self.pair()
        tracer = Tracer(self, connection.ends[0].pid)
        connection.move(0, 10)
        connection.ends[0].do("shutdown", connection.fds[0])
        connection.move(1, 10)
        connection.ends[0].do("close", connection.fds[0])
        packets = tracer.end().read().packets
        # What comes behind our FIN comes by TCP.
        self.assertEqual([p.flags & pcapng.FIN for p in packets], [0, 1, 0])
        self.assertIn(f"fd {connection.fds[0]} of ", packets[0].comment)
        self.assertIn(f"({connection.ends[0].pid})", packets[0].comment)
        self.assertEqual(packets[1].comment, "shut down for writing")
        self.assertEqual(packets[2].comment, "closed by this process")
        self.assertEqual(packets[2].seq, (packets[1].seq + 1) % (1 << 32))

    def test_back_to_tcp(self):
        connection = self.pair()
        tracer = Tracer(self, connection.ends[0].pid)
        connection.move(0, 10)
        connection.ends[0].do("urgent", connection.fds[0])
        last = tracer.end().read().packets[-1]
        self.assertIn("goes back to kernel TCP for good: out-of-band", last.comment)

    def test_the_target_is_killed(self):
        connection = self.pair()
        tracer = Tracer(self, connection.ends[1].pid)
        connection.move(0, 1000)
        tracer.sees(1000)
        connection.move(0, 100000, 1000)
        connection.ends[1].popen.kill()
        tracer.end(None)
        self.assertEqual(tracer.status, 0, tracer.rest)
        self.assertIn("the process has ended", tracer.rest)
        self.check(tracer, connection)

    def test_the_target_is_killed_under_load(self):
        connection = self.pair()
        tracer = Tracer(self, connection.ends[1].pid)
        self.load(connection, lambda: tracer.size() > MIB)
        connection.ends[1].popen.kill()
        tracer.end(None)
        self.assertIn(tracer.status, (0, 3), tracer.rest)
        self.check(tracer, connection, covered=False)

    def test_the_tracer_is_killed(self):
        connection = self.pair()
        end = connection.ends[1]
        tracer = Tracer(self, end.pid)
        connection.move(0, 1000)
        self.assertEqual(end.do("descriptors"), 1)
        tracer.popen.kill()
        tracer.popen.wait()

        def gone():
            connection.move(0, 1000)
            return end.do("descriptors") == 0
        until(gone, "the process gives the buffer back")
        tracer = Tracer(self, end.pid)
        connection.move(0, 1000)
        self.assertEqual(tracer.end().bytes, 1000)
        self.check(tracer, connection)

    def test_the_buffer_is_given_back(self):
        connection = self.pair()
        end = connection.ends[1]
        for _ in range(3):
            tracer = Tracer(self, end.pid)
            connection.move(0, 1000)
            self.assertEqual(end.do("descriptors"), 1)
            tracer.end()
            self.assertEqual(tracer.status, 0)
            connection.move(0, 10)
            self.assertEqual(end.do("descriptors"), 0)

    def test_a_child_is_another_process(self):
        connection = self.pair()
        end = connection.ends[0]
        tracer = Tracer(self, end.pid)
        connection.move(0, 1000)
        end.ask("fork", connection.fds[0], connection.seeds[0], connection.sent[0], 500)
        connection.ends[1].do("recv", connection.fds[1], connection.seeds[0],
                              connection.sent[0], 500)
        self.assertEqual(end.answer(), 0)
        connection.sent[0] += 500
        connection.move(0, 1000)
        tracer.end()
        self.assertEqual(tracer.status, 0, tracer.rest)
        file, total = self.check(tracer, connection, covered=False, seen_by=0)
        self.assertEqual(total, 2000)
        self.assertIn("500 bytes of this direction are missing",
                      [p for p in file.packets if p.data][-1].comment)

    @unittest.skipUnless(os.getuid() == 0, "needs root")
    def test_it_leaves_its_family(self):
        """The trace ends with the table that it was asked by; there is another one by the next."""
        for under_load in (False, True):
            connection = self.pair()
            parted = connection.ends[1]
            pid = parted.do("part")
            connection = Connection(*connection.ends)
            tracer = Tracer(self, pid)
            connection.move(0, 5000)
            connection.move(1, 3000)
            tracer.sees(8000)
            if under_load:
                connection.move(0, 4 * MIB, 4096, answer=False)
                parted.ask("drop", NOBODY)
                self.assertEqual(parted.answer(), 4 * MIB)
                self.assertEqual(connection.ends[0].answer(), 4 * MIB)
                self.assertEqual(parted.answer(), NOBODY)
            else:
                self.assertEqual(parted.do("drop", NOBODY), NOBODY)
            tracer.end(sig=None)
            self.assertIn(tracer.status, (0, 3) if under_load else (0,), tracer.rest)
            self.assertIn("the process has ended the trace", tracer.rest)
            self.check(tracer, connection, covered=not under_load)
            self.assertEqual(parted.do("descriptors"), 0)
            before = sum(connection.sent)
            again = Tracer(self, pid)
            for _ in range(20):
                connection.move(0, 100)
                connection.move(1, 100)
            again.sees(4000)
            again.end()
            self.assertEqual((again.status, again.lost), (0, 0), again.rest)
            self.assertEqual(self.check(again, connection)[1], sum(connection.sent) - before)
            # Its parent waits for it; it writes its report before.
            parted.popen.stdin.close()
            parted.popen.wait(PATIENCE)

    def test_another_program(self):
        connection = self.pair()
        tracer = Tracer(self, connection.ends[0].pid)
        connection.move(0, 1000)
        tracer.sees(1000)
        connection.move(0, 50000, 100)
        connection.ends[0].ask("become")
        tracer.end(None)
        self.assertEqual(tracer.status, 0, tracer.rest)
        self.assertIn("another program", tracer.rest)
        self.check(tracer, connection, seen_by=0)


class Rights(Trace):
    def test_few_are_left(self):
        connection = self.pair()
        tracer = Tracer(self, connection.ends[0].pid)
        connection.move(0, 1000)
        tracer.sees(1000)
        status = pathlib.Path(f"/proc/{tracer.popen.pid}/status").read_text()
        for name in ("CapPrm", "CapEff"):
            left = int(re.search(rf"{name}:\s*([0-9a-f]+)", status)[1], 16)
            # DAC_READ_SEARCH, SYS_PTRACE, CHECKPOINT_RESTORE
            self.assertEqual(left & ~(1 << 2 | 1 << 19 | 1 << 40), 0)
        self.assertIn("NoNewPrivs:\t1", status)
        self.assertEqual(tracer.end().bytes, 1000)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
