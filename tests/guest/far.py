#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Unmodified programs between two hosts on a cable, all under Viaduct, with the relay and an
RDMA device on both: every byte, the path of each connection, and the counters of both ends.

usage: far.py [OPTION]... VIADUCT CACHE

The other programs come from VIADUCT's build folder. --expect says what the connections between
the hosts have to be on, and with `tcp` which reasons they may give: tcp[:REASON,...].
"""
import bed as beds
import far_debian
import far_own
import guest
import kernel

INTEGRITY = "--seed 7 --conns 8 --bytes 300000 --kill --signals"
PROGRAMS = far_own.PROGRAMS | far_debian.PROGRAMS


def add(content, options, only=(), strict=True):
    """What these need in the image, and those that run. Without a list, or where not `strict`, a program
    that needs what is not here is left out."""
    far_own.add(content)
    if options.integrity:
        content.binary(beds.built(options, "tests/integrity/integrity"), "/tests/integrity")
        return {"integrity": far_debian.integrity}
    chosen = {}
    for name in only or PROGRAMS:
        case, programs, more = PROGRAMS[name]
        try:
            for program in programs:
                content.program(program)
            if more:
                more(content)
            chosen[name] = case
        except kernel.Missing as missing:
            if only and strict:
                raise
            print(f"{name} is left out: {missing}")
    return chosen


def parse(arguments):
    parser = beds.parser("far.py")
    parser.add_argument("--only", action="append", choices=PROGRAMS,
                        help="this program, and others that are named so")
    parser.add_argument("--integrity", type=int, metavar="SECONDS",
                        help="the integrity test instead of the programs")
    parser.add_argument("--arguments", default=INTEGRITY, metavar="TEXT",
                        help=f"of the integrity test, default: {INTEGRITY}")
    return beds.parse(parser, arguments)


def test(*arguments):
    options = parse(arguments)
    debian = kernel.kernel(options.cache)
    content = beds.make_image(debian, options)
    chosen = add(content, options, options.only)
    with beds.hosts(debian, content, options) as bed:
        beds.cases(bed, chosen)


if __name__ == "__main__":
    guest.main(test)
