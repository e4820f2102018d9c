#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""NetPIPE: ping-pong of growing messages, with its own integrity check, and both ways at once."""
import harness

NETPIPE = harness.need("NPtcp")


def scenario(run):
    result = []
    for args in (["-i"], [], ["-2"]):
        port = harness.free_port()
        options = [*args, "-u", "100000", "-n", "20", "-P", str(port)]
        server = run.server([NETPIPE, *options], port)
        out = run.path(f"out{port}")
        run.client([NETPIPE, "-h", "127.0.0.1", "-o", out, *options])
        if server.wait(timeout=60) != 0:
            raise harness.Failure(f"the receiver's status is {server.returncode}")
        if "-i" not in args:
            with open(out, encoding="ascii") as f:
                result.append([line.split()[0] for line in f])
    return result


harness.main(scenario)
