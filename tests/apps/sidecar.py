#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A sidecar none of whose programs may ask the kernel how it rewrites addresses: viaductd tells them.

Redis, HAProxy and the clients are ordinary users of one network namespace. The rules were made by somebody else, and
viaductd, which is root's, is in another namespace. Usage: sidecar.py VIADUCT VIADUCTD"""
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time

import harness
import redirected
from redirected import PROXY, REDIS

SERVER, SIDECAR, CLIENT = "4331", "4332", "4333"
NEAR = "/run/viaduct/near/near.sock"
WAYS = redirected.WAYS[1:]


class Daemon:
    """viaductd in a network namespace of its own. It sees the folder of its socket, and no more of the others."""
    def __init__(self, run, program):
        self.program = program
        self.process = None
        self.log = run.path("viaductd.log")
        os.makedirs(os.path.dirname(NEAR), exist_ok=True)
        run.write("key", "one = " + "11" * 32 + "\n")
        os.chmod(run.path("key"), 0o600)
        self.config = run.write("conf", f"socket = {run.path('relay')}\nnear-socket = {NEAR}\n"
                                f"key-file = {run.path('key')}\nlog = debug:stderr\n")

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [redirected.UNSHARE, "-n", self.program, "--foreground", "--config", self.config],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + harness.LIMIT_S
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            while s.connect_ex(NEAR):
                if self.process.poll() is not None or time.monotonic() > end:
                    raise harness.Failure("viaductd is not there: " + self.text())
                time.sleep(0.02)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def text(self):
        with open(self.log, encoding="utf-8") as f:
            return f.read()[-3000:]


def last(run, program):
    return [line for line in run.report() if line["program"] == program][-1]


def ask(run, host, port):
    """What redis-cli and redis-benchmark have of it."""
    def client(*args, **kw):
        return run.client([*args[:1], "-h", host, "-p", str(port), *args[1:]], user=CLIENT, **kw)

    big = bytes(i * 7 % 251 for i in range(300_000))
    result = [client(redirected.CLI, "-x", "set", "big", stdin=big),
              harness.sha(client(redirected.CLI, "get", "big"))]
    out = client(redirected.BENCH, "-q", "-t", "set,get", "-c", "50", "-n", "8000")
    return [*result, out.count(b"requests per second")]


def proxy_of(run):
    return run.server([redirected.HAPROXY, "-f", run.write("haproxy.cfg", redirected.CONFIG)], PROXY, user=SIDECAR)


def untold(run):
    """Without viaductd the redirected hop stays on TCP, and says why."""
    proxy = proxy_of(run)
    result = [ask(run, *WAYS[0])]
    if run.mode == "both" and last(run, "redis-benchmark")["upgraded"]:
        raise harness.Failure("it was upgraded, and nobody can have told it how")
    run.stop(proxy)
    if run.mode == "both" and "nat" not in last(run, "haproxy")["reasons"]:
        raise harness.Failure(f"no nat: {last(run, 'haproxy')}")
    return result


def told(run, daemon):
    proxy = proxy_of(run)
    result = []
    for way in WAYS:
        result.append(ask(run, *way))
        # With a threshold, which of them earn it is chance.
        if run.mode == "both" and run.after == "0" and last(run, "redis-benchmark")["upgraded"] < 1:
            raise harness.Failure(f"{way}: {last(run, 'redis-benchmark')}\n{daemon.text()}")
    run.stop(proxy)
    if run.mode == "both" and run.after == "0":
        line = last(run, "haproxy")
        # Two hops for each connection.
        if line["upgraded"] < 8 or not line["rx_direct_bytes"] or not line["tx_direct_bytes"]:
            raise harness.Failure(f"{line}\n{daemon.text()}")
    return result


def counting(run, key):
    argv = [redirected.PYTHON, "-c", redirected.COUNTER, "127.0.0.1", "6379", key, str(redirected.BUSY)]
    proc = subprocess.Popen(run.wrap("client", argv, CLIENT), stdout=subprocess.PIPE, start_new_session=True)
    run.started.append(proc)
    if proc.stdout.readline() != b"busy\n":
        raise harness.Failure("the counter ended early\n" + run.logs())
    return proc


def is_on_ring(run, proc):
    """As `viaduct stat` sees the client, which goes on."""
    said = subprocess.run([run.viaduct, "stat", "--json", "--pid", str(proc.pid)], stdout=subprocess.PIPE, check=True)
    return [c for c in json.loads(said.stdout)["connections"] if c["path"] == "ring"]


def restarted(run, daemon):
    """Those that have met go on; and one that nobody answers asks the next one."""
    proxy = proxy_of(run)
    first = counting(run, "first")
    if run.mode == "both":
        run.wait_for(lambda: is_on_ring(run, first), first, "the first client's ring")
    daemon.kill()
    second = counting(run, "second")
    daemon.start()
    if run.mode == "both":
        run.wait_for(lambda: is_on_ring(run, second), second, "the second client's ring")
    before = redirected.count_of("first")
    run.wait_for(lambda: redirected.count_of("first") > before, first, "the first client to go on")
    run.stop(proxy, signal.SIGKILL)
    return [first.wait(harness.LIMIT_S), second.wait(harness.LIMIT_S)]


def scenario(run):
    daemon = Daemon(run, os.environ["SIDECAR_VIADUCTD"])
    run.server([redirected.SERVER, "--port", str(REDIS), "--bind", "127.0.0.1", "--save", "",
                "--appendonly", "no", "--dir", run.dir], REDIS, user=SERVER)
    result = [untold(run)]
    daemon.start()
    try:
        result += [told(run, daemon), restarted(run, daemon)]
    finally:
        daemon.kill()
        os.unlink(NEAR)
    return result


if __name__ == "__main__":
    if len(sys.argv) > 2:
        os.environ["SIDECAR_VIADUCTD"] = sys.argv.pop(2)
    redirected.in_namespace()
    subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
    with contextlib.suppress(KeyboardInterrupt):
        harness.main(scenario, modes=("plain", "both"))
