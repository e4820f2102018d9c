#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `viaduct stat`: what it shows of real connections, to the byte.

usage: stat.py VIADUCT MANUAL REASONS OFFSETS. No time is judged.
"""
import contextlib
import ctypes
import fcntl
import json
import os
import pathlib
import pty
import re
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

BUILT, MANUAL, REASONS, OFFSETS = map(os.path.abspath, sys.argv[1:5])
ROOT = os.getuid() == 0
NOBODY = 65534
PATIENCE = 60
# One that other users may run, too.
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable

# A program that does what it is told, a line of Python at a time.
PLAYER = r"""
import array, contextlib, ctypes, fcntl, os, select, signal, socket, struct, sys
def tell(value):
    sys.stdout.write(repr(value) + "\n")
    sys.stdout.flush()
def listen(family=socket.AF_INET, host="127.0.0.1"):
    global server
    server = socket.socket(family)
    server.bind((host, 0))
    server.listen(100)
    return server.getsockname()[1]
def accept():
    global s
    s = server.accept()[0]
def connect(port, family=socket.AF_INET, host="127.0.0.1"):
    global s
    s = socket.socket(family)
    s.connect((host, port))
receives = 0
def take(n):
    global receives
    while n > 0:
        n -= len(s.recv(n))
        receives += 1
def pings(times, size):
    for i in range(times):
        s.sendall(b"p" * size)
        take(size)
def pongs(times, size):
    for i in range(times):
        take(size)
        s.sendall(b"q" * size)
commands = os.fdopen(os.dup(0))
tell("begun")
for line in commands:
    try:
        exec(line)
    except ConnectionError:
        sys.exit()
    tell("done")
