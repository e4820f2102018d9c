#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests that a hostile process can neither crash nor hold up the commands that look at it, nor
make them open or write what is not the library's.

usage: forged.py VIADUCT FORGED
"""
import os
import pathlib
import select
import shutil
import signal
import stat
import struct
import subprocess
import sys
import time
import unittest

from bed import Bed

VIADUCT, FORGED = map(os.path.abspath, sys.argv[1:3])
PATIENCE = 30  # less than a lease holds
LEASE_TIME = pathlib.Path("/proc/sys/fs/lease-break-time")


def elf(needed, rpath=b""):
    """A dynamic program with these libraries and this search path."""
    strings, offsets = b"\0", []
    for text in (*needed, rpath):
        offsets.append(len(strings))
        strings += text + b"\0"
    interpreter = b"/lib64/ld-linux-x86-64.so.2\0"
    at = 64 + 3 * 56
    dynamic_at = at + len(interpreter)
    tags = [(1, offset) for offset in offsets[:-1]] + [(15, offsets[-1])]
    strings_at = dynamic_at + 16 * (len(tags) + 3)
    tags += [(5, strings_at), (10, len(strings)), (0, 0)]
    size = strings_at + len(strings)

    def header(kind, offset, length):
        return struct.pack("<IIQQQQQQ", kind, 4, offset, offset, offset, length, length, 1)
    return (b"\x7fELF\2\1\1" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64,
                                                      56, 3, 0, 0, 0) +
            header(1, 0, size) + header(3, at, len(interpreter)) +
            header(2, dynamic_at, 16 * len(tags)) + interpreter +
            b"".join(struct.pack("<QQ", *tag) for tag in tags) + strings)


class Forged(Bed):
    def setUp(self):
        super().setUp()
        self.env["VIADUCT_CONFIG"] = ""

    def nodes(self):
        """Things that are no memory, and that nobody else opens meanwhile."""
        file, fifo, device = (self.tmp / name for name in ("file", "fifo", "device"))
        file.touch()
        os.mkfifo(fifo)
        try:
            os.mknod(device, 0o600 | stat.S_IFCHR, os.makedev(1, 7))
        except PermissionError:
            return file, fifo
        return file, fifo, device

    def start(self, *arguments):
        """A hostile process, whose program bears the library's name."""
        program = self.tmp / "libviaduct-forged"
        if not program.exists():
            shutil.copy(FORGED, program)
        process = subprocess.Popen([program, *arguments], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, bufsize=0)
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        said = self.line(process)
        if said == "skip":
            self.skipTest("no mount namespace can be made here")
        self.assertEqual(said, "ready")
        return process

    def line(self, process):
        ready = select.select([process.stdout], [], [], PATIENCE)[0]
        return process.stdout.readline().decode().strip() if ready else "(nothing)"

    def says_nothing(self, process):
        """No event of an open is there, once the process has had the processor again."""
        time.sleep(0.1)
        self.assertEqual(select.select([process.stdout], [], [], 0)[0], [])

    def run_command(self, *arguments):
        result = subprocess.run([VIADUCT, *arguments], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=self.env, timeout=PATIENCE, check=False)
        self.assertGreaterEqual(result.returncode, 0, f"{arguments}: ended by a signal")
        return result

    def looks(self, pid):
        yield from (["stat"], ["stat", "--pid", str(pid)], ["stat", "--json"],
                    ["stat", "--prometheus"], ["explain", str(pid)])

    def trace(self, pid, *arguments):
        return self.run_command("trace", "-o", str(self.tmp / "trace"), *arguments, str(pid))

    def test_counts_that_change(self):
        process = self.start("flip")
        for _ in range(8):
            for command in self.looks(process.pid):
                self.run_command(*command)

    def test_a_name_is_no_table(self):
        root = self.tmp / "root"
        root.mkdir()
        for node in self.nodes():
            process = self.start("named", str(node), str(root))
            for command in self.looks(process.pid):
                self.assertIn(self.run_command(*command).returncode, (0, 1), command)
            self.trace(process.pid)
            self.says_nothing(process)

    def test_a_lease_holds_nobody_up(self):
        process = self.start("lease")
        if int(LEASE_TIME.read_text()) < 30:
            self.skipTest("a lease ends too soon to be told from a busy machine")
        for command in self.looks(process.pid):
            self.run_command(*command)
        self.trace(process.pid)

    def test_a_name_does_not_speak_to_the_terminal(self):
        for bad in ("\x1b]0;PWNED\x07", "\x9b2J", "\u202e"):
            name = self.tmp / f"name{bad}"
            name.touch()
            with open(name, encoding="utf-8") as file:
                process = subprocess.Popen(["sleep", "1000"], pass_fds=[file.fileno()])
                self.addCleanup(lambda p=process: (p.kill(), p.wait()))
                for command in ([f"{process.pid}:{file.fileno()}"], ["--", str(name)],
                                ["--json", "--", str(name)]):
                    said = self.run_command("explain", *command)
                    self.assertNotEqual(said.stdout + said.stderr, "")
                    self.assertNotIn(bad[0], said.stdout + said.stderr, command)

    def explain_elf(self, *arguments):
        program = self.tmp / "program"
        program.write_bytes(elf(*arguments))
        program.chmod(0o755)
        result = self.run_command("explain", "--libs", "--", str(program))
        self.assertIn("is not found, or is not what", " ".join(result.stdout.split()))

    def test_a_search_path_without_end(self):
        self.explain_elf([b"none%d.so" % i for i in range(100)], b"$ORIGIN/a:" * (2 << 20))
        self.explain_elf([b"none.so"], b"x" * (32 << 20))

    def test_libraries_that_are_none(self):
        for node in self.nodes():
            process = self.start("watch", str(node))
            self.explain_elf([bytes(node)])
            self.explain_elf([bytes(node.name, "utf-8")], bytes(self.tmp))
            if not stat.S_ISREG(node.stat().st_mode):
                self.says_nothing(process)

    def test_an_answer_names_no_buffer(self):
        for node in self.nodes():
            process = self.start("node", str(node))
            result = self.trace(process.pid)
            self.assertEqual(result.returncode, 1)
            self.assertIn("the buffer of libviaduct-forg", result.stderr)
            self.says_nothing(process)

    def test_another_program_is_not_written_to(self):
        process = self.start("become")
        tracer = subprocess.Popen([VIADUCT, "trace", "-o", self.tmp / "trace",
                                   str(process.pid)], env=self.env, stderr=subprocess.PIPE,
                                  text=True)
        self.assertEqual(self.line(process), "victim")
        tracer.send_signal(signal.SIGINT)
        tracer.communicate(timeout=PATIENCE)
        process.stdin.write(b"\n")
        self.assertEqual(self.line(process), "untouched")

    def test_memory_that_is_not_the_librarys(self):
        process = self.start("elsewhere")
        result = self.trace(process.pid, "--seconds", "0.1")
        self.assertEqual(result.returncode, 1)
        self.assertIn("its table names memory that is not the library's", result.stderr)
        process.stdin.write(b"\n")
        self.assertEqual(self.line(process), "untouched")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
