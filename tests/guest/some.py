#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What make check has of the tests on two guests, by one boot of these: programs, faults, puts of the
native library, and conformance cases, each as the test of that name runs all of its own in make
check-long.

usage: some.py [OPTION]... VIADUCT CACHE SUPPORT-VIADUCT CASES
"""
import pathlib

import bed as beds
import conform
import far
import far_faults
import far_own
import guest
import kernel
import puts

# Redirected; from RDMA to TCP and back; of two programs as they are; by another user over IPv6. After
# the fault `transfer` runs, too.
PROGRAMS = ["redirect", "memory", "forks", "redis", "unprivileged"]
PUT_ROUNDS, TURNS = 4, 24
# Those that tell most of a kernel.
CASES = ["exotic.c", "hooks_calls.c", "names.c"]


def conformance(bed):
    if conform.run(bed.a.host, CASES):
        bed.fail("not all of the conformance program's cases were run")


def parse(arguments):
    parser = beds.parser("some.py")
    parser.add_argument("support", type=pathlib.Path)
    parser.add_argument("cases", type=pathlib.Path)
    options = beds.parse(parser, arguments)
    options.integrity = None
    return options


def test(*arguments):
    options = parse(arguments)
    debian = kernel.kernel(options.cache)
    content = beds.make_image(debian, options)
    chosen = far.add(content, options, PROGRAMS, strict=False)
    far_faults.add(content)
    puts.add(content, options)
    conform.add(content, options.support, options.cases)
    chosen["redirect"] = lambda bed: far_own.redirect(bed, TURNS)
    chosen["memory"] = lambda bed: far_own.memory(bed, TURNS)
    chosen["killed"] = lambda bed: far_faults.killed(bed, whole=False)
    chosen["puts"] = lambda bed: puts.puts(bed, PUT_ROUNDS)
    chosen["conform"] = conformance
    with beds.hosts(debian, content, options) as bed:
        beds.cases(bed, chosen)


if __name__ == "__main__":
    guest.main(test)
