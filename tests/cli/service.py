#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `viaduct service`: what it makes of a unit's settings, and the drop-in that it writes and removes.
systemctl's place is taken by a script, and the folder of units by an empty one.

usage: service.py VIADUCT STATIC-PROGRAM
"""
import os
import re
import shutil
import subprocess
import sys
import unittest

from bed import Bed

VIADUCT, STATIC = map(os.path.abspath, sys.argv[1:3])
LIBRARY = os.path.join(os.path.dirname(VIADUCT), "libviaduct-preload.so")
UNITS = "/etc/systemd/system"
REDIS = {"LoadState": "loaded", "PrivateUsers": "yes", "MemoryDenyWriteExecute": "yes",
         "RestrictAddressFamilies": "AF_UNIX AF_INET AF_INET6"}


class Service(Bed):
    def setUp(self):
        super().setUp()
        self.units = self.tmp / "units"
        self.units.mkdir()
        self.inside = ["unshare", "-rm", "sh", "-c", f'mount --bind "$0" {UNITS} && exec "$@"',
                       str(self.units)]
        if not os.path.isdir(UNITS) or subprocess.run([*self.inside, "true"], check=False,
                                                      stderr=subprocess.DEVNULL).returncode:
            self.skipTest("nothing can be mounted here")
        self.file = self.units / "thing.service.d/run-under-viaduct.conf"

    def unit(self, **properties):
        properties.setdefault("LoadState", "loaded")
        start = properties.pop("start", shutil.which("sleep"))
        properties.setdefault("ExecStart", f"{{ path={start} ; argv[]={start} 1 ; ignore_errors=no }}")
        text = "".join(f"{name}={value}\n" for name, value in properties.items())
        script = self.tmp / "systemctl"
        script.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$*\" >{self.tmp}/asked\ncat <<'END'\n{text}END\n")
        script.chmod(0o755)

    def service(self, *args, status=0):
        env = {**self.env, "PATH": f"{self.tmp}:{self.env['PATH']}"}
        result = subprocess.run([*self.inside, VIADUCT, "service", *args], env=env, check=False,
                                capture_output=True, text=True, timeout=60)
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        return " ".join((result.stdout + result.stderr).split())

    def lines(self):
        return [line for line in self.file.read_text().splitlines() if line[:1] != "#"]

    def test_written_and_removed(self):
        self.unit()
        said = self.service("thing")
        self.assertIn("systemctl daemon-reload && systemctl restart thing.service", said)
        self.assertTrue((self.tmp / "asked").read_text().endswith(" thing.service\n"))
        self.assertEqual(self.lines(), ["[Service]", f"Environment=LD_PRELOAD={LIBRARY}"])
        self.assertEqual(self.file.stat().st_mode & 0o777, 0o644)
        self.service("thing.service")  # anew
        self.assertEqual(os.listdir(self.file.parent), [self.file.name])
        self.assertIn("is removed", self.service("--undo", "thing"))
        self.assertEqual(os.listdir(self.units), [])
        self.assertIn("No such file", self.service("thing", "--undo", status=1))

    def test_redis(self):
        """As Debian's unit has it."""
        self.unit(**REDIS)
        said = self.service("thing")
        self.assertEqual(self.lines(), ["[Service]", f"Environment=LD_PRELOAD={LIBRARY}",
                                        "RestrictAddressFamilies=AF_NETLINK"])
        self.assertIn("#PrivateUsers=no\n", self.file.read_text())
        self.assertIn("clients of root alone", said)
        self.assertIn("MemoryDenyWriteExecute=yes does no harm", said)

    def test_lists(self):
        """What is allowed, or not, and words that begin alike."""
        every = ("ftruncate eventfd2 socket bind listen connect accept4 sendto sendmsg recvfrom recvmsg "
                 "getsockopt setsockopt poll mmap mremap fcntl getresuid geteuid getegid rt_sigprocmask "
                 "rt_sigpending rt_tgsigqueueinfo")
        for calls, line in ((f"memfd_create tkill {every}", None),
                            (f"memfd_create2 fork {every} tkill", "memfd_create"),
                            ("~memfd_secret eventfd2:1 kill", "eventfd2"), ("~", None)):
            self.unit(SystemCallFilter=calls, RestrictAddressFamilies="~AF_UNIX AF_PACKET")
            self.service("thing")
            wanted = ["RestrictAddressFamilies=AF_UNIX"]
            if line:
                wanted.append("SystemCallFilter=" + line)
            self.assertEqual(self.lines()[2:], wanted)

    def test_files_out_of_reach(self):
        self.unit(RootDirectory="/srv/root", NoExecPaths="/")
        self.service("thing")
        folder = os.path.dirname(LIBRARY)
        self.assertEqual(self.lines()[2:], [f"BindReadOnlyPaths={folder}", f"ExecPaths={folder}"])

    def test_refused(self):
        """Nothing is written then."""
        for properties, says in (({"Environment": "A=B LD_PRELOAD=/lib/other.so"}, "LD_PRELOAD itself"),
                                 ({"LimitFSIZE": "1048576"}, "no room")):
            self.unit(**properties)
            self.assertIn(says, self.service("thing", status=1))
        self.unit(LimitFSIZE="infinity", LoadState="not-found")
        self.assertIn("no service thing.service", self.service("thing", status=2))
        self.unit(start=STATIC)
        self.assertIn("viaduct explain -- ", self.service("thing", status=126))
        self.unit(ExecStart="")
        self.assertIn("starts no program", self.service("thing", status=1))
        (self.tmp / "systemctl").write_text("#!/bin/sh\nexit 1\n")
        self.assertIn("does not say", self.service("thing", status=1))
        self.assertEqual(os.listdir(self.units), [])

    def test_file_of_somebody_else(self):
        self.unit()
        self.file.parent.mkdir()
        self.file.write_text("[Service]\n")
        for args in (["thing"], ["--undo", "thing"]):
            self.assertIn("not of this command", self.service(*args, status=1))
        self.assertEqual(self.file.read_text(), "[Service]\n")

    def test_command_line(self):
        for args in ([], ["a", "b"], ["a'b"], ["../a"], ["-x"], [""]):
            self.service(*args, status=2)
        self.assertTrue(re.match("usage: viaduct service NAME", self.service("--help")))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
