#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""rpcbind, rpcinfo, and programs that find each other by them, plain and under Viaduct: what they say
is equal. And "viaduct" as the name of a transport: calls on the direct path, or an error.

usage: rpcbind.py VIADUCT BOUND SHIM root|user

In a network namespace and with a /run of its own; `user`: one without rights.
"""
import difflib
import json
import re
import subprocess
import sys
import tempfile

import space
from space import HOST, say, stop


def lines_of(run, bound):
    binder = space.binder(run)
    lines = say(*run, "rpcinfo", "-T", "tcp", HOST, "100000") + say(*run, "rpcinfo", "-s", HOST)
    service = subprocess.Popen([*run, bound, "serve", "visible"], stdout=subprocess.PIPE)
    lines.append(service.stdout.readline().decode())
    # Ports are any.
    lines += [re.sub(r"\b\d{4,5}\b(?!\d)", "PORT", x) for x in say(*run, "rpcinfo", "-p", HOST)]
    lines += say(*run, "rpcinfo", "-T", "tcp", HOST, str(0x20000099))
    for nettype in ("tcp", "udp", "visible", "circuit_v", "nonsense"):
        lines += say(*run, bound, "call", HOST, nettype)
    lines.append(f"status {stop(service)}")
    lines += say(*run, bound, "call", HOST, "tcp")
    stop(binder)
    return lines


def named(viaduct, bound):
    """What is wrong with the name."""
    wrong = []
    run = [viaduct, "run", "--upgrade-after", "16", "--"]
    binder = space.binder([])
    if "transports 0" not in say(bound, "serve", "viaduct"):
        wrong.append("a plain service has a transport of this name")
    with tempfile.NamedTemporaryFile() as report:
        service = subprocess.Popen([*run, bound, "serve", "viaduct"], stdout=subprocess.PIPE)
        if service.stdout.readline() == b"transports 0\n":
            wrong.append("there is no transport of this name")
        got = say(*run[:2], "--report", report.name, *run[2:], bound, "call", HOST, "viaduct")
        counts = [json.loads(line) for line in report]
        if got != ["viaduct: wrong 0"] or sum(x["tx_direct_bytes"] for x in counts) < 300 * 44:
            wrong.append(f"on the direct path: {got}, {counts}")
        got = say(bound, "call", HOST, "viaduct")
        if got != ["viaduct: RPC: Unknown protocol"]:
            wrong.append(f"a plain client: {got}")
        stop(service)
    service = subprocess.Popen([bound, "serve", "tcp"], stdout=subprocess.PIPE)
    service.stdout.readline()
    got = say(*run, bound, "call", HOST, "viaduct")
    if got != ["viaduct: RPC: Remote system error - Protocol not supported"]:
        wrong.append(f"with a plain service: {got}")
    stop(service)
    stop(binder)
    return wrong


def main():
    viaduct, bound, shim, who = sys.argv[1:]
    space.enter(who, shim)
    plain = lines_of([], bound)
    with tempfile.NamedTemporaryFile() as report:
        ours = lines_of([viaduct, "run", "--report", report.name, "--upgrade-after", "0", "--"],
                        bound)
        counts = [json.loads(line) for line in report]
    wrong = list(difflib.unified_diff(plain, ours, "plain", "viaduct", lineterm="", n=2))
    if not sum(x["tx_direct_bytes"] for x in counts):
        wrong.append("no byte went over the direct path")
    wrong += named(viaduct, bound)
    print("\n".join(wrong) if wrong else f"{len(plain)} lines are equal")
    return 1 if wrong else 0


sys.exit(main())
