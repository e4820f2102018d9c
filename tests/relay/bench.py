#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`viaduct bench --host` and `--answer` between two hosts without RDMA: rows are whole, both ends'
bytes agree, and nonsense is refused. No figure is judged. bench.py VIADUCTD VIADUCT [TEST...]"""
import json
import os
import signal
import socket
import subprocess
import unittest

from hosts import PROGRAMS, TwoHosts, main
from rig import NEWNET, SECONDS, call

SHORT = ["--time", "0.02", "--pairs", "2"]
CLEAN = {k: v for k, v in os.environ.items() if k[:7] != "VIADUCT" and k != "LD_PRELOAD"}


def go_to(host):
    def become():
        call("setns", host.fd, NEWNET)
        call("prctl", 1, signal.SIGKILL, 0, 0, 0)
    return become


class Between(TwoHosts):
    def start(self, host, *args):
        process = subprocess.Popen([PROGRAMS[1], "bench", *args], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   preexec_fn=go_to(host), env={**CLEAN, "VIADUCT_CONFIG": ""})
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        process.kill()
        process.communicate()

    def answer(self, *args):
        process = self.start(self.b, "--answer", *args)
        self.assertRegex(process.stdout.readline(), r"^port \d+ answers ")
        return process

    def bench(self, *args):
        process = self.start(self.a, *args)
        stdout, stderr = process.communicate(timeout=8 * SECONDS)
        return process.returncode, stdout, stderr

    def figures(self, *args):
        status, stdout, stderr = self.bench(*SHORT, "--json", "-", *args)
        self.assertEqual(status, 0, stderr)
        return json.loads(stdout)

    def check(self, row, over):
        self.assertEqual([r["over"] for r in row["results"]], over, row["pattern"])
        self.assertEqual(row["placement"], "free")
        for result in row["results"]:
            self.assertEqual(result["errors"], [], row["pattern"])
            self.assertGreater(min(result["samples"]), 0)

    def test_each_pattern(self):
        self.answer()
        patterns = ["rtt", "rtt-spin", "rtt-epoll", "rtt-poll", "stream", "bidir", "crr",
                    "session", "think", "logp"]
        figures = self.figures("--host", "10.9.0.2", "--sizes", "64", "--patterns",
                               ",".join(patterns), "--over", "tcp,viaduct")
        self.assertEqual([row["pattern"] for row in figures["rows"]], patterns)
        self.assertEqual(figures["run"]["host"], "10.9.0.2")
        self.assertEqual(figures["floor"]["line_ns"], 0)
        for row in figures["rows"]:
            self.check(row, ["tcp", "viaduct"])

    def test_by_name_of_six_and_another_port(self):
        self.answer("--port", "7999")
        figures = self.figures("--host", "fd09::2", "--port", "7999", "--sizes", "64K",
                               "--patterns", "rtt,stream,plain")
        for row, over in zip(figures["rows"], [["tcp", "viaduct", "tcp-spin"],
                                               ["tcp", "viaduct"],
                                               ["tcp", "via-client", "via-server"]]):
            self.check(row, over)

    def test_many_connections(self):
        self.answer()
        figures = self.figures("--host", "10.9.0.2", "--sizes", "64", "--patterns", "rtt-epoll",
                               "--conns", "40", "--over", "tcp")
        self.assertEqual([row["conns"] for row in figures["rows"]], [1, 40])
        for row in figures["rows"]:
            self.check(row, ["tcp"])

    def test_processor_time_of_both_ends(self):
        self.answer()
        status, stdout, stderr = self.bench("--time", "0.5", "--pairs", "1", "--json", "-",
                                            "--host", "10.9.0.2", "--patterns", "rtt-spin",
                                            "--sizes", "64", "--over", "tcp")
        self.assertEqual(status, 0, stderr)
        result, = json.loads(stdout)["rows"][0]["results"]
        self.assertGreater(result["client_cpu_samples"][0], 0)
        self.assertGreater(result["server_cpu_samples"][0], 0)

    def test_nobody_answers(self):
        status, stdout, stderr = self.bench("--host", "10.9.0.2", *SHORT)
        self.assertEqual((status, stdout), (1, ""))
        self.assertIn("10.9.0.2 does not answer on port 7432", stderr)
        self.assertIn("--answer", stderr)

    def test_a_host_with_one_processor_answers(self):
        processors = os.sched_getaffinity(0)
        self.addCleanup(os.sched_setaffinity, 0, processors)
        os.sched_setaffinity(0, [min(processors)])
        self.answer()

    def test_somebody_else_answers(self):
        with self.b:
            listener = socket.create_server(("10.9.0.2", 7432))
        self.addCleanup(listener.close)
        process = self.start(self.a, "--host", "10.9.0.2", *SHORT)
        connection = listener.accept()[0]
        connection.sendall(b"220 ready\r\n")
        connection.recv(8)
        connection.close()
        stderr = process.communicate(timeout=SECONDS)[1]
        self.assertEqual(process.returncode, 1)
        self.assertIn("is not that of a `viaduct bench --answer`", stderr)

    def test_nonsense_is_no_job(self):
        self.answer()
        job = b"job 1 tcp rtt 64 1 1 100 0 1 20000000 cubic"
        for change in ((b"tcp", b"sh"), (b"rtt", b"copy"), (b" 64 ", b" 99999999999 "),
                       (b" 1 1 ", b" 1 2 "), (b"cubic", b"../x"), (b"20000000", b"0"),
                       (b"job 1", b"job 2"), (b"job 1", b"run"), (b"rtt", b"r" * 600)):
            with self.a:
                asker = socket.create_connection(("10.9.0.2", 7432))
            with asker:
                asker.sendall(job.replace(*change) + b"\n")
                said = b""
                try:
                    while more := asker.recv(4096):
                        said += more
                except ConnectionResetError:
                    pass
                self.assertNotIn(b"address", said, change)
        self.check(self.figures("--host", "10.9.0.2", "--patterns", "rtt", "--sizes", "64",
                                "--over", "tcp")["rows"][0], ["tcp"])

    def test_what_is_said_last_arrives(self):
        """Whatever the asker has said that was not read."""
        self.answer()
        with self.a:
            asker = socket.create_connection(("10.9.0.2", 7432))
        with asker:
            asker.sendall(b"hello 1\n" + b"end\n" * 1000)
            said = b""
            while more := asker.recv(4096):
                said += more
        self.assertRegex(said, rb"^host 1 [01] [01]\n$")

    def test_the_one_that_measures_goes_away(self):
        """What was started for it ends, and others are answered."""
        self.answer()
        with self.a:
            asker = socket.create_connection(("10.9.0.2", 7432))
        asker.sendall(b"job 1 tcp rtt 64 1 1 100 0 1 20000000 cubic\n")
        self.assertTrue(asker.recv(64).startswith(b"address "))
        asker.close()
        self.check(self.figures("--host", "10.9.0.2", "--patterns", "rtt", "--sizes", "64",
                                "--over", "tcp")["rows"][0], ["tcp"])

    def test_usage(self):
        for args, words in ((["--answer", "--pairs", "3"], "--answer"),
                            (["--answer", "--quick"], "--answer"),
                            (["--answer", "x"], "x"),
                            (["--port", "7000"], "--port"),
                            (["--host", "b", "--port", "0"], "--port takes a number"),
                            (["--host", ""], "--host takes"),
                            (["--host", "b", "--placement", "one"], "--placement"),
                            (["--host", "b", "--busy", "2"], "--busy"),
                            (["--host", "b", "--matrix"], "--matrix"),
                            (["--host", "b", "--patterns", "copy"], "copy"),
                            (["--host", "b", "--over", "tcp,unix"], "unix"),
                            (["--host", "b", "--over", "ucx"], "ucx"),
                            (["--host", "b", "--", "x", "--", "y"], "host")):
            status, stdout, stderr = self.bench(*args)
            self.assertEqual((status, stdout), (2, ""), args)
            self.assertIn(words, stderr)


if __name__ == "__main__":
    main(2)
