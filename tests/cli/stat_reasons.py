#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `viaduct stat`: each reason is produced for real.

usage: stat_reasons.py VIADUCT MANUAL REASONS OFFSETS. No time is judged.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

from stat_bed import PLAYER, PYTHON, Player, REASONS, Stat


class Reasons(Stat):
    """Each is made for real; stat, its note, the log and the list of reasons agree."""

    def known(self):
        text = pathlib.Path(REASONS).read_text()
        text = re.sub(r'"[ \t]*\\\n\s*"', '", "', text)
        text = re.sub(r",[ \t]*\\\n\s*", ", ", text)
        return {name: (says, remedy) for name, says, remedy in
                re.findall(r'X\(\d+, \w+, "([^"]+)",\s*"([^"]+)",\s*"([^"]+)"\)', text)}

    def expect(self, player, reason, log=None):
        end = self.end_of(player)
        self.assertEqual((end["path"], end["reason"]), ("tcp", reason))
        says, remedy = self.known()[reason]
        self.assertEqual((end["reason_text"], end["remedy"]), (says, remedy))
        self.assertIn(f"{reason}: {says}; {remedy}\n", self.stat("--pid", player.pid))
        self.assertEqual(len(self.ends("--pid", player.pid, "--reason", reason)), 1)
        if log:
            self.assertIn(f"{reason} ({says})", log.read_text())

    def logged(self, **options):
        log = self.tmp / f"log-{len(list(self.tmp.iterdir()))}"
        env = {"VIADUCT_LOG": f"debug:{log}", **options.pop("env", {})}
        return Player(self, env=env, **options), log

    def test_list_is_read(self):
        self.assertGreater(len(self.known()), 40)

    def test_too_short(self):
        a = Player(self, env={"VIADUCT_UPGRADE_AFTER": "1000"})
        a, b, _ = self.pair(server=a, upgraded=False)
        self.exchange(a, b, 3, 3)
        self.expect(a, "too-short")

    def test_plain_peer(self):
        a, b, _ = self.pair(client=Player(self, plain=True), upgraded=False)
        self.exchange(a, b, 500, 3)
        self.expect(a, "plain-peer")
        a, log = self.logged()
        b, a, _ = self.pair(server=Player(self, plain=True), client=a, upgraded=False)
        self.exchange(b, a, 1, 3)
        self.expect(a, "plain-peer", log)

    def test_rule(self):
        a, log = self.logged(env={"VIADUCT_RULES": "deny"})
        a, b, _ = self.pair(server=a, upgraded=False)
        self.exchange(a, b, 20, 3)
        self.expect(a, "rule", log)

    def test_shared(self):
        a, b, _ = self.pair(upgraded=False)
        a.do("child = os.fork() or signal.pause()")
        child = a.ask("child")
        self.addCleanup(self.kill, child)
        self.exchange(a, b, 20, 3)
        self.expect(a, "shared")

    def test_closed_in_a_child(self):
        a, log = self.logged()
        a, b, _ = self.pair(server=a)
        self.exchange(a, b, 20, 3)
        b.do("s.send(b'unread')")
        # The peer waits for its next order, and makes no call on the connection.
        a.do("os.set_inheritable(s.fileno(), True)")
        status = a.ask("os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn('/bin/true', ['true'], os.environ), 0)[1])")
        self.assertEqual(status, 0)
        self.assertIn("exec with bytes unread in the ring: closed in the child", log.read_text())
        self.assertEqual(a.ask("s.recv(100)"), b"unread")

    def test_out_of_band(self):
        a, log = self.logged()
        a, b, _ = self.pair(server=a)
        a.do("s.send(b'u', socket.MSG_OOB)")
        b.begin("pongs(5, 3)")
        a.do("pings(5, 3)")
        b.hear("'done'")
        self.expect(a, "out-of-band", log)
        self.expect(b, "peer-asked")
        rows, notes = self.table("--pid", b.pid)
        self.assertEqual(rows[0]["REASON"], "peer-asked, peer: out-of-band")
        self.assertIn("out-of-band: ", notes)

    def test_stdio(self):
        a, b, _ = self.pair(upgraded=False)
        a.do("os.dup2(s.fileno(), 0)")
        # Nobody has asked for its cookie: it is known by a number that is not the lowest.
        self.assertEqual(self.end_of(a)["fds"], [0, a.ask("s.fileno()")])
        self.assertEqual(self.end_of(a)["reason"], "stdio")
        b.begin("pings(20, 3)")
        a.do("pongs(20, 3)")
        b.hear("'done'")
        end = self.end_of(a)
        self.assertEqual((end["path"], end["reason"]), ("tcp", "stdio"))

    def test_sigio(self):
        a, log = self.logged()
        a, b, _ = self.pair(server=a)
        a.do("signal.signal(signal.SIGIO, signal.SIG_IGN)")
        a.do("fcntl.fcntl(s, fcntl.F_SETFL, fcntl.fcntl(s, fcntl.F_GETFL) | os.O_ASYNC)")
        self.exchange(a, b, 20, 3)
        self.expect(a, "sigio", log)

    def test_splice(self):
        a, log = self.logged()
        a, b, _ = self.pair(server=a)
        b.do("s.send(b'hello')")
        a.do("r, w = os.pipe()")
        b.begin("take(1)")
        a.do("n = os.splice(s.fileno(), w, 5)")
        a.do("s.send(b'x')")
        b.hear("'done'")
        self.exchange(a, b, 5, 3)
        self.expect(a, "splice", log)

    def went_down(self, reason, code, **env):
        """The server of an upgraded pair does this, which takes the connection to TCP."""
        a, log = self.logged(env=env)
        a, b, _ = self.pair(server=a)
        a.do(code)
        self.exchange(a, b, 20, 3)
        self.expect(a, reason, log)
        self.expect(b, "peer-asked")

    def test_option(self):
        self.went_down("option", "s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 2)")

    def test_protocol(self):
        self.went_down("protocol", "ctypes.CDLL(None).setsockopt(s.fileno(), 6, 31, b'tls', 3)")

    def test_mptcp(self):
        """Which the library leaves alone."""
        self.as_root()
        where = "socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)"
        a, b = Player(self), Player(self)
        if not a.ask("os.path.exists('/proc/sys/net/mptcp')"):
            self.skipTest("has no MPTCP")
        a.do(f"server = {where}; server.bind(('127.0.0.1', 0)); server.listen()")
        b.do(f"s = {where}; s.connect(('127.0.0.1', {a.ask('server.getsockname()[1]')}))")
        a.do("accept()")
        self.exchange(a, b, 20, 3)
        self.expect(a, "protocol")
        self.expect(b, "protocol")

    def test_epoll(self):
        self.went_down("epoll", "e = select.epoll(); e.register(s, select.EPOLLIN); "
                                "x, y = socket.socketpair(); socket.send_fds(x, [b'x'], [e.fileno()])")

    def test_io_uring(self):
        self.went_down("io_uring", "ctypes.CDLL(None).syscall(425, 1, "
                                   "ctypes.create_string_buffer(120))",
                       VIADUCT_IO_URING="leave")

    def test_deepbind(self):
        self.went_down("deepbind", "ctypes.CDLL('libresolv.so.2', os.RTLD_LAZY | os.RTLD_DEEPBIND)")

    def test_parted(self):
        self.went_down("parted", "import threading; t = threading.Thread(target=lambda: "
                                 "ctypes.CDLL(None).unshare(0x400)); t.start(); t.join()")

    def test_aio(self):
        self.went_down("aio", "c = ctypes.CDLL(None); x = ctypes.c_ulong(); "
                              "c.syscall(206, 1, ctypes.byref(x)); "
                              "b = ctypes.create_string_buffer(b'x'); "
                              "i = ctypes.create_string_buffer(struct.pack('QIIHhIQQqQII', 0, 0, "
                              "0, 1, 0, s.fileno(), ctypes.addressof(b), 0, 0, 0, 0, 0)); "
                              "c.syscall(209, x, 1, ctypes.byref(ctypes.c_void_p("
                              "ctypes.addressof(i))))")

    def test_memory(self):
        a, log = self.logged()
        a.do("import resource; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
             "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))")
        a, b, _ = self.pair(server=a, upgraded=False)
        self.exchange(a, b, 20, 3)
        self.expect(a, "memory", log)

    def test_bypass(self):
        a, log = self.logged()
        a, b, _ = self.pair(server=a)
        plain = Player(self, plain=True)
        plain.do(f"p = os.pidfd_open({b.pid}); s = socket.socket(fileno="
                 f"ctypes.CDLL(None).syscall(438, p, {b.ask('s.fileno()')}, 0))")
        plain.do("s.send(b'past')")
        a.do("with contextlib.suppress(ConnectionResetError): s.recv(9); tell('read')")
        self.assertIn("bypass (", log.read_text())

    def test_namespace(self):
        self.as_root()
        log = self.tmp / "log"
        a = Player(self)
        b = Player(self, env={"VIADUCT_LOG": f"debug:{log}"})
        port = a.ask("listen()")
        b.do("ctypes.CDLL(None).unshare(0x20000000)")
        b.begin(f"child = os.fork() or (connect({port}), pings(40, 3), signal.pause())")
        b.hear("'done'")
        child = b.ask("child")
        self.addCleanup(self.kill, child)
        a.do("accept()")
        a.do("pongs(40, 3)")
        self.expect(a, "namespace", log)
        rows, _ = self.table("--port", port)
        self.assertEqual([(r["PID"], r["REASON"]) for r in rows],
                         [(str(child), "namespace")])

    def test_remote_peer(self):
        self.as_root()
        if not shutil.which("ip"):
            self.skipTest("has no ip")
        a, log = self.logged()
        b = Player(self)
        for player in (a, b):
            player.do("import subprocess; ctypes.CDLL(None).unshare(0x40000000)")
        ip = "subprocess.run('ip {}', shell=True, check=True)"
        b.do(ip.format(f"link add va type veth peer name vb netns {a.pid}"))
        for player, name, n in ((a, "vb", 1), (b, "va", 2)):
            player.do(ip.format(f"addr add 192.0.2.{n}/24 dev {name}"))
            player.do(ip.format(f"link set {name} up"))
        # Somebody here listens at the same port, under Viaduct.
        port = b.ask("listen(socket.AF_INET, '192.0.2.2')")
        a.do(f"h = socket.socket(); h.bind(('192.0.2.1', {port})); h.listen()")
        a.do(f"connect({port}, socket.AF_INET, '192.0.2.2')")
        b.do("accept()")
        self.exchange(b, a, 20, 3)
        self.expect(a, "remote-peer", log)
        self.assertIsNone(self.end_of(a)["peer_process"])

    def test_self_connect(self):
        a = Player(self)
        a.do("s = socket.socket(); s.bind(('127.0.0.1', 0)); s.connect(s.getsockname())")
        a.do("[(s.send(b'x'), take(1)) for i in range(20)]")
        end = self.end_of(a)
        self.assertEqual((end["path"], end["reason"]), ("tcp", "self-connect"))

    def test_role_unknown(self):
        server = subprocess.Popen([PYTHON, "-c", PLAYER], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True, env=self.env)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        self.addCleanup(server.stdin.close)
        self.addCleanup(server.stdout.close)
        self.assertEqual(server.stdout.readline(), "'begun'\n")
        server.stdin.write("tell(listen())\n")
        server.stdin.flush()
        port = int(server.stdout.readline())
        b = Player(self)
        b.do(f"connect({port})")
        code = "import signal; print('there', flush=True); signal.pause()"
        command = [self.viaduct, "run", "--", PYTHON, "-c", code]
        server.stdin.write("accept(); os.set_inheritable(s.fileno(), True); "
                           f"os.execv({command[0]!r}, {command!r})\n")
        server.stdin.flush()
        while server.stdout.readline() != "there\n":
            self.assertIsNone(server.poll())
        ends = self.ends("--pid", server.pid)
        self.assertEqual([e["reason"] for e in ends], ["role-unknown"])

    def test_fd_limit(self):
        limit = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (10, 10))"
        a = Player(self)
        a.do("server = 0")
        b = Player(self)
        b.do(limit)
        a, b, _ = self.pair(server=a, client=b, upgraded=False)
        self.exchange(a, b, 20, 3)
        self.expect(b, "fd-limit")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[5:]])
