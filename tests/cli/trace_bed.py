# SPDX-License-Identifier: Apache-2.0
"""Connections between two programs, and a tracer of them: for the tests of trace."""
import json
import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import time

import pcapng
from bed import Bed
from trace_end import stream

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


class Trace(Bed):
    def setUp(self):
        super().setUp()
        self.tmp.chmod(0o777)
        self.ends, self.tracers = [], []
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
