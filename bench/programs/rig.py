# SPDX-License-Identifier: Apache-2.0
"""Starts servers, runs clients and collects figures, over each contender in turn."""
import contextlib
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import tempfile
import time

LIMIT_S = 600  # of one program; a hang is a failure, not a figure
LISTEN_S = 120
SEARCH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
CONTENDERS = ("tcp", "unix", "sockmap", "viaduct")


class Failure(Exception):
    """A measurement that gave no figure; the text says why."""


class Bench:
    """Options, the folder of this run, and the rows so far."""

    def __init__(self, options, folder, sockmap, table):
        self.options = options
        self.seconds = options.seconds
        self.folder = pathlib.Path(folder)
        self.sockmap = sockmap
        self.table = table
        self.failures = 0

    @property
    def whole_seconds(self):
        """For programs that take no fraction."""
        return str(max(1, round(self.seconds)))

    def ways(self, unix=None):
        """The contenders asked for; `unix` says why AF_UNIX is none, if so."""
        return [way for way in self.options.contenders
                if not (way == "unix" and unix)
                and not (way == "sockmap" and not self.sockmap.ready)]

    def prefix(self, way, report):
        if way == "sockmap":
            return self.sockmap.prefix()
        if way != "viaduct":
            return []
        asked = ["--report", str(report)] if report else []
        return [str(self.options.viaduct), "run", *asked, "--"]

    def pinned(self, command, cpu):
        if cpu is None or not self.options.pin:
            return command
        return ["taskset", "-c", str(cpu), *command]

    def full(self, way, command, report, cpu, user=None):
        """The command line of one end. The cgroup is entered as root, before `user`."""
        as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups",
                   "--"] if user else []
        prefix = self.prefix(way, report)
        command = ([*prefix, *as_user, *command] if way == "sockmap" else
                   [*as_user, *prefix, *command])
        return self.pinned(command, cpu)

    def new_folder(self):
        """Any user's programs write into it."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        folder.chmod(0o777)
        return folder


def free_port():
    """Below those that the kernel hands out, so that no connection takes it meanwhile."""
    while True:
        port = random.randrange(10000, 15000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def is_listening(where):
    """A port, or the path of an AF_UNIX socket."""
    if not isinstance(where, int):
        with contextlib.suppress(OSError), open("/proc/net/unix") as f:
            # Flags 00010000: it accepts connections.
            return any(words[-1] == str(where) and words[3] == "00010000"
                       for words in map(str.split, f.readlines()[1:]))
        return False
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(FileNotFoundError), open(table) as f:
            for line in f.readlines()[1:]:
                words = line.split()
                if words[1].endswith(f":{where:04X}") and words[3] == "0A":
                    return True
    return False


def wait_listening(process, where, log):
    """Looks at the kernel's table: to connect would use up a server that serves once."""
    until = time.monotonic() + LISTEN_S
    while not is_listening(where):
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
def server(bench, way, command, where, user=None, **popen):
    """A server in its own log; command is without `viaduct run`."""
    folder = bench.new_folder()
    log = folder / "log"
    with open(log, "w") as out:
        # No report: a server that forks would write a line for each connection.
        process = subprocess.Popen(bench.full(way, command, None, 1, user),
                                   stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                   cwd=folder, **popen)
    try:
        wait_listening(process, where, log)
        yield process
    finally:
        stop(process)


@contextlib.contextmanager
def servers(bench, ways, command_for, user=None, socket_name="socket"):
    """One server for each way: command_for(way, where), where is its port or the path of
    its socket. Yields `where` by way."""
    with contextlib.ExitStack() as running:
        where = {}
        for way in ways:
            where[way] = (str(bench.new_folder() / socket_name) if way == "unix" else
                          free_port())
            running.enter_context(server(bench, way, command_for(way, where[way]),
                                         where[way], user))
        yield where


def client(bench, way, command, report, user=None, cpu=0, **run):
    """Runs a client to its end and returns what it printed."""
    try:
        done = subprocess.run(bench.full(way, command, report, cpu, user),
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace",
                              timeout=LIMIT_S, check=False, **run)
    except subprocess.TimeoutExpired as e:
        raise Failure(f"{pathlib.Path(command[0]).name} did not end within {LIMIT_S} s") from e
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


def run_once(bench, way, once, report):
    """The figures of one run; with sockmap also a look that it had an effect."""
    if way != "sockmap":
        return once(way, report)
    before = bench.sockmap.redirected_bytes()
    figures = once(way, report)
    if bench.sockmap.redirected_bytes() == before:
        raise Failure("no byte was redirected")
    return figures


def not_contenders(bench, no_unix):
    """Who was asked for and cannot, and why."""
    found = {}
    if "unix" in bench.options.contenders and no_unix:
        found["unix"] = no_unix
    if "sockmap" in bench.options.contenders and not bench.sockmap.ready:
        found["sockmap"] = bench.sockmap.why_not
    return found


def measure_many(bench, app, cases, once, no_unix=None):
    """cases: (name, unit, lower is better). once(way, report) returns a figure for each, or
    raises Failure. no_unix says why the program cannot do it over AF_UNIX."""
    wanted = [bench.options.cases in f"{app} {name}" for name, _unit, _lower in cases]
    if not any(wanted):
        return
    ways = bench.ways(no_unix)
    values = [{way: [] for way in ways} for _ in cases]
    errors = []
    report = bench.new_folder() / "report"
    for pair in range(bench.options.pairs):
        for way in ways:
            bench.table.show_progress(f"{app} {cases[0][0]}, pair {pair + 1}, {way}")
            try:
                figures = run_once(bench, way, once, report)
            except Failure as e:
                figures = [None] * len(cases)
                errors.append(f"{way}: {e}")
            for of_case, figure in zip(values, figures):
                of_case[way].append(figure)
    bench.failures += len(errors)
    direct = direct_share(report) if "viaduct" in ways else None
    for (name, unit, lower), of_case, is_wanted in zip(cases, values, wanted):
        if is_wanted:
            bench.table.add({"app": app, "case": name, "unit": unit,
                             "lower_is_better": lower, "values": of_case, "errors": errors,
                             "missing": not_contenders(bench, no_unix), "direct": direct})
            errors = []  # said once


def measure(bench, app, case, unit, once, lower_is_better=False, no_unix=None):
    """One case, of which once() returns the figure alone."""
    measure_many(bench, app, [(case, unit, lower_is_better)],
                 lambda way, report: [once(way, report)], no_unix)
