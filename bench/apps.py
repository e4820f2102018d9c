#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs real servers and clients over TCP, AF_UNIX and under Viaduct, and compares.

Each application's servers are started once plain and once under Viaduct; the client then
runs over each in turn, and again, so that a pair shares the machine's weather. Figures are
medians; ratios are medians of the ratios within a pair, and above 1 is faster. The share
of bytes that went direct comes from the clients' own reports.
"""
import argparse
import contextlib
import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
LIMIT_S = 60  # of one client run; a hang is a failure, not a figure


class Failure(Exception):
    """A measurement that gave no figure; the text says why."""


class Bench:
    """Options, the folder of this run, and the rows so far."""

    def __init__(self, options, folder):
        self.options = options
        self.seconds = options.seconds
        self.folder = pathlib.Path(folder)
        self.rows = []
        self.failures = 0

    def prefix(self, way, report):
        if way != "viaduct":
            return []
        return [str(self.options.viaduct), "run", "--report", str(report), "--"]

    def pinned(self, command, cpu):
        return ["taskset", "-c", str(cpu), *command] if self.options.pin else command


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def is_listening(port):
    wanted = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(FileNotFoundError), open(table) as f:
            for line in f.readlines()[1:]:
                words = line.split()
                if words[1].endswith(wanted) and words[3] == "0A":
                    return True
    return False


def wait_listening(process, port, log):
    """Looks at the kernel's table: to connect would use up a server that serves once."""
    until = time.monotonic() + 20
    while not is_listening(port):
        if process.poll() is not None or time.monotonic() > until:
            raise Failure(f"the server did not come up: {tail(log)}")
        time.sleep(0.02)


def tail(path):
    text = pathlib.Path(path).read_text(errors="replace").strip()
    return text.splitlines()[-1][:150] if text else "it said nothing"


def stop(process):
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def server(bench, way, command, port, **popen):
    """A server in its own log; command is without `viaduct run`."""
    folder = tempfile.mkdtemp(dir=bench.folder)
    os.chmod(folder, 0o777)
    log = pathlib.Path(folder, "log")
    full = bench.pinned(bench.prefix(way, f"{folder}/report") + command, 1)
    with open(log, "w") as out:
        process = subprocess.Popen(full, stdin=subprocess.DEVNULL, stdout=out,
                                   stderr=out, cwd=folder, **popen)
    try:
        wait_listening(process, port, log)
        yield process
    finally:
        stop(process)


def client(bench, way, command, report, **run):
    """Runs a client to its end and returns what it printed."""
    full = bench.pinned(bench.prefix(way, report) + command, 0)
    try:
        done = subprocess.run(full, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace",
                              timeout=LIMIT_S, check=False, **run)
    except subprocess.TimeoutExpired as e:
        raise Failure(f"the client did not end within {LIMIT_S} s") from e
    if done.returncode:
        last = done.stdout.strip().splitlines()[-1:] or ["it said nothing"]
        raise Failure(f"the client ended with {done.returncode}: {last[0][:150]}")
    return done.stdout


def find_number(pattern, text, scale=1.0):
    m = re.search(pattern, text)
    if not m:
        raise Failure(f"no figure in: {text.strip()[-150:]!r}")
    return float(m.group(1)) * scale


def direct_share(report):
    """Of the bytes that the clients moved; None without a report."""
    direct = tcp = 0
    try:
        lines = report.read_text().splitlines()
    except FileNotFoundError:
        return None
    reasons = {}
    for line in lines:
        entry = json.loads(line)
        direct += entry["tx_direct_bytes"] + entry["rx_direct_bytes"]
        tcp += entry["tx_tcp_bytes"] + entry["rx_tcp_bytes"]
        for name, count in entry.get("reasons", {}).items():
            reasons[name] = reasons.get(name, 0) + count
    return {"direct_bytes": direct, "tcp_bytes": tcp, "reasons": reasons}


def measure(bench, app, case, unit, ways, once, lower_is_better=False):
    """once(way, report) returns a figure, or raises Failure."""
    values = {way: [] for way in ways}
    errors = []
    report = pathlib.Path(tempfile.mkdtemp(dir=bench.folder), "report")
    os.chmod(report.parent, 0o777)
    for pair in range(bench.options.pairs):
        for way in ways:
            if sys.stderr.isatty():
                print(f"\r\033[K{app} {case}, pair {pair + 1}, {way}", end="",
                      file=sys.stderr, flush=True)
            try:
                values[way].append(once(way, report))
            except Failure as e:
                values[way].append(None)
                errors.append(f"{way}: {e}")
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    row = {"app": app, "case": case, "unit": unit, "lower_is_better": lower_is_better,
           "values": values, "errors": errors, "direct": direct_share(report)}
    bench.rows.append(row)
    bench.failures += len(errors)
    print_row(bench, row)


