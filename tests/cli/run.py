#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `viaduct run`: what reaches the program, and what is refused before it starts.

usage: run.py VIADUCT STATIC-PROGRAM GO-LIKE-PROGRAM
"""
import json
import os
import pathlib
import re
import shutil
import signal
import stat
import struct
import subprocess
import sys
import unittest

from bed import Bed

VIADUCT, STATIC, GO_LIKE = map(os.path.abspath, sys.argv[1:4])
PYTHON = sys.executable
RULES = ("deny port=80", "allow program=redis-*; deny role=accept")
USAGE, REFUSED, NOT_FOUND = 2, 126, 127


class Run(Bed):
    def run_viaduct(self, *args, **options):
        options.setdefault("env", self.env)
        options.setdefault("cwd", self.tmp)
        return subprocess.run([VIADUCT, "run", *map(str, args)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, encoding="utf-8",
                              errors="replace", timeout=60, **options)

    def ok(self, *args, **options):
        result = self.run_viaduct(*args, **options)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def python(self, code, *options, **more):
        return self.ok(*options, "--", PYTHON, "-c", code, **more).strip()

    def variable(self, name, *options, **more):
        return self.python(f"import os; print(os.environ.get('{name}'))", *options, **more)

    def refused(self, status, *args, says=(), **options):
        result = self.run_viaduct(*args, **options)
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertEqual(result.stdout, "")
        for text in says:
            self.assertIn(text, result.stderr)
        return result.stderr

    def file(self, name, text, mode=0o755):
        path = self.tmp / name
        path.write_text(text)
        path.chmod(mode)
        return path


class Passing(Run):
    def test_exit_status(self):
        for status in (0, 1, 3, 255):
            result = self.run_viaduct("--", "sh", "-c", f"exit {status}")
            self.assertEqual(result.returncode, status)

    def test_death_by_signal(self):
        result = self.run_viaduct("--", "sh", "-c", "kill -TERM $$")
        self.assertEqual(result.returncode, -signal.SIGTERM)

    def test_no_wrapper_is_left(self):
        # The process that was started is the program itself: same pid, same parent.
        code = "import os; print(os.getpid(), os.getppid()); input()"
        with subprocess.Popen([VIADUCT, "run", "--", PYTHON, "-c", code], env=self.env,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True) as p:
            self.assertEqual(p.stdout.readline().split(), [str(p.pid), str(os.getpid())])
            p.send_signal(signal.SIGKILL)
            self.assertEqual(p.wait(), -signal.SIGKILL)

    def test_arguments(self):
        args = ["a b", "", "--help", "-x", "'\"$HOME\\", "ä\n"]
        out = self.ok("--", PYTHON, "-c", "import sys, json; print(json.dumps(sys.argv[1:]))",
                      *args)
        self.assertEqual(json.loads(out), args)

    def test_the_program_ends_the_options(self):
        self.assertEqual(self.ok("echo", "--off", "--spin"), "--off --spin\n")

    def test_library_is_preloaded(self):
        self.assertIn("libviaduct-preload.so", self.python("print(open('/proc/self/maps').read())"))

    def test_children_are_preloaded(self):
        self.assertIn("libviaduct-preload.so",
                      self.ok("--", "sh", "-c", "sh -c 'cat /proc/self/maps'"))

    def test_preload_is_put_before_an_existing_one(self):
        env = dict(self.env, LD_PRELOAD="libm.so.6")
        preload = self.variable("LD_PRELOAD", env=env)
        self.assertRegex(preload, r"^/.*/libviaduct-preload\.so:libm\.so\.6$")

    def test_preload_is_set_once(self):
        out = self.ok("--", VIADUCT, "run", "--", "printenv", "LD_PRELOAD")
        self.assertRegex(out, r"^[^:]*/libviaduct-preload\.so$")

    def test_script(self):
        self.file("inner", "#!/bin/sh\necho inner $0 $1\n")
        outer = self.file("outer", f"#!{self.tmp}/inner x\n")
        self.assertIn("inner", self.ok("--", outer))
        self.assertEqual(self.ok("--", self.file("plain", "echo plain\n")), "plain\n")

    def test_program_in_path(self):
        self.file("only-here", "#!/bin/sh\necho found\n")
        env = dict(self.env, PATH=f"/nonexistent:{self.tmp}:{self.env['PATH']}")
        self.assertEqual(self.ok("only-here", env=env), "found\n")


class Settings(Run):
    def test_each_sets_its_variable(self):
        log = str(self.tmp / "log")
        for options, name, want in (
                (["--off"], "VIADUCT", "off"),
                (["--spin", "20"], "VIADUCT_SPIN", "20"),
                (["--ring-max", "256K"], "VIADUCT_RING_MAX", "262144"),
                (["--ring-max=4m"], "VIADUCT_RING_MAX", "4194304"),
                (["--redirect", "64K"], "VIADUCT_REDIRECT", "64K"),
                (["--redirect=off"], "VIADUCT_REDIRECT", "off"),
                (["--registration", "check"], "VIADUCT_REGISTRATION", "check"),
                (["--io-uring", "leave"], "VIADUCT_IO_URING", "leave"),
                (["--io-uring=refuse"], "VIADUCT_IO_URING", "refuse"),
                (["--go", "follow"], "VIADUCT_GO", "follow"),
                (["--go=leave"], "VIADUCT_GO", "leave"),
                (["--static", "follow"], "VIADUCT_STATIC", "follow"),
                (["--upgrade-after", "0"], "VIADUCT_UPGRADE_AFTER", "0"),
                (["--log", f"debug:{log}"], "VIADUCT_LOG", f"debug:{log}"),
                (["--log", "off"], "VIADUCT_LOG", "off")):
            self.assertEqual(self.variable(name, *options), want)
            self.assertEqual(self.variable(name), "None")

    def test_rings_by_bare_system_calls(self):
        """Refused as by a kernel without io_uring, where connections can leave TCP."""
        code = ("import ctypes, errno; c = ctypes.CDLL(None, use_errno=True).syscall; "
                "print([(r := c(*a)) < 0 and errno.errorcode[ctypes.get_errno()] for a in "
                "((425, 4, ctypes.create_string_buffer(120)), (426, 0, 0, 0, 0, 0, 0), "
                "(427, 0, 0, 0, 0))])")
        plain = subprocess.run([PYTHON, "-c", code], stdout=subprocess.PIPE,
                               stdin=subprocess.DEVNULL, text=True, check=True).stdout
        if "ENOSYS" in plain or "EPERM" in plain:
            self.skipTest("no io_uring here")
        refused = "['ENOSYS', 'ENOSYS', 'ENOSYS']\n"
        for options, want in (([], refused), (["--io-uring", "refuse"], refused),
                              (["--io-uring", "leave"], plain), (["--off"], plain),
                              (["--rules", "deny"], plain),
                              (["--rules", "deny program=nothing"], refused),
                              (["--rules", "deny port=1"], refused)):
            self.assertEqual(self.ok(*options, "--", PYTHON, "-c", code), want, options)

    def test_files_become_absolute(self):
        self.assertEqual(self.variable("VIADUCT_REPORT", "--report", "r.json", cwd=self.tmp),
                         f"{self.tmp}/r.json")
        self.assertEqual(self.variable("VIADUCT_LOG", "--log", "info:l", cwd=self.tmp),
                         f"info:{self.tmp}/l")

    def test_bad_values(self):
        for options in (["--spin", "fast"], ["--spin", "-1"], ["--spin", ""],
                        ["--spin", "1000001"], ["--spin", "10us"],
                        ["--ring-max", "1"], ["--ring-max", "2G"], ["--ring-max", "9999999M"],
                        ["--registration", "never"], ["--io-uring", "on"], ["--io-uring", ""],
                        ["--upgrade-after", "x"], ["--upgrade-after", "1000000001"],
                        ["--log", "loud"], ["--log", "info:/nonexistent/log"],
                        ["--report", ""], ["--report", "/nonexistent/report"],
                        ["--report", "/tmp"], ["--rule", "perhaps"]):
            said = self.refused(USAGE, *options, "--", "echo", "started",
                                says=[f"{options[0]} cannot be `{options[1]}`: "])
            self.assertEqual(said.splitlines()[1:], ["usage: see `viaduct run --help`"])

    def test_long_value(self):
        """It is cut, so that what is wrong with it is seen."""
        said = self.refused(USAGE, "--rules", "deny port=1;" * 300, "--", "true",
                            says=["...`: ", "more than 256 rules"])
        self.assertLess(len(said), 500)

    def test_one_range_for_option_and_variable(self):
        """What one takes, the other takes, and for the same."""
        for option, values in (
                ("spin", ("0", "1000000", "1000001", "-1", "x", "auto", "10us")),
                ("ring-max", ("16K", "16383", "100K", "4M", "1G", "1025M", "2G", "64g", "K")),
                ("upgrade-after", ("0", "1000000000", "1000000001", "")),
                ("redirect", ("off", "1", "0", "1G", "2G", "64K", "64KB")),
                ("profile", ("latency", "fast")), ("io-uring", ("leave", "no")),
                ("registration", ("keep", "check", "once", "off")),
                ("log", ("off", "loud"))):
            variable = "VIADUCT_" + option.upper().replace("-", "_")
            for value in filter(None, values):
                by_option = self.run_viaduct(f"--{option}", value, "--", "true")
                by_variable = self.run_viaduct("--", "true", env={**self.env, variable: value})
                self.assertEqual(by_variable.returncode, 0, by_variable.stderr)
                refused = by_option.returncode == USAGE
                said = by_variable.stderr
                self.assertEqual(refused, " is allowed" in said, (option, value, said))
                self.assertEqual(not by_option.stderr, not said, (option, value))
                self.assertLessEqual(said.count("\n"), 1)
                seen = subprocess.run([VIADUCT, "config", "--check"], stderr=subprocess.PIPE,
                                      text=True, env={**self.env, variable: value})
                self.assertEqual(refused, seen.returncode == 1, (option, value))

    def test_rounding_is_said(self):
        for size, taken in (("100K", 16), ("262143", 16), ("1M", 256), ("1G", 4096)):
            says = f"rings have 16K, 256K or 4M, so {taken}K is taken\n"
            result = self.run_viaduct("--ring-max", size, "--", "printenv", "VIADUCT_RING_MAX")
            self.assertEqual(result.stdout, f"{taken << 10}\n")
            self.assertEqual(result.stderr, f"viaduct run: --ring-max {size}: {says}")
            result = self.run_viaduct("--", "true", env={**self.env, "VIADUCT_RING_MAX": size})
            self.assertEqual(result.stderr, f"viaduct run: VIADUCT_RING_MAX={size}: {says}")

    def warned(self, says, **env):
        """One line on stderr, and the program runs all the same."""
        result = self.run_viaduct("--", "echo", "ran", env={**self.env, **env})
        self.assertEqual((result.returncode, result.stdout), (0, "ran\n"))
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        name = next(iter(env))
        self.assertTrue(result.stderr.startswith(f"viaduct run: {name}="), result.stderr)
        self.assertIn(says, result.stderr)

    def test_wrong_variables_are_said(self):
        for name, value, says in (
                ("VIADUCT_SPIN", "fast", "or auto, is allowed; it is skipped"),
                ("VIADUCT_RULES", "deny port=x", "; every connection stays on TCP"),
                ("VIADUCT_RULES", "deny port=1;" * 300, "more than 256 rules"),
                ("VIADUCT_RULES", "deny\n\x1b[2J", "; every connection stays on TCP"),
                ("VIADUCT_LOG", "loud", "; errors alone are logged"),
                ("VIADUCT_LOG", "info:", "; the log goes to its usual file"),
                ("VIADUCT_LOG", f"info:{self.tmp}/none/log", f"no folder {self.tmp}/none"),
                ("VIADUCT_REPORT", f"{self.tmp}", "is a folder"),
                ("VIADUCT", "offf", "on or off is allowed; every connection stays on TCP"),
                ("VIADUCT", "/usr/bin/viaduct", "on or off is allowed; it is skipped")):
            self.warned(says, **{name: value, "TMPDIR": str(self.tmp), "XDG_RUNTIME_DIR": ""})
        for name, meant in (("VIADUCT_SPIM", "VIADUCT_SPIN"), ("VIADUCT_RULE", "VIADUCT_RULES"),
                            ("VIADUCT_RIGN_MAX", "VIADUCT_RING_MAX"),
                            ("VIADUCT_REPORTS", "VIADUCT_REPORT")):
            self.warned(f"{name}=1: there is no such variable; did you mean {meant}?",
                        **{name: "1"})
        self.warned("no folder /nonexistent", VIADUCT_LOG="debug",
                    XDG_RUNTIME_DIR="/nonexistent")

    def test_right_variables_are_not(self):
        self.ok("--", "true", env={**self.env, "VIADUCT_SPIN": "5", "VIADUCT_RULES": "deny",
                                   "VIADUCT_LOG": f"info:{self.tmp}/%p",
                                   "VIADUCT_REPORT": f"{self.tmp}/r", "VIADUCT": "",
                                   # Another's, as Kubernetes makes for a service of that name.
                                   "VIADUCT_PORT": "tcp://10.0.0.1:80"})

    def test_why_a_file_cannot_be_written(self):
        plain, closed = self.file("plain", ""), self.tmp / "closed"
        closed.mkdir(0o755)
        (closed / "file").touch(0o644)
        cases = [(f"{self.tmp}/none/file", f"there is no folder {self.tmp}/none"),
                 (f"{self.tmp}/none/", f"there is no folder {self.tmp}/none"),
                 (f"{self.tmp}", f"{self.tmp} is a folder"),
                 (f"{plain}/file", f"{plain} cannot be reached: Not a directory")]
        options = {}
        other = [(f"{closed}/file", f"may not write to {closed}/file"),
                 (f"{closed}/new", f"may not write to the folder {closed}")]
        if os.getuid() != 0:
            closed.chmod(0o555)
            (closed / "file").chmod(0o444)
            cases += other
        for path, says in cases:
            self.refused(USAGE, "--report", path, "--", "echo", says=[says])
            self.refused(USAGE, "--log", f"info:{path}", "--", "echo", says=[says])
        if os.getuid() == 0:
            viaduct = self.tmp / "viaduct"  # the build folder may be closed to others
            for name in ("viaduct", "libviaduct-preload.so"):
                shutil.copy(os.path.join(os.path.dirname(VIADUCT), name), self.tmp / name)
            for path, says in other:
                result = subprocess.run(
                    [viaduct, "run", "--report", path, "--", "echo"], user=65534,
                    group=65534, extra_groups=[], stderr=subprocess.PIPE, text=True,
                    env=self.env, cwd=self.tmp)
                self.assertEqual(result.returncode, USAGE)
                self.assertIn(f"user 65534 {says}", result.stderr)
        for options in (["--report", "r"], ["--log", "info:l"], ["--config", "c"]):
            (gone := self.tmp / "gone").mkdir()
            self.refused(USAGE, *options, "--", "echo", cwd=gone, preexec_fn=gone.rmdir,
                         says=["the current folder cannot be told: No such file"])

    def test_many_mistakes(self):
        conf = self.file("conf", "deny port=1\n" * 300, 0o600)
        said = self.refused(USAGE, "--config", conf, "--", "echo").splitlines()
        self.assertEqual(len(said), 1, said)
        self.assertIn(f"{conf}:257: character 1: more than 256 rules", said[0])
        conf.write_text("denny port=1\n" * 300)
        said = self.refused(USAGE, "--config", conf, "--", "echo").splitlines()
        self.assertEqual(len(said), 11, said)
        self.assertIn("290 mistakes more: `viaduct config --check` lists all", said[-1])
        log = self.tmp / "log"
        self.ok("--log", f"error:{log}", "--", "sh", "-c", f"VIADUCT_CONFIG={conf} true; "
                f"VIADUCT_CONFIG={conf} cat /dev/null")
        self.assertEqual(len(log.read_text().splitlines()), 11)

    def test_rules_add_up(self):
        rule, more = RULES
        self.assertEqual(self.variable("VIADUCT_RULES", "--rule", rule, "--rules", more,
                                       "--rule", rule), f"{rule};{more};{rule}")

    def test_bad_usage(self):
        see = "see `viaduct run --help`"
        for args, says in (([], "no program was named"),
                           (["--nonsense", "--", "echo"], "--nonsense"), (["--spin"], "spin"),
                           # Not the beginning of --off: nothing is guessed.
                           (["--of", "--", "echo"], "--of"),
                           (["--spin", "5", "--up=3", "--", "echo"], "--up=3")):
            said = self.refused(USAGE, *args, says=[says, see]).splitlines()
            self.assertEqual(len(said), 2, said)

    def test_help(self):
        out = self.ok("--help")
        for option in ("--off", "--log", "--spin", "--ring-max", "--upgrade-after", "--rule",
                       "--rules", "--report", "--tcp-anyway", "--summary"):
            self.assertIn(option + " ", out)

    def test_report_of_what_does_not_come_by(self):
        report = self.tmp / "report"
        self.refused(REFUSED, "--report", report, "--", GO_LIKE, says=["in Go", "Go 1.19"])
        self.refused(REFUSED, "--go", "leave", "--", GO_LIKE, says=["in Go"])
        # A child of somebody else's.
        self.ok("--report", report, "--", "sh", "-c", f"{GO_LIKE}; exit 0")
        lines = [json.loads(line) for line in report.read_text().splitlines()]
        self.assertEqual([line["reasons"] for line in lines], [{"raw-system-calls": 1}, {}])

    def test_little_address_space(self):
        report, log = self.tmp / "report", self.tmp / "log"
        limit = ["prlimit", f"--as={60 << 20}", "cat", "/dev/null"]
        self.ok("--report", report, "--log", f"error:{log}", "--", *limit)
        lines = [json.loads(line) for line in report.read_text().splitlines()]
        self.assertEqual(lines[-1]["reasons"], {"memory": 1})
        self.assertIn("everything stays on TCP: memory", log.read_text())

    def test_report(self):
        report = self.tmp / "report with a space"
        self.ok("--report", report, "--", "sh", "-c", "cat /dev/null; exit 0")
        lines = [json.loads(line) for line in report.read_text().splitlines()]
        self.assertEqual(sorted(os.path.basename(l["program"]) for l in lines),
                         ["cat", "sh"])
        for line in lines:
            for field in ("pid", "connections", "upgraded", "downgraded", "tx_direct_bytes",
                          "rx_direct_bytes", "tx_rdma_bytes", "rx_rdma_bytes", "tx_tcp_bytes", "rx_tcp_bytes", "doorbells",
                          "sleeps", "redirects", "zero_copies", "pinned_bytes"):
                self.assertIsInstance(line[field], int, field)
            self.assertIsNone(line["native"])
            self.assertIsInstance(line["reasons"], dict)


# Both ends of a connection, and a status.
ENDS = """
import socket, sys
l = socket.create_server(("127.0.0.1", 0))
c = socket.create_connection(l.getsockname())
s = l.accept()[0]
for i in range(100):
    for a, b in ((c, s), (s, c)):
        a.sendall(b"x")
        assert b.recv(1) == b"x"
