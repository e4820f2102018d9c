#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""rpc.mountd, showmount and rpcinfo of the NFS tools, unchanged: what they say is the same plain, under
Viaduct, and with either end under it.

usage: mountd.py VIADUCT SHIM root|user
"""
import difflib
import json
import os
import subprocess
import sys
import tempfile

import space
from space import HOST, say

MANY = 800  # exports, so that an answer is long
PROGRAM = "100005"


def files():
    """What mountd and the tools read: exports, and who has mounted them."""
    subprocess.run("mount -t tmpfs none /var/lib/nfs && mkdir /var/lib/nfs/sm", shell=True,
                   check=True)
    with open("/var/lib/nfs/etab", "w", encoding="ascii") as f:
        for i in range(MANY):
            f.write(f"/srv/export/{i}\t10.0.{i % 250}.0/24(ro,sync,root_squash,no_subtree_check)\n")
    with open("/var/lib/nfs/rmtab", "w", encoding="ascii") as f:
        for i in range(MANY):
            f.write(f"10.0.0.{i % 250}:/srv/export/{i}:0x00000001\n")


def lines_of(server, client):
    binder = space.binder(server)
    mountd = subprocess.Popen([*server, "rpc.mountd", "-F", "-p", "20048"],
                              stderr=subprocess.DEVNULL)
    space.wait_for(lambda: any("mountd" in x for x in say("rpcinfo", "-p", HOST)), mountd)
    lines = []
    for words in (["-e"], ["-a"], ["-d"], []):
        lines += say(*client, "showmount", *words, HOST)
    lines += say(*client, "rpcinfo", "-T", "tcp", HOST, PROGRAM)
    lines += say(*client, "rpcinfo", "-T", "tcp", HOST, PROGRAM, "9")
    lines += say(*client, "rpcinfo", "-p", HOST)
    lines.append(f"statuses {space.stop(mountd)} {space.stop(binder)}")
    return lines


def compare(viaduct, plain, server, client):
    """What is wrong."""
    with tempfile.NamedTemporaryFile() as report:
        run = [viaduct, "run", "--report", report.name, "--upgrade-after", "0", "--"]
        ours = lines_of(run if server else [], run if client else [])
        counts = [json.loads(line) for line in report]
    direct = sum(x["tx_direct_bytes"] for x in counts)
    wrong = list(difflib.unified_diff(plain, ours, "plain", "viaduct", lineterm="", n=2))
    if not counts:
        wrong.append("no report was written")
    # A client that makes one call may be through before the ends have met; rpcinfo makes more.
    if (server and client) != (direct > 0):
        wrong.append(f"{direct} bytes went over the direct path")
    return [f"server {server}, client {client}: {x}" for x in wrong]


def main():
    viaduct, shim, who = sys.argv[1:]
    space.enter(who, shim, "rpc.mountd", "showmount")
    if not os.path.isdir("/var/lib/nfs"):
        space.skip("there is no /var/lib/nfs")
    files()
    plain = lines_of([], [])
    wrong = []
    if sum("/srv/export/" in x for x in plain) < 3 * MANY:
        wrong.append("the exports are not listed: " + "\n".join(plain)[-2000:])
    for server, client in ((True, True), (True, False), (False, True)):
        wrong += compare(viaduct, plain, server, client)
    print("\n".join(wrong) if wrong else f"{len(plain)} lines are equal")
    return 1 if wrong else 0


sys.exit(main())
