#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `viaduct trace`: what is in the file is what the programs said to each other.

usage: trace.py VIADUCT MANUAL. Without tshark, Redis or root the tests for these are skipped.
"""
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import pcapng  # noqa: E402
from trace_end import stream  # noqa: E402

VIADUCT, MANUAL = map(os.path.abspath, sys.argv[1:3])
END = str(pathlib.Path(__file__).with_name("trace_end.py"))
NOBODY = 65534
PATIENCE = 60
MIB = 1 << 20


def until(condition, what):
    """Waits for something that another process does."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"never: {what}")
        time.sleep(0.005)


class Process:
    """A process of trace_end.py under Viaduct."""

    def __init__(self, test, viaduct=True, python=sys.executable, **options):
        self.report = test.tmp / f"report{len(test.ends)}"
        run = [VIADUCT, "run", "--report", str(self.report), "--"] if viaduct else []
        self.popen = subprocess.Popen([*run, python, END], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, env=test.env, bufsize=0,
                                      **options)
        self.pid = self.popen.pid
        test.ends.append(self)

    def ask(self, *words):
        self.popen.stdin.write((" ".join(map(str, words)) + "\n").encode())

    def answer(self):
        ready = select.select([self.popen.stdout], [], [], PATIENCE)[0]
        line = self.popen.stdout.readline().strip() if ready else b"(no answer)"
        try:
            return int(line)
        except ValueError:
            raise AssertionError(f"{line!r} from process {self.pid}") from None

    def do(self, *words):
        self.ask(*words)
        return self.answer()

    def end(self):
        if self.popen.poll() is None:
            self.popen.stdin.close()
            self.popen.wait(PATIENCE)
        for line in self.report.read_text().splitlines():
            report = json.loads(line)
            if report["pid"] == self.pid:
                return report
        return None


class Connection:
    """a (connected) and b (accepted); what each has sent so far is stream(seed, 0, sent)."""

    def __init__(self, a, b, family="4"):
        self.ends = (a, b)
        self.port = b.do("listen", family)
        a.ask("connect", family, self.port)
        b.ask("accept")
        self.fds = (a.answer(), b.answer())
        self.seeds = (self.port * 2, self.port * 2 + 1)
        self.sent = [0, 0]
        for _ in range(30):  # until it is upgraded
            self.move(0, 10)
            self.move(1, 10)

    def move(self, way, n, piece=None, answer=True):
        sender, receiver = self.ends[way], self.ends[1 - way]
        sender.ask("send", self.fds[way], self.seeds[way], self.sent[way], n, piece or n)
        receiver.ask("recv", self.fds[1 - way], self.seeds[way], self.sent[way], n)
        self.sent[way] += n
        if answer and (sender.answer(), receiver.answer()) != (n, n):
            raise AssertionError("the programs' own bytes are wrong")

    def both(self, n, piece):
        """Each sends, then each receives: at most what the rings take."""
        for way in (0, 1):
            self.ends[way].ask("send", self.fds[way], self.seeds[way], self.sent[way], n, piece)
        for way in (0, 1):
            self.ends[1 - way].ask("recv", self.fds[1 - way], self.seeds[way],
                                   self.sent[way], n)
            self.sent[way] += n
        for end in self.ends * 2:
            if end.answer() != n:
                raise AssertionError("the programs' own bytes are wrong")


class Tracer:
    def __init__(self, test, pid, *arguments, command=VIADUCT, **options):
        self.file = test.tmp / f"trace{len(test.tracers)}.pcapng"
        self.popen = subprocess.Popen([command, "trace", *arguments, "-o", self.file, str(pid)],
                                      stderr=subprocess.PIPE, text=True, env=test.env, **options)
        test.tracers.append(self)
        self.begin = self.popen.stderr.readline()

    def end(self, sig=signal.SIGINT):
        if sig:
            self.popen.send_signal(sig)
        self.rest = self.popen.communicate(timeout=PATIENCE)[1]
        self.status = self.popen.returncode
        return self

    @property
    def lost(self):
        found = re.search(r"(\d+) bytes LOST", self.rest)
        return int(found[1]) if found else 0

    @property
    def bytes(self):
        return int(re.search(r"(\d+) bytes", self.rest)[1])

    def read(self):
        return pcapng.File(self.file.read_bytes())

    def sees(self, n):
        """Waits until so many stream bytes are in the file."""
        until(lambda: self.size() >= n and pcapng.payload(self.file.read_bytes()) >= n,
              f"{n} bytes in the file")

    def size(self):
        return self.file.stat().st_size if self.file.exists() else 0


