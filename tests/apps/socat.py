#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""socat and OpenBSD's netcat: files one way and both ways, half-close, relays, programs."""
import os
import subprocess

import harness

SOCAT, NC = harness.need("socat", "nc.openbsd")
BIG = bytes(i * 23 % 241 for i in range(5_000_000))
ADDRESS = "127.0.0.1"


def read(run, name):
    with open(run.path(name), "rb") as f:
        return harness.sha(f.read())


def ended(run, server):
    """Waits for a server that serves one connection; returns its exit status."""
    try:
        return server.wait(timeout=harness.LIMIT_S)
    except subprocess.TimeoutExpired as e:
        raise harness.Failure(f"{server.args} hangs\n" + run.logs()) from e


def to_file(run, port, source):
    """One way, to a server that writes a file and ends."""
    server = run.server([SOCAT, "-u", f"TCP-LISTEN:{port},reuseaddr,bind={ADDRESS}",
                         f"CREATE:{run.path('sent')}"], port)
    run.client([SOCAT, "-u", f"OPEN:{source}", f"TCP:{ADDRESS}:{port}"])
    return ended(run, server), read(run, "sent")


def from_file(run, port, source):
    """The other way: only the server sends, and the client only reads."""
    server = run.server([SOCAT, "-u", f"OPEN:{source}",
                         f"TCP-LISTEN:{port},reuseaddr,bind={ADDRESS}"], port)
    got = run.client([SOCAT, "-u", f"TCP:{ADDRESS}:{port}", "-"])
    return ended(run, server), harness.sha(got)


def programs(run, port):
    """A program behind each connection: it answers after the client's half-close."""
    result = []
    for address in ("EXEC:cat", "EXEC:sha256sum", "EXEC:cat,nofork", "SYSTEM:wc -c"):
        server = run.server([SOCAT, "-t60",
                             f"TCP-LISTEN:{port},fork,reuseaddr,bind={ADDRESS}",
                             address], port)
        for size in (0, 1, 70000, len(BIG)):
            got = run.client([SOCAT, "-t60", "-", f"TCP:{ADDRESS}:{port}"],
                             stdin=BIG[:size])
            result.append((address, size, len(got), harness.sha(got)))
        run.stop(server)
    return result


def relay(run, port):
    """Two relays in a row before an echo: three connections for each client."""
    for to, address in enumerate(("EXEC:cat", f"TCP:{ADDRESS}:{port}",
                                  f"TCP:{ADDRESS}:{port + 1}")):
        run.server([SOCAT, "-t60", "-b5000",
                    f"TCP-LISTEN:{port + to},fork,reuseaddr,bind={ADDRESS}", address],
                   port + to)
    got = [run.client([SOCAT, "-t60", "-", f"TCP:{ADDRESS}:{port + 2}"],
                      stdin=BIG[:size]) for size in (1, 5001, 1_500_000)]
    return [harness.sha(part) for part in got]


def both_ways(run, port, source):
    """A file each way at once: either end half-closes when its own is over."""
    files = f"OPEN:{source},rdonly!!CREATE:{run.path('received')}"
    server = run.server([SOCAT, "-t60", f"TCP-LISTEN:{port},reuseaddr,bind={ADDRESS}",
                         files], port)
    got = run.client([SOCAT, "-t60", "-", f"TCP:{ADDRESS}:{port}"], stdin=BIG[:3_000_000])
    return ended(run, server), harness.sha(got), read(run, "received")


def netcat(run, port, source):
    """Each way once. A listening nc ends with its client, so not both ways at once."""
    server = run.server([NC, "-d", "-l", ADDRESS, str(port)], port)
    run.client([NC, "-N", ADDRESS, str(port)], stdin=BIG)
    with open(run.path(f"server-{len(run.started) - 1}.log"), "rb") as f:
        result = [ended(run, server)]
        result.append(harness.sha(f.read()))
    server = run.server([SOCAT, "-u", f"OPEN:{source}",
                         f"TCP-LISTEN:{port},reuseaddr,bind={ADDRESS}"], port)
    got = run.client([NC, "-d", ADDRESS, str(port)])
    return result + [ended(run, server), harness.sha(got)]


def scenario(run):
    port = harness.free_ports(4)
    source = run.write("source", BIG)
    return (to_file(run, port, source), from_file(run, port, source), programs(run, port),
            relay(run, port), both_ways(run, port + 3, source),
            netcat(run, port + 3, source))


harness.main(scenario, alone=True)
