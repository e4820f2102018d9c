#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Links of src/rdma between two hosts on a cable, by verbs over rxe: bytes both ways, over a
cable that loses packets, too; a peer that is killed in the middle, and one that writes where it
may not.

usage: links.py LINKS CACHE_BENCH CACHE
"""
import guest
import hosts
import image
import kernel

PORT = 7100
BYTES = 3000000
LOSSY_BYTES = 300000
# Packets that come out of order count as lost, and are repeated; with many of them, as under a
# delay that varies, the retries run out and the link fails.
NETEM = "netem delay 1ms loss 1% duplicate 1%"
LISTENING = f"ss -Hltn | grep :{PORT}"


def link(a, b, family, size, modes, words):
    """A listens and B connects, each in its mode; what A and B must say."""
    server = hosts.ADDRESSES[family][0]
    # A process that was killed has no status to be proud of.
    a.serve(f"/tests/links listen {server} {PORT} {size} {modes[0]} || [ {modes[0]} = die ]",
            LISTENING)
    end = "" if modes[1] != "die" else " || true"
    try:
        said_b = b.must(f"/tests/links connect {server} {PORT} {size} {modes[1]}{end}")
    except guest.Failure as failure:
        raise guest.Failure(f"{failure}\nguest A: {a.run('cat /run/said')[1]}") from failure
    said_a = a.served()
    for host, said, expected in (("A", said_a, words[0]), ("B", said_b, words[1])):
        print(f"{family}, {host} {modes['AB'.index(host)]}: {said.strip()}")
        if expected not in said:
            raise guest.Failure(f"guest {host} does not say '{expected}': {said}")


def test(program, figures, cache):
    debian = kernel.kernel(cache)
    content = image.Image(debian)
    content.rdma()
    content.binary(program, "/tests/links")
    content.binary(figures, "/tests/cache-bench")
    right = f"{BYTES} bytes are right"
    dead = "right: the peer does not answer any more"
    with guest.boot(debian, content, count=2) as (a, b):
        print(f"kernel {debian.version}, two hosts")
        hosts.set_up(a, 0)
        hosts.set_up(b, 1)
        for family in hosts.ADDRESSES:
            before = hosts.packets(a), hosts.packets(b)
            link(a, b, family, BYTES, ("right", "right"), (right, right))
            sent = hosts.packets(a) - before[0], hosts.packets(b) - before[1]
            if min(sent) < BYTES / 4096:
                raise guest.Failure(f"{sent} packets are too few for {BYTES} bytes")
            link(a, b, family, BYTES, ("die", "dead"), ("", dead))
            link(a, b, family, BYTES, ("dead", "die"), (dead, ""))
        link(a, b, "IPv4", BYTES, ("wronged", "forge"),
             ("right: ", "right: the peer's device refuses"))
        for host in (a, b):
            host.must(f"tc qdisc add dev eth0 root {NETEM}")
        right = f"{LOSSY_BYTES} bytes are right"
        for family in hosts.ADDRESSES:
            link(a, b, family, LOSSY_BYTES, ("right", "right"), (right, right))
        # The figures of docs/native.md: registered memory that is found, and that is not.
        print(a.must(f"/tests/cache-bench verbs {hosts.ADDRESSES['IPv4'][0]}", 240))


if __name__ == "__main__":
    guest.main(test)
