#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the integrity test under Viaduct and asserts that the direct path carried it.

usage: run.py [--slow LIBRARY] VIADUCT INTEGRITY ARGUMENT... - INTEGRITY_AFTER is the threshold: 0
without, and `default` for Viaduct's own; LIBRARY (slow.c) comes behind Viaduct."""
import json
import os
import subprocess
import sys
import tempfile


OWN_NETWORK = ["unshare", "--net", "sh", "-euc", """ip link set lo up
echo 0 >/proc/sys/net/ipv4/tcp_invalid_ratelimit
exec "$@\"""", "sh"]


def network():
    """Linux limits its answers to resets that do not fit, by which it can miss the end of an
    aborted connection for ever: not in a network of our own, where we may make one."""
    try:
        done = subprocess.run(OWN_NETWORK + ["true"], stderr=subprocess.DEVNULL)
        return OWN_NETWORK if done.returncode == 0 else []
    except FileNotFoundError:
        return []


def main():
    args = sys.argv[1:]
    if args[0] == "--slow":
        os.environ["LD_PRELOAD"] = os.path.abspath(args[1])
        del args[:2]
    viaduct, program, *args = args
    after = os.environ.get("INTEGRITY_AFTER", "0")
    with tempfile.TemporaryDirectory() as tmp:
        report = os.path.join(tmp, "report")
        command = [*network(), viaduct, "run", "--report", report,
                   *([] if after == "default" else ["--upgrade-after", after]),
                   "--", program, *args]
        status = subprocess.run(command).returncode
        lines = []
        if os.path.exists(report):
            with open(report, encoding="utf-8") as f:
                lines = [json.loads(line) for line in f]
    total = {k: sum(line[k] for line in lines)
             for k in ("connections", "upgraded", "downgraded", "tx_direct_bytes",
                       "rx_direct_bytes", "tx_tcp_bytes", "rx_tcp_bytes", "doorbells",
                       "sleeps")} if lines else {}
    print(" ".join(f"{k}={v}" for k, v in total.items()))
    reasons = {}
    for line in lines:
        for name, count in line["reasons"].items():
            reasons[name] = reasons.get(name, 0) + count
    print("reasons:", reasons)
    if status != 0:
        print(f"status {status}")
        return 1
    # Both ends are honest: these would be our own mistakes.
    for name in ("corrupt", "bypass", "identity", "kernel"):
        if name in reasons:
            print(f"reason {name}")
            return 1
    if not lines:
        print("no report was written")
        return 1
    if not total["upgraded"] or not total["rx_direct_bytes"]:
        print("nothing went over the direct path")
        return 1
    if "--switch" in args and not total["downgraded"]:
        print("no connection was switched down")
        return 1
    return 0


sys.exit(main())
