# SPDX-License-Identifier: Apache-2.0
"""Redis, memcached and PostgreSQL."""
import os
import pathlib
import subprocess
import time

from programs.rig import LIMIT_S, Failure, client, find_number, measure, servers


def redis_server(way, where):
    port, unix = (0, ["--unixsocket", where]) if way == "unix" else (where, [])
    return ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "",
            "--appendonly", "no", *unix]


def app_redis(bench):
    """Redis with redis-benchmark"""
    with servers(bench, bench.ways(), redis_server) as where:
        for clients, pipeline, size, tests in (
                (1, 1, 64, ("get", "set")), (50, 1, 64, ("get", "set")),
                (50, 16, 64, ("get", "set")), (50, 1, 4096, ("get",))):
            for test in tests:
                name = f"{test.upper()} c{clients}"
                name += f" P{pipeline}" if size == 64 else f" {size // 1024} KB"
                measure(bench, "redis", name, "op/s",
                        redis_once(bench, where, clients, pipeline, size, test))


def redis_once(bench, where, clients, pipeline, size, test):
    guess = (15000 if clients == 1 else 40000) * pipeline ** 0.8

    def at(way):
        return (["-s", where[way]] if way == "unix" else
                ["-h", "127.0.0.1", "-p", str(where[way])])

    def fill(way):
        """There must be a value of this size to get, in the server of this way."""
        key = ["key:__rand_int__"]
        cli = ["redis-cli", *at(way)]
        subprocess.run([*cli, "-x", "set", *key], input=b"x" * size, check=True,
                       stdout=subprocess.DEVNULL, timeout=LIMIT_S)
        length = subprocess.run([*cli, "strlen", *key], check=True, timeout=LIMIT_S,
                                stdout=subprocess.PIPE, text=True).stdout
        if int(length) != size:
            raise Failure(f"redis has {length.strip()} bytes of {size} over {way}")

    def once(way, report):
        if test == "get":
            fill(way)
        count = int(guess * bench.seconds * (4 if way == "viaduct" else 1))
        text = client(bench, way, ["redis-benchmark", *at(way), "-t", test, "-d", str(size),
                                   "-c", str(clients), "-P", str(pipeline),
                                   "-n", str(count), "--csv"], report)
        return find_number(rf'"{test.upper()}","([0-9.]+)"', text)
    return once


def app_memcached(bench):
    """memcached with memcaslap, and with memcslap, which can do AF_UNIX"""
    user = ["-u", "root"] if os.geteuid() == 0 else []

    def command_for(way, where):
        at = (["-s", where] if way == "unix" else
              ["-l", "127.0.0.1", "-p", str(where), "-U", "0"])
        return ["memcached", *at, "-t", "1", *user]

    with servers(bench, bench.ways(), command_for) as where:
        for clients in (1, 16):
            def once(way, report, clients=clients):
                text = client(bench, way, [
                    "memcaslap", "-s", f"127.0.0.1:{where[way]}", "-T", "1",
                    "-c", str(clients), "-t", f"{bench.whole_seconds}s"], report)
                return find_number(r"TPS: (\d+)", text)
            measure(bench, "memcached", f"mixed c{clients}", "op/s", once,
                    no_unix="memcaslap has no AF_UNIX (memcslap, below, has)")

        def once_unix(way, report):
            at = where[way] if way == "unix" else f"127.0.0.1:{where[way]}"
            count = int((60000 if way == "viaduct" else 15000) * bench.seconds)
            text = client(bench, way, ["memcslap", "-s", at, "-t", "get", "-F",
                                       "-e", str(count)], report)
            return count / find_number(r"Time to get .*:\s+([0-9.]+) seconds", text)
        measure(bench, "memcached", "get c1 memcslap", "op/s", once_unix)


def postgres_bin():
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    return found[-1].parent if found else None


def wait_postgres(bin_folder, target):
    until = time.monotonic() + 20
    while subprocess.run([bin_folder / "pg_isready", "-q", *target],
                         check=False).returncode:
        if time.monotonic() > until:
            raise Failure("PostgreSQL does not answer")
        time.sleep(0.05)


def app_pgbench(bench):
    """PostgreSQL with pgbench -S"""
    bin_folder = postgres_bin()
    data = bench.new_folder()
    user = "postgres" if os.geteuid() == 0 else None  # it refuses to run as root
    port = 5432  # only a part of the name where it is the socket's

    def command_for(way, where):
        folder = bench.new_folder()
        client(bench, "tcp", [str(bin_folder / "initdb"), "-D", f"{folder}/data",
                              "-A", "trust", "-U", "bench", "--no-sync"], "", user)
        at = (["-c", "listen_addresses=", "-p", str(port), "-c",
               f"unix_socket_directories={pathlib.Path(where).parent}"] if way == "unix" else
              ["-c", "listen_addresses=127.0.0.1", "-p", str(where),
               "-c", "unix_socket_directories="])
        return [str(bin_folder / "postgres"), "-D", f"{folder}/data", "-c", "fsync=off", *at]

    def target(way, where):
        at = ((str(pathlib.Path(where).parent), port) if way == "unix" else
              ("127.0.0.1", where))
        return ["-h", at[0], "-p", str(at[1]), "-U", "bench"]

    with servers(bench, bench.ways(), command_for, user=user,
                 socket_name=f".s.PGSQL.{port}") as where:
        for way in bench.ways():
            wait_postgres(bin_folder, target(way, where[way])[:4])
            client(bench, "tcp", ["pgbench", "-i", "-q", "-s", "5",
                                  *target(way, where[way]), "postgres"], "", user, cwd=data)
        for name, options in (("-S c1", ["-c", "1"]), ("-S c8", ["-c", "8"]),
                              ("-S -M prepared c1", ["-c", "1", "-M", "prepared"]),
                              ("-S -M prepared c8", ["-c", "8", "-M", "prepared"]),
                              ("-S -C c1", ["-c", "1", "-C"])):
            def once(way, report, options=options):
                text = client(bench, way, [
                    "pgbench", "-S", "-n", *options, "-j", "1", "-T", bench.whole_seconds,
                    *target(way, where[way]), "postgres"], report, user, cwd=data)
                return find_number(r"tps = ([0-9.]+)", text)
            measure(bench, "pgbench", name, "tx/s", once)
