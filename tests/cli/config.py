#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests configuration files: what `viaduct config` says of them, and what programs make of them.

usage: config.py VIADUCT MANUAL MANUAL-OF-FILE SYSCONFDIR
"""
import ctypes
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

from bed import Bed

VIADUCT, MANUAL, MANUAL_FILE, SYSCONFDIR = map(os.path.abspath, sys.argv[1:5])
PYTHON = sys.executable
NOBODY = 65534
# Both ends of a connection, which makes enough operations to be upgraded by any profile.
TALK = """
import socket
l = socket.create_server(("127.0.0.1", {port}))
a = socket.create_connection(l.getsockname())
b = l.accept()[0]
for i in range(300):
    a.sendall(b"to"); assert b.recv(2, socket.MSG_WAITALL) == b"to"
    b.sendall(b"fro"); assert a.recv(3, socket.MSG_WAITALL) == b"fro"
"""


class Config(Bed):
    def setUp(self):
        super().setUp()
        self.home = self.tmp / "home"
        (self.home / ".config").mkdir(parents=True)
        self.env.pop("XDG_CONFIG_HOME", None)
        self.env["HOME"] = str(self.home)
        self.report = self.tmp / "report"

    def file(self, text, name="conf", mode=0o644):
        path = self.tmp / name
        path.write_text(text)
        path.chmod(mode)
        return path

    def user_file(self, text, mode=0o644):
        return self.file(text, "home/.config/viaduct.conf", mode)

    def viaduct(self, *args, env=None, **options):
        return subprocess.run([VIADUCT, *map(str, args)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=60,
                              stdin=subprocess.DEVNULL,
                              env={**self.env, **(env or {})}, **options)

    def seen(self, *args, status=0, **options):
        """The object that --json prints, once the table was found to say the same."""
        result = self.viaduct("config", "--json", *args, **options)
        self.assertEqual((result.returncode, result.stderr), (status, ""), result.stdout)
        seen = json.loads(result.stdout)
        self.assertEqual(status, 1 if seen["problems"] else 0)
        table = self.viaduct("config", *args, **options)
        self.assertEqual((table.returncode, table.stderr), (status, ""))
        self.compare(seen, table.stdout)
        return seen

    def origin(self, place):
        if place["origin"] == "default":
            return "default"
        where = (f"{place['file']}:{place['line']}" if place["file"]
                 else f"environment, {place['variable']}")
        return f"profile {place['profile']}, {where}" if place.get("profile") else where

    def compare(self, seen, table):
        lines = [re.split(r"\s{2,}", line.strip()) for line in table.splitlines()]
        for s in seen["settings"]:
            self.assertIn([s["name"], s["value"], self.origin(s)], lines)
        for i, r in enumerate(seen["rules"], 1):
            self.assertIn([str(i), r["rule"], self.origin(r)], lines)
        for f in seen["files"]:
            self.assertIn([f"{f['path']}: " + {"read": "read", "absent": "not there"}.get(
                f["state"], f["text"])], lines)
        for p in seen["problems"]:
            self.assertIn([f"{p['place']}: {p['text']}"], lines)
        for s in seen["sections"]:
            self.assertEqual([s["program"], f"{s['file']}:{s['line']}"] in lines,
                             not seen["program"] and s["program"] != "*")
        self.assertEqual("Every connection stays on TCP, because" in table,
                         seen["doubt"] and not seen["off"])
        self.assertEqual("Viaduct is off" in table, seen["off"])

    def settings(self, seen):
        return {s["name"]: (s["value"], self.origin(s)) for s in seen["settings"]}

    def rules(self, seen):
        return [(r["rule"], self.origin(r)) for r in seen["rules"]]

    def talk(self, *options, port=0, program=PYTHON, **more):
        """The report of a program that speaks with itself."""
        self.report.unlink(missing_ok=True)
        result = self.viaduct("run", "--report", self.report, *options, "--", program, "-c",
                              TALK.format(port=port), **more)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        lines = self.report.read_text().splitlines()
        self.assertEqual(len(lines), 1)
        return json.loads(lines[0])

    def upgraded(self, *options, **more):
        report = self.talk(*options, **more)
        self.assertEqual((report["connections"], report["upgraded"]), (2, 2), report)
        self.assertGreater(report["tx_direct_bytes"], 0)
        return report

    def on_tcp(self, reason, *options, **more):
        report = self.talk(*options, **more)
        self.assertEqual((report["upgraded"], report["tx_direct_bytes"]), (0, 0), report)
        if reason:
            self.assertEqual(report["reasons"], {reason: 2})
        return report


class Shown(Config):
    def test_nothing_is_set(self):
        seen = self.seen()
        if [f for f in seen["files"] if f["state"] != "absent"]:
            self.skipTest("this machine has a file of its own")
        self.assertEqual([f["path"] for f in seen["files"]],
                         [f"{SYSCONFDIR}/viaduct.conf", f"{self.home}/.config/viaduct.conf"])
        self.assertEqual({s["origin"] for s in seen["settings"]}, {"default"})
        self.assertEqual({s["name"]: s["value"] for s in seen["settings"]},
                         {"profile": "default", "viaduct": "on", "upgrade-after": "16",
                          "spin": "auto", "ring-max": "4M", "redirect": "auto",
                          "registration": "keep", "io-uring": "refuse", "go": "follow", "static": "leave", "log": "off",
                          "report": "none"})
        self.assertEqual((seen["rules"], seen["off"], seen["doubt"]), ([], False, False))

    def test_places(self):
        conf = self.file("profile = latency\nring-max=16K\n\ndeny port=1; deny port=2\n"
                         "log = off\n")
        env = {"VIADUCT_CONFIG": str(conf), "VIADUCT_SPIN": "7",
               "VIADUCT_RULES": "allow port=3"}
        seen = self.seen(env=env)
        self.assertEqual(self.settings(seen), {
            "profile": ("latency", f"{conf}:1"),
            "viaduct": ("on", f"profile latency, {conf}:1"),
            "upgrade-after": ("0", f"profile latency, {conf}:1"),
            "spin": ("7", "environment, VIADUCT_SPIN"),
            "ring-max": ("16K", f"{conf}:2"),
            "redirect": ("auto", "default"),
            "registration": ("keep", "default"),
            "io-uring": ("refuse", "default"),
            "go": ("follow", "default"),
            "static": ("leave", "default"),
            "log": ("off", f"{conf}:5"),
            "report": ("none", "default")})
        self.assertEqual(self.rules(seen), [
            ("allow port=3", "environment, VIADUCT_RULES"),
            ("deny port=1", f"{conf}:4"), ("deny port=2", f"{conf}:4")])
        seen = self.settings(self.seen(env={**env, "VIADUCT_PROFILE": "frugal"}))
        self.assertEqual(seen["ring-max"],
                         ("256K", "profile frugal, environment, VIADUCT_PROFILE"))
        self.assertEqual(seen["spin"], ("7", "environment, VIADUCT_SPIN"))

    def test_programs(self):
        conf = self.file("deny port=1\n[program=nginx]\nprofile = throughput\n"
                         "deny port=2\n[program=*]\ndeny port=3 program=nginx\n"
                         "deny port=4 program=redis-*\n")
        env = {"VIADUCT_CONFIG": str(conf)}
        seen = self.seen(env=env)
        self.assertEqual([s["program"] for s in seen["sections"]], ["nginx", "*"])
        self.assertEqual(self.settings(seen)["profile"], ("default", "default"))
        self.assertEqual([r["line"] for r in seen["rules"]], [1, 6, 7])
        for name in ("nginx", "/usr/sbin/nginx"):
            seen = self.seen("--program", name, env=env)
            self.assertEqual(seen["program"], "nginx")
            self.assertEqual(self.settings(seen)["profile"], ("throughput", f"{conf}:3"))
            self.assertEqual([r["line"] for r in seen["rules"]], [1, 4, 6])
        seen = self.seen("--program", "redis-server", env=env)
        self.assertEqual([r["line"] for r in seen["rules"]], [1, 7])

    def test_nothing_speaks_to_a_terminal(self):
        for locale, name in (("C.UTF-8", "/tmp/?[31mé"), ("C", r"/tmp/?[31m\xc3\xa9")):
            table = self.viaduct("config", env={"VIADUCT_REPORT": "/tmp/\x1b[31mé",
                                                "LC_ALL": locale}).stdout
            self.assertIn(f"  {name}  environment, VIADUCT_REPORT\n", table)

    def test_off(self):
        self.user_file("viaduct = on\n")
        seen = self.seen(env={"VIADUCT": "off"})
        self.assertEqual((seen["off"], seen["files"]), (True, []))
        seen = self.seen(env={"VIADUCT_CONFIG": str(self.file("profile = off\n"))})
        self.assertTrue(seen["off"])

    def test_mistakes(self):
        conf = self.file('spin = "\x01é\n[program=other]\nalow\n')
        seen = self.seen(env={"VIADUCT_CONFIG": str(conf), "VIADUCT_RING_MAX": "1"}, status=1)
        self.assertEqual([p["place"] for p in seen["problems"]],
                         [f"{conf}:1", f"{conf}:3", "VIADUCT_RING_MAX=1"])
        self.assertIn('"\x01é', seen["problems"][0]["text"])
        self.assertFalse(seen["doubt"])
        self.assertTrue(self.seen("--program", "other", status=1,
                                  env={"VIADUCT_CONFIG": str(conf)})["doubt"])
        self.assertTrue(self.seen(env={"VIADUCT_CONFIG": "/nonexistent"}, status=1)["doubt"])
        self.assertTrue(self.seen(env={"VIADUCT_RULES": "maybe"}, status=1)["doubt"])

    def test_files_that_are_ignored(self):
        path = self.user_file("spin = 1\n", 0o666)
        seen = self.seen(status=1)
        self.assertEqual(seen["files"][-1]["state"], "loose")
        self.assertEqual(seen["problems"][0]["place"], str(path))
        self.assertIn("chmod go-w", seen["problems"][0]["text"])
        if os.getuid() == 0:
            path.chmod(0o644)
            os.chown(path, NOBODY, -1)
            seen = self.seen()
            self.assertEqual(seen["files"][-1]["state"], "foreign")
            self.assertEqual(self.settings(seen)["spin"], ("auto", "default"))

    def test_check(self):
        good = self.file("# good\nspin = auto\n[program=x*]\nallow uid=0-9 port=1-2\n", "good")
        bad = self.file("spin = 1\n\nspin = 2\n[program=x]\nallow prot=1\n", "bad", 0o666)
        env = {"VIADUCT_SPIN": "nonsense", "VIADUCT_RULES": "nonsense"}
        result = self.viaduct("config", "--check", good, env=env)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))
        result = self.viaduct("config", "--check", good, bad, "/nonexistent", good, env=env)
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertEqual([line.split(": ")[0] for line in result.stderr.splitlines()],
                         [f"{bad}:3", f"{bad}:5", "/nonexistent"])
        mixed = self.file("allow prot=1\nspin = x\n[x]\ndeny port=x\ngo = x\n", "mixed")
        found = [f"{mixed}:{line}" for line in range(1, 6)]
        result = self.viaduct("config", "--check", mixed, env=env)
        self.assertEqual([line.split(": ")[0] for line in result.stderr.splitlines()], found)
        result = self.viaduct("config", "--check", env={**env, "VIADUCT_CONFIG": str(mixed)})
        self.assertEqual([line.split(": ")[0] for line in result.stderr.splitlines()],
                         [*found, "VIADUCT_SPIN=nonsense", "VIADUCT_RULES=nonsense"])
        result = self.viaduct("config", "--check", "good", cwd=self.tmp)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        result = self.viaduct("config", "--check", env={"VIADUCT_CONFIG": str(good)})
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))
        result = self.viaduct("config", "--check",
                              env={**env, "VIADUCT_CONFIG": str(good)})
        self.assertEqual(result.returncode, 1)
        self.assertEqual([line.split(": ")[0] for line in result.stderr.splitlines()],
                         ["VIADUCT_SPIN=nonsense", "VIADUCT_RULES=nonsense"])
        for slip in ("VIADUCT_SPI", "VIADUCT_SPPIN", "VIADUCT_SPIM", "VIADUCT_SPNI"):
            result = self.viaduct("config", "--check", env={slip: "1"})
            self.assertEqual((result.returncode, result.stdout), (1, ""), slip)
            self.assertEqual(result.stderr, f"{slip}=1: there is no such variable; "
                             "did you mean VIADUCT_SPIN?\n")

    def test_usage(self):
        for args in (["--nonsense"], ["file"], ["--check", "--json"], ["--program"],
                     ["--check", "--program", "x"]):
            result = self.viaduct("config", *args)
            self.assertEqual((result.returncode, result.stdout), (2, ""), args)
            self.assertIn("usage:", result.stderr + "usage:" * (args == ["--program"]))
        result = self.viaduct("config", "--help")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        manual = pathlib.Path(MANUAL).read_text().replace("\\-", "-")
        for option in re.findall(r"^  (--\w+)", result.stdout, re.M):
            self.assertIn(option, manual)

    def test_output_is_lost(self):
        with open("/dev/full", "w") as full:
            for args in ([], ["--json"]):
                result = subprocess.run([VIADUCT, "config", *args], stdout=full,
                                        stderr=subprocess.PIPE, text=True, env=self.env)
                self.assertEqual(result.returncode, 1)
                self.assertIn("cannot be written", result.stderr)

    def test_manual_has_the_profiles_and_a_good_example(self):
        manual = pathlib.Path(MANUAL_FILE).read_text().replace("\\-", "-")
        table = re.findall(r"^(\w+)\t(\w+)\t(\d+)\t(\w+)\t(\w+)$", manual, re.M)
        self.assertEqual(len(table), 5)
        for profile, *values in table:
            seen = self.settings(self.seen(env={
                "VIADUCT_CONFIG": str(self.file(f"profile = {profile}\n"))}))
            self.assertEqual([seen[name][0] for name in ("viaduct", "upgrade-after", "spin",
                                                         "ring-max")], values)
        example = re.search(r"^\.nf\n(.*?)^\.fi", manual, re.M | re.S).group(1)
        result = self.viaduct("config", "--check", self.file(example))
        self.assertEqual((result.returncode, result.stderr), (0, ""))


class InForce(Config):
    """Programs under `viaduct run`."""

    def test_files(self):
        self.upgraded()
        path = self.user_file("deny addr=127.0.0.0/8\n")
        self.on_tcp("rule")
        self.on_tcp("rule", env={"XDG_CONFIG_HOME": "relative"})
        self.upgraded(env={"VIADUCT_RULES": "allow"})
        self.upgraded(env={"XDG_CONFIG_HOME": str(self.tmp)})
        self.upgraded("--config", "")
        other = self.file("deny uid=0-4294967294\n")
        path.unlink()
        self.on_tcp("rule", "--config", other)
        self.on_tcp("rule", "--config", "conf", cwd=self.tmp)
        self.on_tcp("rule", env={"VIADUCT_CONFIG": str(other)})

    def test_sections(self):
        name = os.path.basename(os.path.realpath(PYTHON))
        self.user_file(f"[program={name}]\nprofile = off\n")
        self.assertEqual(self.talk()["upgraded"], 0)
        self.upgraded("--profile", "latency")
        self.user_file("[program=no-such-program]\nprofile = off\ndeny\n")
        self.upgraded()

    def test_profiles(self):
        counts = {}
        for profile in ("latency", "default", "throughput", "frugal"):
            report = self.upgraded("--profile", profile)
            counts[profile] = report["tx_tcp_bytes"]
            self.user_file(f"profile = {profile}\n")
            self.assertEqual(self.upgraded()["tx_tcp_bytes"], counts[profile])
            self.user_file("")
        # The later the upgrade, the more goes by TCP.
        self.assertEqual(sorted(counts, key=counts.get), list(counts))
        self.assertEqual(self.talk("--profile", "off")["upgraded"], 0)

    def test_mistakes_are_found_before_the_start(self):
        path = self.user_file("spin = 1\nspin = 2\n[program=other]\nalow\n")
        result = self.viaduct("run", "--", "echo", "started")
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertEqual([line.split(": ")[:2] for line in result.stderr.splitlines()],
                         [["viaduct run", f"{path}:2"], ["viaduct run", f"{path}:4"]])
        for options in (["--off"], ["--config", ""]):
            result = self.viaduct("run", *options, "--", "echo", "started")
            self.assertEqual((result.returncode, result.stdout, result.stderr),
                             (0, "started\n", ""))
        self.user_file("spin = 1\n", 0o664)
        result = self.viaduct("run", "--", "echo", "started")
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn("chmod go-w", result.stderr)
        if os.getuid() == 0:
            os.chown(self.user_file("spin = 1\nnonsense\n"), NOBODY, -1)
            result = self.viaduct("run", "--", "echo", "started")
            self.assertEqual((result.returncode, result.stdout, result.stderr),
                             (0, "started\n", ""))

    def test_bad_options(self):
        for options in (["--config", "/nonexistent"], ["--config", str(self.tmp)],
                        ["--profile", "fast"], ["--profile", ""]):
            result = self.viaduct("run", *options, "--", "echo", "started")
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertIn(f"{options[0]} cannot be `{options[1]}`: ", result.stderr)

    def preloaded(self, **variables):
        """Without viaduct run, as a service manager may have it."""
        self.report.unlink(missing_ok=True)
        env = {**self.env, "VIADUCT_REPORT": str(self.report), **variables,
               "LD_PRELOAD": os.path.join(os.path.dirname(VIADUCT), "libviaduct-preload.so")}
        result = subprocess.run([PYTHON, "-c", TALK.format(port=0)], env=env,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))
        return json.loads(self.report.read_text())

    def test_mistakes_in_the_library(self):
        log = self.tmp / "log"
        conf = self.user_file(f"log = error:{log}\nspin = x\n")
        self.assertEqual(self.preloaded()["upgraded"], 2)
        self.assertIn(f" error {conf}:2: spin = x: ", log.read_text())
        self.assertIn("; it is skipped\n", log.read_text())
        for text in ("allow port=1\nalow\n", "#" * 65537):
            self.user_file(f"log = error:{log}\n" + text)
            log.unlink(missing_ok=True)
            report = self.preloaded(VIADUCT_LOG=f"error:{log}")
            self.assertEqual((report["upgraded"], report["reasons"]), (0, {"rule": 2}))
            self.assertRegex(log.read_text(), f" error {conf}:.*every connection stays on TCP")
        report = self.preloaded(VIADUCT_CONFIG="relative")
        self.assertEqual(report["reasons"], {"rule": 2})

    def test_system_file(self):
        if os.getuid() != 0 or not os.path.isdir(SYSCONFDIR):
            self.skipTest(f"needs root, and {SYSCONFDIR}")
        libc = ctypes.CDLL(None, use_errno=True)
        place = self.tmp / "etc"
        place.mkdir()

        def private():
            if libc.unshare(0x00020000) or \
                    libc.mount(b"none", b"/", None, 0x4000 | 0x40000, None) or \
                    libc.mount(os.fsencode(place), os.fsencode(SYSCONFDIR), None, 0x1000, None):
                raise OSError(ctypes.get_errno(), "mount")

        try:
            subprocess.run(["true"], preexec_fn=private, check=True)
        except subprocess.SubprocessError:
            self.skipTest("no mount namespace can be made here")
        self.file("profile = frugal\ndeny port=2\n", "etc/viaduct.conf")
        system = f"{SYSCONFDIR}/viaduct.conf"
        user = self.user_file("ring-max = 16K\ndeny port=1\n")
        seen = self.seen(preexec_fn=private)
        self.assertEqual(self.rules(seen), [("deny port=1", f"{user}:2"),
                                            ("deny port=2", f"{system}:2")])
        self.assertEqual(self.settings(seen)["ring-max"], ("16K", f"{user}:1"))
        self.assertEqual(self.settings(seen)["spin"], ("0", f"profile frugal, {system}:1"))
        user.unlink()
        self.file("deny\n", "etc/viaduct.conf")
        self.on_tcp("rule", preexec_fn=private)
        self.upgraded(preexec_fn=private, env={"VIADUCT_CONFIG": ""})
        # Whoever is not root has no say for all users.
        os.chown(place / "viaduct.conf", NOBODY, -1)
        self.upgraded(preexec_fn=private)

    def test_user_who_runs_it(self):
        if os.getuid() != 0:
            self.skipTest("needs root")
        # The build folder may be closed to others.
        for name in ("viaduct", "libviaduct-preload.so"):
            shutil.copy(os.path.join(os.path.dirname(VIADUCT), name), self.tmp / name)
        conf = self.file("allow uid=0\ndeny\n")
        self.upgraded("--config", conf)
        env = {**self.env, "VIADUCT_CONFIG": str(conf),
               "VIADUCT_REPORT": str(self.file("", "report", 0o666)),
               "LD_PRELOAD": str(self.tmp / "libviaduct-preload.so")}
        python = shutil.which("python3", path="/usr/bin:/bin") or self.skipTest("no python3")
        result = subprocess.run([python, "-c", TALK.format(port=0)], env=env, user=NOBODY,
                                group=NOBODY, extra_groups=[], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(json.loads(self.report.read_text())["reasons"], {"rule": 2})


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[5:]])
