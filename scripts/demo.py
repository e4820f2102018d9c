#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures Redis over TCP, over AF_UNIX and under Viaduct, and prints a table.

usage: demo.py BUILD-FOLDER PLACE. PLACE is said in the heading.

For each number of clients and pipeline depth, the three ways are run one after the other,
in turning order, ROUNDS times; the table shows medians, and medians of the ratios within
a round. The bytes of the direct path come from the clients' own reports.
"""
import contextlib
import csv
import json
import os
import pathlib
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROUNDS = 3
SECONDS = 0.5  # of each command in each run
CASES = [(1, 1), (50, 1), (1, 16), (50, 16)]  # clients, pipeline
COMMANDS = ["SET", "GET"]
WAYS = ["tcp", "unix", "viaduct"]


def free_port():
    """Below those that the kernel hands out, so that no connection takes it meanwhile."""
    while True:
        port = random.randrange(15000, 30000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def congestion_control():
    """Of a loopback connection made here, whatever decided it."""
    with socket.create_server(("127.0.0.1", 0)) as listener, \
            socket.create_connection(listener.getsockname()) as s:
        name = s.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        return name.rstrip(b"\0").decode()


def answers(port):
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as s:
            s.sendall(b"PING\r\n")
            return s.recv(16).startswith(b"+PONG")
    except OSError:
        return False


@contextlib.contextmanager
def server(prefix, folder, *options):
    port = free_port()
    command = [*prefix, "redis-server", "--port", str(port), "--bind", "127.0.0.1",
               "--save", "", "--appendonly", "no", "--dir", folder, *options]
    log = open(os.path.join(folder, f"redis-{port}.log"), "w+")
    with subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            deadline = time.monotonic() + 20
            while not answers(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    sys.exit(f"demo: redis-server does not answer:\n{log.read()}")
                time.sleep(0.02)
            yield port
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def benchmark(prefix, where, clients, pipeline, requests):
    """Returns {command: (requests per second, p50 in microseconds)}."""
    command = [*prefix, "redis-benchmark", *where, "-d", "64", "-t", "set,get", "-c",
               str(clients), "-P", str(pipeline), "-n", str(requests), "--csv"]
    try:
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             text=True, timeout=60)
    except subprocess.TimeoutExpired:
        sys.exit(f"demo: {' '.join(command)} did not end within a minute")
    rows = {row["test"]: row for row in csv.DictReader(run.stdout.splitlines())}
    if run.returncode or any(c not in rows for c in COMMANDS):
        sys.exit(f"demo: {' '.join(command)} ended with status {run.returncode}:\n"
                 f"{run.stdout}{run.stderr}")
    return {c: (float(rows[c]["rps"]), float(rows[c]["p50_latency_ms"]) * 1000)
            for c in COMMANDS}


def read_report(path):
    with contextlib.suppress(FileNotFoundError):
        return [json.loads(line) for line in path.read_text().splitlines()]
    return []


def direct_bytes(lines):
    return sum(line["tx_direct_bytes"] + line["rx_direct_bytes"] for line in lines)


def measure(case, ways, folder):
    """Returns {way: [results of a round]} and the clients' reports."""
    clients, pipeline = case
    report = folder / f"clients-{clients}-{pipeline}.json"
    prefixes = {way: prefix(report) for way, (prefix, _) in ways.items()}

    def run(way, requests):
        return benchmark(prefixes[way], ways[way][1], clients, pipeline, requests)

    requests = {}
    for way in ways:  # also warms up
        rate = min(rps for rps, _ in run(way, 2000 * pipeline * (5 if clients > 1 else 1)).values())
        requests[way] = max(1000, int(rate * SECONDS))
    report.unlink(missing_ok=True)
    rounds = {way: [] for way in ways}
    for number in range(ROUNDS):
        for way in WAYS if number % 2 == 0 else reversed(WAYS):
            rounds[way].append(run(way, requests[way]))
    return rounds, read_report(report)


def megabytes(count):
    return f"{count / 1e6:,.0f} MB" if count >= 1e6 else f"{count:,} bytes"


def share_direct(lines):
    """Of the clients' bytes, those through shared memory."""
    moved = direct_bytes(lines)
    every = moved + total(lines, "tx_tcp_bytes", "rx_tcp_bytes")
    return f"{100 * moved / every:.0f}%" if every else "-"


