#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A statically linked program is not started by `viaduct run`, unless the setting says so; nor does it run
with code that can be written.

usage: left.py VIADUCT PROGRAM
"""
import ctypes
import errno
import os
import pathlib
import signal
import struct
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import machine  # noqa: E402

VIADUCT, PROGRAM = (os.path.abspath(p) for p in sys.argv[1:3])


def refuse_code():
    """mprotect to readable and executable fails from now on."""
    libc = ctypes.CDLL(None, use_errno=True)
    load, equal, end = 0x20, 0x15, 0x06
    lines = b"".join(struct.pack("HBBI", *line) for line in (
        (load, 0, 0, 0), (equal, 0, 3, 10), (load, 0, 0, 32), (equal, 0, 1, 5),
        (end, 0, 0, 0x00050000 | errno.EPERM), (end, 0, 0, 0x7fff0000)))
    keep = ctypes.create_string_buffer(lines)
    program = struct.pack("HxxxxxxP", len(lines) // 8, ctypes.addressof(keep))
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


class TestLeft(unittest.TestCase):
    def test_is_left(self):
        done = subprocess.run([VIADUCT, "run", "--", PROGRAM, "--list"], check=False,
                              capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (126, ""))
        self.assertIn(machine.lacks_for_static() or "--static follow", done.stderr)

    @unittest.skipIf(machine.lacks_for_static(), "it is not followed here")
    def test_writable_code(self):
        done = subprocess.run([VIADUCT, "run", "--static", "follow", "--", PROGRAM, "--list"],
                              preexec_fn=refuse_code, check=False, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (-signal.SIGILL, ""))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