print("through")
sys.exit(3)
"""


class Summary(Run):
    def summary(self, *options, code=ENDS):
        (self.tmp / "t").mkdir()
        result = self.run_viaduct("--summary", *options, "--", PYTHON, "-c", code,
                                  env={**self.env, "TMPDIR": str(self.tmp / "t")})
        self.assertEqual(os.listdir(self.tmp / "t"), [])
        (self.tmp / "t").rmdir()
        return result

    def test_paths(self):
        result = self.summary("--upgrade-after", 0)
        self.assertEqual((result.returncode, result.stdout), (3, "through\n"))
        self.assertRegex(result.stderr, r"\Aviaduct run: \S+: 2 of 2 connections went direct, "
                         r"with [1-9][0-9.]* % of their bytes\n\Z")
        result = self.summary("--rule", "deny")
        self.assertEqual((result.returncode, result.stdout), (3, "through\n"))
        first, reason = result.stderr.splitlines()
        self.assertIn(": 2 of 2 connections stayed on TCP: rule", first)
        self.assertRegex(reason, r"^on TCP   rule, 2: .*; change the rule")

    def test_one_report(self):
        self.refused(USAGE, "--summary", "--report", self.tmp / "r", "--", "true",
                     says=["leave"])

    def test_end_by_signal(self):
        result = self.summary(code="import os; os.kill(os.getpid(), 9)")
        self.assertEqual(result.returncode, 128 + signal.SIGKILL)
        self.assertIn("no report", result.stderr)

    def test_signals_are_passed_on(self):
        code = ("import signal\nprint('up', flush=True)\n"
                "print(signal.sigwait([signal.SIGUSR1]), flush=True)\nsignal.pause()")
        code = "import signal; signal.pthread_sigmask(0, [signal.SIGUSR1])\n" + code
        with subprocess.Popen([VIADUCT, "run", "--summary", "--", PYTHON, "-c", code],
                              env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as process:
            self.assertEqual(process.stdout.readline(), "up\n")
            process.send_signal(signal.SIGUSR1)
            self.assertIn("10", process.stdout.readline())
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM)

    def test_ignored_children(self):
        """Who has started it may ignore the end of its children."""
        ignores = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); " \
                  "os.execv(sys.argv[1], sys.argv[1:])"
        result = subprocess.run([PYTHON, "-c", ignores, VIADUCT, "run", "--summary", "--", PYTHON,
                                 "-c", "import signal; print(int(signal.getsignal(signal.SIGCHLD))); exit(5)"],
                                env=self.env, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(result.returncode, 5, result.stderr)
        self.assertEqual(result.stdout, "1\n")


class Refusals(Run):
    def test_not_found(self):
        self.refused(NOT_FOUND, "no-such-program", says=["no-such-program", "PATH"])
        self.refused(NOT_FOUND, "/nonexistent/program", says=["/nonexistent/program"])

    def test_not_executable(self):
        fifo, link, loop = self.tmp / "fifo", self.tmp / "link", self.tmp / "loop"
        os.mkfifo(fifo, 0o755)
        link.symlink_to("none")
        loop.symlink_to("loop")
        data = self.file("data", "x", 0o644)
        for path, status, why in (
                (data, REFUSED, "cannot be executed: make it an executable file"),
                (self.tmp, REFUSED, "cannot be executed: it is a folder"),
                (fifo, REFUSED, "cannot be executed: it is no regular file"),
                (link, NOT_FOUND, "it is a symbolic link to a file that is missing"),
                (loop, NOT_FOUND, "its symbolic links lead in a circle")):
            self.refused(status, path, says=[str(path), why])
            explained = subprocess.run([VIADUCT, "explain", "--", path], env=self.env,
                                       stderr=subprocess.PIPE, text=True, check=False)
            self.assertEqual(explained.returncode, USAGE)
            self.assertIn(why, explained.stderr)

    def test_closed_folder_in_path(self):
        """As root's folders are in a PATH that su(1) has kept: no file there is to be made executable."""
        if os.getuid() != 0:
            self.skipTest("needs root")
        closed = self.tmp / "closed"
        closed.mkdir(0o700)
        self.tmp.chmod(0o755)
        nobody = {"user": 65534, "group": 65534, "extra_groups": []}
        env = {**self.env, "PATH": f"{closed}:{self.env['PATH']}"}
        said = self.refused(REFUSED, "no-such-program", env=env, cwd="/", **nobody)
        self.assertEqual(said, "viaduct run: there is no program `no-such-program` in those folders "
                               "of PATH that this user may enter: check the name and PATH\n")
        self.refused(REFUSED, closed / "x", cwd="/", **nobody,
                     says=["this user may not enter a folder on the way to it"])

    def test_static(self):
        self.refused(REFUSED, STATIC, says=[STATIC, "statically linked", "--tcp-anyway"])

    def test_remedies_fit(self):
        """Each says what to do about it, and none to use another program."""
        for program, says in ((STATIC, "linked dynamically"), (GO_LIKE, "Nothing to do")):
            self.assertIn(says, self.refused(REFUSED, program, says=["--tcp-anyway"]))

    def test_missing_interpreter(self):
        says = "its interpreter is missing: there is no `%s`"
        for name, first, missing in (
                ("script", "#!/nonexistent/python3 -x", "/nonexistent/python3"),
                ("by-env", "#!/usr/bin/env no-such-python", "no-such-python"),
                ("by-env-s", "#!/usr/bin/env -S no-such-python -x", "no-such-python"),
                ("windows", "#!/bin/sh\r", "/bin/sh\\r")):
            script = self.file(name, first + "\necho started\n")
            said = self.refused(NOT_FOUND, script, says=[str(script), says % missing])
            self.assertEqual(said.count("\n"), 1)
            self.assertEqual("dos2unix" in said, name == "windows")
        outer = self.file("outer", f"#!{self.tmp}/script\n")
        self.refused(NOT_FOUND, outer, says=[says % "/nonexistent/python3"])
        elf, loader = pathlib.Path("/bin/true").read_bytes(), b"/lib64/ld-linux-x86-64.so.2"
        program = self.tmp / "elf"
        program.write_bytes(elf.replace(loader, b"/nonex/ld-linux-x86-64.so.2", 1))
        program.chmod(0o755)
        self.refused(NOT_FOUND, program, says=[says % "/nonex/ld-linux-x86-64.so.2"])
        # Not for another C library, or for 32 bits, either: --tcp-anyway would not start it.
        program.write_bytes(elf.replace(loader, b"/nonex/ld-of-another-libc.1", 1))
        self.refused(NOT_FOUND, program, says=[says % "/nonex/ld-of-another-libc.1"])
        head = struct.pack("<16sHHIIIIIHHHHHH", b"\x7fELF\1\1\1", 2, 3, 1, 0, 52, 0, 0, 52, 32, 1, 0, 0, 0)
        program.write_bytes(head + struct.pack("<IIIIIIII", 3, 84, 0, 0, 10, 10, 4, 1) + b"/no/ld-32\0")
        self.refused(NOT_FOUND, program, says=[says % "/no/ld-32"])

    def test_interpreters_that_are_there(self):
        for first in ("#!/usr/bin/env -S A=1 sh", "#!/usr/bin/env sh", "#! /bin/sh -e"):
            self.assertEqual(self.ok("--", self.file("script", first + "\necho x\n")), "x\n")

    def test_interpreter_of_a_script(self):
        script = self.file("script", f"#!{STATIC}\n")
        self.refused(REFUSED, script, says=[STATIC, "statically linked"])
        os.symlink(STATIC, self.tmp / "interpreter")
        script = self.file("by-env", "#!/usr/bin/env interpreter\n")
        env = dict(self.env, PATH=f"{self.tmp}:{self.env['PATH']}")
        self.refused(REFUSED, script, says=["statically linked"], env=env)

    def test_static_on_tcp(self):
        log = self.tmp / "log"
        result = self.run_viaduct("--tcp-anyway", "--log", f"info:{log}", "--", STATIC)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (7, "static\n", ""))
        self.assertIn(STATIC, log.read_text())
        self.assertIn("runs on TCP", log.read_text())

    def test_tcp_anyway_preloads_where_it_can(self):
        self.assertIn("libviaduct-preload.so",
                      self.python("print(open('/proc/self/maps').read())", "--tcp-anyway"))

    def test_setuid(self):
        if os.getuid() == 0:
            program = self.tmp / "setuid"
            shutil.copy("/bin/true", program)
            os.chown(program, 65534, -1)
            program.chmod(0o4755)
        else:
            program = shutil.which("su") or self.skipTest("no setuid program")
            if not os.stat(program).st_mode & stat.S_ISUID:
                self.skipTest("su is not setuid here")
        self.refused(REFUSED, program, says=[str(program), "setuid", "--tcp-anyway"])

    def test_setgid(self):
        if os.getuid() != 0:
            self.skipTest("needs root")
        program = self.tmp / "setgid"
        shutil.copy("/bin/true", program)
        os.chown(program, -1, 65534)
        program.chmod(0o2755)
        self.refused(REFUSED, program, says=["setgid"])

    def test_file_capabilities(self):
        if os.getuid() != 0:
            self.skipTest("needs root")
        program = self.tmp / "capable"
        shutil.copy("/bin/true", program)
        program.chmod(0o755)
        # Revision 2, effective, cap_net_bind_service: struct vfs_cap_data.
        value = bytes.fromhex("0100000200040000" + "00" * 12)
        try:
            os.setxattr(program, "security.capability", value)
        except OSError as e:
            self.skipTest(f"no file capabilities here: {e}")
        self.ok("--", program)  # for root they change nothing
        viaduct = self.tmp / "viaduct"  # the build folder may be closed to others
        for name in ("viaduct", "libviaduct-preload.so"):
            shutil.copy(os.path.join(os.path.dirname(VIADUCT), name), self.tmp / name)
        result = subprocess.run([viaduct, "run", program], user=65534, group=65534,
                                extra_groups=[], stderr=subprocess.PIPE, text=True,
                                env=self.env)
        self.assertEqual(result.returncode, REFUSED, result.stderr)
        self.assertIn("file capabilities", result.stderr)

    def test_other_processor_and_other_libc(self):
        elf = bytearray(pathlib.Path("/bin/true").read_bytes())
        elf[4] = 1
        program = self.tmp / "elf32"
        program.write_bytes(elf)
        program.chmod(0o755)
        self.refused(REFUSED, program, says=["32-bit"])
        elf = pathlib.Path("/bin/true").read_bytes()
        loader = b"/lib64/ld-linux-x86-64.so.2\0"
        self.assertIn(loader, elf)
        program = self.tmp / "musl"
        program.write_bytes(elf.replace(loader, b"/proc/self/exe".ljust(28, b"\0"), 1))
        program.chmod(0o755)
        self.refused(REFUSED, program, says=["GNU C library", "loader /proc/self/exe"])

    def test_broken_elf(self):
        # Nor does the shell get it, as execvp would have it: it would take it for a script.
        whole = pathlib.Path("/bin/true").read_bytes()
        program = self.tmp / "broken"
        script = self.file("by-broken", f"#!{program}\necho ran\n")
        for data in (whole[:4], whole[:63], whole[:100], whole[:32] + b"\xff" * 200,
                     whole[:54] + b"\xff" * 8 + whole[62:], whole[:4] + b"\necho ran\n"):
            program.write_bytes(data)
            program.chmod(0o755)
            for path in (program, script):
                self.refused(REFUSED, path, says=[f"{path} cannot be started: Exec format"])
                self.refused(REFUSED, "--tcp-anyway", path, says=["Exec format"])

    def test_no_proc(self):
        result = self.without_proc(VIADUCT, "run", "--", "true")
        if not os.path.exists("/usr/local/lib/x86_64-linux-gnu/libviaduct-preload.so"):
            self.assertEqual(result.returncode, REFUSED)
            self.assertIn(b"/proc shows no processes", result.stderr)

    def test_unusable_library_path(self):
        place = self.tmp / "a b"
        place.mkdir()
        for name in ("viaduct", "libviaduct-preload.so"):
            shutil.copy(os.path.join(os.path.dirname(VIADUCT), name), place / name)
        result = subprocess.run([place / "viaduct", "run", "true"], stderr=subprocess.PIPE,
                                text=True, env=self.env)
        self.assertEqual(result.returncode, REFUSED)
        self.assertIn("move it", result.stderr)


