# SPDX-License-Identifier: Apache-2.0
"""Rows measured by programs of the build folder: remote calls, native puts, registrations, threads."""
import os
import re
import subprocess
import sys

from .row import Cannot, Failed, cell
from .ways import HERE, built, environment, output

BESIDE = "it is built with the tests, and not installed"


class Rpc:
    """libtirpc, as bench/rpc.py measures it; `what` is sizes, processor or threads."""

    def __init__(self, what, names):
        self.what, self.names = what, names

    def command_at(self, level):
        return f"bench/rpc.py build {level.pairs} {self.rounds(level)}"

    def rounds(self, level):
        return 1 if level.smallest else 3

    def run(self, viaduct, level):
        for name in ("rpc-serve", "rpc-pace"):
            built(viaduct, f"tests/rpc/{name}", f"{BESIDE}, or rpcgen or libtirpc was missing")
        if not os.path.exists(os.path.join(os.path.dirname(HERE), "rpc.py")):
            raise Cannot("bench/rpc.py is not beside the command")
        sys.path.insert(0, os.path.dirname(HERE))
        import rpc
        cpus = sorted(os.sched_getaffinity(0))
        places = [str(cpus[0]), str(cpus[-1])]
        counts = [""]
        if self.what == "threads":
            places = [",".join(map(str, cpus))] * 2
            counts = self.names[:1] if level.smallest else self.names
        found = []
        for _ in range(level.pairs):
            found.append({})
            for way in rpc.WAYS:
                found[-1][way] = {}
                for count in counts:
                    found[-1][way].update(self.once(rpc, way, viaduct, level, places, count))
        return list(self.cells(found, rpc.WAYS, level))

    def once(self, rpc, way, viaduct, level, places, count):
        try:
            return rpc.once(way, os.path.dirname(viaduct), self.rounds(level), places,
                            *([count] if count else []))
        except (OSError, ValueError, subprocess.SubprocessError) as e:
            raise Failed(f"a run over {way} gave no figures: {e}") from e

    def cells(self, found, ways, level):
        which = 1 if self.what == "processor" else 0
        names = [f"{n}-threads" for n in self.names] if self.what == "threads" else self.names
        for name in names[:1] if level.smallest else names:
            # The engine of calls is what the row is about; Viaduct's sockets stand beside.
            values = {{"module": "viaduct"}.get(w, w): [f[w][name][which] for f in found]
                      for w in ways}
            unit = "us of processor time" if which else "us a call"
            yield cell(name, unit, True, values)


class Native:
    """Puts by the native interface: over TCP, and in memory that both map."""
    FIGURES = ((r"8 B +([0-9.]+) us", "put of 8 B, there and back", "us", True),
               (r"64 B +([0-9.]+) us", "put of 64 B, there and back", "us", True),
               (r"64 KB +([0-9.]+) GB/s", "puts of 64 KB", "GB/s", False),
               (r"1 MB +([0-9.]+) GB/s", "puts of 1 MB", "GB/s", False),
               (r"both ways +([0-9.]+) GB/s", "puts of 64 KB by both ends at once", "GB/s", False),
               (r"64 KB +([0-9.]+) us", "put of 64 KB, there and back", "us", True),
               (r"o to put ([0-9.]+) us", "put of 64 B: o, send", "us", True),
               (r"o to take ([0-9.]+) us", "put of 64 B: o, receive", "us", True),
               (r", g ([0-9.]+) us", "puts of 64 B in a row: g", "us", True))
    LIMITS = ((r"line there and back ([0-9.]+) us", 0), (r"line there and back ([0-9.]+) us", 1),
              (r"64 KB +[0-9.]+ GB/s, memcpy +([0-9.]+)", 2),
              (r"1 MB +[0-9.]+ GB/s, memcpy +([0-9.]+)", 3))

    def command_at(self, _level):
        return ("VIADUCT=off build/tests/native/native-bench; "
                "build/tests/native/native-bench alloc")

    def run(self, viaduct, level):
        program = built(viaduct, "tests/native/native-bench", BESIDE)
        values = [{"tcp": [], "viaduct": [], "floor": []} for _ in self.FIGURES]
        turns = "200" if level.smallest else "4000"
        for _ in range(level.pairs):
            for way, argv, more in (("tcp", [program, "puts", turns], {"VIADUCT": "off"}),
                                    ("viaduct", [program, "alloc", turns], {})):
                text = output(argv, env=environment(**more))
                if text.startswith("TCP") != (way == "tcp"):
                    raise Failed(f"puts that were to go over {way} did not: {text[:40]}")
                for of, (pattern, _, _, _) in zip(values, self.FIGURES):
                    of[way].append(self.figure(pattern, text))
            for pattern, of in self.LIMITS:
                values[of]["floor"].append(self.figure(pattern, text))
        return [cell(case, unit, lower, of)
                for of, (_, case, unit, lower) in zip(values, self.FIGURES)]

    def figure(self, pattern, text):
        found = re.search(pattern, text)
        if not found:
            raise Failed(f"no figure in: {text.strip()[-150:]}")
        return float(found.group(1))


class Cache:
    """What a registration costs: found, and made."""

    def command_at(self, _level):
        return "build/tests/guest/cache-bench fake"

    def measured(self, viaduct):
        return output([built(viaduct, "tests/guest/cache-bench", f"{BESIDE}; it needs libibverbs"),
                       "fake"])

    def run(self, viaduct, level):
        found = {}
        for _ in range(level.pairs):
            lines = [line.split() for line in self.measured(viaduct).splitlines()]
            for words in lines:
                figures = re.findall(r"([0-9.]+) ns", " ".join(words))
                if len(figures) == 4:
                    hit, miss = float(figures[0]), float(figures[2])
                    of = found.setdefault(words[0], {"hit": [], "miss": []})
                    of["hit"].append(hit / 1e3)
                    of["miss"].append(miss / 1e3)
        if not found:
            raise Failed("cache-bench printed no table")
        return [cell(f"{pages} page{'' if pages == '1' else 's'}", "us", True, values)
                for pages, values in found.items()]


class Threads:
    """How many threads a program has, plain and under Viaduct, after it has used a connection."""
    PROGRAM = """
import os, socket
l = socket.create_server(("127.0.0.1", 0))
c = socket.create_connection(l.getsockname())
s, _ = l.accept()
for _ in range(100):
    c.sendall(b"x"); s.sendall(s.recv(1)); c.recv(1)
print(len(os.listdir("/proc/self/task")))
"""

    def command_at(self, _level):
        return "viaduct run -- PROGRAM; ls /proc/PID/task | wc -l"

    def run(self, viaduct, _level):
        plain = ["/usr/bin/python3", "-c", self.PROGRAM]
        return [cell("threads of a program with one", "threads", True, {
            "tcp": [float(output(plain))],
            "viaduct": [float(output([viaduct, "run", "--", *plain]))]})]
