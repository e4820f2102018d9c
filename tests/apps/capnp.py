#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Cap'n Proto: calls one by one and all at once, on what other calls have yet to bring, given up, of
the client's objects by the service; exceptions, 12 MB."""
import os
import subprocess
import tempfile

import harness

COMPILER, CAPNP, _ = harness.need("g++", "capnp", "capnpc-c++")
HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rpc")


def scenario(run):
    port = harness.free_port()
    server = run.server([PROGRAM, "serve", str(port)], port)
    lines = run.client([PROGRAM, "call", str(port)]).decode().splitlines()
    server.wait(timeout=harness.LIMIT_S)  # the client has ended it
    return lines, server.returncode


if not os.path.exists("/usr/include/capnp/ez-rpc.h"):
    print("skipped: libcapnp-dev is missing")
    raise SystemExit(harness.SKIP)
with tempfile.TemporaryDirectory() as place:
    PROGRAM = os.path.join(place, "capnp_calls")
    subprocess.run([CAPNP, "compile", f"-oc++:{place}", f"--src-prefix={HERE}",
                    f"{HERE}/calls.capnp"], check=True)
    subprocess.run([COMPILER, "-std=c++14", "-I", place, "-o", PROGRAM, f"{HERE}/capnp_calls.cc",
                    f"{place}/calls.capnp.c++", "-lcapnp-rpc", "-lcapnp", "-lkj-async", "-lkj",
                    "-lpthread"], check=True)
    harness.main(scenario)