"""


class Player:
    def __init__(self, test, plain=False, env=None, **options):
        command = [PYTHON, "-c", PLAYER]
        if not plain:
            command = [test.viaduct, "run", "--", *command]
        self.test = test
        self.p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  env={**test.env, **(env or {})}, text=True, **options)
        test.addCleanup(self.end)
        self.pid = self.p.pid
        self.heard = b""
        self.hear("'begun'")

    def hear(self, wanted=None):
        while b"\n" not in self.heard:
            ready, _, _ = select.select([self.p.stdout], [], [], PATIENCE)
            more = os.read(self.p.stdout.fileno(), 4096) if ready else b"silence\n"
            self.heard += more or b"the end\n"
        line, self.heard = self.heard.split(b"\n", 1)
        line = line.decode()
        if wanted:
            self.test.assertEqual(line, wanted)
        return line

    def begin(self, code):
        self.p.stdin.write(code + "\n")
        self.p.stdin.flush()

    def do(self, code):
        self.begin(code)
        self.hear("'done'")

    def ask(self, expression):
        self.begin(f"tell({expression})")
        answer = self.hear()
        self.hear("'done'")
        return eval(answer)

    def end(self):
        self.p.kill()
        self.p.wait()
        self.p.stdin.close()
        self.p.stdout.close()


class Stat(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tmp = pathlib.Path(folder.name)
        self.tmp.chmod(0o755)
        # Where every user may run it.
        for name in ("viaduct", "libviaduct-preload.so"):
            shutil.copy(os.path.join(os.path.dirname(BUILT), name), self.tmp)
        self.viaduct = str(self.tmp / "viaduct")
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith("VIADUCT") and k != "LD_PRELOAD"}
        self.env["VIADUCT_UPGRADE_AFTER"] = "0"

    # ---- stat ----

    def run_stat(self, *args, **options):
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        options.setdefault("env", self.env)
        return subprocess.run([self.viaduct, "stat", *map(str, args)], timeout=PATIENCE,
                              stdin=subprocess.DEVNULL, text=True, **options)

    def stat(self, *args, **options):
        result = self.run_stat(*args, **options)
        self.assertEqual((result.returncode, result.stderr), (0, ""), args)
        return result.stdout

    def see(self, *args, **options):
        return json.loads(self.stat("--json", *args, **options))

    def ends(self, *args, **options):
        return self.see(*args, **options)["connections"]

    def end_of(self, player):
        ends = self.ends("--pid", player.pid)
        self.assertEqual(len(ends), 1, ends)
        return ends[0]

    def table(self, *args, **options):
        """The lines of the table as dictionaries, and the notes below it."""
        text = self.stat(*args, **options)
        if "\n\n" not in text:
            return [], text
        table, notes = text.split("\n\n", 1)
        head, *lines = table.split("\n")
        names = [(m.group(), m.start(), m.end()) for m in re.finditer(r"\S+", head)]
        rows = []
        for line in lines:
            cells = re.split(r"  +", line.strip())
            self.assertEqual(len(cells), len(names), text)
            rows.append(dict(zip((n[0] for n in names), cells)))
        return rows, notes

    # ---- connections ----

    def pair(self, server=None, client=None, upgraded=True, **how):
        a = server or Player(self)
        b = client or Player(self)
        port = a.ask(f"listen({how.get('where', '')})")
        comma = ", " if "where" in how else ""
        b.begin(f"connect({port}{comma}{how.get('where', '')})")
        a.do("accept()")
        b.hear("'done'")
        if upgraded:
            self.until_upgraded(a, b)
        return a, b, port

    def exchange(self, a, b, times, size):
        a.begin(f"pongs({times}, {size})")
        b.do(f"pings({times}, {size})")
        a.hear("'done'")

    def until_upgraded(self, a, b):
        self.moved = 0
        for _ in range(50):
            self.exchange(a, b, 4, 10)
            self.moved += 40
            paths = [w["path"] for e in (self.end_of(a), self.end_of(b))
                     for w in (e["sent"], e["received"])]
            if paths == ["ring"] * 4:
                return
        self.fail(f"not upgraded: {self.ends('--pid', a.pid)}")

    def kill(self, pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def as_root(self):
        if not ROOT:
            self.skipTest("needs root")


class Numbers(Stat):
    def test_every_byte_and_message(self):
        a, b, port = self.pair()
        before = self.end_of(a), self.end_of(b)
        for player in (a, b):
            player.do("receives = 0")
        self.exchange(a, b, 1000, 77)
        after = self.end_of(a), self.end_of(b)
        for player, x, y in zip((a, b), before, after):
            # A receive ends where the ring does, as it may in TCP anywhere.
            messages = {"sent": 1000, "received": player.ask("receives")}
            for way in ("sent", "received"):
                p, q = x[way], y[way]
                self.assertEqual(q["direct_bytes"] - p["direct_bytes"], 77000)
                self.assertEqual(q["messages"] - p["messages"], messages[way])
                self.assertEqual(q["tcp_bytes"], p["tcp_bytes"])
                self.assertEqual(q["tcp_segments"], p["tcp_segments"])
                self.assertEqual(q["direct_bytes"] + q["tcp_bytes"], self.moved + 77000)
                self.assertGreaterEqual(q["ring_bytes"], 16384)
                self.assertEqual(q["ring_fill_bytes"], 0)
            self.assertEqual((y["path"], y["reason"]), ("ring", "none"))
            self.assertEqual(y["switches"], 2)
            self.assertEqual(y["saved_system_calls"],
                             max(0, y["sent"]["messages"] + y["received"]["messages"] -
                                 y["sleeps"] - y["doorbells"]))
        self.assertEqual((after[0]["role"], after[1]["role"]), ("accepted", "connected"))
        self.assertEqual(after[1]["peer"], {"address": "127.0.0.1", "port": port})
        self.assertEqual(after[1]["peer"], after[0]["local"])
        self.assertEqual(after[1]["peer_process"]["pid"], a.pid)
        self.assertEqual(after[1]["peer_process"]["fd"], after[0]["fds"][0])
        self.assertEqual(after[0]["fds"], [a.ask("s.fileno()")])

    def test_what_lies_in_the_ring(self):
        a, b, _ = self.pair()
        b.do("s.sendall(b'x' * 5000)")
        self.assertEqual(self.end_of(b)["sent"]["ring_fill_bytes"], 5000)
        self.assertEqual(self.end_of(a)["received"]["ring_fill_bytes"], 5000)
        a.do("take(2000)")
        self.assertEqual(self.end_of(b)["sent"]["ring_fill_bytes"], 3000)
        a.do("take(3000)")
        self.assertEqual(self.end_of(b)["sent"]["ring_fill_bytes"], 0)

    def test_on_tcp(self):
        a, b, _ = self.pair(client=Player(self, plain=True), upgraded=False)
        self.exchange(a, b, 100, 33)
        end = self.end_of(a)
        for way in ("sent", "received"):
            self.assertEqual(end[way]["tcp_bytes"], 3300)
            self.assertEqual(end[way]["direct_bytes"], 0)
            self.assertEqual(end[way]["messages"], 0)
            # Each waits for the other's answer.
            self.assertEqual(end[way]["tcp_segments"], 100)
            self.assertEqual(end[way]["ring_bytes"], 0)
        self.assertEqual(end["peer_process"]["pid"], b.pid)
        self.assertFalse(end["peer_process"]["viaduct"])
        self.assertEqual(self.ends("--pid", b.pid), [])

    def test_ipv6(self):
        a, b, port = self.pair(where="socket.AF_INET6, '::1'")
        self.assertEqual(self.end_of(b)["peer"], {"address": "::1", "port": port})
        rows, _ = self.table("--pid", b.pid, "--wide")
        self.assertEqual(rows[0]["PEER"], f"[::1]:{port}")

    def test_processes(self):
        a, b, _ = self.pair()
        b.do("t = s")
        port = a.ask("server.getsockname()[1]")
        b.do(f"connect({port})")
        a.do("t = s; accept()")
        self.exchange(a, b, 5, 100)
        self.until_closed(a, b)
        for x, y in ((a, b), (b, a)):
            p = self.see("--pid", x.pid)["processes"][0]
            self.assertEqual((p["pid"], p["open"], p["on_ring"]), (x.pid, 1, 1))
            counts = p["counts"]
            self.assertEqual(counts["connections"], 2)
            self.assertEqual(counts["upgraded"], 2)
            self.assertEqual(counts["tx_direct_bytes"] + counts["tx_tcp_bytes"],
                             self.moved + 500)
            self.assertEqual(counts["rx_direct_bytes"] + counts["rx_tcp_bytes"],
                             self.moved + 500)
        rows, _ = self.table("--processes", "--wide", "--pid", a.pid)
        self.assertEqual((rows[0]["OPEN"], rows[0]["RING"], rows[0]["SEEN"]), ("1", "1", "2"))

    def until_closed(self, a, b):
        """The second connection is closed at both ends; the first is back."""
        b.do("s.close(); s = t")
        a.do("s.close(); s = t")


    def test_many(self):
        # Few enough for a limit of 1024 descriptors.
        a, b = Player(self), Player(self)
        port = a.ask("listen()")
        b.do("all = []")
        a.do("all = []")
        for _ in range(10):
            b.begin(f"[(connect({port}), all.append(s)) for i in range(20)]")
            a.do("[(accept(), all.append(s)) for i in range(20)]")
            b.hear("'done'")
        a.begin("for i in range(4000): s = all[i // 20]; pongs(1, 9)")
        b.do("for i in range(4000): s = all[i // 20]; pings(1, 9)")
        a.hear("'done'")
        ends = self.ends("--port", port)
        self.assertEqual(len(ends), 400)
        self.assertEqual({e["path"] for e in ends}, {"ring"})
        for way in ("sent", "received"):
            self.assertEqual({e[way]["direct_bytes"] + e[way]["tcp_bytes"] for e in ends},
                             {180})
        by_end = {(e["local"]["port"], e["peer"]["port"]): e for e in ends}
        self.assertEqual(len(by_end), 400)
        for (local, peer), end in by_end.items():
            other = by_end[peer, local]
            self.assertEqual(end["peer_process"]["fd"], other["fds"][0])
            self.assertEqual(end["sent"]["direct_bytes"], other["received"]["direct_bytes"])
        self.assertEqual(len(self.table("--port", port)[0]), 200)
        counts = self.see("--pid", b.pid)["processes"][0]["counts"]
        self.assertEqual(counts["tx_direct_bytes"],
                         sum(e["sent"]["direct_bytes"] for e in ends if e["pid"] == b.pid))


class Shown(Stat):
    def test_one_line_a_connection(self):
        a, b, port = self.pair()
        rows, notes = self.table("--port", port)
        self.assertEqual(len(rows), 1)
        self.assertEqual((rows[0]["PID"], rows[0]["PATH"]), (str(b.pid), "ring"))
        self.assertEqual(rows[0]["PEER"], f"127.0.0.1:{port}")
        self.assertIn("1 connection: 1 on the ring, 0 on TCP\n", notes)
        rows, notes = self.table("--port", port, "--both")
        self.assertEqual({r["PID"] for r in rows}, {str(a.pid), str(b.pid)})
        self.assertIn("2 ends: 2 on the ring", notes)
        rows, _ = self.table("--pid", a.pid)
        self.assertEqual([r["PID"] for r in rows], [str(a.pid)])

    def test_reason_is_explained(self):
        a, b, port = self.pair(client=Player(self, plain=True), upgraded=False)
        self.exchange(a, b, 500, 3)
        rows, notes = self.table("--port", port)
        self.assertEqual((rows[0]["PATH"], rows[0]["REASON"]), ("tcp", "plain-peer"))
        self.assertIn("plain-peer: the other end does not run under Viaduct; start the "
                      "other end with `viaduct run`\n", notes)

    def test_filters(self):
        a, b, port = self.pair()
        c = Player(self, plain=True)
        a.do("t = s")
        c.begin(f"connect({port})")
        a.do("accept()")
        c.hear("'done'")
        self.exchange(a, c, 500, 3)
        a.do("open('/proc/self/comm', 'w').write('stat-test-a')")

        def pids(*args):
            return sorted(e["pid"] for e in self.ends("--port", port, *args))
        self.assertEqual(pids(), sorted([a.pid, a.pid, b.pid]))
        self.assertEqual(pids("--path", "tcp"), [a.pid])
        self.assertEqual(pids("--path", "ring"), sorted([a.pid, b.pid]))
        self.assertEqual(pids("--path", "switching"), [])
        self.assertEqual(pids("--reason", "plain-peer"), [a.pid])
        self.assertEqual(pids("--reason", "none"), sorted([a.pid, b.pid]))
        self.assertEqual(pids("--pid", b.pid), [b.pid])
        self.assertEqual(pids("-p", b.pid, "--path", "tcp"), [])
        self.assertEqual(pids("--program", "stat-test-?"), [a.pid, a.pid])
        self.assertEqual(pids("--program", "stat-test"), [])
        rows, _ = self.table("--port", port)
        self.assertEqual(len(rows), 2)

    def test_nothing(self):
        a = Player(self)
        port = a.ask("listen()")
        self.assertRegex(self.stat("--port", port), "^Nothing matches, of ")
        self.assertRegex(self.stat("--pid", a.pid),
                         rf"^Process {a.pid} \(python3\) has no such TCP connection now\.\n")
        self.assertRegex(self.stat("--pid", os.getpid()),
                         rf"^Process {os.getpid()} \(.*\) does not run under Viaduct")
        a.end()
        self.assertRegex(self.stat("--pid", a.pid), f"^There is no process {a.pid}")

    def test_widths(self):
        a, b, port = self.pair()
        for width in (80, 120, 200):
            text = self.on_terminal(width, "--port", port, NO_COLOR="1")
            lines = text.split("\r\n")
            self.assertLessEqual(max(map(len, lines[:2])), width, text)
            self.assertIn("PATH", lines[0])
            self.assertIn("REASON", lines[0])
            self.assertIn(f"127.0.0.1:{port}", lines[1])
        self.assertLessEqual(max(map(len, self.stat("--port", port).split("\n"))), 120)
        wide = self.stat("--port", port, "-w").split("\n")[0]
        for name in ("SWITCHES", "SLEEPS", "WAKES", "REDIRECTS", "SAVED", "RING-SENT", "TCP-RCVD",
                     "SEND-RING", "MSGS-RCVD", "PEER-PROCESS", "LOCAL"):
            self.assertIn(name, wide)

    def test_columns(self):
        a, b, port = self.pair()
        a.begin("pongs(3, 100)")
        b.do("pings(3, 100)")
        a.hear("'done'")
        head, line, *_ = self.stat("-o", "sent,PID,Peer", "--port", port).split("\n")
        self.assertEqual(head.split(), ["SENT", "PID", "PEER"])
        sent = self.end_of(b)["sent"]
        self.assertEqual(line.split(), [str(sent["direct_bytes"] + sent["tcp_bytes"]),
                                        str(b.pid), f"127.0.0.1:{port}"])
        head = self.stat("--columns=REASONS,PID,SWITCHING", "--processes").split("\n")[0]
        self.assertEqual(head.split(), ["REASONS", "PID", "SWITCHING"])
        for args in (["-o", "PID,SENT/s", "--watch", "--count", "1"],
                     ["-o", "PID,PID", "--both"]):
            self.assertIn(str(b.pid), self.stat(*args, "--port", port))
        wide = self.stat("--port", port, "-w").split("\n")[0].split()
        self.assertEqual(len(set(wide)), len(wide))
        self.assertEqual(self.stat("--port", port, "-o", ",".join(wide)).split("\n")[0].split(),
                         wide)
        for args in (["-o", "NONE"], ["-o", ""], ["-o", "PID,"], ["-o", "SENT/s"],
                     ["-o", "REASONS"], ["-o", "PID", "--json"], ["--sort", "PID,FD"],
                     ["--sort", "PID", "--prometheus"], ["--sort", "MSGS/s"],
                     ["-o", ",".join(["PID"] * 65)]):
            self.assertEqual(self.run_stat(*args).returncode, 2, args)
        self.assertIn("RING-SENT", self.run_stat("--sort", "nonsense").stderr)

    def test_sort(self):
        """By what was counted, not by what is printed of it: 1.5K stands for many numbers."""
        pairs = [self.pair() for _ in range(3)]
        for (a, b, port), size in zip(pairs, (1500, 1505, 5)):
            a.begin(f"pongs(1, {size})")
            b.do(f"pings(1, {size})")
            a.hear("'done'")
        pids = [b.pid for a, b, port in pairs]
        sent = {b.pid: e["direct_bytes"] + e["tcp_bytes"]
                for a, b, port in pairs for e in [self.end_of(b)["sent"]]}
        most = sorted(pids, key=sent.get, reverse=True)
        self.assertEqual(len(set(sent.values())), 3, sent)

        def order(*args):
            lines = self.stat("-o", "PID,SENT,PEER", *args).split("PEER\n")[1].split("\n\n")[0]
            return [pid for line in lines.split("\n") if (pid := int(line.split()[0])) in pids]
        self.assertEqual(order(), sorted(pids))
        self.assertEqual(order("--sort", "sent"), most)
        self.assertEqual(order("--sort", "PID"), sorted(pids, reverse=True))
        self.assertEqual(order("--sort", "ROLE"), sorted(pids))  # all the same
        self.assertEqual(order("--sort", "SENT", "--watch", "--count", "1"), most)

    def test_colours(self):
        a, b, port = self.pair()
        text = self.on_terminal(100, "--port", port, TERM="xterm", NO_COLOR="")
        self.assertRegex(text, r"\A\x1b\[1mPROCESS.*\x1b\[0m\r\n\x1b\[32m\S.* ring .*\x1b\[0m\r\n")
        for env in ({"TERM": "xterm", "NO_COLOR": "1"}, {"TERM": "dumb"}):
            self.assertNotIn("\x1b", self.on_terminal(100, "--port", port, **env))
        self.assertNotIn("\x1b", self.stat("--port", port, env={**self.env, "TERM": "xterm"}))

    def on_terminal(self, width, *args, **env):
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
        with open(slave, "wb") as out:
            env = {k: v for k, v in {**self.env, **env}.items() if v}
            self.assertEqual(self.run_stat(*args, stdout=out, env=env).returncode, 0)
        return os.read(master, 65536).decode()

    def test_odd_name(self):
        a, b, port = self.pair()
        a.do(r"""open('/proc/self/comm', 'wb').write(b'a"b\\c\nd\x1b\xff')""")
        name = 'a"b\\c?d??'
        self.assertEqual(self.end_of(a)["program"], name)
        self.assertEqual(self.table("--pid", a.pid)[0][0]["PROCESS"], name)
        self.assertIn(r'program="a\"b\\c?d??"', self.stat("--prometheus", "--pid", a.pid))

    def test_usage(self):
        for args in (["--nonsense"], ["argument"], ["--pid", "0"], ["--pid", "x"],
                     ["--port", "65536"], ["--path", "shm"], ["--reason", "nonsense"],
                     ["--watch=0"], ["--watch=nan"], ["--count", "3"], ["--sort", "x"],
                     ["--sort", "bytes"], ["--sort", "messages"],
                     ["--per-connection"], ["--watch", "--prometheus"], ["--rpc", "--processes"]):
            result = self.run_stat(*args)
            self.assertEqual((result.returncode, result.stdout), (2, ""), args)
            self.assertIn("viaduct stat", result.stderr)
        self.assertIn("plain-peer", self.run_stat("--reason", "nonsense").stderr)
        self.assertIn("usage: viaduct stat", self.stat("--help"))

    def test_output_that_fails(self):
        with open("/dev/full", "w") as full:
            for args in ([], ["--json"], ["--prometheus"], ["--watch", "--count", "1"]):
                result = self.run_stat(*args, stdout=full)
                self.assertEqual(result.returncode, 1)
                self.assertIn("cannot be written", result.stderr)
        for args in ([], ["--json"], ["--watch=0.1"]):
            read, write = os.pipe()
            os.close(read)
            with open(write, "w") as out:
                result = self.run_stat(*args, stdout=out)
            self.assertEqual((result.returncode, result.stderr), (-signal.SIGPIPE, ""))

    def test_manual(self):
        manual = pathlib.Path(MANUAL).read_text().replace("\\-", "-")
        for option in re.findall(r"--[a-z-]+", self.stat("--help")):
            self.assertIn(option, manual)
        a, b, port = self.pair()
        seen = self.see("--port", port)
        fields = set(seen) | set(seen["processes"][0]) | set(seen["connections"][0]) | \
            set(seen["connections"][0]["sent"]) | set(seen["connections"][0]["peer_process"])
        for field in fields:
            self.assertRegex(manual, rf"\b{field}\b")
        titles = self.stat("--port", port, "-w").split("\n")[0].split() + \
            self.stat("--pid", a.pid, "-w", "--processes").split("\n")[0].split()
        for title in titles:
            self.assertRegex(manual, rf"(?<![A-Z-]){title}(?![A-Z-])")
        for metric in re.findall(r"^# TYPE (\S+)",
                                 self.stat("--prometheus", "--per-connection"), re.M):
            self.assertIn(metric, manual)


class Prometheus(Stat):
    def samples(self, *args):
        text = self.stat("--prometheus", *args)
        if shutil.which("promtool"):
            check = subprocess.run(["promtool", "check", "metrics"], input=text, text=True,
                                   capture_output=True)
            self.assertEqual((check.returncode, check.stdout + check.stderr), (0, ""))
        found = {}
        for line in text.splitlines():
            if line.startswith("#"):
                self.assertRegex(line, r"^# (HELP viaduct_\w+ .+|TYPE viaduct_\w+ (gauge|counter|summary))$")
                continue
            m = re.fullmatch(r'(viaduct_\w+)(\{(.*)\})? (\d+)', line)
            self.assertTrue(m, line)
            labels = tuple(sorted(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', m[3] or "")))
            self.assertNotIn((m[1], labels), found)
            found[m[1], labels] = int(m[4])
        return found

    def test_of_a_process(self):
        a, b, _ = self.pair()
        samples = self.samples("--pid", a.pid)
        names = {name for name, _ in samples}
        self.assertFalse([n for n in names if "connection_" in n], names)
        labels = {"pid": str(a.pid), "program": "python3"}

        def value(name, **more):
            return samples["viaduct_" + name, tuple(sorted({**labels, **more}.items()))]
        counts = self.see("--pid", a.pid)["processes"][0]["counts"]
        self.assertEqual(value("open_connections", path="ring"), 1)
        self.assertEqual(value("open_connections", path="tcp"), 0)
        self.assertEqual(value("connections_total"), 1)
        self.assertEqual(value("upgraded_total"), 1)
        self.assertEqual(value("sleeps_total"), counts["sleeps"])
        self.assertEqual(value("doorbells_total"), counts["doorbells"])
        self.assertEqual(value("redirects_total"), counts["redirects"])
        self.assertEqual(value("zero_copies_total"), counts["zero_copies"])
        self.assertEqual(value("pinned_bytes"), counts["pinned_bytes"])
        for direction, way in (("sent", "tx"), ("received", "rx")):
            self.assertEqual(value("bytes_total", direction=direction, path="ring"),
                             counts[way + "_direct_bytes"])
        self.exchange(a, b, 100, 50)
        before = value("bytes_total", direction="sent", path="ring")
        samples = self.samples("--pid", a.pid)
        self.assertEqual(value("bytes_total", direction="sent", path="ring") - before, 5000)
        # Nothing is lost by the close, nor doubled.
        a.do("s.close()")
        samples = self.samples("--pid", a.pid)
        self.assertEqual(value("bytes_total", direction="sent", path="ring") - before, 5000)

    def test_of_a_connection(self):
        a, b, port = self.pair()
        end = self.end_of(b)
        samples = self.samples("--pid", b.pid, "--per-connection")
        labels = {"pid": str(b.pid), "program": "python3", "fd": str(end["fds"][0]),
                  "local": f"127.0.0.1:{end['local']['port']}", "peer": f"127.0.0.1:{port}"}

        def value(name, **more):
            return samples["viaduct_connection_" + name,
                           tuple(sorted({**labels, **more}.items()))]
        self.assertEqual(value("bytes_total", direction="sent", path="ring"),
                         end["sent"]["direct_bytes"])
        self.assertEqual(value("messages_total", direction="received"),
                         end["received"]["messages"])
        self.assertEqual(value("info", sent="ring", received="ring", reason="none"), 1)

    def test_reasons(self):
        a, b, _ = self.pair(client=Player(self, plain=True), upgraded=False)
        self.exchange(a, b, 500, 3)
        samples = self.samples("--pid", a.pid)
        self.assertEqual([(dict(l)["reason"], v) for (n, l), v in samples.items()
                          if n == "viaduct_tcp_connections"], [("plain-peer", 1)])


class Processes(Stat):
    def test_killed(self):
        a, b, port = self.pair()
        a.p.kill()
        a.p.wait()
        ends = self.ends("--port", port)
        self.assertEqual([e["pid"] for e in ends], [b.pid])
        self.assertIsNone(ends[0]["peer_process"])
        b.end()
        self.assertEqual(self.ends("--port", port), [])

    def test_fork(self):
        a, b, port = self.pair()
        a.do("child = os.fork() or signal.pause()")
        child = a.ask("child")
        self.addCleanup(self.kill, child)
        ends = self.ends("--port", port)
        self.assertEqual(sorted(e["pid"] for e in ends), sorted([a.pid, b.pid, child]))
        mine = [e for e in ends if e["pid"] != b.pid]
        self.assertEqual(mine[0]["sent"], mine[1]["sent"])
        self.assertEqual(len(self.table("--port", port)[0]), 1)
        self.assertEqual(len(self.table("--port", port, "--both")[0]), 3)
        rows, _ = self.table("--port", port, "--path", "ring", "--program", "python3")
        self.assertEqual(rows[0]["PID"], str(b.pid))
        b.do("os.close(s.detach())")
        rows, _ = self.table("--port", port)
        self.assertEqual([r["PID"] for r in rows], [f"{min(a.pid, child)}+1"])
        os.kill(child, signal.SIGKILL)
        a.do("os.waitpid(child, 0)")
        self.assertEqual(self.table("--port", port)[0][0]["PID"], str(a.pid))

    def test_duplicates(self):
        a, b, port = self.pair()
        a.do("copy = os.dup(s.fileno())")
        fds = sorted(a.ask("[s.fileno(), copy]"))
        end = self.end_of(a)
        self.assertEqual(end["fds"], fds)
        self.assertEqual(self.table("--pid", a.pid)[0][0]["FD"], f"{fds[0]}+1")
        p = self.see("--pid", a.pid)["processes"][0]
        self.assertEqual(p["open"], 1)
        # The number that it had at first is another's now.
        a.do("os.close(s.detach()); s = socket.socket(fileno=copy); f = open('/dev/null')")
        end = self.end_of(a)
        self.assertEqual((end["fds"], end["sent"]["path"]), ([fds[1]], "ring"))

    def test_exec(self):
        a, b, port = self.pair()
        code = "import signal; print('there', flush=True); signal.pause()"
        a.do("os.set_inheritable(s.fileno(), True)")
        a.begin(f"os.execv({PYTHON!r}, [{PYTHON!r}, '-c', {code!r}])")
        a.hear("there")
        self.assertEqual(self.end_of(a)["path"], "tcp")
        self.assertEqual(self.end_of(a)["reason"], "role-unknown")
        b.do("s.send(b'x')")
        self.assertEqual(self.end_of(b)["reason"], "peer-asked")

    def test_carried_over_exec(self):
        """What is unread goes with it."""
        a, b, port = self.pair()
        code = "import signal; print('there', flush=True); signal.pause()"
        a.do("os.set_inheritable(s.fileno(), True)")
        b.do("s.send(b'hello')")
        a.begin(f"os.execv({PYTHON!r}, [{PYTHON!r}, '-c', {code!r}])")
        a.hear("there")
        end = self.end_of(a)
        self.assertEqual((end["reason"], end["received"]["path"]), ("exec", "ring"))

    def test_passed(self):
        a, b, port = self.pair()
        c = Player(self)
        path = str(self.tmp / "socket")
        c.do("u = socket.socket(socket.AF_UNIX)")
        c.do(f"u.bind({path!r})")
        c.do("u.listen()")
        a.do("v = socket.socket(socket.AF_UNIX)")
        a.do(f"v.connect({path!r})")
        a.do("socket.send_fds(v, [b'x'], [s.fileno()])")
        self.assertEqual(self.end_of(a)["reason"], "passed")
        c.do("w = u.accept()[0]; s = socket.socket(fileno=socket.recv_fds(w, 9, 9)[1][0])")
        a.do("s.close()")
        self.assertEqual(self.end_of(c)["reason"], "role-unknown")
        self.assertEqual(self.end_of(b)["peer_process"]["pid"], c.pid)

    def test_other_users(self):
        self.as_root()
        options = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        a, b, port = self.pair(Player(self, **options), Player(self, **options))
        self.assertEqual({e["pid"] for e in self.ends("--port", port)}, {a.pid, b.pid})
        self.assertEqual({e["pid"] for e in self.ends("--port", port, **options)},
                         {a.pid, b.pid})
        self.assertEqual(self.see()["hidden_processes"], 0)
        c, d, hidden = self.pair()
        seen = self.see("--port", hidden, **options)
        self.assertEqual(seen["connections"], [])
        self.assertGreaterEqual(seen["hidden_processes"], 2)
        self.assertRegex(self.stat(**options),
                         r"\d+ processes of other users may not be looked into; root sees "
                         r"all\n$")
        # Across users: the end that may be seen, with a peer that may not.
        e, f, port = self.pair(server=Player(self, **options))
        ends = self.ends("--port", port, **options)
        self.assertEqual([x["pid"] for x in ends], [e.pid])
        self.assertIsNone(ends[0]["peer_process"])

    def test_gave_all_descriptors_back(self):
        """With none left for the program, the one that shows its connections goes, too."""
        user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if ROOT else {}
        b = Player(self, **user, preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_NOFILE, (64, 64)))
        a, b, port = self.pair(client=b)
        b.do("with contextlib.suppress(OSError): more = [os.dup(0) for i in range(64)]")
        self.assertNotIn("memfd", "".join(
            os.readlink(f"/proc/{b.pid}/fd/{n}") for n in os.listdir(f"/proc/{b.pid}/fd")))
        self.exchange(a, b, 4, 10)
        said = self.stat("--pid", b.pid, **user)
        self.assertRegex(said, rf"^\S+ \(process {b.pid}\) is not listed: it was short of "
                         r"descriptors, .*: ask as root\n")
        self.assertNotIn("does not run", said)
        seen = self.see("--pid", b.pid, **user)
        self.assertEqual([p["pid"] for p in seen["processes"]], [b.pid])
        self.assertIn("short of descriptors", seen["processes"][0]["trouble"])
        self.assertEqual(seen["connections"], [])
        if ROOT:
            end = self.end_of(b)
            self.assertEqual(end["reason"], "fd-limit")
            self.assertEqual(sum(end["sent"][k] for k in ("direct_bytes", "tcp_bytes")),
                             self.moved + 40)

    def test_pid_namespaces(self):
        self.as_root()
        a, b = Player(self), Player(self)
        # The parent stays outside; the child is 1 in a family of two namespaces.
        a.do("ctypes.CDLL(None).unshare(0x20000000)")
        port = b.ask("listen()")
        a.begin(f"child = os.fork() or (connect({port}), s.send(b'x'), "
                "[s.send(s.recv(9)) for i in range(30)], signal.pause())")
        a.hear("'done'")
        b.do("accept()")
        b.do("take(1); [(s.send(b'x'), take(1)) for i in range(30)]")
        child = a.ask("child")
        inside = [int(p) for p in
                  pathlib.Path(f"/proc/{a.pid}/task/{a.pid}/children").read_text().split()]
        self.assertEqual(child, inside[0])
        self.addCleanup(self.kill, inside[0])
        ends = {e["pid"]: e for e in self.ends("--port", port)}
        self.assertEqual(set(ends), {b.pid, inside[0]})
        end = ends[inside[0]]
        self.assertEqual(end["role"], "connected")
        self.assertEqual(end["sent"]["direct_bytes"] + end["sent"]["tcp_bytes"], 31)

    def test_network_namespaces(self):
        self.as_root()
        a, b, port = self.pair()
        up = ("subprocess.run(['ip', 'link', 'set', 'lo', 'up'], check=True)"
              if shutil.which("ip") else None)
        if not up:
            self.skipTest("has no ip")
        c, d = Player(self), Player(self)
        c.do("import subprocess; ctypes.CDLL(None).unshare(0x40000000); " + up)
        d.do(f"ctypes.CDLL(None).setns(os.open('/proc/{c.pid}/ns/net', 0), 0)")
        # The same addresses as those of the pair outside.
        local = b.ask("s.getsockname()[1]")
        c.do(f"server = socket.socket(); server.bind(('127.0.0.1', {port})); server.listen()")
        d.do(f"s = socket.socket(); s.bind(('127.0.0.1', {local}))")
        d.begin(f"s.connect(('127.0.0.1', {port}))")
        c.do("accept()")
        d.hear("'done'")
        self.until_upgraded(c, d)
        self.assertEqual(len(self.table("--port", port)[0]), 2)
        self.assertEqual(self.end_of(d)["peer_process"]["pid"], c.pid)
        self.assertEqual(self.end_of(b)["peer_process"]["pid"], a.pid)

    def test_closed_namespace(self):
        self.as_root()
        options = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        a = Player(self)
        a.do("ctypes.CDLL(None).unshare(0x40000000)")
        a.do(f"os.setresgid({NOBODY}, {NOBODY}, {NOBODY}); "
             f"os.setresuid({NOBODY}, {NOBODY}, {NOBODY})")
        a.do("ctypes.CDLL(None).prctl(4, 1)")  # PR_SET_DUMPABLE
        self.assertIn("its network namespace may not be entered", self.stat(**options))
        self.assertNotIn("may not be entered", self.stat())


class Reasons(Stat):
    """Each is made for real; stat, its note, the log and the list of reasons agree."""

    def known(self):
        text = pathlib.Path(REASONS).read_text()
        text = re.sub(r'"[ \t]*\\\n\s*"', '", "', text)
        text = re.sub(r",[ \t]*\\\n\s*", ", ", text)
        return {name: (says, remedy) for name, says, remedy in
                re.findall(r'X\(\d+, \w+, "([^"]+)",\s*"([^"]+)",\s*"([^"]+)"\)', text)}

    def expect(self, player, reason, log=None):
        end = self.end_of(player)
        self.assertEqual((end["path"], end["reason"]), ("tcp", reason))
        says, remedy = self.known()[reason]
        self.assertEqual((end["reason_text"], end["remedy"]), (says, remedy))
        self.assertIn(f"{reason}: {says}; {remedy}\n", self.stat("--pid", player.pid))
        self.assertEqual(len(self.ends("--pid", player.pid, "--reason", reason)), 1)
        if log:
            self.assertIn(f"{reason} ({says})", log.read_text())

    def logged(self, **options):
        log = self.tmp / f"log-{len(list(self.tmp.iterdir()))}"
        env = {"VIADUCT_LOG": f"debug:{log}", **options.pop("env", {})}
        return Player(self, env=env, **options), log

    def test_list_is_read(self):
        self.assertGreater(len(self.known()), 40)

    def test_too_short(self):
        a = Player(self, env={"VIADUCT_UPGRADE_AFTER": "1000"})
        a, b, _ = self.pair(server=a, upgraded=False)
        self.exchange(a, b, 3, 3)
        self.expect(a, "too-short")

    def test_plain_peer(self):
        a, b, _ = self.pair(client=Player(self, plain=True), upgraded=False)
        self.exchange(a, b, 500, 3)
        self.expect(a, "plain-peer")
        a, log = self.logged()
        b, a, _ = self.pair(server=Player(self, plain=True), client=a, upgraded=False)
        self.exchange(b, a, 1, 3)
        self.expect(a, "plain-peer", log)

    def test_rule(self):
        a, log = self.logged(env={"VIADUCT_RULES": "deny"})
        a, b, _ = self.pair(server=a, upgraded=False)
        self.exchange(a, b, 20, 3)
        self.expect(a, "rule", log)

    def test_shared(self):
        a, b, _ = self.pair(upgraded=False)
        a.do("child = os.fork() or signal.pause()")
        child = a.ask("child")
        self.addCleanup(self.kill, child)
        self.exchange(a, b, 20, 3)
        self.expect(a, "shared")

    def test_out_of_band(self):
        a, log = self.logged()
        a, b, _ = self.pair(server=a)
        a.do("s.send(b'u', socket.MSG_OOB)")
        b.begin("pongs(5, 3)")
        a.do("pings(5, 3)")
        b.hear("'done'")
        self.expect(a, "out-of-band", log)
        self.expect(b, "peer-asked")
        rows, notes = self.table("--pid", b.pid)
        self.assertEqual(rows[0]["REASON"], "peer-asked, peer: out-of-band")
        self.assertIn("out-of-band: ", notes)

    def test_stdio(self):
        a, b, _ = self.pair(upgraded=False)
        a.do("os.dup2(s.fileno(), 0)")
        # Nobody has asked for its cookie: it is known by a number that is not the lowest.
        self.assertEqual(self.end_of(a)["fds"], [0, a.ask("s.fileno()")])
        self.assertEqual(self.end_of(a)["reason"], "stdio")
        b.begin("pings(20, 3)")
        a.do("pongs(20, 3)")
        b.hear("'done'")
        end = self.end_of(a)
        self.assertEqual((end["path"], end["reason"]), ("tcp", "stdio"))

    def test_sigio(self):
        a, log = self.logged()
        a, b, _ = self.pair(server=a)
        a.do("signal.signal(signal.SIGIO, signal.SIG_IGN)")
        a.do("fcntl.fcntl(s, fcntl.F_SETFL, fcntl.fcntl(s, fcntl.F_GETFL) | os.O_ASYNC)")
        self.exchange(a, b, 20, 3)
        self.expect(a, "sigio", log)

    def test_splice(self):
        a, log = self.logged()
        a, b, _ = self.pair(server=a)
        b.do("s.send(b'hello')")
        a.do("r, w = os.pipe()")
        b.begin("take(1)")
        a.do("n = os.splice(s.fileno(), w, 5)")
        a.do("s.send(b'x')")
        b.hear("'done'")
        self.exchange(a, b, 5, 3)
        self.expect(a, "splice", log)

    def went_down(self, reason, code, **env):
        """The server of an upgraded pair does this, which takes the connection to TCP."""
        a, log = self.logged(env=env)
        a, b, _ = self.pair(server=a)
        a.do(code)
        self.exchange(a, b, 20, 3)
        self.expect(a, reason, log)
        self.expect(b, "peer-asked")

    def test_option(self):
        self.went_down("option", "s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 2)")

    def test_protocol(self):
        self.went_down("protocol", "ctypes.CDLL(None).setsockopt(s.fileno(), 6, 31, b'tls', 3)")

    def test_mptcp(self):
        """Which the library leaves alone."""
        self.as_root()
        where = "socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)"
        a, b = Player(self), Player(self)
        if not a.ask("os.path.exists('/proc/sys/net/mptcp')"):
            self.skipTest("has no MPTCP")
        a.do(f"server = {where}; server.bind(('127.0.0.1', 0)); server.listen()")
        b.do(f"s = {where}; s.connect(('127.0.0.1', {a.ask('server.getsockname()[1]')}))")
        a.do("accept()")
        self.exchange(a, b, 20, 3)
        self.expect(a, "protocol")
        self.expect(b, "protocol")

    def test_epoll(self):
        self.went_down("epoll", "e = select.epoll(); e.register(s, select.EPOLLIN); "
                                "f = select.epoll(); f.register(e, select.EPOLLIN)")

    def test_io_uring(self):
        self.went_down("io_uring", "ctypes.CDLL(None).syscall(425, 1, "
                                   "ctypes.create_string_buffer(120))",
                       VIADUCT_IO_URING="leave")

    def test_deepbind(self):
        self.went_down("deepbind", "ctypes.CDLL('libc.so.6', os.RTLD_LAZY | os.RTLD_DEEPBIND)")

    def test_parted(self):
        self.went_down("parted", "import threading; t = threading.Thread(target=lambda: "
                                 "ctypes.CDLL(None).unshare(0x400)); t.start(); t.join()")

    def test_aio(self):
        self.went_down("aio", "c = ctypes.CDLL(None); x = ctypes.c_ulong(); "
                              "c.syscall(206, 1, ctypes.byref(x)); "
                              "b = ctypes.create_string_buffer(b'x'); "
                              "i = ctypes.create_string_buffer(struct.pack('QIIHhIQQqQII', 0, 0, "
                              "0, 1, 0, s.fileno(), ctypes.addressof(b), 0, 0, 0, 0, 0)); "
                              "c.syscall(209, x, 1, ctypes.byref(ctypes.c_void_p("
                              "ctypes.addressof(i))))")

    def test_memory(self):
        a, log = self.logged()
        a.do("import resource; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
             "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))")
        a, b, _ = self.pair(server=a, upgraded=False)
        self.exchange(a, b, 20, 3)
        self.expect(a, "memory", log)

    def test_bypass(self):
        a, log = self.logged()
        a, b, _ = self.pair(server=a)
        plain = Player(self, plain=True)
        plain.do(f"p = os.pidfd_open({b.pid}); s = socket.socket(fileno="
                 f"ctypes.CDLL(None).syscall(438, p, {b.ask('s.fileno()')}, 0))")
        plain.do("s.send(b'past')")
        a.do("with contextlib.suppress(ConnectionResetError): s.recv(9); tell('read')")
        self.assertIn("bypass (", log.read_text())

    def test_namespace(self):
        self.as_root()
        log = self.tmp / "log"
        a = Player(self)
        b = Player(self, env={"VIADUCT_LOG": f"debug:{log}"})
        port = a.ask("listen()")
        b.do("ctypes.CDLL(None).unshare(0x20000000)")
        b.begin(f"child = os.fork() or (connect({port}), pings(40, 3), signal.pause())")
        b.hear("'done'")
        child = b.ask("child")
        self.addCleanup(self.kill, child)
        a.do("accept()")
        a.do("pongs(40, 3)")
        self.expect(a, "namespace", log)
        rows, _ = self.table("--port", port)
        self.assertEqual([(r["PID"], r["REASON"]) for r in rows],
                         [(str(child), "too-short, peer: namespace")])

    def test_remote_peer(self):
        self.as_root()
        if not shutil.which("ip"):
            self.skipTest("has no ip")
        a, log = self.logged()
        b = Player(self)
        for player in (a, b):
            player.do("import subprocess; ctypes.CDLL(None).unshare(0x40000000)")
        ip = "subprocess.run('ip {}', shell=True, check=True)"
        b.do(ip.format(f"link add va type veth peer name vb netns {a.pid}"))
        for player, name, n in ((a, "vb", 1), (b, "va", 2)):
            player.do(ip.format(f"addr add 192.0.2.{n}/24 dev {name}"))
            player.do(ip.format(f"link set {name} up"))
        # Somebody here listens at the same port, under Viaduct.
        port = b.ask("listen(socket.AF_INET, '192.0.2.2')")
        a.do(f"h = socket.socket(); h.bind(('192.0.2.1', {port})); h.listen()")
        a.do(f"connect({port}, socket.AF_INET, '192.0.2.2')")
        b.do("accept()")
        self.exchange(b, a, 20, 3)
        self.expect(a, "remote-peer", log)
        self.assertIsNone(self.end_of(a)["peer_process"])

    def test_self_connect(self):
        a = Player(self)
        a.do("s = socket.socket(); s.bind(('127.0.0.1', 0)); s.connect(s.getsockname())")
        a.do("[(s.send(b'x'), take(1)) for i in range(20)]")
        end = self.end_of(a)
        self.assertEqual((end["path"], end["reason"]), ("tcp", "self-connect"))

    def test_role_unknown(self):
        server = subprocess.Popen([PYTHON, "-c", PLAYER], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True, env=self.env)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        self.addCleanup(server.stdin.close)
        self.addCleanup(server.stdout.close)
        self.assertEqual(server.stdout.readline(), "'begun'\n")
        server.stdin.write("tell(listen())\n")
        server.stdin.flush()
        port = int(server.stdout.readline())
        b = Player(self)
        b.do(f"connect({port})")
        code = "import signal; print('there', flush=True); signal.pause()"
        command = [self.viaduct, "run", "--", PYTHON, "-c", code]
        server.stdin.write("accept(); os.set_inheritable(s.fileno(), True); "
                           f"os.execv({command[0]!r}, {command!r})\n")
        server.stdin.flush()
        while server.stdout.readline() != "there\n":
            self.assertIsNone(server.poll())
        ends = self.ends("--pid", server.pid)
        self.assertEqual([e["reason"] for e in ends], ["role-unknown"])

    def test_fd_limit(self):
        limit = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (10, 10))"
        a = Player(self)
        a.do("server = 0")
        b = Player(self)
        b.do(limit)
        a, b, _ = self.pair(server=a, client=b, upgraded=False)
        self.exchange(a, b, 20, 3)
        self.expect(b, "fd-limit")


class Odd(Stat):
    """Processes that are not what they seem."""

    MAKE = ("fd = os.memfd_create('viaduct-table', 3); os.truncate(fd, {size}); "
            "os.pwrite(fd, {head!r}, 0)")
    SEAL = "fcntl.fcntl(fd, 1033, 2)"  # F_ADD_SEALS, F_SEAL_SHRINK

    def fake(self, head, size=1 << 20, sealed=True):
        p = Player(self, plain=True)
        p.do(self.MAKE.format(size=size, head=head))
        if sealed:
            p.do(self.SEAL)
        return p

    def test_other_version(self):
        p = self.fake(struct.pack("QI", 0x656c626174647631, 999))
        self.assertIn(f"(process {p.pid}) is not listed: it runs another version of "
                      "Viaduct than this command\n", self.stat())
        seen = self.see("--pid", p.pid)
        self.assertIn("another version", seen["processes"][0]["trouble"])
        self.assertIsNone(seen["processes"][0]["counts"])

    def test_its_connections_are_not_guessed(self):
        p = self.fake(struct.pack("QI", 0x656c626174647631, 999))
        a, p, port = self.pair(client=p, upgraded=False)
        self.assertEqual([e["pid"] for e in self.ends("--port", port)], [a.pid])

    def test_process_that_begins(self):
        for p in (self.fake(b"", sealed=False), self.fake(b""), self.fake(b"", 0)):
            self.assertNotIn(f"process {p.pid}", self.stat())

    def test_too_small(self):
        p = self.fake(struct.pack("Q", 0x656c626174647631), 4096)
        self.assertIn(f"(process {p.pid}) is not listed", self.stat())

    def real_table(self, player):
        for fd in os.listdir(f"/proc/{player.pid}/fd"):
            path = f"/proc/{player.pid}/fd/{fd}"
            if "viaduct-table" in os.readlink(path):
                with open(path, "rb") as f:
                    return f.read(4 << 20), os.stat(path).st_size
        self.fail("it has no table")

    def test_lies(self):
        """A table with the right head, and anything behind it."""
        a, b, port = self.pair()
        data, size = self.real_table(a)
        table_bytes = struct.unpack_from("QII", data)[2]
        noise = self.tmp / "noise"
        for _ in range(8):
            noise.write_bytes(os.urandom(1 << 20))
            p = self.fake(data[:64], size)
            p.do(f"os.pwrite(fd, open({str(noise)!r}, 'rb').read(), 64)")
            c, p, other = self.pair(client=p, upgraded=False)
            # The first slot is that of its connection: struct slot begins so.
            p.do("slot = struct.pack('IIII', 0, 1, 1, 0) + s.getsockopt(1, 57, 8)")
            p.do(f"os.pwrite(fd, slot + struct.pack('i', os.getpid()), {table_bytes})")
            self.assertNotEqual(self.end_of(p)["reason"], "role-unknown")
            for args in ([], ["-w", "--both"], ["--processes"], ["--rpc"], ["--prometheus",
                         "--per-connection"], ["--json"]):
                self.stat(*args)
            self.assertEqual(self.end_of(b)["path"], "ring")

    def forge_rdma(self):
        """A process whose table says that its connection goes by RDMA: 300 bytes were sent and 40
        received on it, and 4000 and 3000 on others that have ended, of which 1000 went by RDMA."""
        at = json.loads(subprocess.check_output([OFFSETS]))
        a, _, _ = self.pair()
        data, size = self.real_table(a)
        p = self.fake(data[:64], size)
        c, p, port = self.pair(client=p, upgraded=False)
        entry, slot = at["processes"], at["slots"]
        words = {at["fresh"]: struct.pack("I", 1),
                 entry: struct.pack("i", p.pid),
                 entry + at["counts"] + at["tx_direct_bytes"]: struct.pack("QQ", 4000, 3000),
                 entry + at["counts"] + at["tx_rdma_bytes"]: struct.pack("QQ", 1000, 1000),
                 slot + at["across"]: struct.pack("I", 1),
                 slot + at["gate_tx"]: struct.pack("I", at["ring"]),
                 slot + at["gate_rx"]: struct.pack("I", at["ring"]),
                 slot + at["produced"]: struct.pack("Q", 300),
                 slot + at["consumed"]: struct.pack("Q", 40)}
        for where, what in words.items():
            p.do(f"os.pwrite(fd, {what!r}, {where})")
        # The slot is that of its connection: struct slot begins so.
        p.do("slot = struct.pack('IIII', 0, 1, 1, 0) + s.getsockopt(1, 57, 8)")
        p.do(f"os.pwrite(fd, slot + struct.pack('i', os.getpid()), {slot})")
        return p

    def test_rdma(self):
        p = self.forge_rdma()
        seen = self.see("--pid", p.pid)
        end, counts = seen["connections"][0], seen["processes"][0]["counts"]
        self.assertEqual([end["path"], end["sent"]["path"], end["received"]["path"]],
                         ["rdma"] * 3)
        self.assertEqual((counts["tx_direct_bytes"], counts["rx_direct_bytes"]), (4300, 3040))
        self.assertEqual((counts["tx_rdma_bytes"], counts["rx_rdma_bytes"]), (1300, 1040))
        found = re.findall(r'^viaduct_(bytes_total|connection_bytes_total)\{.*direction="(\w+)",'
                           r'path="(ring|rdma)"\} (\d+)$',
                           self.stat("--prometheus", "--per-connection", "--pid", p.pid), re.M)
        self.assertEqual(sorted(found), sorted([
            ("bytes_total", "sent", "ring", "3000"), ("bytes_total", "received", "ring", "2000"),
            ("bytes_total", "sent", "rdma", "1300"), ("bytes_total", "received", "rdma", "1040"),
            ("connection_bytes_total", "sent", "rdma", "300"),
            ("connection_bytes_total", "received", "rdma", "40")]))
        rows, _ = self.table("--pid", p.pid)
        self.assertEqual([row["PATH"] for row in rows], ["rdma"])

    def test_too_many_slots(self):
        a, b, port = self.pair()
        data, size = self.real_table(a)
        head = list(struct.unpack_from("QIIIIII", data))
        head[4] = 0xffffffff
        p = self.fake(struct.pack("QIIIIII", *head), 1 << 42)
        self.assertIn(f"(process {p.pid}) is not listed", self.stat())

    def test_while_they_come_and_go(self):
        churn = subprocess.Popen(
            [sys.executable, "-c", "import subprocess, sys\n"
             "while True: subprocess.run(sys.argv[1:])", self.viaduct, "run", "--", "true"],
            env=self.env)
        self.addCleanup(churn.wait)
        self.addCleanup(churn.kill)
        for _ in range(30):
            self.assertNotIn("not listed", re.sub(r".*another version.*", "", self.stat()))


class Watch(Stat):
    def test_blocks(self):
        a, b, port = self.pair()
        a.begin("pongs(10**9, 100)")
        b.begin("pings(10**9, 100)")
        text = self.stat("--watch", "0.3", "--count", "3", "--port", port)
        self.assertEqual(text.count("viaduct stat  "), 3)
        blocks = text.split("viaduct stat  ")[1:]
        self.assertNotIn("SENT/s", blocks[0])
        for block in blocks[1:]:
            self.assertIn("SENT/s  RCVD/s  MSGS/s", block)

    def test_json(self):
        a, b, port = self.pair()
        text = self.stat("--watch=0.1", "--count", "2", "--json", "--port", port)
        for line in text.splitlines():
            self.assertEqual(len(json.loads(line)["connections"]), 2)
        self.assertEqual(len(text.splitlines()), 2)

    def test_busiest_first(self):
        a, b, port = self.pair()
        c, d, other = self.pair()
        self.assertLess(b.pid, d.pid)
        c.begin("pongs(10**9, 20)")
        d.begin("pings(10**9, 20)")
        for what in ("bytes", "messages"):
            text = self.stat("--watch=0.3", "--count", "8", "--path", "ring", "--sort", what)
            orders = [[p for p in re.findall(r"^\S+ +(\d+)", block, re.M)
                       if p in (str(b.pid), str(d.pid))]
                      for block in text.split("viaduct stat  ")[1:]]
            self.assertEqual(orders[0], [str(b.pid), str(d.pid)])
            # Where the machine is so busy that nothing moves, they stand in this order, too.
            self.assertIn([str(d.pid), str(b.pid)], orders[1:])

    def test_while_all_ends(self):
        a, b, port = self.pair()
        p = subprocess.Popen([self.viaduct, "stat", "--watch=0.1", "--count", "8", "--port",
                              str(port)], stdout=subprocess.PIPE, text=True, env=self.env)
        first = p.stdout.readline()
        self.assertTrue(first.startswith("viaduct stat  "))
        a.end()
        b.end()
        rest = p.stdout.read()
        p.stdout.close()
        self.assertEqual(p.wait(), 0)
        self.assertRegex(rest, "Nothing matches|No process|no TCP connection")

    def start(self, *args, width=100, lines=20, env=None):
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, width, 0, 0))
        before = termios.tcgetattr(slave)

        def own():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        p = subprocess.Popen([self.viaduct, "stat", "--watch=0.2", *map(str, args)],
                             stdin=slave, stdout=slave, stderr=slave, preexec_fn=own,
                             env={**self.env, "TERM": "xterm", **(env or {})})
        self.addCleanup(os.close, master)
        self.addCleanup(os.close, slave)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        return p, master, slave, before

    def read_until(self, master, wanted, seen=""):
        end = time.monotonic() + PATIENCE
        while not re.search(wanted, seen):
            left = end - time.monotonic()
            self.assertGreater(left, 0, seen[-2000:])
            if select.select([master], [], [], left)[0]:
                seen += os.read(master, 65536).decode()
        return seen

    def test_keys(self):
        a, b, port = self.pair()
        for key, status in (("q", 0), ("\x03", 0)):
            p, master, slave, before = self.start("--port", port)
            seen = self.read_until(master, f"SENT/s(.|\n)*127.0.0.1:{port}")
            self.assertTrue(seen.startswith("\033[?1049h"))
            self.assertFalse(termios.tcgetattr(slave)[3] & termios.ECHO)
            os.write(master, b"m")
            self.read_until(master, "by messages")
            os.write(master, key.encode())
            self.read_until(master, r"\033\[\?25h\033\[\?1049l")
            self.assertEqual(p.wait(), status)
            self.assertEqual(termios.tcgetattr(slave), before)

    def screen(self, master, seen=""):
        """The next whole one, as text with the codes of colours, and what is left over."""
        seen = self.read_until(master, r"(?s)\033\[H.*\033\[H", seen)
        screen, rest = seen[seen.index("\033[H") + 3:].split("\033[H", 1)
        return screen, "\033[H" + rest

    def leave(self, p, master):
        os.write(master, b"q")
        self.read_until(master, r"\033\[\?1049l")
        self.assertEqual(p.wait(), 0)

    def test_looks(self):
        """The head is bold, each path has a colour, and the last line names the keys."""
        a, b, port = self.pair()
        for env, bold, colour in (({"TERM": "xterm"}, True, True),
                                  ({"TERM": "xterm", "NO_COLOR": "1"}, True, False),
                                  ({"TERM": "xterm", "NO_COLOR": ""}, True, True)):
            p, master, slave, before = self.start("--port", port, env=env)
            screen, _ = self.screen(master)
            self.assertEqual(bool(re.match(r"\033\[1mviaduct stat ", screen)), bold)
            self.assertEqual("\033[1mPROCESS" in screen, bold)
            self.assertEqual(bool(re.search(r"\033\[3[0-9]m", screen)), colour)
            self.assertRegex(screen, r"\033\[20;1H\033\[7m q quit   b most bytes first   m most "
                                     r"messages first \033\[0m$")
            self.leave(p, master)

    def test_dumb_terminal(self):
        """One list after the other, without a code."""
        # Not of all programs there are: more than a terminal holds unread would wait for a reader.
        port = self.pair()[2]
        p, master, slave, before = self.start("--count", 2, "--port", port,
                                              env={"TERM": "dumb"})
        seen = self.read_until(master, r"(?s)viaduct stat .*viaduct stat .*\n.*\n")
        self.assertEqual(p.wait(), 0)
        self.assertNotIn("\033", seen)
        self.assertNotIn("\001", seen)

    def test_more_than_fits(self):
        s = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(s.close)
        code = ("import socket, sys\n"
                "all = [socket.create_connection(('127.0.0.1', %d)) for i in range(30)]\n"
                "print('there', flush=True); input()" % s.getsockname()[1])
        with subprocess.Popen([self.viaduct, "run", "--", sys.executable, "-c", code],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                              env=self.env) as held:
            self.assertEqual(held.stdout.readline(), "there\n")
            p, master, slave, before = self.start("--port", s.getsockname()[1])
            screen, _ = self.screen(master)
            rows = screen.count(f"127.0.0.1:{s.getsockname()[1]}")
            self.assertRegex(screen, rf"\n{30 - rows} more\033\[K")
            self.assertIn("30 connections: ", screen)
            self.leave(p, master)
            held.communicate("\n")

    def test_killed(self):
        p, master, slave, before = self.start()
        self.read_until(master, "viaduct stat")
        p.terminate()
        self.read_until(master, r"\033\[\?1049l")
        self.assertEqual(p.wait(), -signal.SIGTERM)
        self.assertEqual(termios.tcgetattr(slave), before)

    def test_stopped(self):
        p, master, slave, before = self.start()
        self.read_until(master, "viaduct stat")
        os.write(master, b"\x1a")
        self.read_until(master, r"\033\[\?1049l")
        os.waitpid(p.pid, os.WUNTRACED)
        self.assertEqual(termios.tcgetattr(slave), before)
        os.kill(p.pid, signal.SIGCONT)
        self.read_until(master, r"\033\[\?1049h(.|\n)*viaduct stat")
        os.write(master, b"q")
        self.read_until(master, r"\033\[\?1049l")
        self.assertEqual(p.wait(), 0)

    def test_resize(self):
        a, b, port = self.pair()
        p, master, slave, before = self.start("--port", port, width=150)
        self.read_until(master, "PEER-PROCESS")
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 5, 60, 0, 0))
        head = r"\033\[H\033\[1m[^\033]{1,60}\033\[0m\033\[K\r+\n\033\[1mPROCESS"
        seen = self.read_until(master, head)
        screen = seen.split("\033[H")[-1]
        screen = self.read_until(master, r"\033\[J", screen).split("\033[J")[0]
        lines = re.sub(r"\033\[[0-9;]*[KHJm]|\r", "", screen).split("\n")
        self.assertLessEqual(len(lines), 5)
        self.assertLessEqual(max(map(len, lines)), 60)
        os.write(master, b"q")
        self.read_until(master, r"\033\[\?1049l")
        self.assertEqual(p.wait(), 0)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[5:]])
