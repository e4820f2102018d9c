#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sockperf over TCP: ping-pong, under load, throughput, and with integrity checks."""
import harness

SOCKPERF = harness.need("sockperf")
# What a second may bring at most: sockperf counts on less by itself, and then gives up.
MOST = "--mps=5000000"


def scenario(run):
    result = []
    for iomux in ([], ["-F", "p"]):
        port = harness.free_port()
        server = ["sr", "--tcp", "-i", "127.0.0.1", "-p", str(port)]
        feed = run.write(f"feed-{port}", f"T:127.0.0.1:{port}\n")
        if iomux:
            server = ["sr", "-f", feed, *iomux]
        proc = run.server([SOCKPERF, *server], port)
        ping = ["pp", "-m", "64", "-t", "1", MOST]
        for args in (ping,) if iomux else (
                     [*ping, "--data-integrity"],
                     ["ul", "-m", "64", "-t", "1", "--mps", "5000"],
                     ["tp", "-m", "1400", "-t", "1"]):
            out = run.client([SOCKPERF, args[0], "--tcp", "-i", "127.0.0.1", "-p",
                              str(port), *args[1:]], check=False).decode()
            result.append((args[0], "Test end" in out or "Summary" in out,
                           "rror" in out))
        run.stop(proc, harness.signal.SIGINT)
    return result


harness.main(scenario)