def print_case(case, rounds, ratios, direct):
    """One line for each command; ratios gets Viaduct's to TCP."""
    for command in COMMANDS:
        def median(way, index):
            return statistics.median(r[command][index] for r in rounds[way])

        def ratio(way):
            return statistics.median(v[command][0] / o[command][0] for v, o in
                                     zip(rounds["viaduct"], rounds[way]))

        ratios.append(ratio("tcp"))
        cells = [f"{case[0]:>7} {case[1]:>8} {command:>4}"]
        cells += [f"{median(way, 0) / 1000:>8,.1f}" for way in WAYS]
        cells += [f"{ratio('tcp'):>5.1f}x {ratio('unix'):>7.1f}x"]
        cells += [f"{median('tcp', 1):>6,.0f} {median('viaduct', 1):>7,.0f} {direct:>6}"]
        print(" ".join(cells), flush=True)


def print_heading(place):
    version = subprocess.run(["redis-server", "--version"], stdout=subprocess.PIPE,
                             text=True).stdout.split()[2].removeprefix("v=")
    load = os.getloadavg()[0]
    print(f"Redis {version}, values of 64 bytes, {os.cpu_count()} processors, load {load:.1f}.\n"
          f"In {place}.\nCongestion control: {congestion_control()}. "
          f"Medians of {ROUNDS} alternating runs.\n")
    print(f"{'':>21} {'thousand requests/s':^26}  {'Viaduct against':^14} {'median, us':>14}")
    print(f"{'clients':>7} {'pipeline':>8} {'':>4} {'TCP':>8} {'AF_UNIX':>8} {'Viaduct':>8} "
          f"{'TCP':>6} {'AF_UNIX':>8} {'TCP':>6} {'Viaduct':>7} {'direct':>6}", flush=True)


def total(lines, *names):
    return sum(line[name] for line in lines for name in names)


def print_summary(lines, ratios, viaduct):
    """What was seen, from the reports that server and clients have written at their end."""
    moved = direct_bytes(lines)
    kernel = total(lines, "tx_tcp_bytes", "rx_tcp_bytes")
    if not moved:
        print("\nNOT ONE BYTE went over shared memory: the Viaduct figures are TCP's.\n"
              f"To learn why: {viaduct} doctor")
        return 1
    fair = " The machine is busy: expect other\nfigures on a quiet one." \
        if os.getloadavg()[0] > os.cpu_count() + 1 else ""
    print(f"\nUnder Viaduct the same Redis answered {min(ratios):.1f} to {max(ratios):.1f} times as "
          f"many requests\nas over TCP. Its ends report {megabytes(moved)} through shared memory, "
          f"and {megabytes(kernel)}\nover TCP, where every connection begins. `direct` is the share of a "
          f"row's bytes\nthat went through shared memory.{fair}\n\n"
          f"Next, with a program of yours, at both ends:\n"
          f"  {viaduct} run -- PROGRAM\n"
          f"  {viaduct} stat        which connections are accelerated, and why not\n"
          f"  {viaduct} doctor      what this machine lacks")
    return 0


def shown(build):
    """The command as one would type it here."""
    return os.path.relpath(build / "viaduct")


def main():
    build, place = pathlib.Path(sys.argv[1]), sys.argv[2]

    def viaduct(report):
        return [str(build / "viaduct"), "run", "--report", str(report), "--"]

    def plain(_):
        return []

    with tempfile.TemporaryDirectory(prefix="viaduct-demo-") as name:
        folder = pathlib.Path(name)
        unix = str(folder / "redis.sock")
        report = folder / "server.json"
        everything, ratios = [], []
        with server([], name, "--unixsocket", unix) as tcp_port, \
                server(viaduct(report), name) as viaduct_port:
            ways = {"tcp": (plain, ["-p", str(tcp_port)]), "unix": (plain, ["-s", unix]),
                    "viaduct": (viaduct, ["-p", str(viaduct_port)])}
            print_heading(place)
            for case in CASES:
                rounds, lines = measure(case, ways, folder)
                everything += lines
                print_case(case, rounds, ratios, share_direct(lines))
        return print_summary(everything + read_report(report), ratios, shown(build))


if __name__ == "__main__":
    sys.exit(main())
