#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `viaduct explain` of connections: each reason is produced for real, and explain, the log and the
report must agree on its name.

usage: explain.py VIADUCT MANUAL STATIC-PROGRAM GO-LIKE-PROGRAM EXPORTS.MAP
"""
import contextlib
import ctypes
import errno
import json
import os
import pwd
import re
import resource
import shutil
import socket
import struct
import subprocess
import sys
import threading
import unittest

from explain_bed import AGENT, End, Explain, PYTHON, VIADUCT

libc = ctypes.CDLL(None, use_errno=True)


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
                        visitor.sendmsg([struct.pack("<QIII", magic, 9999, 176, 0)
                                         .ljust(176, b"\0")],
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

    def test_thread(self):
        ended = threading.Event()
        thread = threading.Thread(target=ended.wait)
        thread.start()
        self.addCleanup(ended.set)
        result = self.run_explain(thread.native_id)
        self.assertEqual((result.returncode, result.stdout), (2, b""))
        self.assertIn(f"{thread.native_id} is a thread of process {os.getpid()}: ",
                      result.stderr.decode())

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
            # An end that may not ask conntrack.
            self.in_netns("ip link set lo up && nft 'add table inet t; add chain inet t o "
                          "{ type nat hook output priority -100; }; add rule inet t o tcp "
                          f"dport 80 redirect to :{self.REDIRECTED}'",
                          ["setpriv", "--bounding-set", "-net_admin", "--"])
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
        self.stays(s, "nat", "nobody has told", logged=False)
        self.agree()

    def in_netns(self, script, before=()):
        """This test once more, in a network namespace that is as the script makes it."""
        done = subprocess.run(["unshare", "--net", "sh", "-c",
                               f'({script}) 2>/dev/null || exit 77; exec "$@"', "sh",
                               *before, PYTHON, *sys.argv[:1], *sys.argv[1:6], self.id().split(".", 1)[1]],
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
        # A stream of bytes is carried, one of wide characters is not.
        self.gone_down("stdio", "setattr(libc.fdopen, 'restype', ctypes.c_void_p) or "
                       "libc.fwide(ctypes.c_void_p(libc.fdopen(c.fileno(), b'r+')), 1)")

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
        self.gone_down("epoll", "e = select.epoll(); e.register(c, select.EPOLLIN); "
                       "x, y = socket.socketpair(); socket.send_fds(x, [b'x'], [e.fileno()])")

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


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[6:]])
