#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long remote procedure calls take: libtirpc over TCP and AF_UNIX, over Viaduct's sockets, and with
its module. All four in turn, as often as asked; medians of the runs, and the ratio to TCP of pairs
of the same run, with the least and the largest.

usage: bench/rpc.py BUILD-FOLDER [RUNS [ROUNDS]]

Three tables: microseconds a call; processor time of both ends, in microseconds a call, and from 1 KiB
in nanoseconds a byte; and calls of an int in thousands a second, by 1, 2, 4 and 8 threads. For the
first two both ends run on processors of their own where there are two (taskset), or, with RPC_ONE=1,
on one.
"""
import os
import statistics
import subprocess
import sys
import tempfile
import time

WAYS = ["tcp", "unix", "sockets", "module"]
THREADS = ("1", "2", "4", "8")
LIMIT_S = 1800  # of one program; a hang is a failure
BYTES = {"KiB": 1024, "B": 1}


def environment(way, build):
    env = dict(os.environ)
    libraries = {"sockets": ["preload"], "module": ["preload", "rpc"]}.get(way, [])
    if libraries:
        env["LD_PRELOAD"] = ":".join(f"{build}/libviaduct-{x}.so" for x in libraries)
    return env


def once(way, build, rounds, places, *more):
    """Of each kind of call the two numbers of a line."""
    with tempfile.TemporaryDirectory() as tmp:
        place = os.path.join(tmp, "rpc.sock" if way == "unix" else "port")
        env = environment(way, build)
        serve = subprocess.Popen(["taskset", "-c", places[0], f"{build}/tests/rpc/rpc-serve",
                                  place, "run"], env=env, stdout=subprocess.DEVNULL)
        try:
            while not os.path.exists(place):
                if serve.poll() is not None:
                    raise OSError(f"rpc-serve ended with {serve.returncode}")
                time.sleep(0.01)
            where = place
            if way != "unix":
                with open(place, encoding="ascii") as f:
                    where = f.read().strip()
            out = subprocess.run(["taskset", "-c", places[1], f"{build}/tests/rpc/rpc-pace",
                                  where, str(rounds), str(serve.pid), *more], env=env,
                                 stdout=subprocess.PIPE, check=True,
                                 timeout=LIMIT_S).stdout.decode()
        finally:
            serve.kill()
            serve.wait()
    lines = (line.split() for line in out.splitlines())
    return {name: (float(us), float(processor)) for name, us, processor in lines}


def ratio(found, name, which):
    pairs = sorted(tcp[name][which] / module[name][which]
                   for tcp, module in zip(found["tcp"], found["module"]))
    return f"{statistics.median(pairs):.1f} ({pairs[0]:.1f} to {pairs[-1]:.1f})"


def table(title, found, which, value, last):
    print(f"\n| {title} | " + " | ".join(WAYS) + f" | {last} |\n|" + "---|" * (len(WAYS) + 2))
    for name in found["tcp"][0]:
        cells = [value(name, statistics.median(run[name][which] for run in found[way]))
                 for way in WAYS]
        print(f"| {name} | " + " | ".join(cells) + f" | {ratio(found, name, which)} |")


def processor_time(name, us):
    for unit, size in BYTES.items():
        count = name.removesuffix(unit)
        if name.endswith(unit) and count.isdigit() and int(count) * size >= 1024:
            return f"{us:.2f} ({us * 1000 / (int(count) * size):.3f} ns a byte)"
    return f"{us:.2f}"


def main():
    if not 2 <= len(sys.argv) <= 4 or not all(a.isdigit() for a in sys.argv[2:]):
        sys.exit(__doc__)
    build = os.path.abspath(sys.argv[1])
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 11
    cpus = sorted(os.sched_getaffinity(0))
    places = [str(cpus[0]), str(cpus[0] if "RPC_ONE" in os.environ else cpus[-1])]
    every = ",".join(str(cpu) for cpu in cpus)
    sizes = {way: [] for way in WAYS}
    threads = {way: [] for way in WAYS}
    for _ in range(runs):
        for way in WAYS:
            sizes[way].append(once(way, build, rounds, places))
        for way in WAYS:
            found = {}
            for count in THREADS:
                found.update(once(way, build, rounds, [every, every], count))
            threads[way].append(found)
    table("microseconds a call", sizes, 0, lambda _, us: f"{us:.2f}", "TCP / module")
    table("processor time of a call, us", sizes, 1, processor_time, "TCP / module")
    table("thousand calls a second", threads, 0, lambda _, us: f"{1000 / us:.0f}", "module / TCP")
    print("\nload of the machine at the end: " + " ".join(f"{x:.1f}" for x in os.getloadavg()))


if __name__ == "__main__":
    main()
