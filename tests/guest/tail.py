#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A burst of small messages, more than the other end can take note of at once; then the sender does
nothing with the connection until it has heard, by a datagram, that all of it has come: as over TCP,
that must not need another call of the sender's.

usage: tail.py listen|connect ADDRESS PORT PAUSE_S

The receiver reads nothing for PAUSE_S.
"""
import os
import socket
import sys
import time

TURNS, MESSAGES, BYTES = 64, 2000, 10
AGAIN_S = 0.05


def listen(sock, word, port, pause_s):
    for _ in range(TURNS):
        sock.sendall(sock.recv(1))
    while sock.recv(1) == b"x":
        sock.sendall(b"x")
    time.sleep(pause_s)
    got = b""
    while len(got) < MESSAGES * BYTES:
        got += sock.recv(100000)
    if got != b"".join(b"%0*d" % (BYTES, i) for i in range(MESSAGES)):
        sys.exit("not what was sent")
    ended = False
    while not ended:
        word.sendto(b"all", (sock.getpeername()[0], port + 1))
        time.sleep(AGAIN_S)
        try:
            ended = sock.recv(1, socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            pass
    print(f"{len(got)} bytes are right")


def connect(sock, word, port):
    word.bind(("", port + 1))
    turn = 0
    while turn < TURNS or not os.path.exists("/run/far/go"):
        sock.sendall(b"x")
        sock.recv(1)
        turn += 1
    sock.sendall(b".")
    for i in range(MESSAGES):
        sock.sendall(b"%0*d" % (BYTES, i))
    word.recv(10)


def main():
    role, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock, word = socket.socket(family), socket.socket(family, socket.SOCK_DGRAM)
    if role == "listen":
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
        sock.listen()
        listen(sock.accept()[0], word, port, float(sys.argv[4]))
    else:
        sock.connect((address, port))
        connect(sock, word, port)


main()
