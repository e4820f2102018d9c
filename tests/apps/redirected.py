#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A sidecar: what clients dial is led by the packet filter to HAProxy, and nginx, in front of Redis.

Redirected, led to another address as a cluster's is, and with the client's address changed as well;
by IPv4 and IPv6, in a network namespace of its own."""
import contextlib
import os
import signal
import socket
import subprocess
import sys

import harness

HAPROXY, SERVER, CLI, BENCH, NFT, IP, UNSHARE = harness.need(
    "haproxy", "redis-server", "redis-cli", "redis-benchmark", "nft", "ip", "unshare")
PYTHON = "/usr/bin/python3"
STREAM = "/usr/lib/nginx/modules/ngx_stream_module.so"
REDIS, PROXY, BY_NGINX = 6380, 15001, 15002
# What is dialled: a redirected port, one of another address, and one whose clients change theirs.
WAYS = (("127.0.0.1", 6379), ("::1", 6379), ("10.77.0.1", 6379), ("127.0.0.1", 6390))
RULES = f"""
table inet sidecar {{
  chain out {{
    type nat hook output priority -100;
    ip daddr 10.77.0.1 tcp dport 6379 dnat ip to 127.0.0.1:{PROXY}
    tcp dport {{ 6379, 6390 }} redirect to :{PROXY}
    tcp dport 6400 redirect to :{BY_NGINX}
  }}
  chain post {{
    type nat hook postrouting priority 100;
    meta l4proto tcp ct original proto-dst 6390 snat ip to 10.77.0.9
  }}
}}
"""
CONFIG = f"""
global
  maxconn 500
  nbthread 2
defaults
  mode tcp
  timeout connect 30s
  timeout client 60s
  timeout server 60s
listen tcp
  bind 127.0.0.1:{PROXY}
  bind [::1]:{PROXY}
  server a 127.0.0.1:{REDIS}
"""
NGINX_CONFIG = """
load_module {module};
worker_processes 1;
daemon off;
pid {dir}/nginx.pid;
error_log {dir}/error.log;
events {{ worker_connections 512; }}
stream {{ server {{ listen 127.0.0.1:{port}; proxy_pass 127.0.0.1:{redis}; }} }}
"""
# Short connections that did not pay raise the threshold of their port, to 64 times 16 turns at most; a request has two.
BUSY = 4000
# Counts in Redis until it is killed, or its server is; each answer is looked at.
COUNTER = """
import socket, sys
key = sys.argv[3]
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as c, c.makefile("rb") as f:
    try:
        for i in range(1, 10**9):
            c.sendall(b"INCR %s\\r\\n" % key.encode())
            got = f.readline()
            if got == b"":
                sys.exit(0)
            if got != b":%d\\r\\n" % i:
                sys.exit(f"{got!r} in place of {i}")
            if i == int(sys.argv[4]):
                print("busy", flush=True)
    except ConnectionError:
        pass
"""


def in_namespace():
    """This test again, in namespaces of its own, network and mount, whose kernel can do all this."""
    if os.environ.get("REDIRECTED"):
        return
    if os.geteuid() != 0:
        print("skipped: needs root")
        sys.exit(harness.SKIP)
    setup = (f"{IP} link set lo up && {IP} addr add 10.77.0.9/32 dev lo && "
             f"{IP} route add 10.77.0.1/32 dev lo src 127.0.0.1 && {NFT} -f - && exec \"$@\" </dev/null")
    done = subprocess.run([UNSHARE, "-nm", "sh", "-c", f"{NFT} --check -f - || exit 77", "sh"],
                          input=RULES.encode(), check=False)
    if done.returncode:
        print("skipped: no network namespace, or no address translation in it")
        sys.exit(harness.SKIP)
    sys.exit(subprocess.run([UNSHARE, "-nm", "sh", "-ec", setup, "sh", PYTHON, *sys.argv],
                            input=RULES.encode(), check=False,
                            env={**os.environ, "REDIRECTED": "1"}).returncode)


def is_direct(run, program, least):
    """The last process of that name had so many connections in shared memory."""
    if run.mode != "both":
        return
    lines = [line for line in run.report() if line["program"] == program]
    if not lines or lines[-1]["upgraded"] < least or not lines[-1]["tx_direct_bytes"] or \
            not lines[-1]["rx_direct_bytes"]:
        raise harness.Failure(f"{program} was not direct: {lines[-1:]}")


def ask(run, host, port):
    def cli(*args, **kw):
        return run.client([CLI, "-h", host, "-p", str(port), *args], **kw)

    big = bytes(i * 7 % 251 for i in range(3_000_000))
    result = [cli("-x", "set", "big", stdin=big), harness.sha(cli("get", "big"))]
    result.append(b"errors: 0, replies: 3000" in cli("--pipe", stdin=b"".join(
        b"SET k%d %s\r\n" % (i, b"v" * (i % 3000 + 1)) for i in range(3000))))
    out = run.client([BENCH, "-h", host, "-p", str(port), "-q", "-t", "set,get", "-c", "50",
                      "-n", "5000"])
    if run.after == "0":  # with a threshold, which of them earn it is chance
        is_direct(run, "redis-benchmark", 100)
    return [*result, out.count(b"requests per second")]


def counting(run, key):
    """A client in the middle of its work."""
    proc = subprocess.Popen(run.wrap("client", [PYTHON, "-c", COUNTER, "127.0.0.1", "6379", key, str(BUSY)]),
                            stdout=subprocess.PIPE, start_new_session=True)
    run.started.append(proc)
    if proc.stdout.readline() != b"busy\n":
        raise harness.Failure("the counter ended early\n" + run.logs())
    return proc


def count_of(key):
    with socket.create_connection(("127.0.0.1", REDIS)) as c:
        c.sendall(b"GET %s\r\n" % key.encode())
        with c.makefile("rb") as f:
            f.readline()
            return int(f.readline())


def kills(run, proxy):
    """Either end is killed: the other one sees it, and what was answered has been done."""
    client = counting(run, "first")
    os.killpg(client.pid, signal.SIGKILL)
    client.wait(30)
    result = [count_of("first") >= BUSY]
    client = counting(run, "second")
    os.killpg(proxy.pid, signal.SIGKILL)
    proxy.wait(30)
    result += [client.wait(harness.LIMIT_S), count_of("second") >= BUSY]
    is_direct(run, "python3", 1)
    return result


def by_nginx(run):
    if not os.path.exists(STREAM):
        return []
    config = run.write("nginx.conf", NGINX_CONFIG.format(
        module=STREAM, dir=run.dir, port=BY_NGINX, redis=REDIS))
    server = run.server([harness.need("nginx"), "-c", config, "-e", run.path("error.log")],
                        BY_NGINX)
    result = ask(run, "127.0.0.1", 6400)
    run.stop(server)
    return result


def scenario(run):
    run.server([SERVER, "--port", str(REDIS), "--bind", "127.0.0.1", "--save", "",
                "--appendonly", "no", "--dir", run.dir], REDIS)
    proxy = run.server([HAPROXY, "-f", run.write("haproxy.cfg", CONFIG)], PROXY)
    result = [ask(run, *way) for way in WAYS]
    result.append(by_nginx(run))
    result.append(kills(run, proxy))
    return result


if __name__ == "__main__":
    in_namespace()
    with contextlib.suppress(KeyboardInterrupt):
        harness.main(scenario, modes=("plain", "both"))
