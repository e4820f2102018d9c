#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The address space that Viaduct takes at its start must not grow.

usage: space.py VIADUCT

A program may limit its address space by itself (vsftpd: 200 MB), and Viaduct leaves half of the limit
to it: what is taken at the start is then missing for connections.
"""
import subprocess
import sys

# docs/limits.md names it. 8 MB of it are the table of descriptors where the hard limit is high.
BOUND_KB = 78000


def size_kb(*command):
    done = subprocess.run([*command, "grep", "^VmSize", "/proc/self/status"],
                          stdout=subprocess.PIPE, text=True, check=True)
    return int(done.stdout.split()[1])


taken = size_kb(sys.argv[1], "run", "--") - size_kb()
print(f"{taken} kB of address space at the start")
if taken > BOUND_KB:
    sys.exit(f"MORE than {BOUND_KB}")
