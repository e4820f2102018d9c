# SPDX-License-Identifier: Apache-2.0
"""Two ends that are told what to do, and what `viaduct explain` says of them: for the tests of explain."""
import contextlib
import json
import os
import re
import subprocess
import sys

from bed import Bed

VIADUCT, MANUAL, STATIC, GO_LIKE, EXPORTS = map(os.path.abspath, sys.argv[1:6])
PYTHON = sys.executable
ACCELERATED, TCP, USAGE = 0, 1, 2

# One end of a connection: runs the lines that it is told, one after another.
AGENT = """
import ctypes, fcntl, os, select, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def serve(host="127.0.0.1"):
    global l
    l = socket.create_server((host, 0))
    return l.getsockname()[1]
def accept():
    global c
    c = l.accept()[0]
    return c.fileno()
def dial(port, host="127.0.0.1"):
    global c
    c = socket.create_connection((host, port))
    return c.fileno()
def dial_from(own, port):
    global c
    c = socket.socket()
    c.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    c.bind(("127.0.0.1", own))
    c.connect(("127.0.0.1", port))
    return c.fileno()
def error(call, *args):
    try:
        call(*args)
    except OSError as e:
        return e.errno
def ask(n):
    for i in range(n):
        c.sendall(b"x")
        assert c.recv(1) == b"x"
def answer(n):
    for i in range(n):
        c.sendall(c.recv(1))
c = l = None
print(os.getpid(), flush=True)
for line in sys.stdin:
    line = line.strip()
    try:
        value = eval(line)
    except SyntaxError:
        value = exec(line)
    print("did", value, flush=True)
"""


class End:
    """A process that has one end; under Viaduct unless `plain`."""
    def __init__(self, test, name, *options, plain=False, env=None, wrap=(), python=PYTHON,
                 **more):
        self.log, self.report = test.tmp / f"{name}.log", test.tmp / f"{name}.report"
        command = [*wrap]
        if not plain:
            command += [VIADUCT, "run", "--log", f"debug:{self.log}",
                        "--report", str(self.report), "--upgrade-after", "16", *options, "--"]
        self.p = subprocess.Popen([*command, python, "-c", AGENT], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True,
                                  env={**test.env, **(env or {})}, **more)
        test.addCleanup(self.finish)
        self.pid = self.p.pid if not wrap else None
        self.own_pid = int(self.p.stdout.readline())

    def tell(self, line):
        self.p.stdin.write(line + "\n")
        self.p.stdin.flush()

    def hear(self):
        line = self.p.stdout.readline()
        assert line.startswith("did "), line
        value = line[4:].strip()
        return int(value) if value.lstrip("-").isdigit() else value

    def do(self, line):
        self.tell(line)
        return self.hear()

    def finish(self):
        if self.p.poll() is None:
            self.p.stdin.close()
            self.p.wait(30)
        self.p.stdout.close()
        if not self.p.stdin.closed:
            with contextlib.suppress(OSError):
                self.p.stdin.close()

    def logged(self):
        """The names of the reasons in the log."""
        text = self.log.read_text() if self.log.exists() else ""
        return set(re.findall(r": ([a-z_-]+) \([^)]", text))

    def reported(self):
        """The names of the reasons in the report, which is written at the end."""
        self.finish()
        lines = [json.loads(line) for line in self.report.read_text().splitlines()]
        return {name for line in lines for name in line["reasons"]}


# Runs its arguments in a user namespace that knows the first 60000 users.
SOME_USERS = """
import ctypes, os, sys
pid, (read, write) = os.getpid(), os.pipe()
if os.fork() == 0:
    os.read(read, 1)
    for name in "uid_map", "gid_map":
        with open(f"/proc/{pid}/{name}", "w") as f:
            f.write("0 0 60000")
    os._exit(0)
failed = ctypes.CDLL(None).unshare(0x10000000)
os.write(write, b"x")
if failed or os.wait()[1]:
    sys.exit(1)
os.execvp(sys.argv[1], sys.argv[1:])
"""


class Explain(Bed):
    def setUp(self):
        super().setUp()
        self.tmp.chmod(0o777)
        self.env["VIADUCT_CONFIG"] = ""

    @contextlib.contextmanager
    def cat(self, path="cat", **options):
        """A process that runs this copy of cat, and has got as far as its main."""
        command = path if isinstance(path, list) else [path]
        with subprocess.Popen(command, env=self.env, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, **options) as p:
            p.stdin.write(b"x")
            p.stdin.flush()
            self.assertEqual(p.stdout.read(1), b"x")
            yield p

    def run_explain(self, *args, env=None, **options):
        options.setdefault("stdout", subprocess.PIPE)
        return subprocess.run([VIADUCT, "explain", *map(str, args)], timeout=60,
                              stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                              env={**self.env, **(env or {})}, **options)

    def explain(self, *args, **options):
        """The answer, once text, JSON and exit status have been compared."""
        result = self.run_explain("--json", *args, **options)
        self.assertEqual(result.stderr, b"")
        answer = json.loads(result.stdout)
        self.assertEqual(set(answer), {"version", "subject", "accelerated", "verdict",
                                       "points", "imports"})
        self.assertEqual(result.returncode, ACCELERATED if answer["accelerated"] else TCP)
        for p in answer["points"]:
            self.assertEqual(set(p), {"about", "state", "name", "text", "remedy"})
            self.assertIn(p["state"], ("yes", "note", "no"))
            self.assertRegex(p["name"], r"^[a-z_-]+$")
            if p["state"] == "no":
                self.assertRegex(p["remedy"], r"^[A-Z].*", p)
        text = self.run_explain(*args, **options)
        self.assertEqual(text.returncode, result.returncode)
        words = " ".join(text.stdout.decode("utf-8", "replace").split())
        for said in [answer["verdict"]] + [p["text"] for p in answer["points"][:20]]:
            self.assertIn(" ".join(re.sub("[\0-\x1f\x7f]", "?", said).split()), words)
        return answer

    def point(self, answer, name, state=None):
        found = [p for p in answer["points"] if p["name"] == name]
        self.assertTrue(found, (name, answer))
        if state:
            self.assertEqual(found[0]["state"], state, found)
        return found[0]

    def root(self):
        if os.getuid() != 0:
            self.skipTest("needs root")
