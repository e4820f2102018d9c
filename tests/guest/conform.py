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
# It skips where the kernel promises more memory than there is.
PROMISED = "memory_is_promised"


def test(*arguments):
    mode = list(arguments[:2]) if arguments[0] == "--mode" else []
    viaduct, cases, cache, *names = arguments[len(mode):]
    debian = kernel.kernel(cache)
    content = image.Image(debian)
    content.python("difflib", "json", "subprocess", "tempfile")
    content.viaduct(viaduct)
    content.binary(cases, "/tests/cases")
    content.file("/tests/both.py", BOTH)
    with contextlib.suppress(kernel.Missing):
        content.program("nft")  # some cases change what the kernel does with packets
    if mode and mode[1].endswith(".so"):
        content.binary(mode[1], "/tests/mode.so")
        mode[1] = "/tests/mode.so"
    with guest.boot(debian, content, memory_mb=1024) as one:
        # What Viaduct itself finds of what it needs.
        print(one.must("/viaduct/viaduct doctor"))
        listed = [line.split() for line in one.must("/tests/cases --list").splitlines()]
        command = ["python3", "-Su", "/tests/both.py", *mode, "/viaduct/viaduct",
                   "/tests/cases", *names]
        status, output = one.run(" ".join(command), LIMIT_S)
        if not mode:
            # As databases like it, and no machine of ours may be set.
            one.must("echo 80 >/proc/sys/vm/overcommit_ratio; "
                     "echo 2 >/proc/sys/vm/overcommit_memory")
            answer = one.must(" ".join([*command[:5], PROMISED]))
            print(answer, end="")
            if f"{PROMISED}: ok" not in answer:
                raise guest.Failure(f"{PROMISED} has not run")
    print(f"kernel {debian.version}")
    print(output, end="")
    if status == guest.SKIP:
        sys.exit(guest.SKIP)
    if status != 0:
        raise guest.Failure(f"status {status}")
    wanted = sum(not names or name in names or file in names for name, _, file in listed)
    done = len(re.findall(": (ok|skipped: .*)$", output, re.M))
    if not mode and done != wanted:
        raise guest.Failure(f"{done} of {wanted} cases have run")


if __name__ == "__main__":
    guest.main(test)