def ratios(row, way, base):
    pairs = [(a, b) for a, b in zip(row["values"][way], row["values"].get(base, []))
             if a and b]
    return [b / a if row["lower_is_better"] else a / b for a, b in pairs]


def print_head():
    print(f"{'program':<11} {'case':<18} {'over':<8} {'median':>11} {'lowest':>11} "
          f"{'highest':>11} {'unit':<6} {'times tcp':<20} {'times unix':<10} direct")


def print_row(bench, row):
    for way, all_values in row["values"].items():
        values = [v for v in all_values if v]
        middle = [f"{f(values):.4g}" if values else "-"
                  for f in (statistics.median, min, max)]
        tcp = unix = share = ""
        if way != "tcp" and (r := ratios(row, way, "tcp")):
            tcp = f"{statistics.median(r):.2f} ({min(r):.2f}..{max(r):.2f})"
        if way == "viaduct" and (r := ratios(row, way, "unix")):
            unix = f"{statistics.median(r):.2f}"
        if way == "viaduct":
            share = share_text(row["direct"])
        print(f"{row['app']:<11} {row['case']:<18} {way:<8} {middle[0]:>11} "
              f"{middle[1]:>11} {middle[2]:>11} {row['unit']:<6} {tcp:<20} {unix:<10} "
              f"{share}")
    for error in row["errors"]:
        print(f"  ! {error}")
    sys.stdout.flush()
    if bench.options.json:
        with open(bench.options.json, "a") as f:
            json.dump(row, f)
            f.write("\n")


def share_text(direct):
    if direct is None:
        return "unknown"
    total = direct["direct_bytes"] + direct["tcp_bytes"]
    if not direct["direct_bytes"]:
        return f"NONE {direct['reasons']}"
    return f"{100 * direct['direct_bytes'] / total:.1f} %"


# ---- the programs ----

TCP_PAIR = ["tcp", "viaduct"]


@contextlib.contextmanager
def both_servers(bench, command_for, **popen):
    """One server plain, one under Viaduct. Yields the port by way."""
    plain, via = free_port(), free_port()
    with server(bench, "tcp", command_for(plain), plain, **popen), \
            server(bench, "viaduct", command_for(via), via, **popen):
        yield {"tcp": plain, "unix": plain, "viaduct": via}


def app_redis(bench):
    """Redis, GET and SET of 64 bytes"""
    socket_path = bench.folder / "redis.sock"

    def command_for(port):
        unix = ["--unixsocket", f"{socket_path}.{port}"]
        return ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "",
                "--appendonly", "no", *unix]

    with both_servers(bench, command_for) as ports:
        for clients, pipeline in ((1, 1), (50, 1), (50, 16)):
            for test in ("get", "set"):
                measure(bench, "redis", f"{test.upper()} c{clients} P{pipeline}", "op/s",
                        ["tcp", "viaduct", "unix"],
                        redis_once(bench, ports, socket_path, clients, pipeline, test))


def redis_once(bench, ports, socket_path, clients, pipeline, test):
    guess = (15000 if clients == 1 else 40000) * pipeline ** 0.8

    def once(way, report):
        where = (["-s", f"{socket_path}.{ports[way]}"] if way == "unix" else
                 ["-h", "127.0.0.1", "-p", str(ports[way])])
        count = int(guess * bench.seconds * (4 if way == "viaduct" else 1))
        text = client(bench, way, ["redis-benchmark", *where, "-t", test, "-d", "64",
                                   "-c", str(clients), "-P", str(pipeline),
                                   "-n", str(count), "--csv"], report)
        return find_number(rf'"{test.upper()}","([0-9.]+)"', text)
    return once


def app_memcached(bench):
    """memcached with memcaslap"""
    user = ["-u", "root"] if os.geteuid() == 0 else []

    def command_for(port):
        return ["memcached", "-l", "127.0.0.1", "-p", str(port), "-U", "0", "-t", "1",
                *user]

    with both_servers(bench, command_for) as ports:
        for clients in (1, 16):
            def once(way, report, clients=clients):
                text = client(bench, way, [
                    "memcaslap", "-s", f"127.0.0.1:{ports[way]}", "-T", "1",
                    "-c", str(clients), "-t", f"{max(1, round(bench.seconds))}s"], report)
                return find_number(r"TPS: (\d+)", text)
            measure(bench, "memcached", f"mixed c{clients}", "op/s", TCP_PAIR, once)


