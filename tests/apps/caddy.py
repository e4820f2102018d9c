#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""caddy, a server in Go: files by curl, kept connections by wrk, ends that are killed meanwhile."""
import os
import signal
import subprocess
import time

import harness

CADDY, CURL, WRK = harness.need("caddy", "curl", "wrk")
SIZES = (0, 1, 5000, 300000, 3000000)


def fetch(run, port):
    out = run.path("out")
    seen = []
    for _ in range(5):
        argv = [CURL, "-sS"]
        for size in SIZES:
            argv += [f"http://127.0.0.1:{port}/{size}", "-o", f"{out}{size}"]
        run.client(argv)
        for size in SIZES:
            with open(f"{out}{size}", "rb") as f:
                seen.append(harness.sha(f.read()))
    return seen


def scenario(run):
    port = harness.free_port()
    for size in SIZES:
        run.write(str(size), bytes(i * 7 % 251 for i in range(size)))
    env = {**os.environ, "HOME": run.dir}
    run.server([CADDY, "file-server", "--listen", f"127.0.0.1:{port}", "--root", run.dir], port,
               env=env)
    before = fetch(run, port)
    load = run.client([WRK, "-c", "8", "-t", "1", "-d", "1", f"http://127.0.0.1:{port}/5000"])
    good = b"Socket errors" not in load and b"Non-2xx" not in load
    # A client that is killed in the middle of its requests leaves the server as it was.
    for wait in (0.05, 0.2, 0.4):
        killed = subprocess.Popen(
            run.wrap("client", [WRK, "-c", "8", "-t", "1", "-d", "20",
                                f"http://127.0.0.1:{port}/300000"]),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(wait)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    return before, good, fetch(run, port)


harness.main(scenario, lacks={mode: harness.machine.lacks_for_go() for mode in ("both", "server")})
