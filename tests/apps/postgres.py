#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL over TCP with psql and pgbench, by one user and by two."""
import glob
import os
import signal
import subprocess
import sys

import harness

harness.need("setpriv")
BIN = (sorted(glob.glob("/usr/lib/postgresql/*/bin")) or [""])[-1]
for tool in ("initdb", "postgres", "psql", "pgbench"):
    if not os.path.exists(os.path.join(BIN, tool)):
        print(f"skipped: {tool} is missing")
        sys.exit(harness.SKIP)
if os.geteuid() != 0:
    print("skipped: PostgreSQL's user can only be taken on by root")
    sys.exit(harness.SKIP)


def tool(name):
    return os.path.join(BIN, name)


def scenario(run):
    port = harness.free_port()
    data = run.path("data")
    os.mkdir(data)
    subprocess.run(["chown", "postgres", data], check=True)
    made = subprocess.run(["setpriv", "--reuid", "postgres", "--regid", "postgres",
                           "--clear-groups", "--", tool("initdb"), "-D", data,
                           "--no-sync", "-A", "trust", "-E", "UTF8", "--locale=C"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd="/")
    if made.returncode:
        raise harness.Failure(f"initdb: {made.stdout!r}")
    # SIGINT: disconnect clients and end.
    run.server([tool("postgres"), "-D", data, "-p", str(port), "-c",
                "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
                "-c", "fsync=off"], port, user="postgres", cwd="/")
    where = ["-h", "127.0.0.1", "-p", str(port), "-U", "postgres"]

    def psql(text, user="postgres", stdin=None):
        return run.client([tool("psql"), *where, "-X", "-q", "-A", "-t", "-v",
                           "ON_ERROR_STOP=1", "-c", text, "postgres"], user=user,
                          stdin=stdin, cwd="/")

    def ready():
        return subprocess.run([tool("pg_isready"), *where], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, cwd="/").returncode == 0

    run.wait_for(ready, run.started[0], "PostgreSQL to be ready")
    result = [psql("select 6 * 7")]
    rows = "".join(f"{i}\t{'x' * (i * 7 % 900)}\n" for i in range(20000)).encode()
    psql("create table t (a int, b text)")
    psql("copy t from stdin", stdin=rows)
    result.append(harness.sha(psql("copy t to stdout")))
    result.append(psql("select count(*), sum(length(b)) from t"))
    run.client([tool("pgbench"), *where, "-i", "-q", "-s", "1", "postgres"],
               user="postgres", cwd="/")
    for args in (["-c", "1", "-t", "300"], ["-c", "8", "-j", "2", "-t", "100"],
                 ["-c", "8", "-j", "2", "-t", "500", "-S", "-M", "prepared"]):
        out = run.client([tool("pgbench"), *where, "-n", *args, "postgres"],
                         user="postgres", cwd="/").decode()
        result.append([line for line in out.splitlines()
                       if "actually processed" in line or "failed transactions" in line])
    # Another user: the kernel vouches for both ends.
    result.append(harness.sha(psql("copy t to stdout", user=None)))
    result.append(psql("select count(*) from pgbench_history"))
    run.stop(run.started[0], signal.SIGINT)
    return result


harness.main(scenario)
