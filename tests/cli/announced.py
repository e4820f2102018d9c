#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A port is announced while it is listened at, and while a connection that was accepted there may
still be looked for: a server may accept, close its listener, and only then talk.

usage: announced.py VIADUCT
"""
import subprocess
import sys

PROGRAM = r"""
import socket

def announced(port):
    with open("/proc/net/unix", encoding="ascii", errors="replace") as f:
        return any("viaduct" in line and line.endswith(f".port.{port}\n") for line in f)

def expect(port, what, when):
    if announced(port) != what:
        raise SystemExit(f"{when}: {'not ' if what else ''}announced")

def listening():
    l = socket.socket()
    l.bind(("127.0.0.1", 0))
    l.listen()
    port = l.getsockname()[1]
    expect(port, True, "listening")
    return l, port

def accepted(l, port):
    c = socket.create_connection(("127.0.0.1", port))
    return c, l.accept()[0]

l, port = listening()
l.close()
expect(port, False, "closed without a connection")

l, port = listening()
c, s = accepted(l, port)
s.close()
expect(port, True, "one connection has ended, the listener is open")
c, s = accepted(l, port)
d, t = accepted(l, port)
l.close()
expect(port, True, "the listener is closed, two connections are open")
t.close()
expect(port, True, "the listener is closed, one connection is open")
s.close()
expect(port, False, "all is closed")

l, port = listening()
c, s = accepted(l, port)
l.close()
for _ in range(100):
    c.sendall(b"x")
    s.recv(1)
    s.sendall(b"y")
    c.recv(1)
expect(port, False, "the only connection has found its peer")
c.sendall(b"z")
assert s.recv(1) == b"z"
print("ok")
"""


def main():
    run = subprocess.run([sys.argv[1], "run", "--", "/usr/bin/python3", "-c", PROGRAM],
                         stdout=subprocess.PIPE, text=True, check=False)
    if run.returncode or run.stdout != "ok\n":
        print("status", run.returncode, run.stdout)
        return 1
    return 0


sys.exit(main())
