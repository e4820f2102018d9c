#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One end of a connection that carries known bytes both ways, without an end of its own, while
somebody does harm to it: checks each byte that comes, and says how both directions have ended.

usage: flow.py listen|connect ADDRESS PORT FILE

FILE is where the counts stand while it runs, for others to read: what was about to be sent, what
was sent, what was received. Until a file FILE.go is there it sends little: a connection that has
made very many operations waits for its other end no longer, however slow the host is. While a file
FILE.pause is there it sends nothing. With a file FILE.stop it shuts down its sending, and receives
up to the end.
"""
import errno
import json
import mmap
import os
import random
import socket
import struct
import sys
import threading
import time

from ends import meet

# No multiple of what anything here is aligned to: a piece that is repeated, or left out, shows.
PERIOD = 999983
PIECE = 60000
# Before FILE.go: no more operations in half an hour than a connection waits for.
LITTLE, LITTLE_S = 100, 0.05
NAP_S = 0.01


class Counts:
    OFFERED, SENT, RECEIVED = 0, 8, 16

    def __init__(self, path):
        with open(path, "wb+") as file:
            file.truncate(24)
            self.map = mmap.mmap(file.fileno(), 24)

    def __getitem__(self, at):
        return struct.unpack_from("=Q", self.map, at)[0]

    def __setitem__(self, at, value):
        struct.pack_into("=Q", self.map, at, value)


def stream(name):
    return random.Random(name).randbytes(PERIOD) + random.Random(name).randbytes(PIECE)


def send(sock, ours, counts, path, ends):
    """How it ended: "shut", or the name of an error. Who receives no more has no pause."""
    sizes = random.Random(path)
    at, going = 0, False
    try:
        while not os.path.exists(f"{path}.stop"):
            if os.path.exists(f"{path}.pause") and "receiving" not in ends:
                time.sleep(NAP_S)
                continue
            going = going or os.path.exists(f"{path}.go")
            if not going:
                time.sleep(LITTLE_S)
            size = sizes.randrange(1, PIECE if going else LITTLE)
            piece = ours[at % PERIOD:at % PERIOD + size]
            counts[Counts.OFFERED] = at + len(piece)
            at += sock.send(piece)
            counts[Counts.SENT] = at
        sock.shutdown(socket.SHUT_WR)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "shut"


def receive(sock, theirs, counts):
    """How it ended: "end", or the name of an error, or what was wrong."""
    at = 0
    try:
        while piece := sock.recv(PIECE):
            if piece != theirs[at % PERIOD:at % PERIOD + len(piece)]:
                return f"wrong bytes between {at} and {at + len(piece)}"
            at += len(piece)
            counts[Counts.RECEIVED] = at
    except OSError as error:
        return errno.errorcode[error.errno]
    return "end"


def main():
    role, address, port, path = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    streams = [stream("listen"), stream("connect")]
    ours, theirs = streams if role == "listen" else reversed(streams)
    counts = Counts(path)
    sock = meet(role, address, port)
    ends = {}

    def sending():
        ends["sending"] = send(sock, ours, counts, path, ends)

    sender = threading.Thread(target=sending)
    sender.start()
    ends["receiving"] = receive(sock, theirs, counts)
    sender.join()
    print(json.dumps(ends | {"sent": counts[Counts.SENT], "received": counts[Counts.RECEIVED]}))


main()
