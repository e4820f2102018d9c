#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `viaduct explain`: each reason is produced for real, and explain, the log and the
report must agree on its name.

usage: explain.py VIADUCT MANUAL STATIC-PROGRAM GO-LIKE-PROGRAM EXPORTS.MAP
"""
import contextlib
import ctypes
import errno
import json
import os
import pathlib
import pwd
import re
import resource
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

VIADUCT, MANUAL, STATIC, GO_LIKE, EXPORTS = map(os.path.abspath, sys.argv[1:6])
PYTHON = sys.executable
ACCELERATED, TCP, USAGE = 0, 1, 2
libc = ctypes.CDLL(None, use_errno=True)

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


class Explain(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.tmp = pathlib.Path(self.folder.name)
        self.tmp.chmod(0o777)
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith("VIADUCT") and k != "LD_PRELOAD"}
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


class Connections(Explain):
    def pair(self, client=(), server=(), client_options=None, server_options=None, n=80):
        """Two ends that are connected and have exchanged n messages."""
        s = End(self, "server", *server, **(server_options or {}))
        c = End(self, "client", *client, **(client_options or {}))
        port = s.do("serve()")
        s.tell("accept()")
        c.fd = c.do(f"dial({port})")
        s.fd = s.hear()
        self.exchange(c, s, n)
        return c, s

    def exchange(self, c, s, n):
        s.tell(f"answer({n})")
        c.do(f"ask({n})")
        s.hear()

    def of(self, end):
        return self.explain(f"{end.pid}:{end.fd}")

    def stays(self, end, name, *says, logged=True, reported=True):
        """The end's connection is on TCP for that reason, as all agree."""
        p = self.point(self.of(end), name, "no")
        for text in says:
            self.assertIn(text, p["text"] + " " + p["remedy"])
        # The whole process says the same of it.
        whole = self.explain(end.pid)
        self.assertIn((name, p["text"]), [(q["name"], q["text"]) for q in whole["points"]])
        if logged:
            self.assertIn(name, end.logged())
        self.listed(end, name)
        self.ends.append((end, name, reported))
        return p

    def listed(self, end, name):
        """viaduct stat gives the same reason."""
        out = subprocess.run([VIADUCT, "stat", "--json", "--pid", str(end.pid)], timeout=60,
                             stdout=subprocess.PIPE, env=self.env, check=True).stdout
        self.assertEqual([c["reason"] for c in json.loads(out)["connections"]
                          if end.fd in c["fds"]], [name])

    def setUp(self):
        super().setUp()
        self.ends = []

    def agree(self):
        for end, name, reported in self.ends:
            end.finish()
        for end, name, reported in self.ends:
            if reported:
                self.assertIn(name, end.reported())

    def test_direct(self):
        c, s = self.pair()
        for end in (c, s):
            answer = self.of(end)
            self.assertTrue(answer["accelerated"])
            self.point(answer, "direct", "yes")
            whole = self.explain(end.pid)
            self.assertIn("Its connection is on the direct path", whole["verdict"])
        for end in (c, s):
            self.assertEqual(end.reported(), set())
            self.assertEqual(end.logged(), set())

    def test_same_of_several(self):
        """What holds for several connections is said once."""
        s, c = End(self, "server"), End(self, "client")
        port = s.do("serve()")
        c.do("all = []")
        for n in (0,) * 9 + (80,) * 3:
            s.tell("accept()")
            c.do(f"dial({port})")
            s.hear()
            self.exchange(c, s, n)
            for end in (c, s):
                end.do("globals().setdefault('all', []).append(c)")
        for end in (c, s):
            text = self.run_explain(end.pid).stdout.decode()
            self.assertEqual(text.count("\n9 connections:\n"), 1, text)
            self.assertEqual(text.count("  and 4 more\n"), 1, text)
            self.assertEqual(text.count("too-short"), 1, text)
            self.assertEqual(text.count("\n3 connections:\n"), 1, text)
            self.assertEqual(text.count("Both directions are on the direct path."), 1, text)
            answer = self.explain(end.pid)
            names = [p["name"] for p in answer["points"]]
            self.assertEqual((names.count("too-short"), names.count("direct")), (9, 3))

    def test_too_short(self):
        c, s = self.pair(n=3)
        self.stays(c, "too-short", "VIADUCT_UPGRADE_AFTER=0", logged=False)
        self.stays(s, "too-short", "VIADUCT_UPGRADE_AFTER=0", logged=False)
        self.agree()

    def test_plain_server(self):
        c, s = self.pair(server_options={"plain": True})
        self.stays(c, "plain-peer", f"(pid {s.pid})", "viaduct run -- " + PYTHON)
        answer = self.explain(s.pid)
        self.assertFalse(answer["accelerated"])
        self.point(answer, "plain", "no")
        self.point(answer, "plain-peer", "no")
        self.agree()

    def test_plain_client(self):
        c, s = self.pair(client_options={"plain": True}, n=200)
        self.stays(s, "plain-peer", f"(pid {c.pid})", "viaduct run -- " + PYTHON,
                   logged=False)
        self.agree()

    def test_too_short_and_plain(self):
        c, s = self.pair(client_options={"plain": True}, n=3)
        self.stays(s, "too-short", "does not run under Viaduct", f"(pid {c.pid})",
                   logged=False)
        self.agree()

    def test_remedy_is_right(self):
        """What the remedy for a plain peer says is done, and the connection is upgraded."""
        c, s = self.pair(client_options={"plain": True}, n=200)
        remedy = self.point(self.of(s), "plain-peer")["remedy"]
        self.assertRegex(remedy, r"viaduct run -- ")
        c.finish()
        port = self.port_of(s)
        s.tell("accept()")
        again = End(self, "again")
        again.fd = again.do(f"dial({port})")
        s.fd = s.hear()
        self.exchange(again, s, 80)
        self.assertTrue(self.of(again)["accelerated"])
        self.assertTrue(self.of(s)["accelerated"])

    def port_of(self, end):
        for p in self.explain(end.pid)["points"]:
            found = re.search(r"listens on \S+:(\d+)$", p["about"])
            if found:
                return int(found[1])
        self.fail("it does not listen")

    def test_rule(self):
        c, s = self.pair(client=["--rule", "deny role=connect"])
        self.stays(c, "rule", "Its VIADUCT_RULES: deny role=connect")
        # The other end finds nobody, and is told whose reason that is.
        p = self.point(self.of(s), "plain-peer")
        self.assertIn("rule", p["text"])
        self.agree()

    def test_rule_of_the_server(self):
        c, s = self.pair(server=["--rule", "deny role=accept"])
        self.stays(s, "rule", "Its VIADUCT_RULES: deny role=accept")
        answer = self.explain(f"127.0.0.1:{self.port_of(s)}")
        self.point(answer, "rule", "no")
        self.assertFalse(answer["accelerated"])
        self.agree()

    def test_uid(self):
        self.root()
        nobody = pwd.getpwnam("nobody").pw_uid
        s = End(self, "server")
        c = End(self, "client")
        port = s.do("serve()")
        s.tell("accept()")
        c.fd = c.do(f"dial({port})")
        s.fd = s.hear()
        c.do(f"os.setresuid({nobody}, {nobody}, {nobody})")
        self.exchange(c, s, 80)
        self.stays(s, "uid", "nobody")
        self.agree()

    def test_namespace(self):
        self.root()
        unshare = shutil.which("unshare")
        if not unshare or subprocess.run([unshare, "--pid", "--fork", "true"]).returncode:
            self.skipTest("no pid namespace can be made")
        c, s = self.pair(client_options={"wrap": [unshare, "--pid", "--fork"]})
        self.stays(s, "namespace", "different pid namespaces")
        self.agree()

    def test_version(self):
        self.forged("version", magic=0x5443554441495631)

    def test_bad_hello(self):
        self.forged("bad-hello", magic=1)

    def forged(self, name, magic):
        """A server that speaks the rendezvous, but another version of it."""
        c = End(self, "client")
        with socket.create_server(("127.0.0.1", 0)) as listener, \
                socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as hint:
            port = listener.getsockname()[1]
            hint.bind(self.hint(port))
            connected = threading.Thread(target=self.forge, args=(listener, magic))
            connected.start()
            c.fd = c.do(f"dial({port})")
            c.do("ask(200)")
            connected.join(30)
            self.stays(c, name)
        self.agree()

    def link(self, client, server):
        """The name under which the ends of a connection meet."""
        ends = ["00" * 10 + "ffff" + socket.inet_aton(a).hex() + f"{p:04x}"
                for a, p in (client, server)]
        return f"\0viaduct.{self.version()}.link.{ends[0]}-{ends[1]}"

    def forge(self, listener, magic):
        conn = listener.accept()[0]
        with conn:
            link = self.link(conn.getpeername(), conn.getsockname())
            said = False
            for _ in range(200):
                conn.sendall(conn.recv(1))
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as visitor:
                    with contextlib.suppress(OSError):
                        visitor.connect(link)
                        visitor.sendmsg([struct.pack("<QIII", magic, 9999, 136, 0)
                                         .ljust(136, b"\0")],
                                        [(socket.SOL_SOCKET, socket.SCM_RIGHTS,
                                          struct.pack("3i", 0, 0, 0))])
                        said = True
            self.assertTrue(said)

    @staticmethod
    def version():
        """The version of the layout, which is in the names."""
        with socket.create_server(("127.0.0.1", 0)) as s:
            port = s.getsockname()[1]
        code = (f"import socket; s = socket.create_server(('127.0.0.1', {port}));"
                "print([l.split()[-1] for l in open('/proc/net/unix')"
                f" if l.rstrip().endswith('.port.{port}')][0])")
        out = subprocess.run([VIADUCT, "run", "--", PYTHON, "-c", code], check=True,
                             stdout=subprocess.PIPE, text=True,
                             env={**os.environ, "VIADUCT_CONFIG": ""}).stdout
        return int(out.split(".")[1])

    def hint(self, port, version=None):
        return f"\0viaduct.{version or self.version()}.port.{port}"

    def test_identity(self):
        c, s = self.pair(n=0)
        with self.somebody_at(c):
            self.exchange(c, s, 80)
            self.stays(c, "identity")
        self.agree()

    def test_ended(self):
        """The same, on a connection whose other end has closed."""
        c, s = self.pair(n=0)
        s.do("c.close()")
        with self.somebody_at(c):
            self.assertEqual(c.do("sum(len(c.recv(1)) for i in range(2000))"), 0)
            self.stays(c, "ended")
        self.agree()

    @contextlib.contextmanager
    def somebody_at(self, c):
        """Somebody else has the name under which the ends of this connection meet."""
        ends = [("127.0.0.1", c.do(f"c.get{end}name()[1]")) for end in ("sock", "peer")]
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
            other.bind(self.link(*ends))
            yield

    def test_corrupt(self):
        """Somebody who may has written into the shared memory."""
        c, s = self.pair()
        with open(f"/proc/{s.pid}/maps", encoding="ascii") as f:
            segment = [line for line in f if "rw-s" in line and "memfd:viaduct " in line]
        self.assertEqual(len(segment), 1)
        with open(f"/proc/{s.pid}/mem", "wb", buffering=0) as f:
            f.seek(int(segment[0].split("-")[0], 16) + 128)
            f.write(b"\xfe" * (4096 - 128))
        self.assertEqual(s.do("error(c.recv, 1)"), errno.ECONNRESET)
        self.stays(s, "corrupt")
        self.agree()

    def test_bypass(self):
        c, s = self.pair()
        plain = End(self, "plain", plain=True)
        plain.do(f"p = os.pidfd_open({c.pid})")
        plain.do(f"x = socket.socket(fileno=libc.syscall(438, p, {c.fd}, 0))")
        plain.do("x.send(b'past')")
        self.assertEqual(s.do("error(c.recv, 9)"), errno.ECONNRESET)
        self.stays(s, "bypass")
        self.agree()

    # What is dialled at port 80 arrives at this one.
    REDIRECTED = 8080

    def test_nat(self):
        """Another connection, which is not redirected, has the names of one that is."""
        self.root()
        if os.environ.get("EXPLAIN_REDIRECTED") != "1":
            self.in_netns("ip link set lo up && nft 'add table inet t; add chain inet t o "
                          "{ type nat hook output priority -100; }; add rule inet t o tcp "
                          f"dport 80 redirect to :{self.REDIRECTED}'")
            return
        s, a, b = End(self, "server"), End(self, "client", plain=True), End(self, "other")
        s.do(f"l = socket.create_server(('127.0.0.1', {self.REDIRECTED}))")
        own = 30000
        s.tell("accept()")
        a.fd = a.do(f"dial_from({own}, 80)")
        s.fd = s.hear()
        s.do("kept = c")
        s.tell("accept()")
        b.do(f"dial_from({own}, {self.REDIRECTED})")
        s.hear()
        b.do("sum(c.send(b'x') for i in range(2000))")
        s.do("kept, c = c, kept")
        self.exchange(a, s, 80)
        self.stays(s, "nat")
        self.agree()

    def in_netns(self, script):
        """This test once more, in a network namespace that is as the script makes it."""
        done = subprocess.run(["unshare", "--net", "sh", "-c",
                               f'({script}) 2>/dev/null || exit 77; exec "$@"', "sh",
                               PYTHON, *sys.argv[:1], *sys.argv[1:6], self.id().split(".", 1)[1]],
                              env={**os.environ, "EXPLAIN_REDIRECTED": "1"}, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode == 77:
            self.skipTest("no network namespace with nft can be made")
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_port_of_another_version(self):
        s = End(self, "server", plain=True)
        port = s.do("serve()")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as hint:
            hint.bind(self.hint(port, self.version() - 1))
            self.point(self.explain(f"127.0.0.1:{port}"), "version", "no")

    def gone_down(self, name, line, *says, env=None):
        """Upgraded; then this line takes it down at the client."""
        c, s = self.pair()
        self.assertTrue(self.of(c)["accelerated"])
        c.do(line)
        self.exchange(c, s, 4)
        p = self.stays(c, name, *says)
        self.assertNotEqual(p["remedy"], "")
        # The other end was asked, and is told why.
        self.stays(s, "peer-asked", name)
        self.agree()

    def test_out_of_band(self):
        c, s = self.pair()
        s.do("c.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 0)")
        c.do("c.send(b'!', socket.MSG_OOB)")
        self.exchange(c, s, 4)
        self.stays(c, "out-of-band")
        self.agree()

    def test_sigio(self):
        self.gone_down("sigio", "fcntl.fcntl(c, fcntl.F_SETFL, fcntl.fcntl(c, fcntl.F_GETFL)"
                       " | os.O_ASYNC)")

    def test_option(self):
        self.gone_down("option", "c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)"
                       " or c.setsockopt(socket.SOL_SOCKET, 29, 1)")  # SO_TIMESTAMP

    def test_stdio(self):
        self.gone_down("stdio", "libc.fdopen(c.fileno(), b'r+')")

    def test_descriptor_zero(self):
        c, s = self.pair()
        c.do("os.dup2(c.fileno(), 2)")
        self.exchange(c, s, 4)
        self.stays(c, "stdio")
        c.fd = 2
        self.stays(c, "stdio", "descriptor 2")
        self.agree()

    def test_splice(self):
        if not hasattr(os, "splice"):
            self.skipTest("this Python has no splice")
        c, s = self.pair()
        c.do("pipe = os.pipe()")
        s.do("c.sendall(b'spliced')")
        self.assertEqual(c.do("os.splice(c.fileno(), pipe[1], 7)"), 7)
        self.exchange(c, s, 4)
        self.stays(c, "splice")
        self.agree()

    def test_io_uring(self):
        c, s = self.pair(client_options={"env": {"VIADUCT_IO_URING": "leave"}})
        if c.do("libc.syscall(425, 4, ctypes.create_string_buffer(120))") < 0:
            self.skipTest("no io_uring here")
        self.exchange(c, s, 4)
        self.stays(c, "io_uring")
        self.assertTrue(any("VIADUCT_IO_URING=leave" in p["text"]
                            for p in self.explain(c.pid)["points"]))
        self.agree()

    def test_io_uring_refused(self):
        """By default such a call changes nothing."""
        c, s = self.pair()
        self.assertEqual(c.do("libc.syscall(425, 4, ctypes.create_string_buffer(120))"), -1)
        self.exchange(c, s, 4)
        self.assertTrue(self.of(c)["accelerated"])

    def test_aio(self):
        self.gone_down("aio", "block = ctypes.create_string_buffer(struct.pack('i', "
                       "c.fileno()), 256); libc.aio_write(block)")

    def test_epoll(self):
        self.gone_down("epoll", "inner = select.epoll(); inner.register(c, select.EPOLLIN); "
                       "outer = select.epoll(); outer.register(inner, select.EPOLLIN)")

    def test_seccomp(self):
        """The server puts on a filter that forbids memfd_create."""
        c, s = self.pair(n=1)
        s.do("code = ctypes.create_string_buffer(struct.pack('HBBIHBBIHBBIHBBI', 0x20, 0, 0,"
             " 0, 0x15, 0, 1, 319, 6, 0, 0, 0x00050001, 6, 0, 0, 0x7fff0000))")
        s.do("program = struct.pack('HxxxxxxP', 4, ctypes.addressof(code))")
        self.assertEqual(s.do("libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0)"),
                         0)
        self.exchange(c, s, 80)
        for answer in self.of(s), self.explain(s.pid):
            self.assertEqual({p["state"] for p in answer["points"] if p["name"] == "seccomp"},
                             {"note", "no"}, answer)
        self.agree()

    def test_passed(self):
        self.gone_down("passed", "pair = socket.socketpair(); "
                       "socket.send_fds(pair[0], [b'x'], [c.fileno()])")

    def test_shared(self):
        c = End(self, "client")
        s = End(self, "server")
        port = s.do("serve()")
        s.tell("accept()")
        c.fd = c.do(f"dial({port})")
        s.fd = s.hear()
        s.do("up = os.pipe()")
        s.do("child = os.fork() or (os.close(up[1]), os.read(up[0], 1), os._exit(0))")
        self.exchange(c, s, 80)
        child = s.do("child")
        self.stays(s, "shared", f"(pid {s.pid})", f"(pid {child})", logged=False,
                   reported=False)
        s.do("os.close(up[1])")
        s.do("os.waitpid(child, 0)[0]")
        self.exchange(c, s, 80)
        self.assertTrue(self.of(s)["accelerated"])

    def test_exec(self):
        c, s = self.pair()
        c.do("os.set_inheritable(c.fileno(), True)")
        c.tell(f"os.execv({PYTHON!r}, [{PYTHON!r}, '-c', {AGENT!r}])")
        # A peer that is about to wait answers it.
        s.tell("answer(4)")
        self.assertEqual(int(c.p.stdout.readline()), c.own_pid)
        c.do(f"c = socket.socket(fileno={c.fd})")
        c.do("ask(4)")
        s.hear()
        self.assertIn("exec", c.logged())
        p = self.point(self.of(c), "role-unknown", "no")
        self.assertIn("another program", p["text"])
        self.stays(s, "peer-asked", reported=False)
        self.agree()

    def test_self_connect(self):
        c = End(self, "client")
        c.do("c = socket.socket()")
        c.do("c.bind(('127.0.0.1', 0))")
        c.do("c.connect(c.getsockname())")
        c.fd = c.do("c.fileno()")
        c.do("ask(40)")
        self.stays(c, "self-connect")
        self.agree()

    def limited(self, n):
        return self.pair(client_options={"preexec_fn": lambda: resource.setrlimit(
            resource.RLIMIT_NOFILE, (n, n))})

    def test_fd_limit(self):
        c, s = self.limited(20)
        self.stays(c, "fd-limit", "may have 20 descriptors", f"prlimit --pid {c.pid}")
        self.agree()

    def test_fd_limit_without_a_table(self):
        c, s = self.limited(10)
        self.point(self.explain(c.pid), "fd-limit", "no")
        self.assertEqual({p["name"] for p in self.of(c)["points"]}, {"fd-limit"})
        self.assertIn("fd-limit", c.reported())

    def test_memory(self):
        c, s = self.pair(n=1)
        s.do("import resource")
        s.do("resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 20, 8 << 20))")
        self.exchange(c, s, 80)
        self.stays(s, "memory", "file size 8388608")
        self.agree()

    def test_memory_from_the_start(self):
        def small():
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        c, s = self.pair(server_options={"preexec_fn": small})
        self.point(self.explain(s.pid), "memory", "no")
        self.assertIn("memory", s.logged())
        self.assertIn("memory", s.reported())

    def test_off(self):
        c, s = self.pair(client=["--off"])
        self.point(self.explain(c.pid), "off", "no")
        self.assertEqual({p["name"] for p in self.of(c)["points"]}, {"off"})
        self.assertIn("VIADUCT=off", self.point(self.of(s), "plain-peer")["text"])

    def test_remote(self):
        """In two network namespaces: nobody announces the port, or somebody else does."""
        self.root()
        ip, nsenter = shutil.which("ip"), shutil.which("nsenter")
        if not ip or not nsenter:
            self.skipTest("needs ip and nsenter")
        try:
            c = End(self, "client", preexec_fn=unshare_net)
            s = End(self, "server", preexec_fn=unshare_net)
        except subprocess.SubprocessError:
            self.skipTest("no network namespace can be made")
        for arguments in ([ip, "link", "add", "vx0", "netns", c.pid, "type", "veth",
                           "peer", "name", "vx1", "netns", s.pid],
                          [nsenter, "-t", c.pid, "-n", ip, "addr", "add", "10.99.7.1/24",
                           "dev", "vx0"],
                          [nsenter, "-t", s.pid, "-n", ip, "addr", "add", "10.99.7.2/24",
                           "dev", "vx1"],
                          [nsenter, "-t", c.pid, "-n", ip, "link", "set", "vx0", "up"],
                          [nsenter, "-t", s.pid, "-n", ip, "link", "set", "vx1", "up"]):
            if subprocess.run(list(map(str, arguments)), stderr=subprocess.DEVNULL).returncode:
                self.skipTest("no pair of links can be made")
        port = s.do("serve('10.99.7.2')")
        c.do(f"other = socket.create_server(('10.99.7.1', {port}))")
        s.tell("accept()")
        c.fd = c.do(f"dial({port}, '10.99.7.2')")
        s.fd = s.hear()
        self.exchange(c, s, 80)
        self.stays(c, "remote-peer", f"(pid {s.pid})", "another network namespace")
        self.stays(s, "plain-peer", f"(pid {c.pid})", "another network namespace",
                   logged=False)
        self.agree()


def unshare_net():
    if libc.unshare(0x40000000):
        raise OSError(ctypes.get_errno(), "unshare")


class Ports(Explain):
    def test_served(self):
        s = End(self, "server")
        port = s.do("serve()")
        for host in ("127.0.0.1", "localhost"):
            answer = self.explain(f"{host}:{port}")
            self.assertTrue(answer["accelerated"])
            self.assertIn(f"(pid {s.pid})", answer["verdict"])
            self.point(answer, "listens", "yes")

    def test_private_users(self):
        """A service of another user whose namespace knows root, as PrivateUsers= makes it."""
        self.root()
        wrap = [PYTHON, "-c", SOME_USERS]
        if subprocess.run([*wrap, "true"], stderr=subprocess.DEVNULL).returncode:
            self.skipTest("no user namespace can be made")
        s = End(self, "server", wrap=wrap)
        port = s.do("serve()")
        self.point(self.explain(f"127.0.0.1:{port}"), "namespace", "no")
        s.do("os.setresuid(54321, 54321, 54321)")
        port = s.do("serve()")
        answer = self.explain(f"127.0.0.1:{port}")
        self.assertNotIn("namespace", [p["name"] for p in answer["points"]])
        self.assertTrue(answer["accelerated"])

    def test_ipv6(self):
        s = End(self, "server")
        try:
            port = int(s.do("socket.create_server(('::1', 0), family=socket.AF_INET6)"
                            ".getsockname()[1] if 0 else globals().update(l=socket."
                            "create_server(('::1', 0), family=socket.AF_INET6)) or "
                            "l.getsockname()[1]"))
        except AssertionError:
            self.skipTest("no IPv6 here")
        self.assertTrue(self.explain(f"[::1]:{port}")["accelerated"])
        self.point(self.explain(f"127.0.0.1:{port}"), "no-listener", "no")

    def test_plain(self):
        s = End(self, "server", plain=True)
        port = s.do("serve()")
        answer = self.explain(f"127.0.0.1:{port}")
        self.assertFalse(answer["accelerated"])
        self.assertIn("viaduct run -- " + PYTHON, self.point(answer, "plain-peer")["remedy"])

    def test_nobody(self):
        with socket.create_server(("127.0.0.1", 0)) as s:
            port = s.getsockname()[1]
        self.point(self.explain(f"127.0.0.1:{port}"), "no-listener", "no")

    def test_far(self):
        """There is a way to other hosts, too: what of it is missing here is said."""
        answer = self.explain("192.0.2.1:80")
        p = self.point(answer, "remote-peer")
        if answer["accelerated"]:
            self.assertIn("by RDMA", answer["verdict"])
            return
        self.assertEqual(p["state"], "no")
        for says in ("RDMA", "`viaduct doctor 192.0.2.1`"):
            self.assertIn(says, p["remedy"])
        names = {q["name"] for q in answer["points"] if q["state"] == "no"}
        self.assertTrue(names & {"route", "no-device", "relay", "slower"}, names)

    def test_measured(self):
        """What `viaduct doctor` has kept of a host, and since when; settings come first."""
        kept = self.tmp / "viaduct" / "redirect"
        kept.parent.mkdir()
        kept.write_text("203.0.113.1 off 2026-01-31 slower\n203.0.113.2 off 2026-02-01\n"
                        "203.0.113.3 65536 2999-02-01\n")
        env = {"XDG_STATE_HOME": str(self.tmp), "VIADUCT_CONFIG": ""}
        for end, name, state, says in (
                (1, "slower", "no", "on 2026-01-31"),
                (2, "redirect", "note", "Nothing from there is redirected, since that does not "
                                        "pay, as measured on 2026-02-01."),
                (3, "redirect", "note", "65536 bytes or more are redirected")):
            host = f"203.0.113.{end}"
            p = self.point(self.explain(f"{host}:80", env=env), name, state)
            self.assertIn(says, p["text"])
            self.assertIn(f"viaduct doctor {'--measure ' if end == 1 else ''}{host}",
                          p["remedy"])
            answer = self.explain(f"{host}:80", env={**env, "VIADUCT_REDIRECT": "4K"})
            self.assertNotIn(name, {q["name"] for q in answer["points"]})

    def test_learnt(self):
        """What connections have found out of a host, where nobody has measured it."""
        folder = self.tmp / "viaduct"
        folder.mkdir()
        today = time.strftime("%Y-%m-%d", time.gmtime())
        (folder / "redirect").write_text("203.0.113.3 65536 2999-02-01\n")
        (folder / "learnt").write_text(f"203.0.113.1 16384 {today} 0 rxe0\n"
                                       f"203.0.113.2 off {today} 65536 rxe0\n"
                                       f"203.0.113.3 16384 {today} 0 rxe0\n"
                                       "203.0.113.4 16384 2026-01-01 0 rxe0\n")
        env = {"XDG_STATE_HOME": str(self.tmp), "VIADUCT_CONFIG": ""}
        for end, says in ((1, "16384 bytes or more are redirected, as connections by rxe0"),
                          (2, "does not pay up to 65536 bytes"), (3, "as measured on 2999-02-01")):
            host = f"203.0.113.{end}"
            p = self.point(self.explain(f"{host}:80", env=env), "redirect", "note")
            self.assertIn(says, p["text"])
            self.assertIn(f"viaduct doctor {host}", p["remedy"])
            answer = self.explain(f"{host}:80", env={**env, "VIADUCT_REDIRECT": "4K"})
            self.assertNotIn("redirect", {q["name"] for q in answer["points"]})
        names = {q["name"] for q in self.explain("203.0.113.4:80", env=env)["points"]}
        self.assertNotIn("redirect", names)  # old

    def test_ports_that_are_none(self):
        for port in ("0", "65536", "99999", "4294967376", "-1", "+80", " 80", "00000000080"):
            result = self.run_explain(f"127.0.0.1:{port}")
            self.assertEqual((result.returncode, result.stdout), (USAGE, b""), port)
            self.assertIn(b"no port: these are from 1 to 65535", result.stderr)
        self.assertEqual(self.run_explain("127.0.0.1:http").returncode, TCP)

    def as_nobody(self):
        nobody = pwd.getpwnam("nobody")
        return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}

    def test_server_of_another_user(self):
        """Its process may not be looked into: the port's announcement tells, and connections."""
        self.root()
        s = End(self, "server")
        port = s.do("serve()")
        if not os.access("/usr/bin/python3", os.X_OK):
            self.skipTest("needs a Python that everybody may run")
        c = End(self, "client", python="/usr/bin/python3", **self.as_nobody())
        answer = self.explain(f"127.0.0.1:{port}", **self.as_nobody())
        self.assertTrue(answer["accelerated"], answer)
        self.assertIn("announces its port", self.point(answer, "listens", "yes")["text"])
        for _ in range(2):
            s.tell("accept()")
            c.do(f"dial({port})")
            s.hear()
            s.tell("answer(80)")
            c.do("ask(80)")
            s.hear()
            s.do("globals().setdefault('all', []).append(c)")
            c.do("globals().setdefault('all', []).append(c)")
        s.do("l.close()")
        answer = self.explain(f"127.0.0.1:{port}", **self.as_nobody())
        self.assertTrue(answer["accelerated"], answer)
        self.assertIn("2 of the 2 connections", answer["verdict"])
        self.assertEqual([p["state"] for p in answer["points"] if p["name"] == "direct"],
                         ["yes", "yes"])

    def test_plain_server_of_another_user(self):
        self.root()
        with socket.create_server(("127.0.0.1", 0)) as s:
            answer = self.explain(f"127.0.0.1:{s.getsockname()[1]}", **self.as_nobody())
        self.assertFalse(answer["accelerated"])
        self.point(answer, "hidden", "no")

    def test_settings_here(self):
        s = End(self, "server")
        port = s.do("serve()")
        self.point(self.explain(f"127.0.0.1:{port}", env={"VIADUCT": "off"}), "off", "no")
        self.point(self.explain(f"127.0.0.1:{port}",
                                env={"VIADUCT_RULES": f"deny port={port}"}), "rule", "no")
        self.assertTrue(self.explain(f"127.0.0.1:{port}",
                                     env={"VIADUCT_RULES": "deny port=1"})["accelerated"])

    def test_connections_to_it(self):
        s = End(self, "server")
        c = End(self, "client", plain=True)
        port = s.do("serve()")
        c.do(f"dial({port})")
        answer = self.explain(f"127.0.0.1:{port}")
        p = self.point(answer, "plain-peer", "no")
        self.assertIn(f"(pid {c.pid})", p["about"])
        self.assertIn("viaduct run -- " + PYTHON, p["remedy"])


