#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A process whose library reads at its very end resets a connection only where that has left some.

usage: last_plugin.py VIADUCT PLUGIN
"""
import subprocess
import sys

PROGRAM = """
import ctypes, os, select, socket, sys
plugin = ctypes.CDLL(sys.argv[1])
listener = socket.create_server(("127.0.0.1", 0))
def exchange(end, first):
    for _ in range(100):
        if first:
            end.sendall(b"there")
        assert end.recv(5) == b"there"
        if not first:
            end.sendall(b"there")
def child(end, read, shuts):
    exchange(end, True)
    select.select([end], [], [])
    if shuts:
        end.shutdown(socket.SHUT_WR)
    plugin.plugin_keep(end.detach(), read)
for shuts in (False, True):
    for read in (100, 99, 1):
        pid = os.fork()
        if pid == 0:
            child(socket.create_connection(listener.getsockname()), read, shuts)
            sys.exit(0)
        end, _ = listener.accept()
        exchange(end, False)
        end.sendall(bytes(100))
        assert os.waitpid(pid, 0)[1] == 0
        try:
            print(shuts, read, end.recv(1), flush=True)
        except OSError as e:
            print(shuts, read, e, flush=True)
        try:
            print(end.send(b"x"), flush=True)
        except OSError as e:
            print(e, flush=True)
"""


def main():
    viaduct, plugin = sys.argv[1:]
    case = [sys.executable, "-c", PROGRAM, plugin]
    plain = subprocess.run(case, stdout=subprocess.PIPE, timeout=60)
    ours = subprocess.run([viaduct, "run", "--upgrade-after", "0", "--", *case],
                          stdout=subprocess.PIPE, timeout=60)
    print(plain.stdout.decode(), ours.stdout.decode(), sep="\n")
    assert plain.returncode == ours.returncode == 0
    assert plain.stdout == ours.stdout and b"reset" in ours.stdout
    return 0


if __name__ == "__main__":
    sys.exit(main())
