#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tracing points of docs/tracing.md are in the library, and say what happens.

usage: probes.py LIBRARY DOCUMENT. Where bpftrace cannot run, the notes alone are
compared.
"""
import collections
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

BUILT, DOCUMENT = map(os.path.abspath, sys.argv[1:3])
# Points are a file's: a copy's fire in our processes only, whoever else uses the library.
FOLDER = tempfile.TemporaryDirectory()
LIBRARY = shutil.copy(BUILT, FOLDER.name)
PATIENCE = 20
ROUNDS = 40

# Two ends in one program: messages, some after a pause, then urgent data.
PROGRAM = """
import socket, threading, select, time
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
a = socket.create_connection(listener.getsockname())
b = listener.accept()[0]
epoll, poll = select.epoll(), select.poll()
epoll.register(b, select.EPOLLIN)
poll.register(b, select.POLLIN)
def serve():
    for i in range(ROUNDS):
        if i % 3 == 1:
            epoll.poll()
        if i % 3 == 2:
            poll.poll()
        b.send(b.recv(100))
server = threading.Thread(target=serve)
server.start()
for i in range(ROUNDS):
    if i % 2:
        time.sleep(0.01)
    a.send(b"hello")
    a.recv(100)
server.join()
a.send(b"!", socket.MSG_OOB)
a.send(b"x")
b.recv(1)
""".replace("ROUNDS", str(ROUNDS))


def documented():
    """{name: number of arguments}, from the table."""
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", pathlib.Path(DOCUMENT).read_text(), re.M)
    return {name: sum(1 for cell in row.split("|")[1:] if cell.strip()) for name, row in rows}


def noted():
    """{name: {numbers of arguments}}, from the library's notes."""
    text = subprocess.run(["readelf", "-n", LIBRARY], check=True, stdout=subprocess.PIPE,
                          text=True).stdout
    found = collections.defaultdict(set)
    for name, arguments in re.findall(r"Provider: viaduct\s+Name: (\w+)\s+"
                                      r"Location: .*\s+Arguments: (.*)", text):
        found[name].add(len(arguments.split()))
    return found


def examples():
    """The programs of the document for bpftrace, with our library."""
    text = pathlib.Path(DOCUMENT).read_text().replace("'$LIBRARY'", LIBRARY)
    return re.findall(r"bpftrace -e '(.*?)'", text, re.S)


class Notes(unittest.TestCase):
    def test_each_is_there(self):
        self.assertEqual(noted(), {name: {n} for name, n in documented().items()})
        self.assertEqual(len(documented()), 8)

    def test_each_has_an_example(self):
        shown = {name for program in examples()
                 for name in re.findall(r":viaduct:(\w+)", program)}
        self.assertEqual(shown, set(documented()))


@unittest.skipUnless(os.getuid() == 0 and shutil.which("bpftrace"), "needs root and bpftrace")
class Fired(unittest.TestCase):
    def bpftrace(self, program):
        """What it prints about PROGRAM, and the report of that."""
        with tempfile.TemporaryDirectory() as folder:
            report = os.path.join(folder, "report")
            tracer = subprocess.Popen(
                ["bpftrace", "-e", 'BEGIN { printf("begun\\n"); } ' + program],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            said = []
            reader = threading.Thread(target=lambda: said.extend(tracer.stdout))
            reader.start()
            deadline = time.monotonic() + PATIENCE
            while "begun\n" not in said:
                if tracer.poll() is not None or time.monotonic() > deadline:
                    tracer.kill()
                    reader.join()
                    self.skipTest("bpftrace cannot run here: " + "".join(said)[-300:])
                time.sleep(0.01)
            try:
                subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=PATIENCE,
                               env={**os.environ, "LD_PRELOAD": LIBRARY,
                                    "VIADUCT_UPGRADE_AFTER": "0", "VIADUCT_REPORT": report})
            finally:
                tracer.send_signal(signal.SIGINT)
                try:
                    tracer.wait(PATIENCE)
                except subprocess.TimeoutExpired:
                    tracer.kill()
                    self.skipTest("bpftrace does not end here")
                finally:
                    reader.join()
                    tracer.stdout.close()
            return "".join(said), json.loads(pathlib.Path(report).read_text().splitlines()[0])

    def test_counts(self):
        program = " ".join(f"usdt:{LIBRARY}:viaduct:{name} /comm == \"{{}}\"/ "
                           f"{{{{ @{name} = count(); }}}}" for name in documented())
        comm = os.path.basename(sys.executable)[:15]
        said, report = self.bpftrace(program.format(*[comm] * len(documented())))
        counts = {name: int(n) for name, n in re.findall(r"@(\w+): (\d+)", said)}
        self.assertEqual(counts["upgrade"], report["upgraded"], said)
        self.assertEqual(report["upgraded"], 2)
        self.assertGreater(report["tx_direct_bytes"], 100)
        self.assertEqual(counts["downgrade"], report["downgraded"], said)
        self.assertEqual(report["downgraded"], 2)
        self.assertEqual(counts["doorbell"], report["doorbells"], said)
        self.assertEqual(counts["sleep"], report["sleeps"], said)
        self.assertEqual(counts["wake"], counts["sleep"], said)
        self.assertEqual(counts["switch_up"], 4, said)
        # Of what is not read to its end nobody knows that it is over.
        self.assertGreaterEqual(counts["switch_down"], 2, said)

    def test_examples(self):
        for program in examples():
            said, _ = self.bpftrace(program)
            if ":downgrade" in program:
                self.assertIn("out-of-band", said)
            if ":upgrade" in program:
                self.assertEqual(len(re.findall(r"fd \d+, (connected|accepted)", said)), 2)
            if ":switch" in program:
                self.assertEqual(len(re.findall(r"sends from 0\n|sent until \d+\n", said)), 2)
            if "count()" in program or "hist(" in program:
                self.assertIn("@", said)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
