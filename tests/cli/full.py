#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where a process has as many listeners or sockets as Viaduct takes, the log and the report say so
by the reason `full`, and the program notices nothing.

usage: full.py VIADUCT
"""
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

LISTENERS = """
import socket
kept = []
for _ in range(258):
    kept.append(socket.socket())
    kept[-1].bind(("127.0.0.1", 0))
    kept[-1].listen()
    kept[-1].listen()  # once more: that is no other one
"""

# With a limit of data Viaduct has a table of 2,048 sockets.
SOCKETS = """
import socket
l = socket.socket()
l.bind(("127.0.0.1", 0))
l.listen()
taken = [socket.socket() for _ in range(2047)]
first = taken.pop()
first.connect(l.getsockname())
s = l.accept()[0]
for _ in range(100):
    first.sendall(b"x")
    assert s.recv(1) == b"x"
    s.sendall(b"y")
    assert first.recv(1) == b"y"
"""
SENTENCE = "full (there are as many as Viaduct takes at a time)"


def run(viaduct, program, level, limits):
    """The lines of the log that name the reason, and the report."""
    with tempfile.TemporaryDirectory() as d:
        log, report = pathlib.Path(d) / "log", pathlib.Path(d) / "report"
        done = subprocess.run([viaduct, "run", "--log", f"{level}:{log}", "--report", report,
                               "--", "/usr/bin/python3", "-c", program],
                              preexec_fn=limits, timeout=100, check=False)
        if done.returncode:
            sys.exit(f"the program ended with {done.returncode}")
        lines = [line for line in log.read_text().splitlines() if SENTENCE in line]
        return lines, json.loads(report.read_text())


def files(data):
    """The limits that a program is to have."""
    def limits():
        resource.setrlimit(resource.RLIMIT_NOFILE,
                           (6000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        if data:
            resource.setrlimit(resource.RLIMIT_DATA, (data, data))
    return limits


def main():
    viaduct = os.path.abspath(sys.argv[1])
    lines, _ = run(viaduct, LISTENERS, "info", files(None))
    if len(lines) != 2 or any("not announced" not in line for line in lines):
        sys.exit(f"of 258 listeners two are not announced, but the log says: {lines}")
    lines, report = run(viaduct, SOCKETS, "debug", files(1 << 29))
    if len(lines) != 1 or "stays on TCP" not in lines[0]:
        sys.exit(f"one socket is too many, but the log says: {lines}")
    if report["reasons"].get("full") != 1:
        sys.exit(f"the report does not count it: {report}")
    print("two listeners and one connection had no place")


main()
