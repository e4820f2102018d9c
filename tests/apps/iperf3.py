#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""iperf3, both ways, one and several streams; all that was sent arrives."""
import json

import harness

IPERF = harness.need("iperf3")


def listens_again(run, times):
    with open(run.path("server-0.log"), encoding="utf-8") as f:
        return f.read().count("Server listening on") > times


def scenario(run):
    port = harness.free_port()
    server = run.server([IPERF, "-s", "-p", str(port), "-B", "127.0.0.1", "--forceflush"],
                        port)
    result = []
    for args in (["-n", "200M"], ["-n", "100M", "-R"], ["-n", "100M", "-P", "4"],
                 ["-n", "20M", "-l", "1000"], ["-n", "50M", "-Z"],
                 ["-n", "50M", "--bidir"], ["-n", "20M", "-w", "64K"]):
        # The server refuses while it tidies up behind the last client.
        run.wait_for(lambda: listens_again(run, len(result)), server, "iperf3 to listen")
        out = run.client([IPERF, "-c", "127.0.0.1", "-p", str(port), "-J", *args],
                         check=False)
        told = json.loads(out)
        if "error" in told or not told["end"]:
            raise harness.Failure(f"{args}: {told.get('error', out[-500:])}")
        end = told["end"]
        # Both ways at once, the test ends when either has sent so much.
        sent = max(end[name]["bytes"] for name in ("sum_sent", "sum_sent_bidir_reverse")
                   if name in end)
        result.append((args, sent >= int(args[1][:-1]) << 20))
        if not end["sum_received"]["bytes"]:
            raise harness.Failure(f"{args}: nothing arrived")
    return result


harness.main(scenario)
