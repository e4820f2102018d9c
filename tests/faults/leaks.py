#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the leak test under Viaduct: connections are upgraded to the last, and nothing stays.

usage: leaks.py VIADUCT LEAKS MODE BATCHES
"""
import json
import os
import subprocess
import sys
import tempfile

BATCH = 16


def files():
    """Folders are of tools and of other tests, which may run at the same time: the library makes none."""
    found = set()
    for folder in ("/dev/shm", "/tmp", "/var/tmp", "/run"):
        found |= {entry.path for entry in os.scandir(folder)
                  if "viaduct" in entry.name.lower() and not entry.is_dir(follow_symlinks=False)}
    return found


def main():
    viaduct, leaks, mode, batches = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="leaks-") as tmp:
        before = files()
        report = os.path.join(tmp, "report")
        status = subprocess.run([viaduct, "run", "--report", report, "--upgrade-after", "0",
                                 "--", leaks, mode, batches]).returncode
        if status:
            return status
        left = files() - before
        if left:
            print("left behind:", *left)
            return 1
        with open(report, encoding="utf-8") as f:
            lines = [json.loads(line) for line in f]
    print(*(f"{line['connections']} connections, {line['upgraded']} upgraded, "
            f"{line['rx_direct_bytes']} bytes direct, {line['reasons']}" for line in lines
            if line["connections"]), sep="\n")
    # Slots that leak run out: then the last connections stay on TCP.
    most = max(line["upgraded"] for line in lines)
    want = BATCH * int(batches)
    if mode == "quiet" and most < want * 9 // 10:
        print(f"only {most} of {want} connections were upgraded")
        return 1
    if not most:
        print("no connection was upgraded")
        return 1
    return 0


sys.exit(main())
