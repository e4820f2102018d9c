#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One end of a connection whose other end sends what it is asked for, while a timer interrupts the
one that receives, and its receives time out: checks each byte, and that nothing is written to a
buffer after the call that had it.

usage: redirect.py listen|connect ADDRESS PORT TURNS [FILE]

With FILE nothing interrupts, and the turns go on until a file of that name has a line.
"""
import os
import random
import signal
import socket
import struct
import sys
import time

from ends import meet

PERIOD = 999983
SIZES = (5000, 16384, 60000, 131072, 262144, 300000)
PATTERN = random.Random(3).randbytes(PERIOD)
TWICE = PATTERN + PATTERN
TIMEOUT_S, TIMER_S = 0.05, 0.083
CALM_TURNS = 10
LEARNT_S = 0.02  # until the answer: a receive sleeps by then, and its offer has arrived
NOTE = struct.Struct("=IId")


def piece(at, size):
    at %= PERIOD
    return TWICE[at:at + size]


def serve(sock):
    """Answers at once, or late, or in two halves."""
    at = 0
    while note := sock.recv(NOTE.size, socket.MSG_WAITALL):
        size, first, wait_s = NOTE.unpack(note)
        time.sleep(wait_s)
        answer = piece(at, size)
        sock.sendall(answer[:first])
        if first < size:
            time.sleep(wait_s)
        sock.sendall(answer[first:])
        at += size


def ask_once(sock, at, wait_s):
    """One answer, which nothing interrupts: where the next begins."""
    size = SIZES[1]
    sock.sendall(NOTE.pack(size, size, wait_s))
    if sock.recv(size, socket.MSG_WAITALL) != piece(at, size):
        sys.exit(f"of {size} bytes from {at} on some are wrong")
    return at + size


def ask_calmly(sock, turns, at):
    """Nothing interrupts: each answer comes when it is waited for."""
    for _ in range(turns):
        at = ask_once(sock, at, TIMEOUT_S)
    return at


def ask_until(sock, path, at):
    """Answers that are waited for, until something was learnt of them."""
    while not os.path.exists(path) or not os.path.getsize(path):
        at = ask_once(sock, at, LEARNT_S)
    return at


def ask(sock, turns, at):
    chance = random.Random(4)
    buffers = [bytearray(SIZES[-1]) for _ in range(3)]
    kept = [bytes(b) for b in buffers]
    timeouts = 0
    for turn in range(turns):
        size = chance.choice(SIZES)
        wait_s = chance.choice((0, 0.002, TIMER_S, TIMEOUT_S, 2 * TIMEOUT_S))
        sock.sendall(NOTE.pack(size, chance.choice((size, size // 2, 1)), wait_s))
        got, into = 0, turn % len(buffers)
        while got < size:
            view = memoryview(buffers[into])[got:size]
            try:
                n = sock.recv_into(view, 0, chance.choice((0, socket.MSG_WAITALL)))
            except BlockingIOError:
                timeouts += 1
                continue
            if n == 0:
                sys.exit(f"the end after {at + got} bytes")
            if view[:n] != piece(at, size)[got:got + n]:
                sys.exit(f"of {n} bytes from {at + got} on some are wrong")
            got += n
        kept[into] = bytes(buffers[into])
        at += size
        for i, was in enumerate(kept):
            if buffers[i] != was:
                sys.exit(f"turn {turn}: somebody has written to buffer {i}")
    return at, timeouts


def main():
    role, address, port, turns = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    sock = meet(role, address, port)
    if role == "listen":
        serve(sock)
        return
    at = 0
    while not os.path.exists("/run/far/go"):
        sock.sendall(NOTE.pack(1, 1, 0))
        sock.recv(1, socket.MSG_WAITALL)
        at += 1
        time.sleep(0.01)
    if len(sys.argv) > 5:
        print(f"{ask_until(sock, sys.argv[5], at) - at} bytes are right")
        return
    end = ask_calmly(sock, CALM_TURNS, at)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO,
                    struct.pack("@ll", 0, int(TIMEOUT_S * 1e6)))
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, TIMER_S, TIMER_S)
    end, timeouts = ask(sock, turns, end)
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(f"{end - at} bytes are right, {timeouts} time-outs")


main()
