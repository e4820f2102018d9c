#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Conformance cases under Debian's own kernel: plain and under Viaduct, in one guest.

usage: conform.py [--mode MODE] VIADUCT CASES CACHE [NAME | FILE.c]...
"""
import contextlib
import pathlib
import re
import sys

import guest
import image
import kernel

BOTH = pathlib.Path(__file__).resolve().parents[1] / "conform/both.py"
LIMIT_S = 1700
FOLDER = "/conform"
# It skips where the kernel promises more memory than there is.
PROMISED = "memory_is_promised"


def add(content, viaduct, cases):
    """What the cases need in the image: that command, with a door for tests, and nft, since some
    change what the kernel does with packets."""
    content.python("difflib", "json", "subprocess", "tempfile")
    content.viaduct(viaduct, FOLDER)
    content.binary(cases, f"{FOLDER}/cases")
    content.file(f"{FOLDER}/both.py", BOTH)
    content.file(f"{FOLDER}/relation.py", BOTH.parents[1] / "support/relation.py")
    with contextlib.suppress(kernel.Missing):
        content.program("nft")


def run(one, names, mode=()):
    """These cases, or files of cases, in that guest; all without a name. Its status."""
    # What Viaduct itself finds of what it needs.
    print(one.must(f"{FOLDER}/viaduct doctor"))
    listed = [line.split() for line in one.must(f"{FOLDER}/cases --list").splitlines()]
    both = f"python3 -Su {FOLDER}/both.py {' '.join(mode)} {FOLDER}/viaduct {FOLDER}/cases"
    status, output = one.run(f"{both} {' '.join(names)}", LIMIT_S)
    if not mode:
        # As databases like it, and no machine of ours may be set.
        one.must("echo 80 >/proc/sys/vm/overcommit_ratio; "
                 "echo 2 >/proc/sys/vm/overcommit_memory")
        answer = one.must(f"{both} {PROMISED}; echo 0 >/proc/sys/vm/overcommit_memory")
        print(answer, end="")
        if f"{PROMISED}: ok" not in answer:
            raise guest.Failure(f"{PROMISED} has not run")
    print(output, end="")
    if status not in (0, guest.SKIP):
        raise guest.Failure(f"status {status}")
    wanted = sum(not names or name in names or file in names for name, _, file in listed)
    done = len(re.findall(": (ok|skipped: .*)$", output, re.M))
    if not mode and status == 0 and done != wanted:
        raise guest.Failure(f"{done} of {wanted} cases have run")
    return status


def test(*arguments):
    mode = list(arguments[:2]) if arguments[0] == "--mode" else []
    viaduct, cases, cache, *names = arguments[len(mode):]
    debian = kernel.kernel(cache)
    content = image.Image(debian)
    add(content, viaduct, cases)
    if mode and mode[1].endswith(".so"):
        content.binary(mode[1], f"{FOLDER}/mode.so")
        mode[1] = f"{FOLDER}/mode.so"
    with guest.boot(debian, content, memory_mb=1024) as one:
        status = run(one, names, mode)
    print(f"kernel {debian.version}")
    sys.exit(status)


if __name__ == "__main__":
    guest.main(test)