NGINX = """
{user}
worker_processes 1;
daemon off;
pid {folder}/pid;
error_log stderr error;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    keepalive_requests 100000000;
    server {{
        listen 127.0.0.1:{port};
        root {folder}/www;
    }}
}}
"""


def app_nginx(bench):
    """nginx with wrk: a file of 128 bytes, keep-alive"""

    def command_for(port):
        folder = tempfile.mkdtemp(dir=bench.folder)
        www = pathlib.Path(folder, "www")
        www.mkdir()
        (www / "file").write_bytes(b"x" * 128)
        user = "user root;" if os.geteuid() == 0 else ""
        conf = pathlib.Path(folder, "nginx.conf")
        conf.write_text(NGINX.format(user=user, folder=folder, port=port))
        return [shutil.which("nginx", path=SEARCH), "-c", str(conf), "-p", folder]

    with both_servers(bench, command_for) as ports:
        for clients in (1, 32):
            def once(way, report, clients=clients):
                text = client(bench, way, [
                    "wrk", "-t", "1", "-c", str(clients),
                    "-d", f"{max(1, round(bench.seconds))}s",
                    f"http://127.0.0.1:{ports[way]}/file"], report)
                if "Non-2xx" in text or "Socket errors" in text:
                    raise Failure(text.strip()[-150:])
                return find_number(r"Requests/sec:\s*([0-9.]+)", text)
            measure(bench, "nginx", f"128 B c{clients}", "req/s", TCP_PAIR, once)


def postgres_bin():
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    return found[-1].parent if found else None


def app_pgbench(bench):
    """PostgreSQL with pgbench -S over TCP"""
    bin_folder = postgres_bin()
    data = pathlib.Path(tempfile.mkdtemp(dir=bench.folder))
    popen = {}
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        user = pwd.getpwnam("postgres")
        os.chown(data, user.pw_uid, user.pw_gid)
        popen = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    def prepare(port):
        folder = data / str(port)
        subprocess.run([bin_folder / "initdb", "-D", folder, "-A", "trust", "-U", "bench",
                        "--no-sync"], check=True, stdout=subprocess.DEVNULL, cwd=data,
                       **popen)
        return [str(bin_folder / "postgres"), "-D", str(folder), "-p", str(port),
                "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off",
                "-c", f"unix_socket_directories={folder}"]

    def target(port):
        return ["-h", "127.0.0.1", "-p", str(port), "-U", "bench", "postgres"]

    with both_servers(bench, prepare, **popen) as ports:
        for way in TCP_PAIR:
            wait_postgres(bin_folder, ports[way])
            client(bench, "tcp", ["pgbench", "-i", "-q", "-s", "5", *target(ports[way])],
                   "", cwd=data, **popen)
        for clients in (1, 8):
            def once(way, report, clients=clients):
                text = client(bench, way, [
                    "pgbench", "-S", "-n", "-c", str(clients), "-j", "1",
                    "-T", str(max(1, round(bench.seconds))), *target(ports[way])],
                    report, cwd=data, **popen)
                return find_number(r"tps = ([0-9.]+)", text)
            measure(bench, "pgbench", f"-S c{clients}", "tx/s", TCP_PAIR, once)


def wait_postgres(bin_folder, port):
    until = time.monotonic() + 20
    while subprocess.run([bin_folder / "pg_isready", "-q", "-h", "127.0.0.1",
                          "-p", str(port)], check=False).returncode:
        if time.monotonic() > until:
            raise Failure("PostgreSQL does not answer")
        time.sleep(0.05)


def app_iperf3(bench):
    """iperf3, one stream"""

    def command_for(port):
        return ["iperf3", "-s", "-B", "127.0.0.1", "-p", str(port)]

    with both_servers(bench, command_for) as ports:
        for name, options in (("forward", []), ("reverse", ["-R"]), ("1 KiB", ["-l", "1K"])):
            def once(way, report, options=options):
                text = client(bench, way, [
                    "iperf3", "-c", "127.0.0.1", "-p", str(ports[way]), "-f", "m",
                    "-t", str(max(1, round(bench.seconds))), *options], report)
                return find_number(r"([0-9.]+) Mbits/sec\s+receiver", text, 1 / 8000)
            measure(bench, "iperf3", name, "GB/s", TCP_PAIR, once)


