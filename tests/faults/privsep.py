#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A worker that has given up its rights stores what it likes: the server goes on unharmed, its
connection stays on the direct path, and so does what the worker itself serves."""
import ctypes
import json
import os
import subprocess
import sys
import tempfile

SKIP = 77
HANG_S = 60  # no judgement of speed: a bound on a test that would never end
BYTES = 200 * 100  # that each end of privsep.c has sent by "up"
LOOKS = 50
LEFT = "has a table of sockets of its own now"
COPY = "has a copy of the table of sockets now"
UP = "sends through the ring"
DOWN = "goes back to TCP"

# Whether the worker leaves the table, and whether what it serves is direct then.
CALLS = {"setuid": (True, True), "setreuid": (True, True), "setresuid": (True, True),
         "syscall": (True, True), "chroot": (True, True), "capset": (True, True),
         "namespace": (True, None), "seccomp": (True, False), "threads": (True, False),
         "no-descriptors": (True, False),
         "seteuid": (False, True), "setgid": (False, True)}
if ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1) > 0:  # landlock_create_ruleset: its version
    CALLS["landlock"] = (True, True)


def lines_of(log, pid):
    with open(log) as f:
        return [line for line in f if line.split()[1] == str(pid)]


def start(viaduct, log, *command):
    env = dict(os.environ, VIADUCT_LOG="debug:" + log, VIADUCT_CONFIG="")
    return subprocess.Popen([viaduct, "run", "--upgrade-after", "0", "--", *command],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)


def fault_of_stat(viaduct, pids):
    """Each end is seen once, with all its bytes, whose table it may be in."""
    shown = json.loads(subprocess.run([viaduct, "stat", "--json"], check=True,
                                      stdout=subprocess.PIPE).stdout)
    for pid in pids:
        ends = [c for c in shown["connections"] if c["pid"] == int(pid)]
        if len(ends) != 1 or ends[0]["path"] != "ring" or any(
                ends[0][way]["direct_bytes"] + ends[0][way]["tcp_bytes"] != BYTES
                for way in ("sent", "received")):
            return f"stat shows of {pid}: {ends}"
    return None


def one(viaduct, program, call, log):
    leaves, direct = CALLS[call]
    server = start(viaduct, log, program, "serve", call)
    port = server.stdout.readline().strip()
    kept = start(viaduct, log, program, "talk", port)
    if kept.stdout.readline().strip() != "up":
        return "the server's connection ended"
    worker = server.stdout.readline().strip()
    other = start(viaduct, log, program, "talk", port)
    if other.stdout.readline().strip() == "up" and direct:
        pids = server.pid, worker, kept.pid, other.pid
        # The kernel may acknowledge the last bytes on TCP a little later.
        for _ in range(LOOKS):
            fault = fault_of_stat(viaduct, pids)
            if not fault:
                break
        if fault:
            return fault
    other.communicate("\n", timeout=HANG_S)
    if other.returncode != 0:
        return f"the worker's connection ended (server: {server.wait(HANG_S)})"
    kept.communicate("\n", timeout=HANG_S)
    status = server.wait(HANG_S)
    if not leaves:  # it has written to all that is the server's: nothing is promised
        status = 0
    if kept.returncode != 0 and leaves or status != 0:
        return f"the server ended with {status}, its client with {kept.returncode}"
    left = COPY if call == "threads" else LEFT
    if any(left in line for line in lines_of(log, worker)) != leaves:
        return "it left the table" if not leaves else "it did not leave the table"
    if leaves and any(DOWN in line for line in lines_of(log, server.pid)):
        return "the server's connection went back to TCP"
    if not any(UP in line for line in lines_of(log, server.pid)):
        return "the server's connection was not direct"
    if direct is not None and any(UP in line for line in lines_of(log, worker)) != direct:
        return "what it served was " + ("not " if direct else "") + "direct"
    return None


def main():
    viaduct, program = sys.argv[1:3]
    if os.geteuid() != 0:
        print("skipped: only root has rights to give up")
        return SKIP
    failed = 0
    for call in CALLS:
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o777)
            log = os.path.join(folder, "log")
            open(log, "w").close()
            os.chmod(log, 0o666)
            fault = one(viaduct, program, call, log)
            print(f"{call}: {fault or 'ok'}", flush=True)
            if fault:
                failed += 1
                with open(log) as f:
                    print(f.read())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
