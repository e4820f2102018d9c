#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The harness of the guests itself: what a command says and how it ends come back as they
are, and a command that hangs, or a guest that dies, is a failure that says so.

usage: harness.py CACHE
"""
import guest
import image
import kernel


def fails(part, words):
    try:
        part()
    except guest.Failure as failure:
        if words not in str(failure):
            raise guest.Failure(f"'{failure}' does not say '{words}'") from failure
    else:
        raise guest.Failure(f"no failure that says '{words}'")


def test(cache):
    debian = kernel.kernel(cache)
    content = image.Image(debian)
    with guest.boot(debian, content) as one, guest.boot(debian, content) as other:
        if one.must("uname -r").strip() != debian.version:
            raise guest.Failure("another kernel than that of the package runs")
        text = "a line\n  and é\tmore\n"
        if one.run(f"printf '{text}'; exit 3") != (3, text):
            raise guest.Failure("status or output are not those of the command")
        if one.run("kill -9 $$")[0] != 137:
            raise guest.Failure("a killed command is not told")
        fails(lambda: one.must("false"), "status 1")
        one.start("echo so far; sleep 1000")
        while b"so far" not in one.said:
            one.hear()
        one.deadline = 0
        fails(one.finish, "so far")
        fails(lambda: other.run("sleep 1000", limit_s=1), "not finished after 1 s")
    with guest.boot(debian, content) as one:
        fails(lambda: one.run("echo c >/proc/sysrq-trigger"), "the guest has ended")
    print(f"kernel {debian.version}: the harness tells what happens in a guest")


if __name__ == "__main__":
    guest.main(test)
