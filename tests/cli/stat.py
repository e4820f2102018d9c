#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `viaduct stat`: what it shows of real connections, to the byte.

usage: stat.py VIADUCT MANUAL REASONS OFFSETS. No time is judged.
"""
import contextlib
import fcntl
import os
import pathlib
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
import threading
import unittest

from stat_bed import MANUAL, Player, Stat


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

    def test_threads_on_tcp(self):
        a, b = Player(self), Player(self, plain=True)
        a.do("import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()")
        self.pair(a, b, upgraded=False)
        self.exchange(a, b, 5, 100)
        counts = self.see("--pid", a.pid)["processes"][0]["counts"]
        self.assertEqual((counts["tx_tcp_bytes"], counts["rx_tcp_bytes"]), (500, 500))

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
        gone = self.run_stat("--pid", a.pid)
        self.assertEqual(gone.returncode, 1)
        self.assertRegex(gone.stdout, f"^There is no process {a.pid}")
        self.assertEqual(self.run_stat("--json", "--pid", a.pid).returncode, 1)
        ended = threading.Event()
        thread = threading.Thread(target=ended.wait)
        thread.start()
        self.addCleanup(ended.set)
        self.assertIn(f"{thread.native_id} is a thread of process {os.getpid()}: ",
                      self.run_stat("--pid", thread.native_id).stdout)

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
            # Of a connection that other tests' processes have together, the column says PID+1.
            return [pid for line in lines.split("\n")
                    if (pid := int(line.split()[0].split("+")[0])) in pids]
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
        text = b""
        with contextlib.suppress(OSError):  # the end, behind all that was written, which may come in parts
            while part := os.read(master, 65536):
                text += part
        return text.decode()

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
                     ["--per-connection"], ["--watch", "--prometheus"], ["--rpc", "--processes"],
                     ["--json", "--prometheus"]):
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


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[5:]])