class Trace(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tmp = pathlib.Path(folder.name)
        self.tmp.chmod(0o777)
        self.ends, self.tracers = [], []
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith("VIADUCT") and k != "LD_PRELOAD"}
        self.env |= {"VIADUCT_UPGRADE_AFTER": "0", "VIADUCT_CONFIG": ""}
        self.addCleanup(self.clean)

    def clean(self):
        for one in self.ends + self.tracers:
            one.popen.kill()
            one.popen.wait()
            for stream_of in (one.popen.stdin, one.popen.stdout, one.popen.stderr):
                if stream_of:
                    stream_of.close()

    def load(self, connection, condition):
        """Moves bytes until the condition holds; then more are under way."""
        size = 64 * MIB
        connection.move(0, size, 65536, answer=False)

        def holds():
            nonlocal size
            for end in connection.ends:
                self.assertEqual(end.answer(), size)
            size = 16 * MIB
            connection.move(0, size, 65536, answer=False)
            return condition()
        until(holds, "something comes")
        return size

    def pair(self, family="4"):
        return Connection(Process(self), Process(self), family)

    def check(self, tracer, connection, covered=True, seen_by=1):
        """Every packet has the bytes of its place in the stream; all that came is there."""
        file = tracer.read()
        total = 0
        for (source, target), pieces in file.directions().items():
            # From the client, whose port is not the server's.
            way = 0 if target[1] == connection.port else 1
            if connection.port not in (source[1], target[1]):
                continue
            end = pieces[0][0]
            for at, data in pieces:
                self.assertEqual(data, stream(connection.seeds[way], at, len(data)), at)
                self.assertGreaterEqual(at, end, "sent twice")
                if covered:
                    self.assertEqual(at, end, "a gap")
                end = at + len(data)
                total += len(data)
            if covered:
                self.assertEqual(end, connection.sent[way])
            for p in file.packets:
                if p.source == source and p.data:
                    self.assertEqual(p.way, 1 if (way == 0) == (seen_by == 1) else 2)
        times = [p.time for p in file.packets]
        self.assertEqual(times, sorted(times))
        return file, total

    def check_direct(self, *ends, least):
        for end in ends:
            report = end.end()
            self.assertGreaterEqual(report["tx_direct_bytes"] + report["rx_direct_bytes"],
                                    least, report)

    def refused(self, pid, *arguments, status=1, **options):
        result = subprocess.run([VIADUCT, "trace", "-o", self.tmp / "refused", *arguments,
                                 str(pid)], stderr=subprocess.PIPE, text=True,
                                timeout=PATIENCE, env=self.env, **options)
        self.assertEqual(result.returncode, status, result.stderr)
        return result.stderr


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


