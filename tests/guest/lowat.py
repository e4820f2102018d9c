#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A connection on which messages go there and back, and whose connector sets SO_RCVLOWAT over bytes that lie unread.

usage: lowat.py listen|connect ADDRESS PORT

/run/far/go ends the messages.
"""
import fcntl
import os
import select
import socket
import struct
import sys
import termios
import time

TURNS = 64
MARK, FIRST, PART, LESS = 50, 10, 4, 1
PATTERN = bytes(i % 251 for i in range(1000))
SOON_S = 20


def listen(sock):
    at = 0
    while command := sock.recv(1):
        if command == b"x":
            sock.sendall(b"x")
        else:  # as many bytes of the pattern
            sock.sendall(PATTERN[at:at + command[0]])
            at += command[0]


def queued(sock):
    return struct.unpack("i", fcntl.ioctl(sock, termios.FIONREAD, b"\0" * 4))[0]


def more(sock, count, all_of_it):
    """So many more come; then that is what lies unread."""
    sock.sendall(bytes([count]))
    deadline = time.monotonic() + SOON_S
    while queued(sock) < all_of_it and time.monotonic() < deadline:
        time.sleep(0.01)
    if queued(sock) != all_of_it:
        sys.exit(f"{queued(sock)} bytes are unread, not {all_of_it}")


def ready(sock, wait_s=0):
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    return bool(poller.poll(wait_s * 1000))


def check(sock, right, words):
    if ready(sock, SOON_S if right else 0) != right:
        sys.exit(f"{words}: {'not ready' if right else 'ready'}")
    if (mark := sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)) != MARK:
        sys.exit(f"{words}: the mark is {mark}")


def take(sock, at, count):
    if (got := sock.recv(count, socket.MSG_DONTWAIT)) != PATTERN[at:at + count]:
        sys.exit(f"at {at}: {got}")


def connect(sock):
    turn = 0
    while turn < TURNS or not os.path.exists("/run/far/go"):
        sock.sendall(b"x")
        sock.recv(1)
        turn += 1
    more(sock, FIRST, FIRST)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, MARK)
    check(sock, False, "few")
    take(sock, 0, PART)
    check(sock, False, "a part is read")
    more(sock, MARK + PART - FIRST - LESS, MARK - LESS)
    check(sock, False, "nearly enough")
    more(sock, LESS, MARK)
    check(sock, True, "enough")
    take(sock, PART, MARK)
    check(sock, False, "none")
    more(sock, MARK - LESS, MARK - LESS)
    check(sock, False, "nearly enough by TCP")
    more(sock, LESS, MARK)
    check(sock, True, "enough by TCP")
    take(sock, MARK + PART, MARK)
    print("all bytes are right")


def main():
    role, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    if role == "listen":
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
        sock.listen()
        listen(sock.accept()[0])
    else:
        sock.connect((address, port))
        connect(sock)


main()
