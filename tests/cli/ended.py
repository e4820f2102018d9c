#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The report and the log of processes that a signal ends, and that these change nothing.

usage: ended.py VIADUCT BY-SIGNAL-PROGRAM
"""
import json
import os
import re
import signal
import subprocess
import sys
import unittest

from bed import Bed

VIADUCT, BY_SIGNAL = map(os.path.abspath, sys.argv[1:3])
PYTHON = os.path.realpath(sys.executable)
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
OTHERS = (signal.SIGUSR1, signal.SIGALRM, signal.SIGQUIT)
PAIR = """
import os, signal, socket, sys
l = socket.create_server(("127.0.0.1", 0))
c = socket.create_connection(l.getsockname())
a = l.accept()[0]
for i in range(int(sys.argv[1])):
    c.sendall(b"x"); a.recv(1); a.sendall(b"x"); c.recv(1)
twice = c.dup()
if sys.argv[2] == "exit":
    sys.exit(0)
os.kill(os.getpid(), getattr(signal, sys.argv[2]))
"""


class Ended(Bed):
    def setUp(self):
        super().setUp()
        self.report, self.log = self.tmp / "report", self.tmp / "log"

    def start(self, command, preexec_fn=None):
        """With the usual actions of all signals, however this test was started."""
        def begin():
            for sig in (*ENDING, *OTHERS):
                signal.signal(sig, signal.SIG_DFL)
            if preexec_fn:
                preexec_fn()
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, env=self.env, timeout=60, preexec_fn=begin,
                              restore_signals=False)

    def both(self, *args, lines=1, log=True, **more):
        """Plain and under Viaduct: the same output and the same end."""
        plain = self.start([BY_SIGNAL, *map(str, args)], **more)
        for file in (self.report, self.log):
            file.unlink(missing_ok=True)
        options = ["--report", str(self.report), "--log", f"info:{self.log}"]
        seen = self.start([VIADUCT, "run", *(options if log else options[:2]), "--",
                           BY_SIGNAL, *map(str, args)], **more)
        self.assertEqual((seen.returncode, seen.stdout, seen.stderr),
                         (plain.returncode, plain.stdout, plain.stderr), args)
        reports = self.reports()
        self.assertEqual(len(reports), lines, reports)
        if log:
            self.assertEqual(self.log.read_text().count(" ended: "), lines)
        return seen

    def reports(self):
        text = self.report.read_text() if self.report.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    def test_default_action(self):
        for sig in ENDING:
            for mode in ("kill", "back", "threads", "mask"):
                self.assertEqual(self.both(mode, int(sig)).returncode, -sig)
                self.both(mode, int(sig), log=False)

    def test_programs_own_handler(self):
        for sig in ENDING:
            self.assertEqual(self.both("handler", int(sig)).returncode, 5)
            self.assertEqual(self.both("returns", int(sig)).returncode, 0)
            self.assertEqual(self.both("sigwait", int(sig)).returncode, 0)

    def test_handler_for_once(self):
        for sig in ENDING:
            for mode in ("raises", "once"):
                self.assertEqual(self.both(mode, int(sig)).returncode, -sig)

    def test_ignored(self):
        for sig in ENDING:
            self.assertIn("went on", self.both("ignore", int(sig)).stdout)
            seen = self.both("kill", int(sig),
                             preexec_fn=lambda sig=sig: signal.signal(sig, signal.SIG_IGN))
            self.assertIn("start: ignored", seen.stdout)
            self.assertEqual(seen.returncode, 0)

    def test_children(self):
        for sig in ENDING:
            self.both("fork", int(sig), lines=2)
            self.both("vfork", int(sig))  # the memory is the parent's, and so is the line
            self.both("clone", int(sig))
            self.assertEqual(self.both("exec", int(sig), lines=2).returncode, -sig)

    def test_other_signals(self):
        for sig in OTHERS:
            self.assertEqual(self.both("kill", int(sig), lines=0).returncode, -sig)

    def test_first_process_of_a_namespace(self):
        """Such a one does not end by a signal that it has no handler for."""
        made = subprocess.run(["unshare", "--pid", "--fork", "true"], stderr=subprocess.PIPE)
        if made.returncode:
            self.skipTest("no pid namespace can be made")
        plain = self.start(["unshare", "--pid", "--fork", BY_SIGNAL, "kill"])
        seen = self.start([VIADUCT, "run", "--report", str(self.report), "--", "unshare",
                           "--pid", "--fork", BY_SIGNAL, "kill"])
        self.assertEqual((seen.returncode, seen.stdout), (plain.returncode, plain.stdout))
        self.assertIn("went on", seen.stdout)
        self.assertEqual([r["program"] for r in self.reports()].count("by_signal"), 1)

    def test_no_handler_without_need(self):
        for options, there in (([], False), (["--log", f"error:{self.log}"], False),
                               (["--log", f"info:{self.log}"], True),
                               (["--report", str(self.report)], True)):
            seen = self.start([VIADUCT, "run", *options, "--", "grep", "SigCgt",
                               "/proc/self/status"])
            caught = int(seen.stdout.split()[1], 16)
            self.assertEqual(bool(caught & 1 << signal.SIGTERM - 1), there, options)

    def pair(self, rounds, how):
        for file in (self.report, self.log):
            file.unlink(missing_ok=True)
        seen = self.start([VIADUCT, "run", "--report", str(self.report), "--log",
                           f"info:{self.log}", "--", PYTHON, "-c", PAIR, str(rounds), how])
        self.assertEqual(seen.stderr, "")
        line, = self.reports()
        said = re.search(r" info loaded into (\S+)\n.* info ended: (.*)\n",
                         self.log.read_text(), re.S)
        self.assertEqual(said[1], line["program"])
        return line, said[2]

    def test_counts(self):
        """Of open connections, however the process ends; each once, though it has two names."""
        for how in ("exit", "SIGTERM"):
            line, said = self.pair(1, how)
            self.assertEqual((line["connections"], line["upgraded"]), (2, 0))
            self.assertEqual(line["reasons"], {"too-short": 2})
            self.assertEqual(said, "2 TCP connections, 0 upgraded; on TCP: too-short 2")
            line, said = self.pair(100, how)
            self.assertEqual((line["connections"], line["upgraded"]), (2, 2))
            self.assertGreater(line["tx_direct_bytes"], 0)
            self.assertEqual(said, "2 TCP connections, 2 upgraded")

    def test_pipe_that_nobody_reads(self):
        """It keeps no process from its end."""
        os.mkfifo(self.report)
        for mode, status in (("sigwait", 0), ("kill", -signal.SIGTERM)):
            made = self.start([VIADUCT, "run", "--report", str(self.report), "--", BY_SIGNAL,
                               mode])
            self.assertEqual(made.returncode, status)

    def reported(self):
        """What a program that ends says on stderr; its report goes to self.report."""
        made = self.start([VIADUCT, "run", "--report", str(self.report), "--log",
                           "error:stderr", "--", "true"])
        self.assertEqual(made.returncode, 0)
        return made.stderr

    def test_files_of_others_in_the_report_s_way(self):
        target = self.tmp / "target"
        target.write_text("it is somebody's\n")
        os.link(target, self.report)
        self.assertIn("Too many links", self.reported())
        self.report.unlink()
        if os.getuid() == 0:
            self.report.symlink_to(target)
            os.lchown(self.report, 65534, 65534)
            self.assertIn("symbolic links", self.reported())
            self.report.unlink()
        self.assertEqual(target.read_text(), "it is somebody's\n")

    def test_links_of_our_own_lead_the_report(self):
        target = self.tmp / "target"
        self.report.symlink_to(target)
        self.assertEqual(self.reported(), "")
        self.assertEqual(json.loads(target.read_text())["program"], "true")
        self.report.unlink()
        self.report = "/dev/stderr"
        self.assertEqual(json.loads(self.reported())["program"], "true")

    def test_log_of_a_program_without_connections(self):
        self.start([VIADUCT, "run", "--log", f"info:{self.log}", "--", "true"])
        self.assertEqual([line.split(" info ")[1] for line in self.log.read_text().splitlines()],
                         ["loaded into true", "ended: no TCP connection"])
        self.log.unlink()
        self.start([VIADUCT, "run", "--off", "--log", f"info:{self.log}", "--", "true"])
        self.assertIn("loaded into true, and switched off", self.log.read_text())
        self.log.unlink()
        self.start([VIADUCT, "run", "--log", f"error:{self.log}", "--", "true"])
        self.assertFalse(self.log.exists())

    def test_a_port_of_two_listeners(self):
        """As redis-server has: one for IPv4 and one for IPv6. The second needs no announcement."""
        code = ("import socket\n"
                "l = socket.create_server(('127.0.0.1', 0))\n"
                "m = socket.create_server(('::1', l.getsockname()[1]), family=socket.AF_INET6)")
        self.start([VIADUCT, "run", "--log", f"debug:{self.log}", "--", PYTHON, "-c", code])
        self.assertIn("ended", self.log.read_text())
        self.assertNotIn("not announced", self.log.read_text())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[3:]])
