#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs real servers and clients over TCP, AF_UNIX, sockmap and Viaduct, and compares.

Each application's servers are started once for each contender; the client then runs over
each in turn, and again, so that a pair shares the machine's weather. Figures are medians;
ratios are medians of the ratios within a pair, and above 1 is faster. The share of bytes
that went direct comes from the clients' own reports; that of sockmap is counted by its
program, and a run in which no byte was redirected is a failure.
"""
import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

from programs.go import app_go
from programs.mpi import app_hpcc, app_npmpi
from programs.rig import CONTENDERS, SEARCH, Bench, Failure
from programs.rpc import app_grpc, app_omniorb, app_rmi, grpc_python
from programs.sidecar import app_sidecar
from programs.sockmap import Sockmap
from programs.stores import app_memcached, app_pgbench, app_redis, postgres_bin
from programs.streams import app_iperf3, app_netpipe, app_sockperf
from programs.table import Table
from programs.web import app_caddy, app_nginx, app_node, node_program

HERE = pathlib.Path(__file__).resolve().parent
HALT_POLL = pathlib.Path("/sys/module/haltpoll/parameters/guest_halt_poll_ns")
HALT_POLL_NS = 200000  # the kernel's default
# name: (function, programs it needs)
APPS = {
    "redis": (app_redis, ["redis-server", "redis-benchmark"]),
    "sidecar": (app_sidecar, ["redis-server", "redis-benchmark", "haproxy", "nft"]),
    "memcached": (app_memcached, ["memcached", "memcaslap", "memcslap"]),
    "nginx": (app_nginx, ["nginx", "wrk"]),
    "caddy": (app_caddy, ["caddy", "wrk"]),
    "pgbench": (app_pgbench, ["pgbench"]),
    "iperf3": (app_iperf3, ["iperf3"]),
    "netpipe": (app_netpipe, ["NPtcp"]),
    "sockperf": (app_sockperf, ["sockperf"]),
    "npmpi": (app_npmpi, ["mpirun", "NPopenmpi"]),
    "hpcc": (app_hpcc, ["mpirun", "hpcc"]),
    "rmi": (app_rmi, ["java", "javac"]),
    "grpc": (app_grpc, []),
    "omniorb": (app_omniorb, ["g++", "omniidl"]),
    "node": (app_node, []),
    "go": (app_go, ["go"]),
}


def missing_of(name):
    missing = [n for n in APPS[name][1] if not shutil.which(n, path=SEARCH)]
    if name == "pgbench" and not postgres_bin():
        missing.append("postgres")
    if name == "grpc" and not grpc_python():
        missing.append("python3-grpcio")
    if name == "omniorb" and not os.path.exists("/usr/include/omniORB4/CORBA.h"):
        missing.append("libomniorb4-dev")
    if name == "node" and not node_program():
        missing.append("node")
    return missing


def stays_on_tcp(bench, program):
    """Why Viaduct leaves that program in Go there, or None: as where the processor has no rdfsbase."""
    said = subprocess.run([bench.options.viaduct, "explain", "--json", "--", shutil.which(program, path=SEARCH)],
                          stdout=subprocess.PIPE, check=False).stdout
    return next((point["text"] for point in json.loads(said)["points"] if point["state"] == "no"), None)


def run_app(bench, name):
    if missing := missing_of(name):
        print(f"{name:<10} left out: {', '.join(missing)} not installed "
              "(scripts/deps.sh bench)")
        return
    if name == "sidecar" and os.environ.get("APPS_NETWORK") != "own":
        print(f"{name:<10} left out: bench/apps.sh makes its network namespace as root alone")
        return
    if name == "caddy" and "viaduct" in bench.options.contenders and (why := stays_on_tcp(bench, name)):
        print(f"{name:<10} left out: {why}")
        return
    try:
        APPS[name][0](bench)
    except (Failure, OSError, subprocess.CalledProcessError) as e:
        print(f"  ! {name}: {e}")
        bench.failures += 1


@contextlib.contextmanager
def halt_polling(wanted):
    """Idle processors poll before they halt, as long as kernels do by default: setting
    it takes root, and it holds for the whole machine meanwhile."""
    if not wanted:
        yield
        return
    before = HALT_POLL.read_text()
    HALT_POLL.write_text(f"{HALT_POLL_NS}")
    try:
        yield
    finally:
        HALT_POLL.write_text(before)


def parse_options():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--viaduct", type=pathlib.Path, default=HERE.parent / "build/viaduct",
                   help="the command to measure (default: build/viaduct)")
    p.add_argument("--only", default=",".join(APPS), help="programs, separated by commas")
    p.add_argument("--contenders", default=",".join(CONTENDERS),
                   help=f"of {', '.join(CONTENDERS)} (default: all)")
    p.add_argument("--cases", default="", metavar="TEXT",
                   help="only cases whose name has this in it")
    p.add_argument("--pairs", type=int, default=5)
    p.add_argument("--seconds", type=float, default=2, help="of one client run, about")
    p.add_argument("--pin", action="store_true",
                   help="servers on processor 1, clients on processor 0")
    p.add_argument("--haltpoll", action="store_true",
                   help="idle processors poll as the kernel's default has it "
                        f"({HALT_POLL_NS} ns); as root, in a virtual machine")
    p.add_argument("--json", help="append one line of JSON for each row to this file")
    options = p.parse_args()
    options.contenders = options.contenders.split(",")
    for given, known in ((options.only.split(","), APPS),
                         (options.contenders, CONTENDERS)):
        for name in given:
            if name not in known:
                p.error(f"unknown: {name}; known: {', '.join(known)}")
    options.viaduct = options.viaduct.resolve()
    if "viaduct" in options.contenders and not options.viaduct.exists():
        p.error(f"{options.viaduct} does not exist: run `make build` or give --viaduct")
    if options.haltpoll and not os.access(HALT_POLL, os.W_OK):
        p.error(f"--haltpoll: {HALT_POLL} cannot be written: it takes root, and a virtual "
                "machine whose processors idle by haltpoll")
    if options.json:
        options.json = os.path.abspath(options.json)
    return options


def main():
    options = parse_options()
    # Servers are ended by their context managers: SIGTERM must unwind as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    table = Table(options.json)
    with (halt_polling(options.haltpoll),
          tempfile.TemporaryDirectory(prefix="viaduct-apps.") as folder):
        os.chmod(folder, 0o755)
        with Sockmap().running(folder, "sockmap" in options.contenders) as sockmap:
            bench = Bench(options, folder, sockmap, table)
            table.head()
            for name in options.only.split(","):
                run_app(bench, name)
    table.foot()
    if bench.failures:
        print(f"{bench.failures} measurements failed", file=sys.stderr)
    return 1 if bench.failures else 0


if __name__ == "__main__":
    sys.exit(main())
