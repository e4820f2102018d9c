#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `viaduct trace` writes of a service is ONC RPC to tshark: as many calls as answers, of the
procedures that were called.

usage: trace.py VIADUCT SERVE CALL
"""
import collections
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

SKIP = 77
PROGRAM, NEXT = 0x20000099, 1
BUFFER = "viaduct-trace"


def wait_for(ready):
    while not ready():
        time.sleep(0.01)


def main():
    viaduct, serve, call = sys.argv[1:]
    if os.geteuid() != 0 or not shutil.which("tshark"):
        print("needs root and tshark")
        return SKIP
    run = [viaduct, "run", "--upgrade-after", "0", "--"]
    with tempfile.TemporaryDirectory() as tmp:
        place, packets = os.path.join(tmp, "port"), os.path.join(tmp, "packets")
        service = subprocess.Popen([*run, serve, place, "run"], stdout=subprocess.DEVNULL)
        wait_for(lambda: os.path.exists(place))
        tracer = subprocess.Popen([viaduct, "trace", "-o", packets, str(service.pid)],
                                  stderr=subprocess.PIPE)
        tracer.stderr.readline()  # it traces now
        with open(place, encoding="ascii") as f:
            port = f.read().strip()

        def ask(what):
            subprocess.run([*run, call, port, what], check=True, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)

        ask("simple")
        # With the service its buffer goes, which a tracer on a busy machine may not have seen yet.
        maps = pathlib.Path(f"/proc/{tracer.pid}/maps")
        wait_for(lambda: BUFFER in maps.read_text(encoding="ascii"))
        ask("quit")
        service.wait()
        whole = b"nothing lost" in tracer.communicate()[1]
        # A program that it does not know is RPC to it only when it is asked for such; and a port that another
        # protocol has by its table, as some of those that the kernel gives have, only when it is told so.
        out = subprocess.run(["tshark", "-r", packets, "-o", "rpc.dissect_unknown_programs:TRUE",
                              "-d", f"tcp.port=={port},rpc", "-Y", "rpc.msgtyp", "-T", "fields", "-E", "occurrence=f",
                              "-e", "rpc.msgtyp", "-e", "rpc.program", "-e", "rpc.procedure"],
                             stdout=subprocess.PIPE, check=True).stdout.decode()
    seen = collections.Counter(tuple(line.split("\t")) for line in out.splitlines())
    calls, replies = (seen[(kind, str(PROGRAM), str(NEXT))] for kind in ("0", "1"))
    print(f"{calls} calls and {replies} replies of NEXT: {dict(seen)}")
    # A tracer that was not run for long has lost some, and says so.
    return 0 if (calls == replies == 1000 if whole else calls and replies) else 1


sys.exit(main())
