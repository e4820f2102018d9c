#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `viaduct stat` of processes: which are seen, by whom, and those that are odd.

usage: stat_processes.py VIADUCT MANUAL REASONS OFFSETS. No time is judged.
"""
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import unittest

from stat_bed import OFFSETS, PYTHON, Player, ROOT, Stat

NOBODY = 65534


class Processes(Stat):
    def test_killed(self):
        a, b, port = self.pair()
        a.p.kill()
        a.p.wait()
        ends = self.ends("--port", port)
        self.assertEqual([e["pid"] for e in ends], [b.pid])
        self.assertIsNone(ends[0]["peer_process"])
        b.end()
        self.assertEqual(self.ends("--port", port), [])

    def test_fork(self):
        a, b, port = self.pair()
        a.do("child = os.fork() or signal.pause()")
        child = a.ask("child")
        self.addCleanup(self.kill, child)
        ends = self.ends("--port", port)
        self.assertEqual(sorted(e["pid"] for e in ends), sorted([a.pid, b.pid, child]))
        mine = [e for e in ends if e["pid"] != b.pid]
        self.assertEqual(mine[0]["sent"], mine[1]["sent"])
        self.assertEqual(len(self.table("--port", port)[0]), 1)
        self.assertEqual(len(self.table("--port", port, "--both")[0]), 3)
        rows, _ = self.table("--port", port, "--path", "ring", "--program", "python3")
        self.assertEqual(rows[0]["PID"], str(b.pid))
        b.do("os.close(s.detach())")
        rows, _ = self.table("--port", port)
        self.assertEqual([r["PID"] for r in rows], [f"{min(a.pid, child)}+1"])
        os.kill(child, signal.SIGKILL)
        a.do("os.waitpid(child, 0)")
        self.assertEqual(self.table("--port", port)[0][0]["PID"], str(a.pid))

    def test_duplicates(self):
        a, b, port = self.pair()
        a.do("copy = os.dup(s.fileno())")
        fds = sorted(a.ask("[s.fileno(), copy]"))
        end = self.end_of(a)
        self.assertEqual(end["fds"], fds)
        self.assertEqual(self.table("--pid", a.pid)[0][0]["FD"], f"{fds[0]}+1")
        p = self.see("--pid", a.pid)["processes"][0]
        self.assertEqual(p["open"], 1)
        # The number that it had at first is another's now.
        a.do("os.close(s.detach()); s = socket.socket(fileno=copy); f = open('/dev/null')")
        end = self.end_of(a)
        self.assertEqual((end["fds"], end["sent"]["path"]), ([fds[1]], "ring"))

    def test_exec(self):
        a, b, port = self.pair()
        code = "import signal; print('there', flush=True); signal.pause()"
        a.do("os.set_inheritable(s.fileno(), True)")
        a.begin(f"os.execv({PYTHON!r}, [{PYTHON!r}, '-c', {code!r}])")
        a.hear("there")
        self.assertEqual(self.end_of(a)["path"], "tcp")
        self.assertEqual(self.end_of(a)["reason"], "role-unknown")
        b.do("s.send(b'x')")
        self.assertEqual(self.end_of(b)["reason"], "peer-asked")

    def test_carried_over_exec(self):
        """What is unread goes with it."""
        a, b, port = self.pair()
        code = "import signal; print('there', flush=True); signal.pause()"
        a.do("os.set_inheritable(s.fileno(), True)")
        b.do("s.send(b'hello')")
        a.begin(f"os.execv({PYTHON!r}, [{PYTHON!r}, '-c', {code!r}])")
        a.hear("there")
        end = self.end_of(a)
        self.assertEqual((end["reason"], end["received"]["path"]), ("exec", "ring"))

    def test_passed(self):
        a, b, port = self.pair()
        c = Player(self)
        path = str(self.tmp / "socket")
        c.do("u = socket.socket(socket.AF_UNIX)")
        c.do(f"u.bind({path!r})")
        c.do("u.listen()")
        a.do("v = socket.socket(socket.AF_UNIX)")
        a.do(f"v.connect({path!r})")
        a.do("socket.send_fds(v, [b'x'], [s.fileno()])")
        self.assertEqual(self.end_of(a)["reason"], "passed")
        c.do("w = u.accept()[0]; s = socket.socket(fileno=socket.recv_fds(w, 9, 9)[1][0])")
        a.do("s.close()")
        self.assertEqual(self.end_of(b)["peer_process"]["pid"], c.pid)
        # It had been upgraded before it was sent: who has received it asks when it has earned
        # its own.
        for _ in range(50):
            reason = self.end_of(c)["reason"]
            if reason != "too-short":
                break
            self.exchange(c, b, 4, 10)
        self.assertEqual(reason, "role-unknown")

    def test_other_users(self):
        self.as_root()
        options = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        a, b, port = self.pair(Player(self, **options), Player(self, **options))
        self.assertEqual({e["pid"] for e in self.ends("--port", port)}, {a.pid, b.pid})
        self.assertEqual({e["pid"] for e in self.ends("--port", port, **options)},
                         {a.pid, b.pid})
        self.assertEqual(self.see()["hidden_processes"], 0)
        c, d, hidden = self.pair()
        seen = self.see("--port", hidden, **options)
        self.assertEqual(seen["connections"], [])
        self.assertGreaterEqual(seen["hidden_processes"], 2)
        self.assertRegex(self.stat(**options),
                         r"\d+ processes of other users may not be looked into; root sees "
                         r"all\n$")
        # Across users: the end that may be seen, with a peer that may not.
        e, f, port = self.pair(server=Player(self, **options))
        ends = self.ends("--port", port, **options)
        self.assertEqual([x["pid"] for x in ends], [e.pid])
        self.assertIsNone(ends[0]["peer_process"])

    def test_gave_all_descriptors_back(self):
        """With none left for the program, the one that shows its connections goes, too."""
        user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if ROOT else {}
        b = Player(self, **user, preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_NOFILE, (64, 64)))
        a, b, port = self.pair(client=b)
        b.do("with contextlib.suppress(OSError): more = [os.dup(0) for i in range(64)]")
        self.assertNotIn("memfd", "".join(
            os.readlink(f"/proc/{b.pid}/fd/{n}") for n in os.listdir(f"/proc/{b.pid}/fd")))
        self.exchange(a, b, 4, 10)
        said = self.stat("--pid", b.pid, **user)
        self.assertRegex(said, rf"^\S+ \(process {b.pid}\) is not listed: it was short of "
                         r"descriptors, .*: ask as root\n")
        self.assertNotIn("does not run", said)
        seen = self.see("--pid", b.pid, **user)
        self.assertEqual([p["pid"] for p in seen["processes"]], [b.pid])
        self.assertIn("short of descriptors", seen["processes"][0]["trouble"])
        self.assertEqual(seen["connections"], [])
        if ROOT:
            end = self.end_of(b)
            self.assertEqual(end["reason"], "fd-limit")
            self.assertEqual(sum(end["sent"][k] for k in ("direct_bytes", "tcp_bytes")),
                             self.moved + 40)

    def test_pid_namespaces(self):
        self.as_root()
        a, b = Player(self), Player(self)
        # The parent stays outside; the child is 1 in a family of two namespaces.
        a.do("ctypes.CDLL(None).unshare(0x20000000)")
        port = b.ask("listen()")
        a.begin(f"child = os.fork() or (connect({port}), s.send(b'x'), "
                "[s.send(s.recv(9)) for i in range(30)], signal.pause())")
        a.hear("'done'")
        b.do("accept()")
        b.do("take(1); [(s.send(b'x'), take(1)) for i in range(30)]")
        child = a.ask("child")
        inside = [int(p) for p in
                  pathlib.Path(f"/proc/{a.pid}/task/{a.pid}/children").read_text().split()]
        self.assertEqual(child, inside[0])
        self.addCleanup(self.kill, inside[0])
        ends = {e["pid"]: e for e in self.ends("--port", port)}
        self.assertEqual(set(ends), {b.pid, inside[0]})
        end = ends[inside[0]]
        self.assertEqual(end["role"], "connected")
        self.assertEqual(end["sent"]["direct_bytes"] + end["sent"]["tcp_bytes"], 31)

    def test_network_namespaces(self):
        self.as_root()
        a, b, port = self.pair()
        up = ("subprocess.run(['ip', 'link', 'set', 'lo', 'up'], check=True)"
              if shutil.which("ip") else None)
        if not up:
            self.skipTest("has no ip")
        c, d = Player(self), Player(self)
        c.do("import subprocess; ctypes.CDLL(None).unshare(0x40000000); " + up)
        d.do(f"ctypes.CDLL(None).setns(os.open('/proc/{c.pid}/ns/net', 0), 0)")
        # The same addresses as those of the pair outside.
        local = b.ask("s.getsockname()[1]")
        c.do(f"server = socket.socket(); server.bind(('127.0.0.1', {port})); server.listen()")
        d.do(f"s = socket.socket(); s.bind(('127.0.0.1', {local}))")
        d.begin(f"s.connect(('127.0.0.1', {port}))")
        c.do("accept()")
        d.hear("'done'")
        self.until_upgraded(c, d)
        self.assertEqual(len(self.table("--port", port)[0]), 2)
        self.assertEqual(self.end_of(d)["peer_process"]["pid"], c.pid)
        self.assertEqual(self.end_of(b)["peer_process"]["pid"], a.pid)

    def test_closed_namespace(self):
        self.as_root()
        options = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        a = Player(self)
        a.do("ctypes.CDLL(None).unshare(0x40000000)")
        a.do(f"os.setresgid({NOBODY}, {NOBODY}, {NOBODY}); "
             f"os.setresuid({NOBODY}, {NOBODY}, {NOBODY})")
        a.do("ctypes.CDLL(None).prctl(4, 1)")  # PR_SET_DUMPABLE
        self.assertIn("its network namespace may not be entered", self.stat(**options))
        self.assertNotIn("may not be entered", self.stat())


class Odd(Stat):
    """Processes that are not what they seem."""

    MAKE = ("fd = os.memfd_create('viaduct-table', 3); os.truncate(fd, {size}); "
            "os.pwrite(fd, {head!r}, 0)")
    SEAL = "fcntl.fcntl(fd, 1033, 2)"  # F_ADD_SEALS, F_SEAL_SHRINK

    def fake(self, head, size=1 << 20, sealed=True):
        p = Player(self, plain=True)
        p.do(self.MAKE.format(size=size, head=head))
        if sealed:
            p.do(self.SEAL)
        return p

    def test_other_version(self):
        p = self.fake(struct.pack("QI", 0x656c626174647631, 999))
        self.assertIn(f"(process {p.pid}) is not listed: it runs another version of "
                      "Viaduct than this command\n", self.stat())
        seen = self.see("--pid", p.pid)
        self.assertIn("another version", seen["processes"][0]["trouble"])
        self.assertIsNone(seen["processes"][0]["counts"])

    def test_its_connections_are_not_guessed(self):
        p = self.fake(struct.pack("QI", 0x656c626174647631, 999))
        a, p, port = self.pair(client=p, upgraded=False)
        self.assertEqual([e["pid"] for e in self.ends("--port", port)], [a.pid])

    def test_process_that_begins(self):
        for p in (self.fake(b"", sealed=False), self.fake(b""), self.fake(b"", 0)):
            self.assertNotIn(f"process {p.pid}", self.stat())

    def test_too_small(self):
        p = self.fake(struct.pack("Q", 0x656c626174647631), 4096)
        self.assertIn(f"(process {p.pid}) is not listed", self.stat())

    def real_table(self, player):
        for fd in os.listdir(f"/proc/{player.pid}/fd"):
            path = f"/proc/{player.pid}/fd/{fd}"
            if "viaduct-table" in os.readlink(path):
                with open(path, "rb") as f:
                    return f.read(4 << 20), os.stat(path).st_size
        self.fail("it has no table")

    def test_lies(self):
        """A table with the right head, and anything behind it."""
        a, b, port = self.pair()
        data, size = self.real_table(a)
        table_bytes = struct.unpack_from("QII", data)[2]
        noise = self.tmp / "noise"
        for _ in range(8):
            noise.write_bytes(os.urandom(1 << 20))
            p = self.fake(data[:64], size)
            p.do(f"os.pwrite(fd, open({str(noise)!r}, 'rb').read(), 64)")
            c, p, other = self.pair(client=p, upgraded=False)
            # The first slot is that of its connection: struct slot begins so.
            p.do("slot = struct.pack('IIII', 0, 1, 1, 0) + s.getsockopt(1, 57, 8)")
            p.do(f"os.pwrite(fd, slot + struct.pack('i', os.getpid()), {table_bytes})")
            self.assertNotEqual(self.end_of(p)["reason"], "role-unknown")
            for args in ([], ["-w", "--both"], ["--processes"], ["--rpc"], ["--prometheus",
                         "--per-connection"], ["--json"]):
                self.stat(*args)
            self.assertEqual(self.end_of(b)["path"], "ring")

    def forge_rdma(self):
        """A process whose table says that its connection goes by RDMA: 300 bytes were sent and 40
        received on it, and 4000 and 3000 on others that have ended, of which 1000 went by RDMA."""
        at = json.loads(subprocess.check_output([OFFSETS]))
        a, _, _ = self.pair()
        data, size = self.real_table(a)
        p = self.fake(data[:64], size)
        c, p, port = self.pair(client=p, upgraded=False)
        entry, slot = at["processes"], at["slots"]
        words = {at["fresh"]: struct.pack("I", 1),
                 entry: struct.pack("i", p.pid),
                 entry + at["counts"] + at["tx_direct_bytes"]: struct.pack("QQ", 4000, 3000),
                 entry + at["counts"] + at["tx_rdma_bytes"]: struct.pack("QQ", 1000, 1000),
                 slot + at["across"]: struct.pack("I", 1),
                 slot + at["gate_tx"]: struct.pack("I", at["ring"]),
                 slot + at["gate_rx"]: struct.pack("I", at["ring"]),
                 slot + at["produced"]: struct.pack("Q", 300),
                 slot + at["consumed"]: struct.pack("Q", 40)}
        for where, what in words.items():
            p.do(f"os.pwrite(fd, {what!r}, {where})")
        # The slot is that of its connection: struct slot begins so.
        p.do("slot = struct.pack('IIII', 0, 1, 1, 0) + s.getsockopt(1, 57, 8)")
        p.do(f"os.pwrite(fd, slot + struct.pack('i', os.getpid()), {slot})")
        return p

    def test_rdma(self):
        p = self.forge_rdma()
        seen = self.see("--pid", p.pid)
        end, counts = seen["connections"][0], seen["processes"][0]["counts"]
        self.assertEqual([end["path"], end["sent"]["path"], end["received"]["path"]],
                         ["rdma"] * 3)
        self.assertEqual((counts["tx_direct_bytes"], counts["rx_direct_bytes"]), (4300, 3040))
        self.assertEqual((counts["tx_rdma_bytes"], counts["rx_rdma_bytes"]), (1300, 1040))
        found = re.findall(r'^viaduct_(bytes_total|connection_bytes_total)\{.*direction="(\w+)",'
                           r'path="(ring|rdma)"\} (\d+)$',
                           self.stat("--prometheus", "--per-connection", "--pid", p.pid), re.M)
        self.assertEqual(sorted(found), sorted([
            ("bytes_total", "sent", "ring", "3000"), ("bytes_total", "received", "ring", "2000"),
            ("bytes_total", "sent", "rdma", "1300"), ("bytes_total", "received", "rdma", "1040"),
            ("connection_bytes_total", "sent", "rdma", "300"),
            ("connection_bytes_total", "received", "rdma", "40")]))
        rows, _ = self.table("--pid", p.pid)
        self.assertEqual([row["PATH"] for row in rows], ["rdma"])

    def test_too_many_slots(self):
        a, b, port = self.pair()
        data, size = self.real_table(a)
        head = list(struct.unpack_from("QIIIIII", data))
        head[4] = 0xffffffff
        p = self.fake(struct.pack("QIIIIII", *head), 1 << 42)
        self.assertIn(f"(process {p.pid}) is not listed", self.stat())

    def test_no_proc(self):
        result = self.without_proc(self.viaduct, "stat")
        self.assertEqual((result.returncode, result.stdout), (1, b""))
        self.assertIn(b"/proc shows no processes", result.stderr)

    def test_while_they_come_and_go(self):
        # A name of its own: other tests have processes whose tables cannot be listed.
        name = "comes-and-goes"
        program = self.tmp / name
        shutil.copy(shutil.which("true"), program)
        churn = subprocess.Popen(
            [sys.executable, "-c", "import subprocess, sys\n"
             "while True: subprocess.run(sys.argv[1:])", self.viaduct, "run", "--", program],
            env=self.env)
        self.addCleanup(churn.wait)
        self.addCleanup(churn.kill)
        for _ in range(30):
            self.assertNotRegex(self.stat(), rf"(?m)^{name} .* is not listed")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[5:]])
