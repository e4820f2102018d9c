#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
A connection that was busy and lies still costs what one costs that never was: the memory of its
rings goes back while both ends sleep, each in a way of its own, and what follows is as sent.

usage: idle.py VIADUCT block|poll|epoll
"""
import hashlib
import json
import os
import re
import select
import socket
import subprocess
import sys
import tempfile
import time

PYTHON = "/usr/bin/python3"
BULK = 3 << 20
# One page of cursors and two areas of 16 KiB. docs/benchmarks.md has the figure.
IDLE_KIB = 40
HANG_S = 60  # no judgement of speed: a bound on a test that would never end


def wait_readable(sock, way):
    if way == "poll":
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        poll.poll()
    elif way == "epoll":
        with select.epoll() as epoll:
            epoll.register(sock, select.EPOLLIN)
            epoll.poll()


def take(sock, size, way):
    data = bytearray()
    while len(data) < size:
        wait_readable(sock, way)
        part = sock.recv(size - len(data))
        if not part:
            break
        data += part
    return bytes(data)


def stream(round_number, who):
    seed = hashlib.sha256(f"{round_number} {who}".encode()).digest()
    return seed * (BULK // len(seed))


def end(who, way, port=None):
    """Each round: wait for a word, send much at once, take as much, say so."""
    if who == "server":
        with socket.create_server(("127.0.0.1", 0)) as listener:
            print(listener.getsockname()[1], flush=True)
            sock = listener.accept()[0]
    else:
        sock = socket.create_connection(("127.0.0.1", int(port)))
    other = "client" if who == "server" else "server"
    number = 0
    while True:
        if who == "server":
            word = take(sock, 1, way)
        else:
            word = sys.stdin.buffer.read(1)  # the test says when
            sock.sendall(word)
        if word != b"g":
            break
        for _ in range(60):  # past the threshold, and both ways up
            sock.sendall(b"x")
            take(sock, 1, way)
        if who == "server":
            sock.sendall(stream(number, who))
            good = take(sock, BULK, way) == stream(number, other)
        else:
            good = take(sock, BULK, way) == stream(number, other)
            sock.sendall(stream(number, who))
        print("same" if good else "DIFFERENT", flush=True)
        number += 1
        if who == "client":
            # Asleep in the library, not in a read of the pipe.
            sleep_until_told(sock, way)
    sock.close()


def sleep_until_told(sock, way):
    """The server never sends here: a sleep that time alone ends, until the test says on."""
    sock.settimeout(0.3)
    while not select.select([sys.stdin], [], [], 0)[0]:
        if way == "poll":
            poll = select.poll()
            poll.register(sock, select.POLLIN)
            poll.poll(300)
        elif way == "epoll":
            with select.epoll() as epoll:
                epoll.register(sock, select.EPOLLIN)
                epoll.poll(0.3)
        else:
            try:
                sock.recv(1)
            except TimeoutError:
                pass
    sock.settimeout(None)


def segment_kib(pid):
    """Memory of each connection's segment that this process has touched and still has."""
    found, here = [], False
    for line in open(f"/proc/{pid}/smaps"):
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            here = "/memfd:viaduct (deleted)" in line
        elif here and line.startswith("Rss:"):
            found.append(int(line.split()[1]))
    return found


def start(viaduct, report, *args):
    command = [viaduct, "run", "--report", report, "--", PYTHON, __file__, *args]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def wait_small(pids):
    until = time.monotonic() + HANG_S
    while True:
        sizes = {pid: segment_kib(pid) for pid in pids}
        if any(len(found) != 1 for found in sizes.values()):
            sys.exit(f"not one segment in each process: {sizes}")
        if all(found[0] <= IDLE_KIB for found in sizes.values()):
            return sizes
        if time.monotonic() > until:
            sys.exit(f"idle connections keep their memory: {sizes} KiB")
        time.sleep(0.1)


def main():
    viaduct, way = sys.argv[1:]
    with tempfile.TemporaryDirectory() as work:
        report = os.path.join(work, "report")
        server = start(viaduct, report, "--end", "server", way)
        port = server.stdout.readline().decode().strip()
        client = start(viaduct, report, "--end", "client", way, port)
        for _ in range(2):
            client.stdin.write(b"g")
            client.stdin.flush()
            for one in (server, client):
                said = one.stdout.readline().decode().strip()
                if said != "same":
                    sys.exit(f"{said or 'nothing'} instead of what was sent")
            print(wait_small([server.pid, client.pid]))
        client.stdin.write(b"q")
        client.stdin.close()
        if client.wait(HANG_S) or server.wait(HANG_S):
            sys.exit("an end failed")
        direct = sum(json.loads(line)["tx_direct_bytes"] for line in open(report))
        if direct < 4 * BULK - (1 << 20):
            sys.exit(f"only {direct} bytes went directly")


if __name__ == "__main__":
    if sys.argv[1] == "--end":
        end(*sys.argv[2:])
    else:
        main()
