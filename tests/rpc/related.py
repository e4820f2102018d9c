#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""RPC programs whose processes are related in the ways that programs use: callbacks, listeners and
connections that are handed over, a process for each connection, fork and exec. What both ends say is
equal plain, under Viaduct, and with either end under it.

usage: related.py VIADUCT RELATED
"""
import difflib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

WAYS = ("callback", "reversed", "handed", "activated", "given", "nowait", "forking", "workers", "exec")
ACTIVATE = "systemd-socket-activate"
# A connection that another program has accepted is on TCP: why, as an end says it.
ON_TCP = {"given": "plain-peer", "nowait": "exec"}
LIMIT_S = 120
SERVED = 3


def as_served(fd):
    """What systemd and inetd do between fork and exec: the socket becomes descriptor 3."""
    def prepare():
        if fd == SERVED:
            os.set_inheritable(fd, True)
        else:
            os.dup2(fd, SERVED, inheritable=True)
    return prepare


def start(run, related, way, listener=None):
    argv = [*run, related, "serve", way]
    if listener is None:
        return subprocess.Popen(argv, stdout=subprocess.PIPE)
    env = dict(os.environ, LISTEN_FDS="1")
    return subprocess.Popen(argv, stdout=subprocess.PIPE, env=env, close_fds=False,
                            preexec_fn=as_served(listener.fileno()))


def ended(process):
    out = process.communicate(timeout=LIMIT_S)[0].decode().splitlines()
    return [*out, f"status {process.returncode}"]


def handed(server, client, related, way):
    """The service is started with what a connection has come to."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        caller = subprocess.Popen([*client, related, "call", way, port], stdout=subprocess.PIPE)
        if way == "given":
            with listener.accept()[0] as connection:
                service = start(server, related, way, connection)
        else:
            service = start(server, related, way, listener)
    return ended(caller) + ended(service)


def activated(server, client, related):
    """As "handed", but systemd's own program listens, and becomes the service when somebody connects."""
    with socket.socket() as place:
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind(("127.0.0.1", 0))
        port = str(place.getsockname()[1])
        service = subprocess.Popen([ACTIVATE, "-l", f"127.0.0.1:{port}", "--", *server, related,
                                    "serve", "handed"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        said = b""
        while b"Listening on" not in said:
            line = service.stderr.readline()
            if not line:
                return [f"the service has ended: {said.decode()}"]
            said += line
        caller = subprocess.Popen([*client, related, "call", "handed", port],
                                  stdout=subprocess.PIPE)
        return ended(caller) + ended(service)


def lines_of(server, client, related, way):
    if way == "activated":
        return activated(server, client, related)
    if way in ("handed", "given"):
        return handed(server, client, related, way)
    with tempfile.TemporaryDirectory() as tmp:
        place = os.path.join(tmp, "port")
        service = subprocess.Popen([*server, related, "serve", way, place],
                                   stdout=subprocess.PIPE)
        while not os.path.exists(place):
            if service.poll() is not None:
                return [f"the service has ended with status {service.returncode}"]
            time.sleep(0.01)
        with open(place, encoding="ascii") as f:
            port = f.read().strip()
        caller = subprocess.Popen([*client, related, "call", way, port], stdout=subprocess.PIPE)
        lines = ended(caller)
        if caller.returncode != 0:
            service.kill()
        return lines + ended(service)


def compare(viaduct, related, way, plain, server, client):
    with tempfile.NamedTemporaryFile() as report:
        run = [viaduct, "run", "--report", report.name, "--upgrade-after", "0", "--"]
        ours = lines_of(run if server else [], run if client else [], related, way)
        counts = [json.loads(line) for line in report]
    direct = sum(x["tx_direct_bytes"] + x["rx_direct_bytes"] for x in counts)
    wrong = list(difflib.unified_diff(plain, ours, "plain", "viaduct", lineterm="", n=2))
    # Most of the work: a megabyte there, and back.
    if (server and client and way not in ON_TCP) != (direct > 1 << 20):
        wrong.append(f"{direct} bytes went over the direct path: {[x['reasons'] for x in counts]}")
    if server and client and way in ON_TCP and not any(ON_TCP[way] in x["reasons"]
                                                       for x in counts):
        wrong.append(f"reasons: {[x['reasons'] for x in counts]}")
    print(f"{way}, server {server}, client {client}: {direct} bytes direct")
    return [f"{way}, server {server}, client {client}: {x}" for x in wrong]


def main():
    viaduct, related, *ways = sys.argv[1:]
    wrong = []
    if "activated" in ways and not shutil.which(ACTIVATE):
        print(f"skipped: {ACTIVATE} is missing")
        return 77
    for way in ways or WAYS:
        plain = lines_of([], [], related, way)
        if len(plain) < 4 or any("wrong" in x and not x.endswith("wrong 0") for x in plain):
            wrong.append(f"{way}, plain: {plain}")
        for server, client in ((True, True), (True, False), (False, True)):
            wrong += compare(viaduct, related, way, plain, server, client)
    print("\n".join(wrong) if wrong else "all is equal")
    return 1 if wrong else 0


sys.exit(main())
