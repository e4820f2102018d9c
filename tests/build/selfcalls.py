#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No code of the library calls a function that it interposes, except through REAL().

Such a call would come back into the hook, under locks that the hook takes. The kernel's own calls
are made by base/kernel.h: another preloaded library may stand before libc's, and do anything in them.
usage: selfcalls.py EXPORTS.MAP ARCHIVE-OR-LIBRARY-OBJECTS...
"""
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from exports import listed  # noqa: E402


# What sanitizers keep books of, what base/clock.h finds in libc itself, what libc alone can do, and
# what fuzzers make the same for the same input.
LEFT = {"mmap", "munmap", "mprotect", "mremap", "madvise", "munlock", "clock_gettime", "faccessat",
        "getrandom"}


def kernel_calls():
    """The names of libc's functions that are named as the kernel's calls."""
    out = subprocess.run(["cc", "-E", "-dM", "-include", "sys/syscall.h", "-x", "c", "/dev/null"],
                         check=True, stdout=subprocess.PIPE, text=True).stdout
    names = set(re.findall(r"#define __NR_(?:rt_)?(\w+)", out))
    plain = {name.removesuffix("64") for name in names}
    return (names | plain | {name + "64" for name in plain}) - LEFT


def undefined(path):
    """Yields (object, symbol) of what the objects in path expect from elsewhere."""
    out = subprocess.run(["nm", "-A", "--undefined-only", path], check=True,
                         stdout=subprocess.PIPE, text=True).stdout
    for line in out.splitlines():
        where, symbol = re.match(r"(.*?):?\s+[UwV]\s+(\S+)$", line).groups()
        yield where.split(":")[-1], symbol


def main():
    interposed, kernel = listed(sys.argv[1]), kernel_calls()
    calls = {(where, symbol) for path in sys.argv[2:] for where, symbol in undefined(path)}
    found = sorted({f"{where} calls {symbol}" for where, symbol in calls if symbol in interposed} |
                   {f"{where} calls {symbol}: there is base/kernel.h" for where, symbol in calls
                    if symbol in kernel - interposed})
    print("\n".join(found) or "no call of ours comes back to us")
    return 1 if found or not interposed or "geteuid" not in kernel else 0


if __name__ == "__main__":
    sys.exit(main())
