#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `viaduct doctor`: whatever is taken away from it, it must notice and say so.

usage: doctor.py VIADUCT MANUAL LIBDIR. No measured time is judged.
"""
import contextlib
import ctypes
import errno
import functools
import json
import os
import pathlib
import re
import resource
import shutil
import socket
import struct
import subprocess
import sys
import threading
import unittest

from bed import Bed

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import machine  # noqa: E402

VIADUCT, MANUAL, LIBDIR = map(os.path.abspath, sys.argv[1:4])
# Their states depend on the time that something took, or on the machine's other work.
MEASURED = {"wake-up", "cache-line", "clock", "load", "memory"}
NEEDS_LOOPBACK = ["loopback", "tcp-counts", "sock-diag", "direct-path"]
MIB = 1 << 20
libc = ctypes.CDLL(None, use_errno=True)


def call(name, *args):
    if getattr(libc, name)(*args) < 0:
        raise OSError(ctypes.get_errno(), name)


# ---- what is done to the process before it becomes the doctor ----

def limit(which, soft, hard=None):
    kept = resource.getrlimit(which)[1]
    return lambda: resource.setrlimit(which, (soft, kept if hard is None else hard))


def no_new_privs():
    call("prctl", 38, 1, 0, 0, 0)


def refuse(number, *args, error=errno.EPERM):
    """A filter under which this call fails; args: (index, value) that must all hold."""
    load, jump, give = 0x20, 0x15, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_RET
    tests = [(0, number)] + [(16 + 8 * i, value) for i, value in args]
    code = []
    for i, (offset, value) in enumerate(tests):
        code += [(load, 0, 0, offset), (jump, 0, 2 * (len(tests) - i) - 1, value)]
    code += [(give, 0, 0, 0x00050000 | error), (give, 0, 0, 0x7fff0000)]

    lines = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *c) for c in code))
    program = struct.pack("HxxxxxxP", len(code), ctypes.addressof(lines))

    def install(keep=lines):
        no_new_privs()
        call("prctl", 22, 2, program, 0, 0)
    return install


NEWNS, NEWNET = 0x00020000, 0x40000000


def network_namespace():
    call("unshare", NEWNET)


def private_mounts():
    call("unshare", NEWNS)
    call("mount", b"none", b"/", None, 0x4000 | 0x40000, None)  # MS_REC, MS_PRIVATE


def put(source, target):
    """A file or folder in the place of another one, in a mount namespace of its own."""
    def mount():
        private_mounts()
        call("mount", os.fsencode(source), os.fsencode(target), None, 0x1000, None)
    return mount


def cover(target, flags=0):
    def mount():
        private_mounts()
        call("mount", b"none", os.fsencode(target), b"tmpfs", flags, None)
    return mount


@functools.cache
def may(before):
    with contextlib.suppress(subprocess.SubprocessError):
        subprocess.run(["true"], preexec_fn=before, check=True)
        return True
    return False


class Doctor(Bed):
    def run_doctor(self, *args, command=VIADUCT, env=None, **options):
        options.setdefault("stdout", subprocess.PIPE)
        return subprocess.run([command, "doctor", *args], stderr=subprocess.PIPE,
                              stdin=subprocess.DEVNULL, timeout=120,
                              env={**self.env, **(env or {})}, **options)

    def checks(self, before=None, **options):
        """The checks by name, once the exit status has been compared with them."""
        result = self.run_doctor("--json", preexec_fn=before, **options)
        self.assertEqual(result.stderr, b"")
        found = json.loads(result.stdout.decode("utf-8"))["checks"]
        for c in found:
            self.assertEqual(set(c), {"group", "name", "state", "value", "unit", "text",
                                      "remedy"})
            self.assertEqual(c["state"] == "ok", c["remedy"] == "", c)
            self.assertNotEqual(c["text"], "")
        problems = [c["name"] for c in found if c["state"] == "problem"]
        self.assertEqual(result.returncode, 1 if problems else 0, problems)
        checks = {c["name"]: c for c in found}
        self.assertEqual(len(checks), len(found))
        return checks

    def problems(self, before, *names, **options):
        """These are the problems, and there is no other one."""
        checks = self.checks(before, **options)
        self.assertEqual([n for n, c in checks.items() if c["state"] == "problem"],
                         list(names))
        return checks

    def note(self, name, before, text="", **options):
        check = self.problems(before, **options)[name]
        self.assertEqual(check["state"], "note", check)
        self.assertIn(text, check["text"] + check["remedy"])
        return check

    def fine(self, name, before, text="", **options):
        check = self.problems(before, **options)[name]
        self.assertEqual(check["state"], "ok", check)
        self.assertIn(text, check["text"])
        return check

    def as_root(self, *needed, may_do=private_mounts):
        if os.getuid() != 0:
            self.skipTest("needs root")
        if not may(may_do):
            self.skipTest(f"{may_do.__name__} cannot be made here")
        for path in needed:
            if not os.path.exists(path):
                self.skipTest(f"there is no {path}")

    def file(self, text):
        path = self.tmp / "file"
        path.write_text(text)
        path.chmod(0o644)
        return path

    def copy(self, *names, to="copy"):
        place = os.path.join(os.fsencode(self.tmp), os.fsencode(to))
        os.mkdir(place)
        os.chmod(place, 0o755)
        for name in names:
            shutil.copy(os.path.join(os.path.dirname(VIADUCT), name),
                        os.path.join(place, os.fsencode(name)))
        return place


class Output(Doctor):
    def test_all_is_well_here(self):
        checks = self.problems(None)
        self.assertGreater(checks["direct-path"]["value"], 0)
        self.assertEqual(checks["direct-path"]["unit"], "bytes")
        self.assertEqual([c["state"] for c in checks.values() if c["group"] == "needs"],
                         ["ok"] * 12)
        self.assertEqual({c["state"] for c in checks.values() if c["group"] == "unused"},
                         {"note"})

    def test_table_says_the_same(self):
        for before in (None, limit(resource.RLIMIT_FSIZE, MIB)):
            checks = self.checks(before)
            result = self.run_doctor(preexec_fn=before)
            table = result.stdout.decode()
            lines = re.findall(r"^  (ok|note|problem) +(\S+) +(\S.*)$", table, re.M)
            self.assertEqual([name for _, name, _ in lines], list(checks))
            counts = {"ok": 0, "note": 0, "problem": 0}
            for state, name, text in lines:
                counts[state] += 1
                if name in MEASURED:
                    continue
                check = checks[name]
                self.assertEqual(state, check["state"], name)
                if not check["unit"]:
                    self.assertTrue(check["text"].startswith(text), name)
                if state != "ok":
                    after = table[table.index(text):]
                    self.assertIn(check["remedy"], after)
                    self.assertIn(check["text"].split(". ", 1)[1].split("\n")[0], after)
            last = re.fullmatch(r"(\d+) ok, (\d+) notes?, (\d+) problems?",
                                table.splitlines()[-1])
            self.assertEqual(list(map(int, last.groups())), list(counts.values()))
            self.assertEqual(result.returncode, 1 if counts["problem"] else 0)

    def test_usage(self):
        for args in (["--nonsense"], ["a", "more"], ["--json=x"], ["--json", "a", "b"]):
            result = self.run_doctor(*args)
            self.assertEqual((result.returncode, result.stdout), (2, b""), args)
            self.assertIn(b"usage:", result.stderr)
        self.assertIn(b"one HOST at most: `more`", self.run_doctor("a", "more").stderr)
        self.assertIn(b"takes no HOST: `a`", self.run_doctor("--answer", "a").stderr)
        result = self.run_doctor("--help")
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        self.assertIn(b"--json", result.stdout)

    def test_output_is_lost(self):
        with open("/dev/full", "w") as full:
            for args in ([], ["--json"]):
                result = self.run_doctor(*args, stdout=full)
                self.assertEqual(result.returncode, 1)
                self.assertIn(b"cannot be written", result.stderr)

    def test_manual_names_every_check(self):
        manual = pathlib.Path(MANUAL).read_text().replace("\\-", "-")
        named = " ".join(re.findall(r"^\.BR? (.*)$", manual, re.M))
        for name in self.checks():
            self.assertRegex(named, rf"(^|[ \"]){name}([ \",]|$)")

    def test_any_path_is_valid_json(self):
        place = self.copy("viaduct", "libviaduct-preload.so", to=b"a\"b\\c\x01\xff\xc3\xa4")
        path = self.problems(None, command=os.path.join(place, b"viaduct"))["library"]
        self.assertIn("/a\"b\\c\x01\ufffdä/libviaduct-preload.so", path["value"])

    def test_of_an_unprivileged_user(self):
        self.as_root()
        place = self.copy("viaduct", "libviaduct-preload.so")
        checks = self.problems(None, command=os.path.join(place, b"viaduct"), user=65534,
                               group=65534, extra_groups=[])
        self.assertEqual(checks["other-users"]["state"], "ok")


class Needs(Doctor):
    def test_no_library(self):
        if os.path.exists(os.path.join(LIBDIR, "libviaduct-preload.so")):
            self.skipTest("an installed library would be found")
        place = self.copy("viaduct")
        checks = self.problems(None, "library", "preload", "direct-path",
                               command=os.path.join(place, b"viaduct"))
        self.assertIn("make install", checks["library"]["remedy"])

    def test_library_that_is_none(self):
        place = self.copy("viaduct", "libviaduct-preload.so")
        command = os.path.join(place, b"viaduct")
        self.problems(None, command=command)
        with open(os.path.join(place, b"libviaduct-preload.so"), "r+b") as f:
            f.write(b"no ELF")
        checks = self.problems(None, "preload", "direct-path", command=command)
        self.assertIn("ran, but without it", checks["preload"]["text"])

    def test_library_with_an_impossible_path(self):
        place = self.copy("viaduct", "libviaduct-preload.so", to="a b")
        checks = self.problems(None, "preload", "direct-path",
                               command=os.path.join(place, b"viaduct"))
        self.assertIn("Move it", checks["preload"]["remedy"])

    def test_no_program_to_try(self):
        self.problems(None, "preload", env={"PATH": "/nonexistent"})

    def test_filters(self):
        unix, inet, netlink = 1, 2, 16
        for number, args, names in (
                (319, [], ["sealed-memory", "direct-path"]),  # memfd_create
                (290, [], ["eventfd", "direct-path"]),
                (41, [(0, unix)], ["unix-names", "netns", "direct-path"]),
                (41, [(0, netlink), (2, 4)], ["sock-diag", "direct-path"]),
                (41, [(0, inet)], ["loopback", "tcp-counts", "netns", "sock-diag",
                                   "direct-path"]),
                (55, [(1, 1), (2, 71)], ["netns", "direct-path"]),  # SO_NETNS_COOKIE
                (55, [(1, 6), (2, 11)], ["tcp-counts", "direct-path"]),  # TCP_INFO
                (56, [], ["preload", "direct-path"])):  # clone
            with self.subTest(number=number, args=args):
                checks = self.problems(refuse(number, *args), *names)
                self.assertEqual(checks["seccomp"]["state"], "note")
                self.assertEqual(checks["seccomp"]["value"], "2")

    def test_remedies_differ(self):
        for error, text in ((errno.EPERM, "seccomp"), (errno.ENOMEM, "memory"),
                            (errno.EMFILE, "ulimit -n"), (errno.EINVAL, "dmesg")):
            checks = self.checks(refuse(319, error=error))
            self.assertEqual(checks["sealed-memory"]["value"], os.strerror(error))
            self.assertIn(text, checks["sealed-memory"]["remedy"])
        checks = self.checks(refuse(41, (0, 16), (2, 4), error=errno.ENOENT))
        self.assertIn("modprobe tcp_diag", checks["sock-diag"]["remedy"])

    def test_no_bell_between_users(self):
        # socket(AF_NETLINK, ..., NETLINK_USERSOCK): connections of one user do without.
        self.note("other-users", refuse(41, (0, 16), (2, 2)), "different users")

    def test_nothing_can_be_measured(self):
        for number, name in ((435, "wake-up"), (56, "cache-line")):  # clone3, clone
            checks = self.checks(refuse(number))
            self.assertEqual((checks[name]["state"], checks[name]["value"]), ("note", ""))
            self.assertIn("not measured", checks[name]["text"])

    def test_no_loopback(self):
        self.as_root(may_do=network_namespace)
        checks = self.problems(network_namespace, *NEEDS_LOOPBACK)
        self.assertIn("ip link set lo up", checks["loopback"]["remedy"])

    def test_no_proc(self):
        self.as_root()
        checks = self.checks(cover("/proc"))
        self.assertEqual(checks["proc"]["state"], "problem")
        self.assertIn("mount -t proc", checks["proc"]["remedy"])
        self.assertEqual(checks["direct-path"]["state"], "problem")
        for name in ("memory", "seccomp"):
            self.assertIn("not known", checks[name]["text"])

    def test_small_files(self):
        checks = self.problems(limit(resource.RLIMIT_FSIZE, MIB), "sealed-memory",
                               "direct-path")
        self.assertIn("ulimit -f", checks["sealed-memory"]["remedy"])

    def test_reason_is_named(self):
        checks = self.problems(limit(resource.RLIMIT_NOFILE, 10), "direct-path")
        self.assertEqual(checks["direct-path"]["value"], "fd-limit")
        self.assertIn("ulimit -n", checks["direct-path"]["remedy"])


class Limits(Doctor):
    def test_descriptors(self):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        check = self.note("descriptors", limit(resource.RLIMIT_NOFILE, 64),
                          f"ulimit -n {min(hard, 1 << 20)}")
        self.assertEqual((check["value"], check["unit"]), (64, "descriptors"))
        self.note("descriptors", limit(resource.RLIMIT_NOFILE, 64, 64), "LimitNOFILE")
        if hard >= 4096:
            self.fine("descriptors", limit(resource.RLIMIT_NOFILE, 4096),
                      "up to 1024 connections")

    def test_address_space(self):
        check = self.note("address-space", limit(resource.RLIMIT_AS, 4096 * MIB), "ulimit -v")
        self.assertEqual((check["value"], check["unit"]), (4096, "MiB"))

    def test_no_new_privs(self):
        self.assertEqual(self.note("no-new-privs", no_new_privs)["value"], "1")

    def test_container(self):
        self.note("container", None, "namespaces", env={"container": "podman"})

    def test_settings(self):
        self.fine("settings", None)
        self.note("settings", None, "unset VIADUCT", env={"VIADUCT": "off"})
        self.note("settings", None, "deny port=1", env={"VIADUCT_RULES": "deny port=1"})
        self.note("settings", None, "unset VIADUCT_PROFILE", env={"VIADUCT_PROFILE": "off"})
        conf = self.tmp / "viaduct.conf"
        for text, said in (("spin = 0\nviaduct = off\n", "line 2 of"), ("deny", "first: deny"),
                           ("maybe", "config --check")):
            conf.write_text(text)
            conf.chmod(0o644)
            # The programs that doctor starts by itself do without it.
            self.note("settings", None, said, env={"XDG_CONFIG_HOME": str(self.tmp)})
        conf.write_text("spin = 0\n")
        self.fine("settings", None, env={"XDG_CONFIG_HOME": str(self.tmp)})

    def test_instructions(self):
        """As the machine has it: those that it lacks are named, and who stays on TCP for it."""
        if not machine.lacks_for_static():
            self.fine("instructions", None, "rdfsbase and xsavec")
            return
        check = self.note("instructions", None, "Statically linked programs in C stay on TCP")
        self.assertIn(machine.lacks_for_static(), check["text"])
        self.assertEqual("in Go" in check["text"], machine.lacks_for_go() is not None)

    def test_other_settings_do_not_matter(self):
        report = self.tmp / "report"
        self.problems(None, env={"VIADUCT_REPORT": str(report), "VIADUCT_LOG": "debug:stderr",
                                 "VIADUCT_UPGRADE_AFTER": "1000000"})
        self.assertFalse(report.exists())

    def test_overcommit(self):
        path = "/proc/sys/vm/overcommit_memory"
        self.as_root(path)
        self.note("overcommit", put(self.file("2\n"), path), "sysctl")
        self.fine("overcommit", put(self.file("1\n"), path), "is 1")

    def test_memory(self):
        self.as_root()
        check = self.note("memory", put(self.file("MemTotal: 99 kB\nMemAvailable:  2048 kB\n"),
                                        "/proc/meminfo"), "2 MiB")
        self.assertEqual((check["value"], check["unit"]), (2, "MiB"))

    @contextlib.contextmanager
    def group(self, controller):
        """A control group below our own; yields its folder and whether it is version 2."""
        if os.getuid() != 0:
            self.skipTest("needs root")
        own = dict(line.split(":", 2)[1:] for line in
                   pathlib.Path("/proc/self/cgroup").read_text().splitlines())
        v2 = controller not in own
        where = own.get("" if v2 else controller, "/")
        wanted = r" - cgroup2 " if v2 else rf" - cgroup \S+ \S*\b{controller}\b"
        for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
            if re.search(wanted, line):
                root, mount = line.split()[3:5]
                break
        else:
            self.skipTest("no control groups are mounted")
        folder = pathlib.Path(mount + where.removeprefix(root if root != "/" else ""))
        folder = folder / f"viaduct-doctor-{os.getpid()}" / "inner"
        try:
            folder.mkdir(parents=True)
        except OSError as e:
            self.skipTest(f"no control group can be made: {e}")
        try:
            yield folder.parent, v2
        finally:
            folder.rmdir()
            folder.parent.rmdir()

    def grouped(self, controller, settings):
        """In a group within one that is limited so: {file of version 1 or 2: text}. The
        inner one has a limit, too, which does not count: it is higher."""
        with self.group(controller) as (folder, v2):
            try:
                for name, text in settings[1 if v2 else 0].items():
                    (folder / name).write_text(text)
                    inner = folder / "inner" / name
                    if name.startswith("memory") and inner.exists():
                        inner.write_text(str(2 * int(text)))
                join = folder / "inner" / "cgroup.procs"
                with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as p:
                    join.write_text(str(p.pid))
            except OSError as e:
                self.skipTest(f"no limit can be set: {e}")
            return self.checks(lambda: join.write_text(str(os.getpid())))

    def test_memory_limit(self):
        for mib, state in ((200, "note"), (1024, "ok")):
            check = self.grouped("memory", ({"memory.limit_in_bytes": str(mib * MIB)},
                                            {"memory.max": str(mib * MIB)}))["memory-limit"]
            self.assertEqual((check["state"], check["value"], check["unit"]),
                             (state, mib, "MiB"))

    def test_cpu_quota(self):
        for quota, state in ((150000, "note"), (250000, "ok")):
            check = self.grouped("cpu", ({"cpu.cfs_period_us": "100000",
                                          "cpu.cfs_quota_us": str(quota)},
                                         {"cpu.max": f"{quota} 100000"}))["cpu-quota"]
            self.assertEqual((check["state"], check["value"], check["unit"]),
                             (state, quota / 100000, "processors"))


class Speed(Doctor):
    def test_one_processor(self):
        one = min(os.sched_getaffinity(0))
        checks = self.problems(lambda: os.sched_setaffinity(0, {one}))
        self.assertEqual((checks["processors"]["state"], checks["processors"]["value"]),
                         ("note", 1))
        for name in ("wake-up", "cache-line"):
            self.assertEqual((checks[name]["state"], checks[name]["value"]), ("note", ""))

    def test_two_processors(self):
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("has one processor only")
        checks = self.problems(None)
        self.assertEqual(checks["processors"]["state"], "ok")
        self.assertEqual(checks["processors"]["value"], len(os.sched_getaffinity(0)))
        for name, unit in (("wake-up", "us"), ("cache-line", "ns"), ("clock", "ns"),
                           ("sock-diag", "us"), ("loopback", "us")):
            self.assertEqual(checks[name]["unit"], unit)
            self.assertGreater(checks[name]["value"], 0, name)

    def test_load(self):
        self.as_root()
        self.note("load", put(self.file("9999.5 1.0 1.0 1/1 1\n"), "/proc/loadavg"), "9999.5")
        self.fine("load", put(self.file("0.5 1.0 1.0 1/1 1\n"), "/proc/loadavg"), "0.5")

    def test_files_of_the_system(self):
        halt_poll = "/sys/module/haltpoll/parameters/guest_halt_poll_ns"
        congestion = "/proc/sys/net/ipv4/tcp_congestion_control"
        clock = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
        for name, path, good, bad in (("halt-poll", halt_poll, "200000", "0"),
                                      ("congestion", congestion, "cubic", "bbr"),
                                      ("clock", clock, None, "hpet")):
            with self.subTest(name):
                self.as_root(path)
                check = self.note(name, put(self.file(bad + "\n"), path))
                self.assertIn(name == "halt-poll" and "do not poll" or bad, check["text"])
                if good:
                    self.fine(name, put(self.file(good + "\n"), path), good)

    def test_one_core(self):
        cpus = sorted(os.sched_getaffinity(0))[:2]
        path = "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list"
        if len(cpus) < 2:
            self.skipTest("has one processor only")
        self.as_root(path % cpus[1])
        same = self.file(f"{cpus[0]},{cpus[1]}\n")

        def before():
            os.sched_setaffinity(0, cpus)
            for cpu in cpus:
                put(same, path % cpu)()
        self.assertEqual(self.note("topology", before, "threads of one core")["value"], 1)

    def test_two_nodes(self):
        cpus = sorted(os.sched_getaffinity(0))[:2]
        if len(cpus) < 2:
            self.skipTest("has one processor only")
        self.as_root(f"/sys/devices/system/cpu/cpu{cpus[1]}")
        (self.tmp / "cpu" / "node77").mkdir(parents=True)

        def before():
            os.sched_setaffinity(0, cpus)
            put(self.tmp / "cpu", f"/sys/devices/system/cpu/cpu{cpus[1]}")()
        self.note("topology", before, "numactl")


class Hosts(Doctor):
    def test_no_device(self):
        self.as_root("/sys/class")
        (self.tmp / "class" / "none").mkdir(parents=True)
        self.note("rdma", put(self.tmp / "class", "/sys/class"), "stay on TCP")

    def test_device(self):
        self.as_root("/sys/class")
        (self.tmp / "class" / "infiniband" / "mlx5_0").mkdir(parents=True)
        check = self.fine("rdma", put(self.tmp / "class", "/sys/class"), "mlx5_0")
        self.assertEqual(check["value"], 1)

    def test_locked_memory(self):
        hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
        options = {}
        if os.getuid() == 0:  # whom the limit does not bind
            place = self.copy("viaduct", "libviaduct-preload.so")
            options = {"command": os.path.join(place, b"viaduct"), "user": 65534,
                       "group": 65534, "extra_groups": []}
        for mib, look, text in ((8, self.note, "room for 1 link. "),
                                (64, self.fine, "room for 14 links")):
            if hard == resource.RLIM_INFINITY or hard >= mib * MIB:
                look("locked-memory", limit(resource.RLIMIT_MEMLOCK, mib * MIB), text,
                     **options)

    def test_relay(self):
        self.as_root("/run")
        (self.tmp / "run").mkdir()
        self.note("daemon", put(self.tmp / "run", "/run"), "stay on TCP")
        (self.tmp / "run" / "viaduct").mkdir()
        (self.tmp / "run" / "viaduct" / "relay.sock").touch()
        check = self.fine("daemon", put(self.tmp / "run", "/run"))
        self.assertEqual(check["value"], "running")


    def test_near(self):
        """Set or not; and then whether it can be reached, and answers."""
        self.as_root("/run")
        place = self.tmp / "run" / "viaduct" / "near"
        place.mkdir(parents=True)
        look = put(self.tmp / "run", "/run")
        self.assertEqual(self.note("near-socket", look, "stay on TCP")["value"], "none")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            here = os.open(place, os.O_RDONLY)
            listener.bind(f"/proc/self/fd/{here}/near.sock")
            os.close(here)

            def problem(remedy):
                self.assertIn(remedy, self.problems(look, "near-socket")["near-socket"]["remedy"])
            problem("near-socket = ")
            listener.listen()
            problem("hangs")

            def answer():
                for _ in range(2):
                    with contextlib.suppress(OSError), listener.accept()[0] as line:
                        asked = bytearray(line.recv(4096))
                        asked[1], asked[8:44] = 5, bytes(36)
                        line.send(asked)
                        line.recv(1)

            # The one that has hung up is the first.
            thread = threading.Thread(target=answer)
            thread.start()
            self.assertEqual(self.fine("near-socket", look)["value"], "running")
            thread.join()

    def test_rewritten(self):
        """Whether viaductd may ask the kernel; one that is older hangs up."""
        self.as_root("/run")
        place = self.tmp / "run" / "viaduct" / "near"
        place.mkdir(parents=True)
        look = put(self.tmp / "run", "/run")
        self.note("rewritten", look, "near-socket")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            here = os.open(place, os.O_RDONLY)
            listener.bind(f"/proc/self/fd/{here}/near.sock")
            os.close(here)
            listener.listen()

            def answer(type, status):
                for _ in range(2):
                    with listener.accept()[0] as line:
                        said = bytearray(line.recv(4096)[:52])
                        said[1:3] = (type, status) if said[1] == 11 else (5, 0)
                        said[8:44] = bytes(36)
                        line.send(said)
                        line.recv(1)

            for type, status, judge, text in ((12, 17, self.fine, "viaductd tells"), (12, 16, self.note, "CAP_SYS_ADMIN"),
                                              (5, 1, self.note, "older")):
                thread = threading.Thread(target=answer, args=(type, status))
                thread.start()
                judge("rewritten", look, text)
                thread.join()


class Unused(Doctor):
    def test_single_copy(self):
        self.as_root()
        (self.tmp / "kernel" / "yama").mkdir(parents=True)
        (self.tmp / "kernel" / "yama" / "ptrace_scope").write_text("3\n")
        check = self.note("single-copy", put(self.tmp / "kernel", "/proc/sys/kernel"))
        self.assertEqual(check["value"], "3")

    def test_dev_shm(self):
        self.as_root("/dev/shm")
        check = self.note("dev-shm", cover("/dev/shm", flags=1))  # MS_RDONLY
        self.assertIn("cannot be written", check["text"])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[4:]])
