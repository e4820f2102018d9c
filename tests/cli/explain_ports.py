#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `viaduct explain` of ports: who serves them, and where nobody can say.

usage: explain_ports.py VIADUCT MANUAL STATIC-PROGRAM GO-LIKE-PROGRAM EXPORTS.MAP
"""
import os
import pwd
import socket
import subprocess
import sys
import time
import unittest

from explain_bed import End, Explain, PYTHON, SOME_USERS, TCP, USAGE, VIADUCT


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
        self.assertTrue(self.explain(f":{port}")["accelerated"])
        # Each family has its listener, and one of the two is plain.
        plain = End(self, "other", plain=True)
        plain.do(f"globals().update(l=socket.create_server(('127.0.0.1', {port}))) or 0")
        both = self.explain(f":{port}")
        self.assertFalse(both["accelerated"])
        self.point(both, "plain-peer", "no")
        self.point(both, "listens", "yes")
        self.assertTrue(self.explain(f"[::1]:{port}")["accelerated"])

    def test_address_of_a_link(self):
        def ask(where):
            return subprocess.run(["unshare", "-rn", "sh", "-c", "ip link set lo up && ip "
                                   "addr add fe80::1/64 dev lo nodad && exec $0 explain "
                                   f"{where}", VIADUCT], capture_output=True, text=True, check=False)
        told = ask("[fe80::1%lo]:7001")
        if not told.stdout:
            self.skipTest("no network namespace can be made here")
        self.assertIn("is here, but nobody listens there", told.stdout)
        self.assertIn("is not on this host", ask("[fe80::2%lo]:7001").stdout)
        told = ask("[fe80::1]:7001")
        self.assertEqual((told.returncode, told.stdout), (USAGE, ""))
        self.assertIn("[fe80::1%eth0]:7001", told.stderr)

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
        both = self.explain(f":{port}")
        self.point(both, "no-listener", "no")
        self.assertIn(f"port {port} (IPv4 and IPv6) is here", both["verdict"])

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
        for port in ("0", "65536", "99999", "4294967376", "-1", "+80", " 80", "00000000080",
                     "no-such-service"):
            result = self.run_explain(f"127.0.0.1:{port}")
            self.assertEqual((result.returncode, result.stdout), (USAGE, b""), port)
            self.assertIn(b"no port: these are from 1 to 65535", result.stderr)
        if os.path.exists("/etc/services"):
            self.assertEqual(self.run_explain("127.0.0.1:http").returncode, TCP)

    def test_brackets(self):
        for text in ("[::1]", "[::1:80", "[", "[]", "[:"):
            result = self.run_explain(text)
            self.assertEqual((result.returncode, result.stdout), (USAGE, b""), text)
            self.assertIn(b"[HOST]:PORT for IPv6", result.stderr)

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

    def test_two_listeners_of_another_user(self):
        """What holds for both of a server's sockets is said once."""
        self.root()
        with socket.create_server(("0.0.0.0", 0)) as s:
            port = s.getsockname()[1]
            try:
                six = socket.create_server(("::", port), family=socket.AF_INET6)
            except OSError:
                self.skipTest("no IPv6 here")
            with six:
                for place in (f"127.0.0.1:{port}", f":{port}"):
                    answer = self.explain(place, **self.as_nobody())
                    self.assertEqual([p["name"] for p in answer["points"]], ["hidden"], answer)
        # Under Viaduct: it announces the port.
        s = End(self, "server")
        port = s.do("serve('0.0.0.0')")
        s.do(f"globals().update(six=socket.create_server(('::', {port}), "
             "family=socket.AF_INET6))")
        answer = self.explain(f"127.0.0.1:{port}", **self.as_nobody())
        self.assertEqual([p["name"] for p in answer["points"]], ["listens"], answer)

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


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[6:]])
