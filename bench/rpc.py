#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long remote procedure calls take, in microseconds: libtirpc over TCP and AF_UNIX, over Viaduct's
sockets, and with its module. All four in turn, as often as asked; medians of the runs.

usage: bench/rpc.py BUILD-FOLDER [RUNS [ROUNDS]]

Both ends run on processors of their own where there are two (taskset), or, with RPC_ONE=1, on one.
"""
import os
import statistics
import subprocess
import sys
import tempfile
import time


def environment(way, build):
    env = dict(os.environ)
    libraries = {"sockets": ["preload"], "module": ["preload", "rpc"]}.get(way, [])
    if libraries:
        env["LD_PRELOAD"] = ":".join(f"{build}/libviaduct-{x}.so" for x in libraries)
    return env


def once(way, build, rounds, places):
    with tempfile.TemporaryDirectory() as tmp:
        place = os.path.join(tmp, "rpc.sock" if way == "unix" else "port")
        env = environment(way, build)
        serve = subprocess.Popen(["taskset", "-c", places[0], f"{build}/tests/rpc/rpc-serve",
                                  place, "run"], env=env, stdout=subprocess.DEVNULL)
        try:
            while not os.path.exists(place):
                time.sleep(0.01)
            where = place
            if way != "unix":
                with open(place, encoding="ascii") as f:
                    where = f.read().strip()
            out = subprocess.run(["taskset", "-c", places[1], f"{build}/tests/rpc/rpc-pace",
                                  where, str(rounds)], env=env, stdout=subprocess.PIPE,
                                 check=True).stdout.decode()
        finally:
            serve.kill()
            serve.wait()
    return {name: float(us) for name, us in (line.split() for line in out.splitlines())}


def main():
    build = os.path.abspath(sys.argv[1])
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 11
    cpus = sorted(os.sched_getaffinity(0))
    places = [str(cpus[0]), str(cpus[0] if "RPC_ONE" in os.environ else cpus[-1])]
    ways = ["tcp", "unix", "sockets", "module"]
    found = {way: [] for way in ways}
    for _ in range(runs):
        for way in ways:
            found[way].append(once(way, build, rounds, places))
    print("| call | " + " | ".join(ways) + " | TCP / module |\n|" + "---|" * 6)
    for name in found["tcp"][0]:
        us = [statistics.median(run[name] for run in found[way]) for way in ways]
        print(f"| {name} | " + " | ".join(f"{x:.2f}" for x in us) + f" | {us[0] / us[-1]:.1f} |")


main()
