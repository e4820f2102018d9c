# SPDX-License-Identifier: Apache-2.0
"""Programs in Go: echo and net/http, both ends in Go, and what processors' time an answer takes; and one whose
client is not under Viaduct."""
import os
import pathlib
import shutil
import subprocess

from programs.rig import client, find_number, measure_many, servers

NO_UNIX = "its programs have no AF_UNIX"
SOURCE = pathlib.Path(__file__).resolve().parent / "go_echo.go"
# What, connections, others that say nothing, whether the client is plain whatever the server is
CASES = (("echo", 1, 0, False), ("echo", 50, 0, False), ("echo", 1, 500, False), ("echo", 1, 0, True),
         ("http", 1, 0, False), ("http", 32, 0, False), ("http", 32, 0, True))


def build(bench):
    program = bench.folder / "go_echo"
    env = {**os.environ, "CGO_ENABLED": "0", "GO111MODULE": "off", "HOME": str(bench.folder),
           "GOCACHE": os.environ.get("GO_CACHE", str(bench.folder / "cache")), "GOFLAGS": "-buildvcs=false"}
    subprocess.run([shutil.which("go"), "build", "-o", program, SOURCE], check=True, env=env)
    return str(program)


def app_go(bench):
    """programs in Go"""
    program = build(bench)
    for what in dict.fromkeys(case[0] for case in CASES):
        measure_one(bench, program, what)


def name_of(what, connections, idle, plain):
    return f"{what} c{connections}" + (f" idle {idle}" if idle else "") + (" plain peer" if plain else "")


def measure_one(bench, program, what):
    names = {case: name_of(*case) for case in CASES if case[0] == what}
    if not any(bench.options.cases in f"go {name} cpu" for name in names.values()):
        return
    with servers(bench, bench.ways(NO_UNIX),
                 lambda _way, port: [program, "serve", what, str(port)]) as where:
        for (_what, connections, idle, plain), name in names.items():
            def once(way, report, connections=connections, idle=idle, plain=plain):
                text = client(bench, "tcp" if plain else way,
                              [program, "load", what, str(where[way]), str(connections),
                               str(bench.seconds)], report,
                              env={**os.environ, "GO_ECHO_IDLE": str(idle)})
                rate = find_number(r"rate ([0-9.]+)", text)
                return [rate, sum(find_number(end + r" ([0-9.]+)", text)
                                  for end in ("client", "server"))]
            measure_many(bench, "go", [(name, "1/s", False), (name + " cpu", "us", True)], once,
                         no_unix=NO_UNIX)
