# SPDX-License-Identifier: Apache-2.0
"""Redis behind a sidecar: what redis-benchmark dials is redirected by the packet filter to HAProxy."""
import contextlib
import os
import shutil
import subprocess

from programs.rig import SEARCH, Failure, free_port, measure, servers
from programs.stores import redis_once, redis_server

NO_UNIX = "AF_UNIX is not redirected"
CONFIG = """
global
  maxconn 500
  nbthread 1
defaults
  mode tcp
  timeout connect 30s
  timeout client 60s
  timeout server 60s
listen tcp
  bind 127.0.0.1:{port}
  server a 127.0.0.1:{to}
"""


def nft(rules):
    subprocess.run([shutil.which("nft", path=SEARCH), "-f", "-"], input=rules, text=True, check=True)


@contextlib.contextmanager
def redirected(where):
    """For each port another one that leads there: in a network namespace of our own alone."""
    if os.environ.get("APPS_NETWORK") != "own":
        raise Failure("bench/apps.sh, as root, makes the network namespace that it takes")
    dialled = {way: free_port() for way in where}
    rules = "; ".join(f"tcp dport {dialled[way]} redirect to :{port}" for way, port in where.items())
    nft(f"table inet bench {{ chain out {{ type nat hook output priority -100; {rules}; }}; }}")
    try:
        yield dialled
    finally:
        nft("delete table inet bench")


def app_sidecar(bench):
    """Redis behind HAProxy, redirected to"""
    with servers(bench, bench.ways(NO_UNIX), redis_server) as redis:
        def proxy(way, port):
            config = bench.new_folder() / "haproxy.cfg"
            config.write_text(CONFIG.format(port=port, to=redis[way]))
            return [shutil.which("haproxy", path=SEARCH), "-f", str(config)]

        with servers(bench, bench.ways(NO_UNIX), proxy) as where, redirected(where) as dialled:
            for clients in (1, 50):
                measure(bench, "sidecar", f"GET c{clients}", "op/s", redis_once(bench, dialled, clients, 1, 64, "get"),
                        no_unix=NO_UNIX)
