# SPDX-License-Identifier: Apache-2.0
"""Two programs that are told what to do, and what `viaduct stat` says of them: for the tests of stat."""
import contextlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys

from bed import Bed

BUILT, MANUAL, REASONS, OFFSETS = map(os.path.abspath, sys.argv[1:5])
ROOT = os.getuid() == 0
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


class Stat(Bed):
    def setUp(self):
        super().setUp()
        # Where every user may run it.
        for name in ("viaduct", "libviaduct-preload.so"):
            shutil.copy(os.path.join(os.path.dirname(BUILT), name), self.tmp)
        self.viaduct = str(self.tmp / "viaduct")
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
