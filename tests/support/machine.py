# SPDX-License-Identifier: Apache-2.0
"""What programs need of the processor and the kernel to be followed, where they make system calls past the C
library: docs/static.md, docs/go.md. Tests of such programs are skipped on a machine that lacks it."""
import pathlib
import re
import struct
import sys

SKIP = 77
AT_HWCAP2, FSGSBASE = 26, 2


def has_rdfsbase():
    """As the kernel tells every program."""
    vector = pathlib.Path("/proc/self/auxv").read_bytes()
    return any(name == AT_HWCAP2 and value & FSGSBASE for name, value in struct.iter_unpack("=QQ", vector))


def has_xsavec():
    return bool(re.search(r"^flags\s*:.*\bxsavec\b", pathlib.Path("/proc/cpuinfo").read_text(encoding="ascii"), re.M))


def lacks_for_go():
    """For those that are linked dynamically: what is missing, or None."""
    return None if has_rdfsbase() else "this processor or kernel has no rdfsbase"


def lacks_for_static():
    """For those with a C library in them."""
    return lacks_for_go() or (None if has_xsavec() else "this processor or kernel has no xsavec")


def skip_where(lacks):
    """Ends the test, whatever the program, where the machine lacks that."""
    if lacks:
        print(f"skipped: {lacks}: such programs stay on TCP")
        sys.exit(SKIP)
