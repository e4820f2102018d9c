#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Completion offers what --help names, in each shell that is there.

usage: completion.py VIADUCT FOLDER
"""
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

VIADUCT, FOLDER = map(os.path.abspath, sys.argv[1:3])
ENV = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and k[:7] != "VIADUCT"}
ENV["PATH"] = os.path.dirname(VIADUCT) + ":" + ENV["PATH"]
ENV["LC_ALL"] = "C.UTF-8"


def script(name):
    return os.path.join(FOLDER, f"viaduct.{name}")


def output(argv):
    return subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=60, check=True, text=True,
                          env=ENV, cwd="/").stdout


def commands():
    return set(re.findall(r"^  ([a-z]\S*)  ", output([VIADUCT, "--help"]), re.M))


def options(command):
    return set(re.findall(r"^ +(?:-\w,? )?(--[\w-]+)", output([VIADUCT, command, "--help"]),
                          re.M))


class Shell:
    """What each shell must do; complete(words) gives the words offered for the last one."""

    def test_commands(self):
        self.assertLessEqual({"run", "bench", "doctor"}, commands())
        for name in commands():
            self.assertEqual(self.complete(name), {name})
        self.assertLessEqual(commands(), self.complete(""))
        self.assertEqual(self.complete("--ver"), {"--version"})

    def test_help_of_a_command(self):
        self.assertLessEqual(commands(), self.complete("help", ""))
        self.assertEqual(self.complete("help", "ru"), {"run"})

    def test_options(self):
        self.assertIn("--upgrade-after", options("run"))
        for name in commands():
            self.assertEqual(self.complete(name, "--"), options(name), name)

    def test_options_after_others(self):
        for before in (["--off"], ["--spin", "5"], ["--log", "debug"]):
            self.assertEqual(self.complete("run", *before, "--up"), {"--upgrade-after"})

    def test_listed_values(self):
        values = self.complete("bench", "--over", "")
        self.assertLessEqual({"tcp", "viaduct", "tcp-spin", "unix", "floor"}, values)
        text = output([VIADUCT, "bench", "--help"]).split("--over")[1].split("  --")[0]
        self.assertLessEqual(values, set(re.findall(r"[\w-]+", text)) - {"of", "and", "where"})
        self.assertEqual(self.complete("bench", "--over", "tcp,fl"), {"tcp,floor"})
        self.assertIn("plain-stream", self.complete("bench", "--patterns", "plain"))

    def test_other_values_are_accepted(self):
        for option in ("--log", "--ring-max"):
            values = self.complete("run", option, "")
            self.assertGreater(len(values), 2)
            for value in values:
                output([VIADUCT, "run", option, value, "--tcp-anyway", "true"])
        help_text = output([VIADUCT, "bench", "--help"])
        for value in self.complete("bench", "--placement", ""):
            self.assertRegex(help_text, rf"--placement.*\b{value}\b")

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a-report")
            open(path, "w").close()
            self.assertEqual(self.complete("run", "--report", path[:-3]), {path})

    def test_hosts(self):
        with open("/etc/hosts", encoding="utf-8") as f:
            if not re.search(r"\slocalhost\b", f.read()):
                self.skipTest("/etc/hosts has no localhost")
        for before in ([], ["--json"], ["--port", "5"]):
            self.assertIn("localhost", self.complete("doctor", *before, "localh"), before)

    def test_programs(self):
        for before in ([], ["--"], ["--off"], ["--log", "off"], ["--log", "off", "--"]):
            self.assertIn("python3", self.complete("run", *before, "pytho"), before)

    def test_no_command_there(self):
        self.assertEqual(self.complete("", command="no-viaduct") &
                         {"run", "bench", "doctor"}, set())


class Bash(Shell, unittest.TestCase):
    # As readline does it; -o default is files, and compopt works only in readline.
    CALL = """
        source "$1"; shift
        compopt() { files=1; }
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) files=
        _viaduct
        [[ $files ]] && mapfile -t COMPREPLY < <(compgen -f -- "${@: -1}")
        (IFS=$'\\n'; echo "${COMPREPLY[*]}")
    """

    def complete(self, *words, command="viaduct"):
        return set(output(["bash", "--norc", "-c", self.CALL, "bash", script("bash"), command,
                           *words]).split())

    def test_equals_sign(self):
        self.assertEqual(self.complete("run", "--log", "=", "inf"), {"info"})
        self.assertIn("debug", self.complete("run", "--log", "="))


class Fish(Shell, unittest.TestCase):
    def setUp(self):
        if not shutil.which("fish"):
            self.skipTest("fish is not installed")

    def complete(self, *words, command="viaduct"):
        line = " ".join([command, *map(shlex.quote, words[:-1]), words[-1]])
        code = f"source {script('fish')}; complete -C {shlex.quote(line)}"
        with tempfile.TemporaryDirectory() as home:
            found = output(["env", f"HOME={home}", "fish", "-N", "-c", code])
        return {line.split("\t")[0] for line in found.splitlines()}


class Zsh(unittest.TestCase):
    """Its completion needs a terminal: what is given to its own functions is looked at."""
    CALL = """
        _call_program() { shift; eval "$*" }
        _describe() { print -rl -- ${(P)4} }
        viaduct_command=viaduct viaduct_specs=()
        eval "$1"
        if [[ -n $2 ]]; then
            _viaduct_specs $2
            print -rl -- $viaduct_specs
        else
            _viaduct_commands
        fi
    """

    def setUp(self):
        if not shutil.which("zsh"):
            self.skipTest("zsh is not installed")

    def test_syntax(self):
        output(["zsh", "-n", script("zsh")])

    def given(self, command=""):
        with open(script("zsh"), encoding="utf-8") as f:
            text = f.read().replace('_viaduct "$@"\n', "")  # the call at its end
        return output(["zsh", "-f", "-c", self.CALL, "zsh", text, command]).splitlines()

    def test_commands(self):
        self.assertEqual({line.split(":")[0] for line in self.given()}, commands())

    def test_options(self):
        for name in commands():
            found = self.given(name)
            names = {line.split("[")[0] for line in found}
            self.assertEqual({n for n in names if n[:2] == "--"}, options(name))
            for line in found:
                self.assertRegex(line, r"^--?[\w-]+\[.*\](:.+)?$")

    def test_values(self):
        specs = {line.split("[")[0]: line for line in self.given("bench")}
        self.assertIn(":_sequence compadd - rtt rtt-spin", specs["--patterns"])
        self.assertIn("plain-stream", specs["--patterns"])
        self.assertTrue(specs["--json"].endswith(":_files"))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[3:]])