class Command(Run):
    def viaduct(self, *args):
        return subprocess.run([VIADUCT, *args], stdin=subprocess.DEVNULL, encoding="utf-8",
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env)

    def test_unknown_command(self):
        result = self.viaduct("nonsense")
        self.assertEqual((result.returncode, result.stdout), (USAGE, ""))
        self.assertEqual(result.stderr, "viaduct: there is no command `nonsense`\n"
                                        "usage: see `viaduct --help`\n")

    def test_slip(self):
        for words in (("rnu",), ("help", "ru"), ("runn", "--", "true")):
            result = self.viaduct(*words)
            self.assertEqual((result.returncode, result.stdout), (USAGE, ""))
            self.assertIn("`; did you mean `run`?\nusage: see `viaduct --help`\n", result.stderr)

    def test_wrong_values_are_refused_alike(self):
        """The option, its value, and where it is explained."""
        for words in (("stat", "--pid", ""), ("stat", "--port", "65536"), ("trace", "--port", "x", "1"),
                      ("trace", "--output", "", "1"), ("doctor", "--port", "0"), ("bench", "--csv", ""),
                      ("bench", "--pairs", "0"), ("report", "--out", "", "x.json"),
                       ("run", "--spin", "x", "true")):
            result = self.viaduct(*words)
            self.assertEqual((result.returncode, result.stdout), (USAGE, ""), words)
            for says in (words[1], f"`{words[2]}`", f"see `viaduct {words[0]} --help`"):
                self.assertIn(says, result.stderr)
        result = self.viaduct("doctor", "")
        self.assertEqual((result.returncode, result.stdout), (USAGE, ""))
        self.assertIn("HOST is a name or an address: ``", result.stderr)

    def test_a_program_instead_of_a_command(self):
        result = self.viaduct("printf", "%s", "a b")
        self.assertEqual((result.returncode, result.stdout), (USAGE, ""))
        self.assertIn("; did you mean: viaduct run -- printf %s 'a b'\n", result.stderr)

    def test_every_command_refuses_alike(self):
        """Status 2, what is wrong on one line, and where it is explained."""
        for name in re.findall(r"^  ([a-z]+) ", self.viaduct("--help").stdout, re.M):
            result = self.viaduct(name, "--nonsense")
            self.assertEqual((result.returncode, result.stdout), (USAGE, ""), name)
            said = result.stderr.splitlines()
            self.assertEqual(len(said), 2, said)
            self.assertIn("--nonsense", said[0])
            self.assertIn(f"see `viaduct {name} --help`", said[1])

    def test_help_and_version(self):
        for option in ("--help", "--version", "help"):
            result = self.viaduct(option)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertIn("viaduct", result.stdout)

    def test_help_of_a_command(self):
        for name in re.findall(r"^  ([a-z]+) ", self.viaduct("help").stdout, re.M):
            result = self.viaduct("help", name)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertEqual(result.stdout, self.viaduct(name, "--help").stdout)
            for line in result.stdout.splitlines():
                self.assertLessEqual(len(line), 80, line)
        for words in (("help", "stat", "run"), ("--help", "stat", "run"), ("--version", "x")):
            result = self.viaduct(*words)
            self.assertEqual((result.returncode, result.stdout), (USAGE, ""), words)
            self.assertIn(f": `{words[-1]}`\nusage: see `viaduct --help`", result.stderr)
        result = self.viaduct("help", "nonsense")
        self.assertEqual((result.returncode, result.stdout), (USAGE, ""))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[4:]])
