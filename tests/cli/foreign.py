#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Children of a program under Viaduct whose loader cannot take the library: they run as without
it, on TCP, and the log says why.

usage: foreign.py VIADUCT
"""
import os
import re
import shutil
import subprocess
import sys
import unittest

from bed import Bed

VIADUCT = os.path.abspath(sys.argv[1])
PYTHON = sys.executable
SOURCE = """#include <stdio.h>
#include <stdlib.h>
int main(int n, char **v) {
    const char *p = getenv("LD_PRELOAD"), *o = getenv("OTHER");
    printf("%s %s %d\\n", p ? p : "nothing", o ? o : "-", n);
    return 3; }"""
# Each starts the program by another call; with two words behind its name.
CALLS = {
    "execv": "os.execv(p, [p, 'a'])",
    "execve": "os.execve(p, [p, 'a'], os.environ)",
    "execvp": "os.environ['PATH'] = os.path.dirname(p); os.execvp('program', [p, 'a'])",
    "execve of a descriptor": "os.execve(os.open(p, os.O_RDONLY), [p, 'a'], os.environ)",
    "posix_spawn": "sys.exit(status(os.posix_spawn(p, [p, 'a'], os.environ)))",
    "posix_spawnp": "os.environ['PATH'] = os.path.dirname(p); "
                    "sys.exit(status(os.posix_spawnp('program', [p, 'a'], os.environ)))",
    "system": "sys.exit(os.waitstatus_to_exitcode(os.system(p + ' a')))",
    "vfork": "sys.exit(subprocess.run([p, 'a'], close_fds=False).returncode)",
    "fork": "sys.exit(subprocess.run([p, 'a'], preexec_fn=int).returncode)",
    "syscall": "libc.syscall(59, p.encode(), (ctypes.c_char_p * 3)(p.encode(), b'a', None), "
               "(ctypes.c_char_p * 3)(b'LD_PRELOAD=' + os.environ['LD_PRELOAD'].encode(), "
               "b'OTHER=x', None))",
}
PRELUDE = """import ctypes, os, subprocess, sys
libc = ctypes.CDLL(None)
p = sys.argv[1]
def status(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


class Foreign(Bed):
    def setUp(self):
        super().setUp()
        self.env["OTHER"] = "x"
        self.log = self.tmp / "log"

    def compiled(self, name, *options, compiler="cc"):
        if not shutil.which(compiler):
            self.skipTest(f"{compiler} is missing")
        source = self.tmp / "source.c"
        source.write_text(SOURCE)
        out = self.tmp / name
        subprocess.run([compiler, "-o", out, source, *options], check=True)
        return out

    def program(self):
        """Names a loader as uClibc's, which here is glibc's: so that each machine can run it."""
        program = self.compiled("program",
                                f"-Wl,--dynamic-linker={self.tmp}/ld-uClibc.so.1")
        (self.tmp / "ld-uClibc.so.1").symlink_to("/lib64/ld-linux-x86-64.so.2")
        return program

    def under(self, *command, env=None):
        self.log.unlink(missing_ok=True)
        return subprocess.run([VIADUCT, "run", "--log", f"info:{self.log}", "--",
                               *map(str, command)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
                              timeout=60, env={**self.env, **(env or {})})

    def said(self):
        return self.log.read_text() if self.log.exists() else ""

    def test_each_call(self):
        program = self.program()
        for name, code in CALLS.items():
            with self.subTest(name):
                done = self.under(PYTHON, "-c", PRELUDE + code, program)
                self.assertEqual((done.returncode, done.stdout, done.stderr),
                                 (3, "nothing x 2\n", ""))
                self.assertIn("runs on TCP", self.said())
                self.assertIn("ld-uClibc.so.1", self.said())

    def test_shell(self):
        done = self.under("sh", "-c", f"{self.program()}; exec {self.tmp}/program a b")
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (3, "nothing x 1\nnothing x 3\n", ""))

    def test_script(self):
        script = self.tmp / "script"
        script.write_text(f"#!{self.program()} word\n")
        script.chmod(0o755)
        done = self.under("env", script)
        self.assertEqual((done.returncode, done.stdout), (3, "nothing x 3\n"))

    def test_loader_that_is_executed(self):
        self.program()
        usual = self.compiled("usual")
        done = self.under("env", self.tmp / "ld-uClibc.so.1", usual)
        self.assertEqual((done.returncode, done.stdout), (3, "nothing x 1\n"))

    def test_others_in_the_list_stay(self):
        for given, want in (("libm.so.6", "libm.so.6"),
                            ("libm.so.6 libdl.so.2", "libm.so.6:libdl.so.2"),
                            (":libm.so.6:", "libm.so.6")):
            done = self.under("env", self.program(), env={"LD_PRELOAD": given})
            self.assertEqual((done.returncode, done.stdout), (3, f"{want} x 1\n"))
            (self.tmp / "ld-uClibc.so.1").unlink()

    def test_usual_children_keep_it(self):
        done = self.under("sh", "-c", f"{self.compiled('usual')}; env sh -c {self.tmp}/usual")
        self.assertRegex(done.stdout, r"^(/\S+/libviaduct-preload\.so x 1\n){2}$")
        self.assertNotIn("runs on TCP", self.said())

    def test_what_is_none_fails_as_ever(self):
        for path, want in (("/nonexistent", 127), (self.tmp, 126)):
            self.assertEqual(self.under("sh", "-c", f"{path} 2>/dev/null").returncode, want)

    def test_other_root(self):
        """The library is not to be seen there; glibc's loader would say so on stderr."""
        if os.geteuid() != 0:
            self.skipTest("needs root")
        usual = self.compiled("usual")
        listed = subprocess.run(["ldd", usual], stdout=subprocess.PIPE, text=True, check=True)
        root = self.tmp / "root"
        for file in [str(usual), *re.findall(r"(/\S+) \(", listed.stdout)]:
            to = root / (file if file != str(usual) else "/usual").lstrip("/")
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, to)
        done = self.under("chroot", root, "/usual")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (3, "nothing x 1\n", ""))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
