#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The variables by which a program runs under Viaduct survive an exec with an environment that is
replaced as a whole, as nginx does at USR2, and not one from which they are taken by name.

usage: kept.py VIADUCT
"""
import os
import shutil
import subprocess
import sys
import unittest

VIADUCT = os.path.abspath(sys.argv[1])
SHOW = "import os; print('LD_PRELOAD' in os.environ, os.environ.get('VIADUCT_UPGRADE_AFTER'), " \
       "os.environ.get('OTHER'))"
HAS, HAS_NOT = "True 7 x", "False None x"
# Each starts a program with the environment `e` by another call.
CALLS = {
    "execve": "os.execve(p, a, e)",
    "execve of a descriptor": "os.execve(os.open(p, os.O_RDONLY), a, e)",
    "execvpe": "os.execvpe('python3', a, e)",
    "posix_spawn": "os.waitpid(os.posix_spawn(p, a, e), 0)",
    "posix_spawnp": "os.waitpid(os.posix_spawnp(p, a, e), 0)",
    "fork": "subprocess.run(a, env=e, preexec_fn=int)",
    "vfork": "subprocess.run(a, env=e)",
}
PRELUDE = f"""import os, subprocess, sys
p, a = os.path.realpath(sys.executable), ["python3", "-c", {SHOW!r}]
ours = {{k: v for k, v in os.environ.items() if k == "LD_PRELOAD" or k.startswith("VIADUCT")}}
"""


class Kept(unittest.TestCase):
    def run_under(self, program, *options, **variables):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("VIADUCT")}
        return subprocess.run([VIADUCT, "run", "--upgrade-after", "7", *options, "--",
                               sys.executable, "-c", PRELUDE + program],
                              env=dict(environment, **variables), stdout=subprocess.PIPE,
                              text=True, timeout=60, check=True).stdout.strip()

    def test_a_new_environment(self):
        for name, call in CALLS.items():
            with self.subTest(name):
                self.assertEqual(self.run_under(f"e = {{'OTHER': 'x'}}; {call}"), HAS)

    def test_one_more_time(self):
        again = f"import os, sys; os.execve({os.path.realpath(sys.executable)!r}, " \
                f"['python3', '-c', {SHOW!r}], {{'OTHER': 'x'}})"
        # The second time the little that was there at the start goes along: that shows nothing.
        for first in ("{'OTHER': 'x'}", "{'PATH': '/usr/bin', 'A': 'b'}", "{}"):
            self.assertEqual(self.run_under(f"a[2] = {again!r}; os.execve(p, a, {first})"), HAS)

    def test_by_name(self):
        for name, call in CALLS.items():
            with self.subTest(name):
                program = "e = {k: v for k, v in os.environ.items() if k not in ours}; " \
                          f"e['OTHER'] = 'x'; {call}"
                self.assertEqual(self.run_under(program), HAS_NOT)

    def test_unset(self):
        self.assertEqual(self.run_under("[os.environ.pop(k) for k in ours]; "
                                        "os.environ['OTHER'] = 'x'; os.execv(p, a)"), HAS_NOT)

    def test_switched_off(self):
        self.assertEqual(self.run_under("os.execve(p, a, {'OTHER': 'x', 'VIADUCT': 'off'})"),
                         HAS_NOT)

    def test_tools(self):
        if not shutil.which("env"):
            self.skipTest("env is missing")
        show = "['sh', '-c', 'echo ${LD_PRELOAD:+has}']"
        self.assertEqual(self.run_under(f"os.execvp('env', ['env', '-i', *{show}])"), "has")
        self.assertEqual(self.run_under(f"os.execvp('env', ['env', '-u', 'LD_PRELOAD', *{show}])"),
                         "")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
