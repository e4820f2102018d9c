#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `viaduct stat --watch`: what it shows again and again.

usage: stat_watch.py VIADUCT MANUAL REASONS OFFSETS HURRY-LIBRARY. No time is judged.
"""
import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
import unittest

from stat_bed import PATIENCE, Stat

HURRY = os.path.abspath(sys.argv[5])


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

    def test_late(self):
        """Where to look takes longer than from one look to the next, keys and signals are heard."""
        a, b, port = self.pair()
        for leave in (lambda p, master: os.write(master, b"q"),
                      lambda p, master: p.send_signal(signal.SIGINT)):
            p, master, _, _ = self.start("--port", port, env={"LD_PRELOAD": HURRY})
            self.read_until(master, f"127.0.0.1:{port}")
            leave(p, master)
            self.read_until(master, r"\033\[\?1049l")
            self.assertEqual(p.wait(), 0)

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
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[6:]])