class Refusals(Trace):
    def test_two_tracers(self):
        connection = self.pair()
        tracer = Tracer(self, connection.ends[0].pid)
        for _ in range(2):
            said = self.refused(connection.ends[0].pid)
            self.assertIn(f"is being traced already, by process {tracer.popen.pid}:", said)
            connection.move(0, 100)
        other = Tracer(self, connection.ends[1].pid)
        connection.move(0, 100)
        self.assertEqual(tracer.end().bytes, 300)
        self.assertEqual(other.end().bytes, 100)

    def test_without_viaduct(self):
        self.assertIn("does not run under Viaduct", self.refused(Process(self, False).pid))

    def test_no_process(self):
        process = subprocess.Popen(["true"])
        process.wait()
        self.assertIn("there is no process", self.refused(process.pid))

    def test_another_user(self):
        if os.getuid() != 0:
            self.skipTest("needs root")
        if subprocess.run([VIADUCT, "--version"], user=NOBODY, stdout=subprocess.DEVNULL,
                          check=False).returncode:
            self.skipTest("another user may not run the command")
        said = self.refused(self.pair().ends[0].pid, user=NOBODY, group=NOBODY)
        self.assertRegex(said, "belongs to root, and you are .*: only its owner and root may")

    def test_the_owner_may(self):
        scope = pathlib.Path("/proc/sys/kernel/yama/ptrace_scope")
        if os.getuid() != 0 or (scope.exists() and scope.read_text().strip() != "0"):
            self.skipTest("needs root, and no Yama")
        python = "/usr/bin/python3"
        try:
            subprocess.run([python, END], user=NOBODY, stdin=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, check=True)
        except (OSError, subprocess.SubprocessError):
            self.skipTest("another user may not run this test")
        owner = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        connection = Connection(Process(self, python=python, **owner),
                                Process(self, python=python, **owner))
        tracer = Tracer(self, connection.ends[0].pid, **owner)
        connection.move(0, 1000)
        self.assertEqual(tracer.end().bytes, 1000)
        self.assertEqual(tracer.status, 0)

    def test_a_terminal(self):
        ours, theirs = pty.openpty()
        result = subprocess.run([VIADUCT, "trace", str(self.pair().ends[0].pid)], stdout=theirs,
                                stderr=subprocess.PIPE, text=True, env=self.env, check=False,
                                timeout=PATIENCE)
        os.close(ours)
        os.close(theirs)
        self.assertEqual(result.returncode, 1)
        self.assertIn("nothing for a terminal", result.stderr)

    def test_output_that_cannot_be_written(self):
        pid = self.pair().ends[0].pid
        result = subprocess.run([VIADUCT, "trace", "-o", "/nonexistent/file", str(pid)],
                                stderr=subprocess.PIPE, text=True, check=False, env=self.env)
        self.assertEqual(result.returncode, 1)
        self.assertIn("`/nonexistent/file` cannot be written: No such file", result.stderr)
        connection = self.pair()
        with open("/dev/full", "wb") as full:
            tracer = subprocess.Popen([VIADUCT, "trace", str(connection.ends[0].pid)],
                                      stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertIn("No space left", tracer.communicate(timeout=PATIENCE)[1])
        self.assertEqual(tracer.returncode, 1)

    def test_command_line(self):
        for arguments in ((), ("x",), ("0",), ("1", "2"), ("--port", "0", "1"),
                          ("--port", "http", "1"), ("--fd", "-1", "1"), ("--seconds", "0", "1"),
                          ("--snaplen", "0", "1"), ("--buffer", "3M", "1"),
                          ("--buffer", "32K", "1"), ("--buffer", "2G", "1"), ("--what", "1")):
            result = subprocess.run([VIADUCT, "trace", *arguments], capture_output=True,
                                    text=True, check=False)
            self.assertEqual((result.returncode, result.stdout), (2, ""), arguments)
            self.assertTrue(result.stderr.startswith(("viaduct trace: ", "usage")), arguments)

    def test_manual(self):
        said = subprocess.run([VIADUCT, "trace", "--help"], stdout=subprocess.PIPE, text=True,
                              check=True).stdout
        manual = pathlib.Path(MANUAL).read_text().replace("\\-", "-")
        options = re.findall(r"--[a-z]+", said)
        self.assertEqual(len(set(options)), 7)
        for option in options:
            self.assertIn(option, manual)


@unittest.skipUnless(shutil.which("tshark"), "there is no tshark")
class Tshark(Trace):
    def tshark(self, file, *arguments):
        result = subprocess.run(["tshark", "-n", "-r", file, *arguments], text=True,
                                capture_output=True, timeout=PATIENCE, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn("appears to have been", result.stderr)
        return result.stdout.splitlines()

    def test_nothing_is_wrong_with_it(self):
        connection = self.pair()
        tracer = Tracer(self, connection.ends[1].pid)
        for way in (0, 1, 1, 0, 0):
            connection.move(way, 100000, 9000)
        connection.ends[1].do("close", connection.fds[1])
        tracer.end()
        checks = ["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"]
        packets = self.tshark(tracer.file, *checks)
        self.assertGreater(len(packets), 40)
        self.assertEqual(self.tshark(tracer.file, *checks, "-Y", "tcp.analysis.flags or "
                                     "tcp.checksum.status != Good or ip.checksum.status != Good "
                                     "or _ws.malformed"), [])
        followed = self.tshark(tracer.file, "-q", "-z", "follow,tcp,raw,0")
        data = [line for line in followed if re.fullmatch("\t?[0-9a-f]+", line)]
        for way, lines in ((0, [x for x in data if x[0] != "\t"]),
                           (1, [x for x in data if x[0] == "\t"])):
            got = bytes.fromhex("".join(lines))
            begin = connection.sent[way] - len(got)
            self.assertEqual(got, stream(connection.seeds[way], begin, len(got)))
            self.assertEqual(begin, 300)

    @unittest.skipUnless(shutil.which("redis-server") and shutil.which("redis-cli"),
                         "there is no Redis")
    def test_redis(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        server = subprocess.Popen([VIADUCT, "run", "--", "redis-server", "--port", port,
                                   "--save", "", "--dir", str(self.tmp)], env=self.env,
                                  stdout=subprocess.DEVNULL)
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)

        def client(script):
            return subprocess.run([VIADUCT, "run", "--", "redis-cli", "-p", port], text=True,
                                  input=script, capture_output=True, env=self.env,
                                  timeout=PATIENCE, check=False).stdout
        until(lambda: "PONG" in client("ping\n"), "Redis is up")
        tracer = Tracer(self, server.pid)
        value = "x" * 40000
        client("get none\n" * 20 + f"set pet crocodile\nset large {value}\nget pet\n"
               "lpush list one two\nget large\nlrange list 0 -1\n")
        tracer.end()
        decode = ["-d", f"tcp.port=={port},resp", "-o", "tcp.desegment_tcp_streams:TRUE"]
        lines = self.tshark(tracer.file, *decode, "-Y", "resp")
        text = "\n".join(lines)
        for said in ("Request: set pet crocodile", "Response: OK", "Request: get pet",
                     "Response: crocodile", "Request: lpush list one two"):
            self.assertIn(said, text)
        self.assertEqual(self.tshark(tracer.file, *decode, "-Y",
                                     "tcp.analysis.flags or _ws.malformed"), [])
        values = self.tshark(tracer.file, *decode, "-Y", "resp.bulk_string.length == 40000",
                             "-T", "fields", "-e", "resp.bulk_string.value")
        self.assertEqual(len([v for v in values if value in v or
                              value.encode().hex() in v]), 2)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
