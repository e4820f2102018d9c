#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `viaduct trace`: what it refuses, and what tshark reads of its files.

usage: trace_refusals.py VIADUCT MANUAL. Without tshark, Redis or root the tests for these are skipped.
"""
import os
import pathlib
import pty
import re
import shutil
import subprocess
import sys
import threading
import unittest

from trace_end import stream
from trace_bed import (Connection, END, MANUAL, NOBODY, PATIENCE, Process, Trace, Tracer, VIADUCT,
                       until)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from ports import free_port  # noqa: E402


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

    def test_thread(self):
        ended = threading.Event()
        thread = threading.Thread(target=ended.wait)
        thread.start()
        self.addCleanup(ended.set)
        self.assertIn(f"{thread.native_id} is a thread of process {os.getpid()}: ",
                      self.refused(thread.native_id))

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
        # Bytes, whatever a port that the kernel gives has in tshark's table.
        checks = ["-d", "tcp.port==1-65535,data",
                  "-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"]
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
        port = str(free_port())
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
