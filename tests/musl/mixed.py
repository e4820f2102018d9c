#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs of musl and of glibc with each other under Viaduct: what each end says is as on TCP, the
counters show that the rings were used, and each program starts with the library for its C library.

usage: mixed.py VIADUCT TALK-GLIBC TALK-MUSL STARTS-GLIBC STARTS-MUSL
"""
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from bed import Bed  # noqa: E402

VIADUCT = os.path.abspath(sys.argv[1])
TALK = dict(zip(("glibc", "musl"), map(os.path.abspath, sys.argv[2:4])))
STARTS = dict(zip(("glibc", "musl"), map(os.path.abspath, sys.argv[4:6])))
LIBRARY = {"glibc": "libviaduct-preload.so", "musl": "libviaduct-preload-musl.so"}
OTHER = {"glibc": "musl", "musl": "glibc"}
CALLS = ("execv", "execlp", "fexecve", "posix_spawn", "posix_spawnp", "system", "popen", "wordexp",
         "vfork", "syscall")


class Mixed(Bed):
    def talk(self, server, caller, prefix=()):
        """What the two ends say."""
        env = {**self.env, "OTHER": TALK[OTHER[server]]}
        with subprocess.Popen([*prefix, TALK[server], "serve"], stdout=subprocess.PIPE,
                              env=env, text=True) as s:
            port = s.stdout.readline().strip()
            env["OTHER"] = TALK[OTHER[caller]]
            called = subprocess.run([*prefix, TALK[caller], "call", port], check=False,
                                    stdout=subprocess.PIPE, env=env, text=True)
            if called.returncode:
                s.kill()
            served = s.stdout.read()
        return called.stdout, served

    def test_both_ends(self):
        for threshold, (server, caller) in itertools.product(
                ([], ["--upgrade-after", "0"]), (("musl", "musl"), ("musl", "glibc"),
                                                 ("glibc", "musl"))):
            with self.subTest(server=server, caller=caller, threshold=threshold):
                plain = self.talk(server, caller)
                self.assertTrue(plain[0].endswith("end\n") and plain[1].endswith("end\n"), plain)
                report = self.tmp / "report"
                report.unlink(missing_ok=True)
                ours = self.talk(server, caller,
                                 [VIADUCT, "run", *threshold, "--report", report, "--"])
                self.assertEqual(ours, plain)
                lines = [json.loads(line) for line in report.read_text().splitlines()]
                for end in {server, caller}:
                    mine = [x for x in lines if x["program"] == os.path.basename(TALK[end])]
                    # By default one that saves little in a crowd keeps the next from it.
                    least = 11 if threshold else 1
                    self.assertGreaterEqual(sum(x["upgraded"] for x in mine), least, mine)
                    for key in ("tx_direct_bytes", "rx_direct_bytes"):
                        self.assertGreater(sum(x[key] for x in mine), 10000, mine)

    def starts(self, prefix, *command, env=None):
        done = subprocess.run([*map(str, prefix), *map(str, command)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=60, check=False,
                              env={**self.env, **(env or {})})
        return done.returncode, done.stdout, done.stderr

    def test_each_start(self):
        for parent, child, call in itertools.product(STARTS, STARTS, CALLS):
            with self.subTest(parent=parent, child=child, call=call):
                got = self.starts([VIADUCT, "run", "--"], STARTS[parent], call, STARTS[child])
                self.assertEqual(got, (3, LIBRARY[child] + "\n", ""))

    def test_switched_off(self):
        for call in CALLS:
            got = self.starts([VIADUCT, "run", "--off", "--"], STARTS["musl"], call,
                              STARTS["glibc"])
            self.assertEqual(got, (3, LIBRARY["glibc"] + "\n", ""), call)

    def test_through_others(self):
        chain = f"{STARTS['musl']} system '{STARTS['glibc']} popen {STARTS['musl']}'"
        self.assertEqual(self.starts([VIADUCT, "run", "--"], "sh", "-c", chain),
                         (3, LIBRARY["musl"] + "\n", ""))
        script = self.tmp / "script"
        script.write_text(f"#!{STARTS['musl']} execv\n")
        script.chmod(0o755)
        # It starts itself: a script whose interpreter is of musl, found by a program of glibc.
        got = self.starts([VIADUCT, "run", "--"], "env", "sh", "-c",
                          f"exec {STARTS['musl']} execv {STARTS['glibc']}")
        self.assertEqual(got, (3, LIBRARY["glibc"] + "\n", ""))

    def test_what_else_is_preloaded_stays(self):
        for parent in STARTS:
            shown = self.starts([VIADUCT, "run", "--"], STARTS[parent], "execv", STARTS["musl"],
                                env={"LD_PRELOAD": "libnothing-of-this-name.so", "ALL": "1"})[1]
            if parent == "musl":  # glibc's loader would complain
                self.assertRegex(shown, r"^/\S+/libviaduct-preload-musl\.so:libnothing\S+\n$")

    def place(self):
        """A folder with what there is where the library for musl is not installed."""
        place = self.tmp / "place"
        place.mkdir()
        for name in ("viaduct", LIBRARY["glibc"]):
            shutil.copy(os.path.join(os.path.dirname(VIADUCT), name), place / name)
        return place / "viaduct"

    @unittest.skipIf(any(os.path.exists(f"{d}/{LIBRARY['musl']}") for d in
                         ("/usr/local/lib/x86_64-linux-gnu",
                          "/usr/lib/x86_64-linux-gnu/viaduct")), "it is installed")
    def test_library_is_missing(self):
        viaduct = self.place()
        status, _, said = self.starts([viaduct, "run", "--"], STARTS["musl"])
        self.assertEqual(status, 126)
        self.assertIn("libviaduct-preload-musl.so is neither", said)
        self.assertEqual(self.starts([viaduct, "run", "--tcp-anyway", "--"], STARTS["musl"]),
                         (3, "nothing\n", ""))
        log = self.tmp / "log"
        for call in CALLS:
            got = self.starts([viaduct, "run", "--log", f"info:{log}", "--"], STARTS["glibc"],
                              call, STARTS["musl"])
            self.assertEqual(got, (3, "nothing\n", ""), call)
        self.assertIn("libviaduct-preload-musl.so cannot be found", log.read_text())
        answer = self.explained(viaduct)
        self.assertIn("libviaduct-preload-musl.so", answer)
        self.assertIn("would stay on TCP", answer)

    def explained(self, viaduct):
        """Where lines break depends on how long the paths are."""
        return " ".join(self.starts([viaduct, "explain", "--"], STARTS["musl"])[1].split())

    def test_explain(self):
        answer = self.explained(VIADUCT)
        self.assertIn("for musl on x86-64", answer)
        self.assertIn("can be accelerated", answer)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
