#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""In a control group with little memory a slow receiver costs the sender its pace, and not its life.

usage: group_limit.py VIADUCT
       group_limit.py --both CONNECTIONS
"""
import json
import os
import socket
import subprocess
import sys
import tempfile

LIMIT = 64 << 20
CONNECTIONS = 40
SKIP = 77
PIECE = bytes(65536)


def exchange(s, first):
    for _ in range(60):
        if first:
            s.sendall(b"0123456789abcdef")
        if s.recv(16, socket.MSG_WAITALL) != b"0123456789abcdef":
            raise SystemExit("a connection has ended early")
        if not first:
            s.sendall(b"0123456789abcdef")


def fill(s):
    s.setblocking(False)
    done = 0
    try:
        while True:
            done += s.send(PIECE)
    except BlockingIOError:
        return done


def send(port, count, told):
    ends = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
    for s in ends:
        exchange(s, True)
    os.write(told, b"%d" % sum(fill(s) for s in ends))
    for s in ends:
        s.close()


def both(count):
    listener = socket.create_server(("127.0.0.1", 0), backlog=count)
    heard, told = os.pipe()
    child = os.fork()
    if child == 0:
        send(listener.getsockname()[1], count, told)
        os._exit(0)
    os.close(told)
    ends = [listener.accept()[0] for _ in range(count)]
    for s in ends:
        exchange(s, False)
    sent, got = int(os.read(heard, 20) or -1), 0
    for s in ends:
        while piece := s.recv(1 << 20):
            got += len(piece)
    status = os.waitpid(child, 0)[1]
    print(f"sent {sent}, received {got}, sender {status}")
    return 0 if sent == got and status == 0 else 1


def own_group(controller):
    for line in open("/proc/self/cgroup", encoding="utf-8"):
        _, names, path = line.rstrip("\n").split(":", 2)
        if controller in names.split(","):
            return path
    return None


def make_group():
    """A folder and the name of the file for its limit, or None."""
    for controller, root, name in (("memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                                   ("", "/sys/fs/cgroup", "memory.max")):
        path = own_group(controller)
        if path is None:
            continue
        for parent in (root + path, root):
            group = f"{parent.rstrip('/')}/viaduct-test-{os.getpid()}"
            try:
                os.mkdir(group)
                with open(f"{group}/{name}", "w", encoding="utf-8") as f:
                    f.write(str(LIMIT))
                return group
            except OSError:
                if os.path.isdir(group):
                    os.rmdir(group)
    return None


def main(viaduct):
    group = make_group()
    if not group:
        print("no control group with a limit of memory can be made")
        return SKIP
    report = tempfile.NamedTemporaryFile(prefix="viaduct-group-")

    def enter():
        with open(f"{group}/cgroup.procs", "w", encoding="utf-8") as f:
            f.write(str(os.getpid()))
    try:
        done = subprocess.run([viaduct, "run", "--report", report.name, "--", sys.executable, __file__,
                               "--both", str(CONNECTIONS)], preexec_fn=enter)
    finally:
        os.rmdir(group)
    lines = [json.loads(line) for line in open(report.name, encoding="utf-8")]
    direct = sum(line["tx_direct_bytes"] for line in lines)
    print(f"{direct} bytes over the ring")
    return 0 if done.returncode == 0 and direct > 1 << 20 else 1


if __name__ == "__main__":
    sys.exit(both(int(sys.argv[2])) if sys.argv[1] == "--both" else main(sys.argv[1]))
