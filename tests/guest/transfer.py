#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One end of a connection that carries known bytes both ways: some in turn, so that what can
be upgraded is, then all others at once, in random pieces. Checks each of those that come.

usage: transfer.py listen|connect ADDRESS PORT BYTES [GO]

With GO the turns go on until a file of that name is where the connector is.
"""
import os
import random
import socket
import sys
import threading
import time

from ends import meet

TURNS = 64
LAST = b"."
TURN_S = 0.01  # of those that only wait for GO


def connector_turns(sock, go):
    turn = 0
    while turn < TURNS or (go and not os.path.exists(go)):
        time.sleep(TURN_S if turn >= TURNS else 0)
        take_turn(sock, b"%c" % (turn % TURNS + 128))
        turn += 1
    take_turn(sock, LAST)


def take_turn(sock, byte):
    sock.sendall(byte)
    if (got := sock.recv(1)) != byte:
        sys.exit(f"{got} is the answer to {byte}")


def listener_turns(sock):
    turn = 0
    while (got := sock.recv(1)) != LAST:
        if got != b"%c" % (turn % TURNS + 128):
            sys.exit(f"{got} in turn {turn}")
        sock.sendall(got)
        turn += 1
    sock.sendall(LAST)


def main():
    role, address, port, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    streams = [random.Random(seed).randbytes(count) for seed in ("listen", "connect")]
    ours, theirs = streams if role == "listen" else reversed(streams)
    sock = meet(role, address, port)

    if role == "listen":
        listener_turns(sock)
    else:
        connector_turns(sock, sys.argv[5] if len(sys.argv) > 5 else None)

    def send():
        sizes, at = random.Random(port), 0
        while at < count:
            at += sock.send(ours[at:at + sizes.randrange(1, 100000)])
        sock.shutdown(socket.SHUT_WR)

    sender = threading.Thread(target=send)
    sender.start()
    at = 0
    while piece := sock.recv(65536):
        if piece != theirs[at:at + len(piece)]:
            sys.exit(f"wrong bytes between {at} and {at + len(piece)}")
        at += len(piece)
    sender.join()
    if at != count:
        sys.exit(f"the end of the stream came after {at} bytes, not {count}")
    print(f"{at} bytes are right")


main()