def app_netpipe(bench):
    """NetPIPE (NPtcp): round trip divided by two, and throughput"""
    cases = [(64, "us", True), (16384, "GB/s", False), (1048576, "GB/s", False)]
    for size, unit, lower in cases:
        def once(way, report, size=size, lower=lower):
            port = free_port()
            out = pathlib.Path(tempfile.mkdtemp(dir=bench.folder), "np.out")
            # Both ends must be told the same.
            same = ["-P", str(port), "-l", str(size), "-u", str(size + 1), "-p", "0"]
            with server(bench, way, ["NPtcp", *same], port):
                client(bench, way, ["NPtcp", "-h", "127.0.0.1", *same, "-o", str(out)],
                       report)
            return netpipe_figure(out, size, lower)
        measure(bench, "netpipe", f"{size} B", unit, TCP_PAIR, once, lower)


def netpipe_figure(out, size, lower):
    for line in out.read_text().splitlines():
        length, megabits, seconds = line.split()[:3]
        if int(length) == size:
            return float(seconds) * 1e6 if lower else float(megabits) * 2**20 / 8e9
    raise Failure("no line for this size")


def app_sockperf(bench):
    """sockperf ping-pong: half a round trip"""

    def command_for(port):
        return ["sockperf", "sr", "--tcp", "-i", "127.0.0.1", "-p", str(port)]

    with both_servers(bench, command_for) as ports:
        for size in (64, 4096):
            def once(way, report, size=size):
                text = client(bench, way, [
                    "sockperf", "pp", "--tcp", "-i", "127.0.0.1", "-p", str(ports[way]),
                    "-m", str(size), "-t", str(max(1, round(bench.seconds)))], report)
                return find_number(r"Latency is\s+([0-9.]+)", text)
            measure(bench, "sockperf", f"{size} B", "us", TCP_PAIR, once, True)


SEARCH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
# name: (function, programs it needs)
APPS = {
    "redis": (app_redis, ["redis-server", "redis-benchmark"]),
    "memcached": (app_memcached, ["memcached", "memcaslap"]),
    "nginx": (app_nginx, ["nginx", "wrk"]),
    "pgbench": (app_pgbench, ["pgbench"]),
    "iperf3": (app_iperf3, ["iperf3"]),
    "netpipe": (app_netpipe, ["NPtcp"]),
    "sockperf": (app_sockperf, ["sockperf"]),
}


def run_app(bench, name):
    function, needs = APPS[name]
    missing = [n for n in needs if not shutil.which(n, path=SEARCH)]
    if name == "pgbench" and not postgres_bin():
        missing.append("postgres")
    if missing:
        print(f"{name:<11} left out: {', '.join(missing)} not installed")
        return
    try:
        function(bench)
    except (Failure, OSError, subprocess.CalledProcessError) as e:
        print(f"  ! {name}: {e}")
        bench.failures += 1


def parse_options():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--viaduct", type=pathlib.Path, default=HERE.parent / "build/viaduct",
                   help="the command to measure (default: build/viaduct)")
    p.add_argument("--only", default=",".join(APPS), help="programs, separated by commas")
    p.add_argument("--pairs", type=int, default=5)
    p.add_argument("--seconds", type=float, default=2, help="of one client run, about")
    p.add_argument("--pin", action="store_true",
                   help="servers on processor 1, clients on processor 0")
    p.add_argument("--json", help="append one line of JSON for each row to this file")
    options = p.parse_args()
    for name in options.only.split(","):
        if name not in APPS:
            p.error(f"unknown program {name}; known: {', '.join(APPS)}")
    options.viaduct = options.viaduct.resolve()
    if not options.viaduct.exists():
        p.error(f"{options.viaduct} does not exist: run `make build` or give --viaduct")
    if options.json:
        options.json = os.path.abspath(options.json)
    return options


def main():
    options = parse_options()
    # Servers are ended by their context managers: SIGTERM must unwind as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="viaduct-apps.") as folder:
        os.chmod(folder, 0o755)
        bench = Bench(options, folder)
        print_head()
        for name in options.only.split(","):
            run_app(bench, name)
    if bench.failures:
        print(f"{bench.failures} measurements failed", file=sys.stderr)
    return 1 if bench.failures else 0


if __name__ == "__main__":
    sys.exit(main())
