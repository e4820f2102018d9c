#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Thrift's servers of three kinds: threads, a pool of them, and without blocking."""
import os
import subprocess
import sys
import tempfile

import harness

COMPILER = harness.need("thrift")
PYTHON = "/usr/bin/python3"
HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rpc")
KINDS = ("threads", "pool", "nonblocking")


def scenario(run):
    program = [PYTHON, f"{HERE}/thrift_calls.py", GENERATED]
    result = []
    for kind in KINDS:
        port = harness.free_port()
        run.server([*program, "serve", kind, str(port)], port)
        result.append((kind, run.client([*program, "call", kind, str(port)])))
    return result


if subprocess.run([PYTHON, "-c", "import thrift"], cwd="/", stderr=subprocess.DEVNULL).returncode:
    print("skipped: python3-thrift is missing")
    sys.exit(harness.SKIP)
with tempfile.TemporaryDirectory() as folder:
    subprocess.run([COMPILER, "--gen", "py", "-out", folder, f"{HERE}/calls.thrift"], check=True)
    GENERATED = folder
    harness.main(scenario)
