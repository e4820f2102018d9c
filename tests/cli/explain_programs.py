#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `viaduct explain` of processes and of programs that have yet to run.

usage: explain_programs.py VIADUCT MANUAL STATIC-PROGRAM GO-LIKE-PROGRAM EXPORTS.MAP
"""
import errno
import json
import os
import pathlib
import pwd
import re
import resource
import shutil
import struct
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import machine  # noqa: E402
from explain_bed import EXPORTS, Explain, GO_LIKE, MANUAL, PYTHON, STATIC, USAGE, VIADUCT


# As cat.
ECHO = r"""
#include <unistd.h>
int main(void)
{
	char c;
	while (read(0, &c, 1) == 1 && write(1, &c, 1) == 1)
		;
}
"""


class Processes(Explain):
    def test_privileged(self):
        self.root()
        copy = self.tmp / "cat"
        shutil.copy("/bin/cat", copy)
        os.chown(copy, pwd.getpwnam("nobody").pw_uid, -1)
        copy.chmod(0o4755)
        with self.cat(copy) as p:
            self.point(self.explain(p.pid), "privileged", "no")

    def test_service(self):
        """The remedy for a service of the system is a drop-in."""
        self.root()
        unit = f"viaduct-test-{os.getpid()}.service"
        for top in ("/sys/fs/cgroup", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/freezer"):
            slice_ = pathlib.Path(top, "system.slice")
            if not os.path.exists(f"{top}/cgroup.procs"):
                continue
            there = slice_.exists()
            try:
                (slice_ / unit).mkdir(parents=True)
            except OSError:
                continue
            break
        else:
            self.skipTest("no control group can be made")
        try:
            with self.cat() as p:
                (slice_ / unit / "cgroup.procs").write_text(str(p.pid))
                remedy = self.point(self.explain(p.pid), "plain", "no")["remedy"]
        finally:
            (slice_ / unit).rmdir()
            if not there:
                slice_.rmdir()
        self.assertIn(f"systemctl edit {unit}", remedy)
        self.assertRegex(remedy, r"Environment=LD_PRELOAD=/\S+/libviaduct-preload\.so")

    def test_title(self):
        """Who writes a title over the arguments is named as it is found in PATH, even where
        one file is many programs."""
        place = self.tmp / "bin"
        place.mkdir()
        shutil.copy("/bin/cat", place / "many")
        (place / "one").symlink_to("many")
        near = f"{place}:{os.environ['PATH']}"
        for title, path, name in (("one *:80", near, "one"),
                                  ("one: master process x", near, "one"),
                                  ("weird title", near, "one"),
                                  ("one *:80", os.environ["PATH"], str(place / "many"))):
            with self.cat([title], executable=place / "one") as p:
                remedy = self.point(self.explain(p.pid, env={"PATH": path}), "plain")["remedy"]
                self.assertEqual(remedy, f"Start it with: viaduct run -- {name} ...")

    def test_other_user(self):
        self.root()
        nobody = pwd.getpwnam("nobody")
        with self.cat() as p:
            answer = self.explain(p.pid, user=nobody.pw_uid, group=nobody.pw_gid,
                                  extra_groups=[])
            self.assertIn("as root", self.point(answer, "hidden", "no")["remedy"])

    def test_strange_names(self):
        name = self.tmp / "a\x1b[31m b'c\"\udcff"
        shutil.copy("/bin/cat", name)
        with self.cat(name) as p:
            answer = self.explain(p.pid)
            self.assertIn("viaduct run -- '", self.point(answer, "plain")["remedy"])
            self.assertNotIn(b"\x1b", self.run_explain(p.pid).stdout)

    def test_first_process(self):
        """Nobody starts that one again by hand."""
        if os.getuid() != 0 or not os.access("/proc/1/maps", os.R_OK):
            self.skipTest("process 1 cannot be looked into")
        for p in self.explain(1)["points"]:
            self.assertNotIn("viaduct run --", p["remedy"] or "")

    def test_wrong(self):
        for args, says in (([], "nothing to explain"), (["x"], "neither PID"),
                           (["1:2:3"], "neither PID"), (["no.such.host.invalid:80"], "resolved"),
                           (["--nonsense"], "usage"), (["1", "2"], "put `--`"),
                           (["--", "/nonexistent"], "no program"), (["999999999"], "no process"),
                           (["--", "/etc/passwd"], "cannot be executed"),
                           ([f"{os.getpid()}:0"], "no TCP connection"),
                           ([f"{os.getpid()}:99999"], "no descriptor")):
            result = self.run_explain(*args)
            self.assertEqual(result.returncode, USAGE, args)
            self.assertIn(says, result.stderr.decode())
            self.assertEqual(result.stdout, b"")

    def test_no_proc(self):
        for words in ((str(os.getpid()),), (f"{os.getpid()}:0",), ("127.0.0.1:80",)):
            result = self.without_proc(VIADUCT, "explain", *words)
            self.assertEqual((result.returncode, result.stdout), (USAGE, b""))
            self.assertIn(b"/proc shows no processes", result.stderr)
        result = self.without_proc(VIADUCT, "explain", "--json", "--", "true")
        for p in json.loads(result.stdout)["points"]:
            if p["name"] == "library" and p["state"] == "no":
                self.assertIn("/proc shows no processes", p["remedy"])

    def test_help(self):
        result = self.run_explain("--help")
        self.assertEqual(result.returncode, 0)
        manual = pathlib.Path(MANUAL).read_text().replace("\\-", "-")
        for option in re.findall(r"--[a-z]+", result.stdout.decode()):
            self.assertIn(option, manual)

    def test_output_lost(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("there is no /dev/full")
        with open("/dev/full", "wb") as full:
            result = self.run_explain("--", "true", stdout=full)
        self.assertEqual(result.returncode, USAGE)
        self.assertIn(b"cannot be written", result.stderr)


class Programs(Explain):
    def of(self, *args, options=(), **more):
        return self.explain(*options, "--", *args, **more)

    def script(self, name, text):
        path = self.tmp / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def refused_too(self, program):
        result = subprocess.run([VIADUCT, "run", "--", program], stderr=subprocess.PIPE,
                                stdout=subprocess.PIPE, env=self.env, text=True)
        self.assertEqual(result.returncode, 126)
        return result.stderr

    def test_well(self):
        answer = self.of("python3" if shutil.which("python3") else PYTHON, "-c", "it's")
        self.assertTrue(answer["accelerated"])
        self.assertIn("viaduct run -- ", answer["verdict"])
        self.assertIn("'it'\\''s'", answer["verdict"])

    def test_static(self):
        answer = self.of(STATIC)
        self.assertIn("statically linked", self.point(answer, "static", "no")["text"])
        self.assertIn("statically linked", self.refused_too(STATIC))

    def test_loader(self):
        """It is no program of its own, and its argument is not looked into."""
        loader = "/lib64/ld-linux-x86-64.so.2"
        point = self.point(self.of(loader), "loader", "no")
        self.assertIn("dynamic loader", point["text"])
        self.assertIn("Start that program itself", self.refused_too(loader))

    def test_followed_static(self):
        """Where the machine has what it takes; else it says what is missing, whatever the setting."""
        program = self.compiled("waits", ECHO, "-static")
        follow = {"VIADUCT_STATIC": "follow"}
        with self.cat(program) as p:
            running = self.explain(p.pid, env=follow)
        if lacks := machine.lacks_for_static():
            for answer in (running, self.of(program), self.of(program, env=follow)):
                self.assertIn(f"cannot be followed: {lacks}.", self.point(answer, "static", "no")["text"])
                self.assertFalse(answer["accelerated"])
            self.env.update(follow)
            self.assertIn(lacks, self.refused_too(program))
        else:
            self.assertIn("--static follow", self.point(self.of(program), "static", "no")["remedy"])
            self.assertTrue(self.of(program, env=follow)["accelerated"])
            self.point(running, "plain", "no")

    def test_deleted(self):
        """The file that runs is looked into, not one that has been given its name."""
        program = self.compiled("waits", ECHO, "-static")
        with self.cat(program) as p:
            before = self.point(self.explain(p.pid), "static", "no")
            pathlib.Path(program).unlink()
            pathlib.Path(os.readlink(f"/proc/{p.pid}/exe")).write_bytes(b"\x7fELF" + bytes(60))
            self.assertEqual(self.point(self.explain(p.pid), "static", "no")["remedy"], before["remedy"])

    def test_followed_go(self):
        caddy = shutil.which("caddy")
        if not caddy:
            self.skipTest("caddy is missing")
        answers = [self.of(caddy, env={"VIADUCT_GO": "leave"}), self.of(caddy)]
        if lacks := machine.lacks_for_go():
            for answer in answers:
                self.assertIn(f"cannot be followed: {lacks}.", self.point(answer, "raw-system-calls", "no")["text"])
        else:
            self.assertIn("--go follow", self.point(answers[0], "raw-system-calls", "no")["remedy"])
            self.point(answers[1], "go", "yes")

    def test_go(self):
        answer = self.of(GO_LIKE)
        self.point(answer, "raw-system-calls", "no")
        self.assertIn("Go", self.refused_too(GO_LIKE))
        # As another program's child it runs, and says the same.
        log, report = self.tmp / "log", self.tmp / "report"
        subprocess.run([VIADUCT, "run", "--log", f"info:{log}", "--report", report, "--",
                        "sh", "-c", f"{GO_LIKE}; true"], env=self.env, check=True)
        self.assertIn("raw-system-calls", log.read_text())
        names = {n for line in report.read_text().splitlines()
                 for n in json.loads(line)["reasons"]}
        self.assertEqual(names, {"raw-system-calls"})

    def test_setuid(self):
        self.root()
        copy = self.tmp / "true"
        shutil.copy("/bin/true", copy)
        os.chown(copy, pwd.getpwnam("nobody").pw_uid, -1)
        copy.chmod(0o4755)
        p = self.point(self.of(copy), "privileged", "no")
        self.assertIn("setuid to user", p["text"])
        self.assertIn("gains privileges", self.refused_too(copy))

    def test_su(self):
        """What stands behind it is no program, but a user's name."""
        self.root()
        copy = self.tmp / "su"
        shutil.copy("/bin/true", copy)
        self.assertIn("`su USER -c 'viaduct run -- PROGRAM'`", self.point(self.of(copy), "privileged", "note")["remedy"])
        os.chown(copy, pwd.getpwnam("nobody").pw_uid, -1)
        copy.chmod(0o4755)
        self.assertIn("`su USER -c 'viaduct run -- PROGRAM'`", self.refused_too(copy))

    def test_other_machines(self):
        elf = bytearray(pathlib.Path("/bin/true").read_bytes())
        short = self.script("short", "")
        short.write_bytes(b"\x7fELF\1\1\1".ljust(52, b"\0"))
        self.point(self.of(short), "architecture", "no")
        for offset, value, name in ((4, 1, "architecture"), (18, 0xb7, "architecture")):
            other = bytearray(elf)
            other[offset] = value
            path = self.tmp / f"other{offset}"
            path.write_bytes(other)
            path.chmod(0o755)
            self.point(self.of(path), name, "no")
        path.write_bytes(elf.replace(b"/lib64/ld-linux-x86-64.so.2", b"/proc/self/exe".ljust(27, b"\0")))
        self.point(self.of(path), "libc", "no")

    def test_command_to_copy(self):
        """It stands on one line, however long it is."""
        command = ["sh", "-c", "echo a b c d e f g h"] + ["argument"] * 30
        text = self.run_explain("--", *command).stdout.decode()
        wanted = "viaduct run -- sh -c 'echo a b c d e f g h' " + " ".join(command[3:])
        self.assertIn(wanted, [line.strip() for line in text.splitlines()])
        with self.cat(["cat"] + ["-"] * 60) as p:
            text = self.run_explain(p.pid).stdout.decode()
            wanted = "viaduct run -- cat " + " ".join(["-"] * 60)
            self.assertIn(wanted, [line.strip() for line in text.splitlines()])

    def test_missing_interpreter(self):
        elf = pathlib.Path("/bin/true").read_bytes()
        loader = b"/lib64/ld-linux-x86-64.so.2"
        for data, missing in ((b"#!/nonexistent/python3 -x\n", "/nonexistent/python3"),
                              (b"#!/usr/bin/env no-such-python\n", "no-such-python"),
                              (b"#!/bin/sh\r\necho\r\n", "/bin/sh\\r"),
                              (elf.replace(loader, b"/nonex/ld-linux-x86-64.so.2"),
                               "/nonex/ld-linux-x86-64.so.2"),
                              (elf.replace(loader, b"/nonex/ld-of-another-libc.1"),
                               "/nonex/ld-of-another-libc.1")):
            path = self.tmp / "broken"
            path.write_bytes(data)
            path.chmod(0o755)
            answer = self.of(path)
            self.assertFalse(answer["accelerated"])
            self.assertIn("cannot be started at all", answer["verdict"])
            self.assertIn(f"interpreter `{missing}` is missing",
                          self.point(answer, "interpreter", "no")["text"])

    def test_interpreter_that_cannot_be_executed(self):
        plain = self.tmp / "plain"
        plain.write_bytes(pathlib.Path("/bin/true").read_bytes())
        for interpreter in ("/usr/bin", plain):
            answer = self.of(self.script("by", f"#!{interpreter}\n"))
            self.assertFalse(answer["accelerated"])
            self.assertIn(f"interpreter `{interpreter}` cannot be executed",
                          self.point(answer, "interpreter", "no")["text"])

    def test_what_the_kernel_refuses(self):
        elf = pathlib.Path("/bin/true").read_bytes()
        loop, one = self.tmp / "loop", self.tmp / "chain1"
        self.script("loop", f"#!{loop}\n")
        self.script("by-loop", f"#!{loop}\n")
        one.write_text("#!/bin/true\n")
        one.chmod(0o755)
        for n in range(2, 8):
            self.script(f"chain{n}", f"#!{self.tmp}/chain{n - 1}\n")
        for n, data in enumerate((elf[:40], elf[:100], elf[:54] + b"\1\0" + elf[56:],
                                  elf[:32] + struct.pack("<Q", 1 << 40) + elf[40:])):
            path = self.tmp / f"cut{n}"
            path.write_bytes(data)
            path.chmod(0o755)
        self.script("by-cut", f"#!{self.tmp}/cut0\n")
        self.script("whole", "#!/bin/true\n")
        for path in sorted(self.tmp.iterdir()):
            if not path.is_file() or not os.access(path, os.X_OK):
                continue
            try:  # What the kernel says of it, without the shell's help.
                pid = os.posix_spawn(path, [path], os.environ)
            except OSError as e:
                error = e.errno
            else:
                error = os.waitpid(pid, 0)[1]
            answer = self.of(path)
            self.assertEqual(answer["accelerated"], error == 0, (error, answer))
            if error:
                self.assertIn(f"{path} cannot be started at all: ", answer["verdict"])
                self.point(answer, "interpreter" if error == errno.ELOOP else "unreadable", "no")
        self.assertEqual(self.of(self.tmp / "chain5")["accelerated"], True)
        self.assertEqual(self.of(self.tmp / "chain6")["accelerated"], False)

    def test_unreadable(self):
        self.root()
        path = self.tmp / "hidden"
        shutil.copy("/bin/true", path)
        path.chmod(0o711)
        nobody = pwd.getpwnam("nobody")
        answer = self.of(path, user=nobody.pw_uid, group=nobody.pw_gid, extra_groups=[])
        self.point(answer, "unreadable", "note")
        self.assertTrue(answer["accelerated"])

    def test_imports(self):
        interposed = set(re.findall(r"^\t(\w+);$", pathlib.Path(EXPORTS).read_text(), re.M))
        wanted = set()
        nm = shutil.which("nm")
        program = shutil.which("redis-server") or shutil.which("ssh") or "/bin/bash"
        answer = self.of(program)
        if nm:
            out = subprocess.run([nm, "-D", program], stdout=subprocess.PIPE, text=True).stdout
            wanted = {line.split()[-1].split("@")[0] for line in out.splitlines()
                      if re.search(r" [Uw] ", line)}
            self.assertEqual(set(answer["imports"][0]["interposed"]), wanted & interposed)
        self.assertTrue(answer["imports"][0]["interposed"])

    def compiled(self, name, code, *options):
        cc = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if not cc:
            self.skipTest("needs a compiler")
        source = self.tmp / f"{name}.c"
        source.write_text(code)
        out = self.tmp / name
        result = subprocess.run([cc, "-o", out, source, *options], stderr=subprocess.PIPE)
        if result.returncode:
            self.skipTest(result.stderr.decode())
        return out

    def wrapper(self):
        """A library that has a read and a write of its own."""
        return str(self.compiled("libwraps.so", """
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <unistd.h>
ssize_t read(int fd, void *to, size_t n) { return syscall(SYS_read, fd, to, n); }
ssize_t write(int fd, const void *from, size_t n) { return syscall(SYS_write, fd, from, n); }
int unrelated(void) { return 0; }
""", "-shared", "-fPIC"))

    def wraps(self, answer, wraps, state):
        p = self.point(answer, "preload", state)
        self.assertIn(f"{wraps} {'behind' if state == 'note' else 'in front of'}", p["text"])
        self.assertIn("functions", p["text"])
        self.assertIn(" read, write", p["text"])
        self.assertNotIn("unrelated", p["text"])

    def test_wrapper_before_and_behind(self):
        wraps, own = self.wrapper(), pathlib.Path(VIADUCT).parent / "libviaduct-preload.so"
        for preload, state in ((wraps, "note"), (f"{own}:{wraps}", "note"),
                               (f"{wraps} {own}", "yes")):
            self.wraps(self.of("true", env={"LD_PRELOAD": preload}), wraps, state)

    def test_wrapper_in_a_process(self):
        wraps = self.wrapper()
        with subprocess.Popen([VIADUCT, "run", "--", PYTHON, "-c", "print('up', flush=True); input()"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                              env={**self.env, "LD_PRELOAD": wraps}) as p:
            self.assertEqual(p.stdout.readline(), "up\n")
            answer = self.explain(p.pid)
            p.stdin.close()
        self.wraps(answer, wraps, "note")

    def test_what_is_not_carried(self):
        names = ("io_uring_queue_init", "aio_read", "splice", "seccomp_load", "dlmopen",
                 "connect", "io_submit")
        stub = self.compiled("libstub.so", "".join(f"int {n}() {{ return 0; }}" for n in names),
                             "-w", "-shared", "-fPIC", "-Wl,-soname,libstub.so")
        program = self.compiled("uses", "".join(f"extern int {n}();" for n in names) +
                                "int main(void) { return " +
                                "+".join(f"{n}()" for n in names) + "; }", "-w", str(stub))
        answer = self.of(program)
        for name in ("io_uring", "aio", "splice", "seccomp", "namespaces"):
            p = self.point(answer, name, "note")
            self.assertNotEqual(p["remedy"], "")
        imports = answer["imports"][0]
        self.assertEqual(set(imports["outside"]), {"seccomp_load", "dlmopen", "io_submit"})
        self.assertTrue({"io_uring_queue_init", "aio_read", "splice", "connect"} <=
                        set(imports["interposed"]))

    def test_own_system_calls(self):
        code = """#include <sys/syscall.h>
            int main(void) { long r; __asm__ __volatile__("syscall" : "=a"(r) :
                "a"(%s), "D"(-1), "S"(0), "d"(0) : "rcx", "r11", "memory"); return 0; }"""
        self.point(self.of(self.compiled("raw", code % "SYS_sendto")),
                   "raw-system-calls", "note")
        self.point(self.of(self.compiled("uring", code % "SYS_io_uring_setup")),
                   "io_uring", "note")
        libuv = self.compiled("libuv", """#include <unistd.h>
            int main(int n, char **v) { return syscall(425, n, v); }""", "-O2")
        self.assertIn("ENOSYS", self.point(self.of(libuv), "io_uring", "note")["text"])
        self.assertIn("stay on TCP", self.point(
            self.of(libuv, env={"VIADUCT_IO_URING": "leave"}), "io_uring", "note")["text"])
        names = [p["name"] for p in self.of(self.compiled("fine", code % "SYS_getpid"))["points"]]
        self.assertNotIn("raw-system-calls", names)
        self.point(self.of(self.compiled("waits", code % "SYS_epoll_pwait2")), "raw-system-calls", "note")

    def test_libraries(self):
        library = self.compiled("libuser.so", "extern int connect(); int user(void) "
                                "{ return connect(); }", "-w", "-shared", "-fPIC",
                                "-Wl,-soname,libuser.so")
        program = self.compiled("program", "extern int user(); int main(void) "
                                "{ return user(); }", "-w", str(library),
                                "-Wl,-rpath,$ORIGIN")
        answer = self.of(program, options=["--libs"])
        files = {i["file"]: i for i in answer["imports"]}
        self.assertEqual(files["libuser.so"]["interposed"], ["connect"])
        self.assertEqual(len(self.of(program)["imports"]), 1)
        library.unlink()
        self.point(self.of(program, options=["--libs"]), "library", "note")

    def test_scripts(self):
        inner = self.script("inner", "#!/bin/sh\nexec %s \"$@\"\n" % STATIC)
        outer = self.script("outer", "#!/usr/bin/env sh\n# exec not-this\nset -e\n"
                                     f"  exec {inner} \"$@\"\n")
        answer = self.of(outer)
        self.point(answer, "static", "no")
        self.assertFalse(answer["accelerated"])
        unknown = self.script("unknown", "#!/bin/sh\nexec \"$JAVA\" -jar x\n")
        p = self.point(self.of(unknown), "script")
        self.assertTrue(any("$JAVA" in p["text"] for p in self.of(unknown)["points"]))
        two = self.script("two", f"#!/bin/sh\nif x; then exec {STATIC}; fi\n"
                                 f"exec {STATIC} a\nexec {GO_LIKE}\n")
        self.assertTrue(self.of(two)["accelerated"], p)
        redirected = self.script("redirected", "#!/bin/sh\nexec 2>/dev/null\nexec <&3\ntrue\n")
        self.assertTrue(self.of(redirected)["accelerated"])

    def test_scripts_of_the_shell(self):
        """The shell runs what execve(2) does not know."""
        for n, text in enumerate(("", "true\n", "#!\n", "#! \ntrue\n")):
            answer = self.of(self.script(f"script{n}", text))
            self.assertTrue(answer["accelerated"], text)
            self.assertIn("/bin/sh is what runs it", self.point(answer, "script", "yes")["text"])

    def test_settings(self):
        self.point(self.of("true", env={"VIADUCT": "off"}), "off", "no")
        self.point(self.of("true", env={"VIADUCT_RULES": "deny"}), "rule", "no")
        self.point(self.of("true", env={"VIADUCT_RULES": "perhaps"}), "rule", "no")
        self.point(self.of("true", env={"VIADUCT_RULES": "deny port=1"}), "rule", "note")
        self.point(self.of("true", env={"VIADUCT_RULES": "allow port=1"}), "rule", "yes")
        self.assertNotIn("rule", [p["name"] for p in self.of(
            "true", env={"VIADUCT_RULES": "deny program=x"})["points"]])
        self.point(self.of("true", env={"VIADUCT_SPIN": "7"}), "settings", "yes")
        self.point(self.of("true", env={"LD_PRELOAD": "libm.so.6"}), "preload", "note")

    def test_settings_from_a_file(self):
        place = self.tmp / "viaduct.conf"
        env = {"VIADUCT_CONFIG": str(place)}
        for text, name, state in (("viaduct = off", "off", "no"),
                                  ("deny", "rule", "no"),
                                  ("deny port=1", "rule", "note"),
                                  ("[program=true]\ndeny port=1", "rule", "note"),
                                  ("spin = 7", "settings", "yes")):
            place.write_text(text + "\n")
            place.chmod(0o644)
            p = self.point(self.of("true", env=env), name, state)
            self.assertIn(f"{place}:{len(text.splitlines())}", p["text"])
        place.write_text("deny perhaps\n")
        p = self.point(self.of("true", env=env), "rule", "no")
        self.assertIn("viaduct config --check", p["remedy"])

    def test_limits(self):
        def limit(which, n):
            return lambda: resource.setrlimit(which, (n, resource.getrlimit(which)[1]))
        for which, n, name, state in ((resource.RLIMIT_NOFILE, 100, "fd-limit", "note"),
                                      (resource.RLIMIT_NOFILE, 20, "fd-limit", "no"),
                                      (resource.RLIMIT_FSIZE, 1 << 20, "memory", "no"),
                                      (resource.RLIMIT_AS, 4 << 30, "memory", "note")):
            self.point(self.of("true", preexec_fn=limit(which, n)), name, state)

    def test_no_library(self):
        place = self.tmp / "alone"
        place.mkdir()
        copy = shutil.copy(VIADUCT, place)
        result = subprocess.run([copy, "explain", "--json", "--", "true"], env=self.env,
                                stdout=subprocess.PIPE)
        names = [p["name"] for p in json.loads(result.stdout)["points"] if p["state"] == "no"]
        if not os.path.exists("/usr/local/lib/x86_64-linux-gnu/libviaduct-preload.so"):
            self.assertEqual(names, ["library"])

    def test_hostile_files(self):
        """Every byte of the headers and tables is spoilt in turn; it must answer."""
        source = pathlib.Path("/bin/true").read_bytes()
        path = self.tmp / "hostile"
        head = struct.unpack_from("<QQ", source, 32)[0]
        count = struct.unpack_from("<H", source, 56)[0]
        places = list(range(16, 64)) + list(range(head, head + 56 * count, 4))
        for i in range(count):
            kind, _, at, _, _, size = struct.unpack_from("<IIQQQQ", source, head + 56 * i)
            if kind == 2:  # PT_DYNAMIC
                places += range(at, at + size, 8)
        for n, place in enumerate(places):
            spoilt = bytearray(source)
            spoilt[place:place + 8] = (b"\xff" * 8, b"\0" * 8, b"\xff\xff\xff\x7f" * 2,
                                       struct.pack("<Q", len(source) - 4))[n % 4]
            path.write_bytes(spoilt)
            path.chmod(0o755)
            result = self.run_explain("--libs", "--", path)
            self.assertIn(result.returncode, (0, 1), (place, result.stderr))
        for size in (0, 1, 4, 63, 64, 200, head + 100, len(source) // 2):
            path.write_bytes(source[:size])
            self.assertIn(self.run_explain("--", path).returncode, (0, 1), size)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[6:]])
