#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`viaduct doctor HOST` between two hosts without RDMA: each step that fails is named, and only
that. doctor.py VIADUCTD VIADUCT [TEST...]"""
import contextlib
import errno
import functools
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import threading
import unittest

from hosts import PROGRAMS, TwoHosts, main
from rig import NEWNET, SECONDS, call

NEWNS = 0x20000
B = "10.9.0.2"
PORT = 7431
# What doctors say to each other: src/tool/doctor/far.h.
REQUEST = struct.Struct("<8sBBHI")
ECHO, TAKE, GIVE, LOOK = range(1, 5)
ALL = ["name", "route", "device", "daemon", "relay", "answer", "connection", "latency",
       "sending", "receiving", "device-there", "relay-back"]


@functools.cache
def piece():
    x, made = 1, bytearray()
    while len(made) < 65521:
        x = (x * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        made.append(x >> 56)
    return bytes(made)


def pattern(count):
    """What doctors send each other: a piece of a prime length, again and again."""
    return (piece() * (count // len(piece()) + 1))[:count]


class Doctors(TwoHosts):
    def go_to(self, host, daemon):
        """On that host, with its viaductd, if any, where processes look for it."""
        def become():
            call("setns", host.fd, NEWNET)
            call("unshare", NEWNS)
            call("mount", b"none", b"/", None, 0x4000 | 0x40000, None)  # MS_REC, MS_PRIVATE
            call("mount", b"none", b"/run", b"tmpfs", 0, None)
            os.mkdir("/run/viaduct")
            if daemon:
                os.symlink(daemon.socket, "/run/viaduct/relay.sock")
            call("prctl", 1, signal.SIGKILL, 0, 0, 0)
        return become

    def start(self, host, daemon, *args, env=None):
        clean = {k: v for k, v in os.environ.items() if k[:7] != "VIADUCT" and
                 k != "LD_PRELOAD"}
        process = subprocess.Popen(
            [PROGRAMS[1], "doctor", *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, preexec_fn=self.go_to(host, daemon),
            env={**clean, "VIADUCT_CONFIG": "", **(env or {})})
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        """And with it the child that has the port, which ends a moment later."""
        children = []
        if process.poll() is not None:  # its number may be another's
            process.communicate()
            return
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for pid in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    children.append(os.pidfd_open(int(pid)))
        process.kill()
        process.communicate()
        for child in children:
            self.assertTrue(select.select([child], [], [], SECONDS)[0])
            os.close(child)

    def answer(self, host=None, daemon=None, *args, env=None):
        process = self.start(host or self.b, daemon, "--answer", *args, env=env)
        self.assertRegex(process.stdout.readline(), r"^port \d+ answers ")
        return process

    def doctor(self, daemon, *args, host=None, env=None):
        """The checks by name, once the exit status has been compared with them."""
        process = self.start(host or self.a, daemon, "--json", *args, env=env)
        stdout, stderr = process.communicate(timeout=4 * SECONDS)
        self.assertEqual(stderr, "")
        found = json.loads(stdout)["checks"]
        problems = [c["name"] for c in found if c["state"] == "problem"]
        self.assertEqual(process.returncode, 1 if problems else 0, problems)
        for c in found:
            self.assertEqual(c["group"], "way")
            self.assertEqual(c["state"] == "ok", c["remedy"] == "", c)
        self.assertEqual(len({c["name"] for c in found}), len(found))
        return {c["name"]: c for c in found}

    def problems(self, checks, *names, notes=()):
        for state, expected in (("problem", names), ("note", notes)):
            self.assertEqual([n for n, c in checks.items() if c["state"] == state],
                             list(expected), checks)

    def only(self, daemon, name, words, remedy, *args, **options):
        """Beside the missing device and answer, this alone is wrong."""
        checks = self.doctor(daemon, *(args or (B,)), **options)
        self.problems(checks, "device", name, notes=["answer"])
        self.assertIn(words, checks[name]["text"])
        self.assertIn(remedy, checks[name]["remedy"])
        return checks


class Name(Doctors):
    def test_no_such_name(self):
        checks = self.doctor(None, "no-such-host.invalid")
        self.problems(checks, "name")
        self.assertEqual(list(checks), ["name"])
        self.assertIn("no-such-host.invalid has no address", checks["name"]["text"])
        self.assertIn("/etc/hosts", checks["name"]["remedy"])

    def test_a_name(self):
        self.daemons()
        hosts = pathlib.Path(self.folder.name, "hosts")
        hosts.write_text(f"{B} other\nfd09::2 other\n127.0.0.1 own\n")
        become = self.go_to

        def with_names(*place):
            def enter():
                become(*place)()
                call("mount", os.fsencode(hosts), b"/etc/hosts", None, 0x1000, None)  # MS_BIND
            return enter
        self.go_to = with_names
        checks = self.doctor(self.da, "other")
        self.problems(checks, "device", notes=["answer"])
        self.assertIn("other has 2 addresses: ", checks["name"]["text"])
        self.assertEqual(checks["relay"]["state"], "ok")
        checks = self.doctor(self.da, "own")
        self.problems(checks, notes=["route"])
        self.assertEqual(list(checks), ["name", "route"])
        self.assertIn("127.0.0.1 is this host itself", checks["route"]["text"])

    def test_own_address(self):
        checks = self.doctor(None, "10.9.0.1")
        self.problems(checks, notes=["route"])
        self.assertIn("10.9.0.1 is this host itself", checks["route"]["text"])


class Route(Doctors):
    def test_none(self):
        checks = self.doctor(None, "10.8.0.2")
        self.problems(checks, "route")
        self.assertEqual(list(checks), ["name", "route"])
        self.assertIn("Network is unreachable", checks["route"]["text"])

    def test_which(self):
        checks = self.doctor(None, "192.168.9.2")
        self.assertEqual((checks["route"]["value"], checks["route"]["text"]),
                         ("192.168.9.1", "from 192.168.9.1 on v0 to 192.168.9.2"))

    def test_link_local(self):
        with self.a:
            subprocess.run(["ip", "addr", "add", "169.254.3.1/24", "dev", "v0"], check=True)
        checks = self.doctor(None, "169.254.3.2")
        self.problems(checks, "route")
        self.assertIn("stay on TCP", checks["route"]["text"])

    def test_nobody_has_the_address(self):
        self.daemons()
        checks = self.doctor(self.da, "10.9.0.9")
        self.problems(checks, "device", "relay", notes=["answer"])
        self.assertRegex(checks["relay"]["text"],
                         r"^viaductd at 10\.9\.0\.9:7430 cannot be connected: "
                         r"(No route to host|Connection timed out)")
        self.assertIn("that the host is up", checks["relay"]["remedy"])


class Relay(Doctors):
    def test_all_is_well(self):
        self.daemons()
        for host in (B, "fd09::2"):
            checks = self.doctor(self.da, host)
            self.problems(checks, "device", notes=["answer"])
            self.assertEqual(list(checks), ALL[:6])
            self.assertGreater(checks["relay"]["value"], 0)
            self.assertEqual(checks["relay"]["unit"], "us")
            self.assertIn("has the key", checks["relay"]["text"])
        self.assertIn("viaductd at [fd09::2]:7430", checks["relay"]["text"])

    def test_many_in_a_row(self):
        """One waits where it has asked too often, and says nothing of it."""
        self.daemons()
        for _ in range(8):
            self.assertEqual(self.doctor(self.da, B)["relay"]["state"], "ok")

    def test_none_here(self):
        self.db = self.daemon(self.b, "b")
        checks = self.only(None, "daemon", "No such file", "systemctl")
        self.assertNotIn("relay", checks)

    def test_dead_here(self):
        self.daemons()
        self.da.kill()
        self.only(self.da, "daemon", "Connection refused", "systemctl")

    def test_stopped_here(self):
        self.daemons()
        self.da.process.send_signal(signal.SIGSTOP)
        self.only(self.da, "daemon", "Connection timed out", "restart it")

    def test_none_there(self):
        self.da = self.daemon(self.a, "a")
        self.only(self.da, "relay", f"viaductd at {B}:7430 cannot be connected: Connection "
                  "refused", "Start viaductd there")
        self.db = self.daemon(self.b, "b")
        self.assertEqual(self.doctor(self.da, B)["relay"]["state"], "ok")

    def test_stopped_there(self):
        self.daemons()
        self.db.process.send_signal(signal.SIGSTOP)
        self.only(self.da, "relay", "proves no key in time", "stopped or hangs")
        self.db.process.send_signal(signal.SIGCONT)
        self.assertEqual(self.doctor(self.da, B)["relay"]["state"], "ok")

    def test_another_key(self):
        self.da = self.daemon(self.a, "a")
        self.db = self.daemon(self.b, "b", keys=["one = " + "12" * 32])
        self.only(self.da, "relay", "has not our key", "same viaductd.key")

    def test_a_rule_here(self):
        for n, rule in enumerate(("deny addr=10.9.0.0/24", "deny uid=0",
                                  "deny program=viaduct")):
            self.da = self.daemon(self.a, f"a{n}", lines=[rule])
            self.only(self.da, "relay", "viaductd of this host says: a rule of viaductd.conf "
                      "denies it", "See the rules")
            self.da.kill()

    def test_a_rule_there(self):
        self.da = self.daemon(self.a, "a")
        self.db = self.daemon(self.b, "b", lines=["deny addr=10.9.0.0/24"])
        self.only(self.da, "relay", "hangs up before it has proved anything",
                  "Its rules deny every connection")

    def test_another_port(self):
        self.da = self.daemon(self.a, "a", lines=["port = 7000"])
        self.db = self.daemon(self.b, "b", lines=["port = 7000"])
        checks = self.doctor(self.da, B)
        self.assertIn(f"viaductd at {B}:7000", checks["relay"]["text"])

    def test_not_for_this_address(self):
        self.da = self.daemon(self.a, "a", lines=["peer = 10.9.0.2 for 192.168.9.0/24"])
        self.db = self.daemon(self.b, "b")
        self.only(self.da, "relay", "does not take this address for ours", "`peer =` lines",
                  "192.168.9.2")

    def test_another_namespace(self):
        self.da = self.daemon(self.b, "a")
        self.only(self.da, "relay", "in another network namespace", "network namespace")

    def test_an_older_daemon(self):
        """It does not know the question."""
        name = f"{self.folder.name}/old"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(listener.close)
        listener.bind(name)
        listener.listen()

        class Old:
            socket = name

        def serve():
            for type in (2, 7):
                line = listener.accept()[0]
                said = bytearray(line.recv(100))
                self.assertEqual(said[1], type)
                said[1], said[2] = 5, 0 if type == 2 else 1
                line.send(said[:8] + bytes(44))
                line.close()
        thread = threading.Thread(target=serve, daemon=True)  # a failure does not wait for it
        thread.start()
        self.only(Old, "relay", "gave no answer: Protocol not supported", "same version")
        thread.join()


class Connection(Doctors):
    """With a doctor that answers."""

    def all_on_tcp(self, checks, *also):
        self.assertEqual(list(checks), ALL)
        self.problems(checks, "device", *also, "connection", "device-there")
        self.assertEqual(checks["connection"]["value"], "tcp")
        for name, unit in (("latency", "us"), ("sending", "MB/s"), ("receiving", "MB/s")):
            self.assertEqual((checks[name]["state"], checks[name]["unit"]), ("ok", unit))
            self.assertGreater(checks[name]["value"], 0)
            self.assertIn(" by tcp", checks[name]["text"])

    def test_no_device(self):
        self.daemons()
        for host, args in ((B, []), ("fd09::2", ["--port", "7000"])):
            self.answer(self.b, self.db, *args)
            checks = self.doctor(self.da, host, *args)
            self.all_on_tcp(checks)
            self.assertIn("no RDMA device has this connection's address",
                          checks["connection"]["text"])
            self.assertIn("there is no RDMA device", checks["device-there"]["text"])
            self.assertIn(f"viaductd at {'[fd09::1]' if ':' in host else '10.9.0.1'}:7430 has "
                          "the key, and answers that of the other host",
                          checks["relay-back"]["text"])
            self.assertGreater(checks["relay-back"]["value"], 0)

    def test_the_way_back(self):
        """Their daemon does not reach ours, which ours cannot know."""
        self.da = self.daemon(self.a, "a", lines=["listen = 192.168.9.1"])
        self.db = self.daemon(self.b, "b")
        self.answer(self.b, self.db)
        checks = self.doctor(self.da, B)
        self.problems(checks, "device", "connection", "device-there", "relay-back")
        self.assertIn("viaductd at 10.9.0.1:7430 cannot be connected when asked from there: "
                      "Connection refused", checks["relay-back"]["text"])

    def test_no_daemon_anywhere(self):
        self.answer()
        checks = self.doctor(None, B)
        self.problems(checks, "device", "daemon", "connection", "device-there", "relay-back")
        self.assertIn("viaductd of the other host gave no answer: No such file",
                      checks["relay-back"]["text"])
        self.assertIn("have not found each other", checks["connection"]["text"])

    def test_settings_of_the_user(self):
        """What keeps programs on TCP is named, here and there."""
        self.daemons()
        for env, words in (({"VIADUCT_RULES": "deny"}, "a rule keeps this connection on TCP"),
                           ({"VIADUCT": "off"}, "Viaduct is switched off")):
            answer = self.answer(self.b, self.db)
            checks = self.doctor(self.da, B, env=env)
            self.all_on_tcp(checks)
            self.assertIn(f"here, {words}", checks["connection"]["text"])
            self.end(answer)

    def test_no_report_and_no_log(self):
        self.daemons()
        left = pathlib.Path(self.folder.name, "left")
        env = {"VIADUCT_REPORT": str(left), "VIADUCT_LOG": f"debug:{left}"}
        self.answer(self.b, self.db, env=env)
        self.all_on_tcp(self.doctor(self.da, B, env=env))
        self.assertFalse(left.exists())

    def test_one_after_the_other(self):
        self.daemons()
        answer = self.answer(self.b, self.db)
        for _ in range(2):
            self.all_on_tcp(self.doctor(self.da, B))
            self.assertRegex(answer.stdout.readline(), r"^10\.9\.0\.1:\d+ has come\n$")

    def test_the_table(self):
        self.daemons()
        self.answer(self.b, self.db)
        process = self.start(self.a, self.da, B)
        table, errors = process.communicate(timeout=4 * SECONDS)
        self.assertEqual((process.returncode, errors), (1, ""))
        self.assertIn("The way to the other host\n", table)
        lines = re.findall(r"^  (?:ok|note|problem) +(\S+) ", table, re.M)
        self.assertEqual(lines, ALL)
        self.assertIn("9 ok, 0 notes, 3 problems", table)

    @unittest.skipIf(os.path.exists(os.environ.get("LIBDIR", "") + "/libviaduct-preload.so"),
                     "an installed library would be found")
    def test_no_library(self):
        place = pathlib.Path(self.folder.name, "viaduct")
        shutil.copy(PROGRAMS[1], place)
        PROGRAMS[1], kept = str(place), PROGRAMS[1]
        try:
            checks = self.doctor(None, B)
        finally:
            PROGRAMS[1] = kept
        self.problems(checks, "device", "daemon", "answer")
        self.assertIn("no program can be run under Viaduct here: No such file",
                      checks["answer"]["text"])

    def test_the_port_is_taken(self):
        with self.b:
            taken = socket.create_server(("", PORT))
        self.addCleanup(taken.close)
        process = self.start(self.b, None, "--answer")
        _, errors = process.communicate(timeout=SECONDS)
        self.assertEqual(process.returncode, 1)
        self.assertIn(f"port {PORT} cannot be listened at: Address already in use", errors)

    def test_the_answering_one_ends(self):
        """With its parent, however that goes."""
        answer = self.answer()
        answer.kill()
        answer.wait()
        self.assertEqual(answer.stdout.read(), "")  # the child had it open, too
        # A process closes its descriptors one after the other: this one's listener is a later one.
        refused = False
        while not refused:
            with self.b, socket.socket() as s:
                refused = s.connect_ex((B, PORT)) == errno.ECONNREFUSED
        checks = self.doctor(None, B)
        self.assertIn("Connection refused", checks["answer"]["text"])


class Strangers(Doctors):
    """Who comes to the doctor that answers, and is none."""
    def setUp(self):
        super().setUp()
        self.answer()

    def connect(self):
        with self.a:
            peer = socket.create_connection((B, PORT), SECONDS)
        self.addCleanup(peer.close)
        return peer

    def request(self, kind, count, magic=b"VDdoctor", version=1):
        return REQUEST.pack(magic, version, kind, 0, count)

    def ended(self, peer):
        with contextlib.suppress(ConnectionResetError):
            self.assertEqual(peer.recv(1), b"")
        # The next one is served.
        other = self.connect()
        other.sendall(self.request(ECHO, 5) + b"hello")
        self.assertEqual(other.recv(5), b"hello")
        other.close()

    def test_what_makes_no_sense(self):
        for said in (b"GET / HTTP/1.0\r\n\r\n", self.request(9, 0), self.request(ECHO, 65),
                     self.request(GIVE, (256 << 20) + 1), self.request(ECHO, 4, version=2),
                     self.request(ECHO, 4, magic=b"VDdoktor")):
            peer = self.connect()
            peer.sendall(said)
            self.ended(peer)

    def test_looks(self):
        peer = self.connect()
        for _ in range(4):
            peer.sendall(self.request(LOOK, 0))
            self.assertEqual(len(Liars.read(peer, 108)), 108)
        peer.sendall(self.request(LOOK, 0))
        self.ended(peer)

    def test_a_count_of_what_was_right(self):
        peer = self.connect()
        for at in (0, 5, 65520, 65521, 150000, 200000):
            said = bytearray(pattern(200001))
            said[at] ^= 1
            peer.sendall(self.request(TAKE, len(said)) + said)
            self.assertEqual(struct.unpack("<Q", Liars.read(peer, 8)), (at,))
        peer.sendall(self.request(GIVE, 200001))
        self.assertEqual(Liars.read(peer, 200001), pattern(200001))

    def test_silent(self):
        peer = self.connect()
        peer.sendall(b"VDdoc")
        peer.settimeout(SECONDS)
        self.ended(peer)


class Liars(Doctors):
    """Whoever answers on b is ours."""
    def setUp(self):
        super().setUp()
        with self.b:
            self.listener = socket.create_server((B, PORT))
        self.listener.settimeout(SECONDS)
        self.addCleanup(self.listener.close)

    def serve(self, answer):
        def run():
            peer = self.listener.accept()[0]
            with peer, contextlib.suppress(ConnectionError, EOFError):
                answer(peer)
        thread = threading.Thread(target=run)
        thread.start()
        self.addCleanup(thread.join)

    def told(self, answer):
        self.serve(answer)
        return self.doctor(None, B)

    @staticmethod
    def read(peer, count):
        data = b""
        while len(data) < count:
            if not (more := peer.recv(count - len(data))):
                raise EOFError
            data += more
        return data

    def honest(self, peer, **lies):
        """Answers as the other doctor does, but for lies: functions of what it would say."""
        while True:
            magic, version, kind, _, count = REQUEST.unpack(self.read(peer, REQUEST.size))
            self.assertEqual((magic, version), (b"VDdoctor", 1))
            if kind == ECHO:
                name, said = "echo", self.read(peer, count)
            elif kind == TAKE:
                good = self.read(peer, count) == pattern(count)
                self.assertTrue(good)
                name, said = "take", struct.pack("<Q", count)
            elif kind == GIVE:
                name, said = "give", pattern(count)
            else:
                self.assertEqual((kind, count), (LOOK, 0))
                name, said = "look", bytes(108)
            peer.sendall(lies.get(name, bytes)(said))

    def test_honest(self):
        checks = self.told(self.honest)
        self.problems(checks, "device", "daemon", "connection", "device-there")
        self.assertEqual([n for n in ALL if n not in checks], ["relay"])

    def test_another_server(self):
        for said in (b"", b"HTTP/1.0 400 Bad Request\r\n\r\n", bytes(64)):
            checks = self.told(lambda peer, said=said: peer.sendall(said))
            self.problems(checks, "device", "daemon", "answer")
            self.assertEqual(list(checks)[-1], "answer")
            self.assertIn("is not the other doctor", checks["answer"]["text"])

    def test_wrong_bytes(self):
        echoes = []

        def late(said):
            echoes.append(1)
            return flip(said) if len(echoes) > 3 else said

        def flip(said):
            return said[:-7] + bytes([said[-7] ^ 1]) + said[-6:]

        def swap(said):
            return said[:5000] + said[6000:7000] + said[5000:6000] + said[7000:]

        def shift(said):
            return said[1:] + said[:1]
        for name, lie in (("connection", {"echo": late}), ("sending", {"take": flip}),
                          ("receiving", {"give": flip}), ("receiving", {"give": swap}),
                          ("receiving", {"give": shift})):
            checks = self.told(lambda peer, lie=lie: self.honest(peer, **lie))
            self.assertEqual(checks[name]["state"], "problem", name)
            self.assertIn("are not those that were sent", checks[name]["text"])
            self.assertIn("must never be", checks[name]["text"])

    def test_lost(self):
        for name, lie in (("connection", "look"), ("sending", "take"), ("receiving", "give")):
            def end(said):
                raise EOFError
            checks = self.told(lambda peer, lie=lie: self.honest(peer, **{lie: end}))
            self.assertEqual(checks[name]["state"], "problem")
            self.assertIn("the connection was lost", checks[name]["text"])

    def test_a_view_that_is_none(self):
        checks = self.told(lambda peer: self.honest(peer, look=lambda said: b"\x1b" * 108))
        self.assertEqual(checks["device-there"]["value"], "?" * 64)
        self.assertEqual(checks["relay-back"]["state"], "problem")


class Usage(Doctors):
    def test_manual_names_every_check(self):
        manual = pathlib.Path(__file__).resolve().parents[2] / "man/viaduct-doctor.1"
        way = manual.read_text().split("The way to a\n")[1].replace("\\-", "-")
        named = " ".join(re.findall(r"^\.BR? (.*)$", way, re.M))
        for name in ALL:
            self.assertRegex(named, rf'(^|[ "]){name}([ ",]|$)')

    def test_wrong(self):
        for args in (["a", "b"], ["--port", "5"], ["--port", "0", B], ["--port", "65536", B],
                     ["--port", "x", B], ["--answer", B], ["--answer", "--json"], ["--port", "", B]):
            process = self.start(self.a, None, *args)
            stdout, stderr = process.communicate(timeout=SECONDS)
            self.assertEqual((process.returncode, stdout), (2, ""), args)
            self.assertIn("usage: see `viaduct doctor --help`", stderr)


if __name__ == "__main__":
    main(2)
