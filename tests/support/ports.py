# SPDX-License-Identifier: Apache-2.0
"""Ports for servers that bind them a moment later, which no connection and no other test gets until then."""
import contextlib
import random
import socket

# Below those that the kernel hands out. The ones above and below are for bench.
RANGE = range(15000, 30000)
kept = []  # what says that a port is this process's: an abstract name, which is gone when the process is


def take(port, marks, held):
    """Marks a port as this process's, if it is nobody's. Raises OSError if it is."""
    mark = marks.enter_context(socket.socket(socket.AF_UNIX))
    mark.bind(f"\0viaduct-test-port-{port}")
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        s = held.enter_context(socket.socket(family))
        if family == socket.AF_INET6:
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        s.bind((address, port))


def free_ports(count):
    """The first of so many free ports in a row."""
    while True:
        first = random.randrange(RANGE.start, RANGE.stop - count)
        with contextlib.suppress(OSError), contextlib.ExitStack() as marks:
            with contextlib.ExitStack() as held:
                for port in range(first, first + count):
                    take(port, marks, held)
            kept.append(marks.pop_all())
            return first


def free_port():
    return free_ports(1)