class Processes(Explain):
    def test_privileged(self):
        self.root()
        copy = self.tmp / "cat"
        shutil.copy("/bin/cat", copy)
        os.chown(copy, pwd.getpwnam("nobody").pw_uid, -1)
        copy.chmod(0o4755)
        with self.cat(copy) as p:
            self.point(self.explain(p.pid), "privileged", "no")

    def test_service(self):
        """The remedy for a service of the system is a drop-in."""
        self.root()
        unit = f"viaduct-test-{os.getpid()}.service"
        for top in ("/sys/fs/cgroup", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/freezer"):
            slice_ = pathlib.Path(top, "system.slice")
            if not os.path.exists(f"{top}/cgroup.procs"):
                continue
            there = slice_.exists()
            try:
                (slice_ / unit).mkdir(parents=True)
            except OSError:
                continue
            break
        else:
            self.skipTest("no control group can be made")
        try:
            with self.cat() as p:
                (slice_ / unit / "cgroup.procs").write_text(str(p.pid))
                remedy = self.point(self.explain(p.pid), "plain", "no")["remedy"]
        finally:
            (slice_ / unit).rmdir()
            if not there:
                slice_.rmdir()
        self.assertIn(f"systemctl edit {unit}", remedy)
        self.assertRegex(remedy, r"Environment=LD_PRELOAD=/\S+/libviaduct-preload\.so")

    def test_title(self):
        """Who writes a title over the arguments is named as it is found in PATH, even where
        one file is many programs."""
        place = self.tmp / "bin"
        place.mkdir()
        shutil.copy("/bin/cat", place / "many")
        (place / "one").symlink_to("many")
        near = f"{place}:{os.environ['PATH']}"
        for title, path, name in (("one *:80", near, "one"),
                                  ("one: master process x", near, "one"),
                                  ("weird title", near, "one"),
                                  ("one *:80", os.environ["PATH"], str(place / "many"))):
            with self.cat([title], executable=place / "one") as p:
                remedy = self.point(self.explain(p.pid, env={"PATH": path}), "plain")["remedy"]
                self.assertEqual(remedy, f"Start it with: viaduct run -- {name} ...")

    def test_other_user(self):
        self.root()
        nobody = pwd.getpwnam("nobody")
        with self.cat() as p:
            answer = self.explain(p.pid, user=nobody.pw_uid, group=nobody.pw_gid,
                                  extra_groups=[])
            self.assertIn("as root", self.point(answer, "hidden", "no")["remedy"])

    def test_strange_names(self):
        name = self.tmp / "a\x1b[31m b'c\"\udcff"
        shutil.copy("/bin/cat", name)
        with self.cat(name) as p:
            answer = self.explain(p.pid)
            self.assertIn("viaduct run -- '", self.point(answer, "plain")["remedy"])
            self.assertNotIn(b"\x1b", self.run_explain(p.pid).stdout)

    def test_wrong(self):
        for args, says in (([], "nothing to explain"), (["x"], "neither PID"),
                           (["1:2:3"], "neither PID"), (["no.such.host.invalid:80"], "resolved"),
                           (["--nonsense"], "usage"), (["1", "2"], "put `--`"),
                           (["--", "/nonexistent"], "no program"), (["999999999"], "no process"),
                           (["--", "/etc/passwd"], "cannot be executed"),
                           ([f"{os.getpid()}:0"], "no TCP connection"),
                           ([f"{os.getpid()}:99999"], "no descriptor")):
            result = self.run_explain(*args)
            self.assertEqual(result.returncode, USAGE, args)
            self.assertIn(says, result.stderr.decode())
            self.assertEqual(result.stdout, b"")

    def test_help(self):
        result = self.run_explain("--help")
        self.assertEqual(result.returncode, 0)
        manual = pathlib.Path(MANUAL).read_text().replace("\\-", "-")
        for option in re.findall(r"--[a-z]+", result.stdout.decode()):
            self.assertIn(option, manual)

    def test_output_lost(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("there is no /dev/full")
        with open("/dev/full", "wb") as full:
            result = self.run_explain("--", "true", stdout=full)
        self.assertEqual(result.returncode, USAGE)
        self.assertIn(b"cannot be written", result.stderr)


class Programs(Explain):
    def of(self, *args, options=(), **more):
        return self.explain(*options, "--", *args, **more)

    def script(self, name, text):
        path = self.tmp / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def refused_too(self, program):
        result = subprocess.run([VIADUCT, "run", "--", program], stderr=subprocess.PIPE,
                                stdout=subprocess.PIPE, env=self.env, text=True)
        self.assertEqual(result.returncode, 126)
        return result.stderr

    def test_well(self):
        answer = self.of("python3" if shutil.which("python3") else PYTHON, "-c", "it's")
        self.assertTrue(answer["accelerated"])
        self.assertIn("viaduct run -- ", answer["verdict"])
        self.assertIn("'it'\\''s'", answer["verdict"])

    def test_static(self):
        answer = self.of(STATIC)
        self.assertIn("statically linked", self.point(answer, "static", "no")["text"])
        self.assertIn("statically linked", self.refused_too(STATIC))

    def test_go(self):
        answer = self.of(GO_LIKE)
        self.point(answer, "raw-system-calls", "no")
        self.assertIn("Go", self.refused_too(GO_LIKE))
        # As another program's child it runs, and says the same.
        log, report = self.tmp / "log", self.tmp / "report"
        subprocess.run([VIADUCT, "run", "--log", f"info:{log}", "--report", report, "--",
                        "sh", "-c", f"{GO_LIKE}; true"], env=self.env, check=True)
        self.assertIn("raw-system-calls", log.read_text())
        names = {n for line in report.read_text().splitlines()
                 for n in json.loads(line)["reasons"]}
        self.assertEqual(names, {"raw-system-calls"})

    def test_setuid(self):
        self.root()
        copy = self.tmp / "true"
        shutil.copy("/bin/true", copy)
        os.chown(copy, pwd.getpwnam("nobody").pw_uid, -1)
        copy.chmod(0o4755)
        p = self.point(self.of(copy), "privileged", "no")
        self.assertIn("setuid to user", p["text"])
        self.assertIn("gains privileges", self.refused_too(copy))

    def test_other_machines(self):
        elf = bytearray(pathlib.Path("/bin/true").read_bytes())
        for offset, value, name in ((4, 1, "architecture"), (18, 0xb7, "architecture")):
            other = bytearray(elf)
            other[offset] = value
            path = self.tmp / f"other{offset}"
            path.write_bytes(other)
            path.chmod(0o755)
            self.point(self.of(path), name, "no")
        path.write_bytes(elf.replace(b"ld-linux-x86-64.so.2", b"ld-musl-x86-64.so.1\0"))
        self.point(self.of(path), "libc", "no")

    def test_command_to_copy(self):
        """It stands on one line, however long it is."""
        command = ["sh", "-c", "echo a b c d e f g h"] + ["argument"] * 30
        text = self.run_explain("--", *command).stdout.decode()
        wanted = "viaduct run -- sh -c 'echo a b c d e f g h' " + " ".join(command[3:])
        self.assertIn(wanted, [line.strip() for line in text.splitlines()])
        with self.cat(["cat"] + ["-"] * 60) as p:
            text = self.run_explain(p.pid).stdout.decode()
            wanted = "viaduct run -- cat " + " ".join(["-"] * 60)
            self.assertIn(wanted, [line.strip() for line in text.splitlines()])

    def test_missing_interpreter(self):
        elf = pathlib.Path("/bin/true").read_bytes()
        loader = b"/lib64/ld-linux-x86-64.so.2"
        for data, missing in ((b"#!/nonexistent/python3 -x\n", "/nonexistent/python3"),
                              (b"#!/usr/bin/env no-such-python\n", "no-such-python"),
                              (b"#!/bin/sh\r\necho\r\n", "/bin/sh\\r"),
                              (elf.replace(loader, b"/nonex/ld-linux-x86-64.so.2"),
                               "/nonex/ld-linux-x86-64.so.2")):
            path = self.tmp / "broken"
            path.write_bytes(data)
            path.chmod(0o755)
            answer = self.of(path)
            self.assertFalse(answer["accelerated"])
            self.assertIn(f"interpreter `{missing}` is missing",
                          self.point(answer, "interpreter", "no")["text"])

    def test_unreadable(self):
        self.root()
        path = self.tmp / "hidden"
        shutil.copy("/bin/true", path)
        path.chmod(0o711)
        nobody = pwd.getpwnam("nobody")
        answer = self.of(path, user=nobody.pw_uid, group=nobody.pw_gid, extra_groups=[])
        self.point(answer, "unreadable", "note")
        self.assertTrue(answer["accelerated"])

    def test_imports(self):
        interposed = set(re.findall(r"^\t(\w+);$", pathlib.Path(EXPORTS).read_text(), re.M))
        wanted = set()
        nm = shutil.which("nm")
        program = shutil.which("redis-server") or shutil.which("ssh") or "/bin/bash"
        answer = self.of(program)
        if nm:
            out = subprocess.run([nm, "-D", program], stdout=subprocess.PIPE, text=True).stdout
            wanted = {line.split()[-1].split("@")[0] for line in out.splitlines()
                      if re.search(r" [Uw] ", line)}
            self.assertEqual(set(answer["imports"][0]["interposed"]), wanted & interposed)
        self.assertTrue(answer["imports"][0]["interposed"])

    def compiled(self, name, code, *options):
        cc = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if not cc:
            self.skipTest("needs a compiler")
        source = self.tmp / f"{name}.c"
        source.write_text(code)
        out = self.tmp / name
        result = subprocess.run([cc, "-o", out, source, *options], stderr=subprocess.PIPE)
        if result.returncode:
            self.skipTest(result.stderr.decode())
        return out

    def wrapper(self):
        """A library that has a read and a write of its own."""
        return str(self.compiled("libwraps.so", """
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <unistd.h>
ssize_t read(int fd, void *to, size_t n) { return syscall(SYS_read, fd, to, n); }
ssize_t write(int fd, const void *from, size_t n) { return syscall(SYS_write, fd, from, n); }
int unrelated(void) { return 0; }
""", "-shared", "-fPIC"))

    def wraps(self, answer, wraps, state):
        p = self.point(answer, "preload", state)
        self.assertIn(f"{wraps} {'behind' if state == 'note' else 'in front of'}", p["text"])
        self.assertIn("functions", p["text"])
        self.assertIn(" read, write", p["text"])
        self.assertNotIn("unrelated", p["text"])

    def test_wrapper_before_and_behind(self):
        wraps, own = self.wrapper(), pathlib.Path(VIADUCT).parent / "libviaduct-preload.so"
        for preload, state in ((wraps, "note"), (f"{own}:{wraps}", "note"),
                               (f"{wraps} {own}", "yes")):
            self.wraps(self.of("true", env={"LD_PRELOAD": preload}), wraps, state)

    def test_wrapper_in_a_process(self):
        wraps = self.wrapper()
        with subprocess.Popen([VIADUCT, "run", "--", PYTHON, "-c", "print('up', flush=True); input()"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                              env={**self.env, "LD_PRELOAD": wraps}) as p:
            self.assertEqual(p.stdout.readline(), "up\n")
            answer = self.explain(p.pid)
            p.stdin.close()
        self.wraps(answer, wraps, "note")

    def test_what_is_not_carried(self):
        names = ("io_uring_queue_init", "aio_read", "splice", "seccomp_load", "dlmopen",
                 "connect", "io_submit")
        stub = self.compiled("libstub.so", "".join(f"int {n}() {{ return 0; }}" for n in names),
                             "-w", "-shared", "-fPIC", "-Wl,-soname,libstub.so")
        program = self.compiled("uses", "".join(f"extern int {n}();" for n in names) +
                                "int main(void) { return " +
                                "+".join(f"{n}()" for n in names) + "; }", "-w", str(stub))
        answer = self.of(program)
        for name in ("io_uring", "aio", "splice", "seccomp", "namespaces"):
            p = self.point(answer, name, "note")
            self.assertNotEqual(p["remedy"], "")
        imports = answer["imports"][0]
        self.assertEqual(set(imports["outside"]), {"seccomp_load", "dlmopen", "io_submit"})
        self.assertTrue({"io_uring_queue_init", "aio_read", "splice", "connect"} <=
                        set(imports["interposed"]))

    def test_own_system_calls(self):
        code = """#include <sys/syscall.h>
            int main(void) { long r; __asm__ __volatile__("syscall" : "=a"(r) :
                "a"(%s), "D"(-1), "S"(0), "d"(0) : "rcx", "r11", "memory"); return 0; }"""
        self.point(self.of(self.compiled("raw", code % "SYS_sendto")),
                   "raw-system-calls", "note")
        self.point(self.of(self.compiled("uring", code % "SYS_io_uring_setup")),
                   "io_uring", "note")
        libuv = self.compiled("libuv", """#include <unistd.h>
            int main(int n, char **v) { return syscall(425, n, v); }""", "-O2")
        self.assertIn("ENOSYS", self.point(self.of(libuv), "io_uring", "note")["text"])
        self.assertIn("stay on TCP", self.point(
            self.of(libuv, env={"VIADUCT_IO_URING": "leave"}), "io_uring", "note")["text"])
        names = [p["name"] for p in self.of(self.compiled("fine", code % "SYS_getpid"))["points"]]
        self.assertNotIn("raw-system-calls", names)

    def test_libraries(self):
        library = self.compiled("libuser.so", "extern int connect(); int user(void) "
                                "{ return connect(); }", "-w", "-shared", "-fPIC",
                                "-Wl,-soname,libuser.so")
        program = self.compiled("program", "extern int user(); int main(void) "
                                "{ return user(); }", "-w", str(library),
                                "-Wl,-rpath,$ORIGIN")
        answer = self.of(program, options=["--libs"])
        files = {i["file"]: i for i in answer["imports"]}
        self.assertEqual(files["libuser.so"]["interposed"], ["connect"])
        self.assertEqual(len(self.of(program)["imports"]), 1)
        library.unlink()
        self.point(self.of(program, options=["--libs"]), "library", "note")

    def test_scripts(self):
        inner = self.script("inner", "#!/bin/sh\nexec %s \"$@\"\n" % STATIC)
        outer = self.script("outer", "#!/usr/bin/env sh\n# exec not-this\nset -e\n"
                                     f"  exec {inner} \"$@\"\n")
        answer = self.of(outer)
        self.point(answer, "static", "no")
        self.assertFalse(answer["accelerated"])
        unknown = self.script("unknown", "#!/bin/sh\nexec \"$JAVA\" -jar x\n")
        p = self.point(self.of(unknown), "script")
        self.assertTrue(any("$JAVA" in p["text"] for p in self.of(unknown)["points"]))
        two = self.script("two", f"#!/bin/sh\nif x; then exec {STATIC}; fi\n"
                                 f"exec {STATIC} a\nexec {GO_LIKE}\n")
        self.assertTrue(self.of(two)["accelerated"], p)
        redirected = self.script("redirected", "#!/bin/sh\nexec 2>/dev/null\nexec <&3\ntrue\n")
        self.assertTrue(self.of(redirected)["accelerated"])

    def test_settings(self):
        self.point(self.of("true", env={"VIADUCT": "off"}), "off", "no")
        self.point(self.of("true", env={"VIADUCT_RULES": "deny"}), "rule", "no")
        self.point(self.of("true", env={"VIADUCT_RULES": "perhaps"}), "rule", "no")
        self.point(self.of("true", env={"VIADUCT_RULES": "deny port=1"}), "rule", "note")
        self.point(self.of("true", env={"VIADUCT_RULES": "allow port=1"}), "rule", "yes")
        self.assertNotIn("rule", [p["name"] for p in self.of(
            "true", env={"VIADUCT_RULES": "deny program=x"})["points"]])
        self.point(self.of("true", env={"VIADUCT_SPIN": "7"}), "settings", "yes")
        self.point(self.of("true", env={"LD_PRELOAD": "libm.so.6"}), "preload", "note")

    def test_settings_from_a_file(self):
        place = self.tmp / "viaduct.conf"
        env = {"VIADUCT_CONFIG": str(place)}
        for text, name, state in (("viaduct = off", "off", "no"),
                                  ("deny", "rule", "no"),
                                  ("deny port=1", "rule", "note"),
                                  ("[program=true]\ndeny port=1", "rule", "note"),
                                  ("spin = 7", "settings", "yes")):
            place.write_text(text + "\n")
            place.chmod(0o644)
            p = self.point(self.of("true", env=env), name, state)
            self.assertIn(f"{place}:{len(text.splitlines())}", p["text"])
        place.write_text("deny perhaps\n")
        p = self.point(self.of("true", env=env), "rule", "no")
        self.assertIn("viaduct config --check", p["remedy"])

    def test_limits(self):
        def limit(which, n):
            return lambda: resource.setrlimit(which, (n, resource.getrlimit(which)[1]))
        for which, n, name, state in ((resource.RLIMIT_NOFILE, 100, "fd-limit", "note"),
                                      (resource.RLIMIT_NOFILE, 20, "fd-limit", "no"),
                                      (resource.RLIMIT_FSIZE, 1 << 20, "memory", "no"),
                                      (resource.RLIMIT_AS, 4 << 30, "memory", "note")):
            self.point(self.of("true", preexec_fn=limit(which, n)), name, state)

    def test_no_library(self):
        place = self.tmp / "alone"
        place.mkdir()
        copy = shutil.copy(VIADUCT, place)
        result = subprocess.run([copy, "explain", "--json", "--", "true"], env=self.env,
                                stdout=subprocess.PIPE)
        names = [p["name"] for p in json.loads(result.stdout)["points"] if p["state"] == "no"]
        if not os.path.exists("/usr/local/lib/x86_64-linux-gnu/libviaduct-preload.so"):
            self.assertEqual(names, ["library"])

    def test_hostile_files(self):
        """Every byte of the headers and tables is spoilt in turn; it must answer."""
        source = pathlib.Path("/bin/true").read_bytes()
        path = self.tmp / "hostile"
        head = struct.unpack_from("<QQ", source, 32)[0]
        count = struct.unpack_from("<H", source, 56)[0]
        places = list(range(16, 64)) + list(range(head, head + 56 * count, 4))
        for i in range(count):
            kind, _, at, _, _, size = struct.unpack_from("<IIQQQQ", source, head + 56 * i)
            if kind == 2:  # PT_DYNAMIC
                places += range(at, at + size, 8)
        for n, place in enumerate(places):
            spoilt = bytearray(source)
            spoilt[place:place + 8] = (b"\xff" * 8, b"\0" * 8, b"\xff\xff\xff\x7f" * 2,
                                       struct.pack("<Q", len(source) - 4))[n % 4]
            path.write_bytes(spoilt)
            path.chmod(0o755)
            result = self.run_explain("--libs", "--", path)
            self.assertIn(result.returncode, (0, 1), (place, result.stderr))
        for size in (0, 1, 4, 63, 64, 200, head + 100, len(source) // 2):
            path.write_bytes(source[:size])
            self.assertIn(self.run_explain("--", path).returncode, (0, 1), size)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[6:]])
