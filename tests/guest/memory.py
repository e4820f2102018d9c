#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Both ends of a connection send from memory, and receive into memory, that is there for the one
call: it is overwritten, dropped, moved, unmapped and freed right after, and had again; or it is a
file's, or not there at all. Checks each byte.

usage: memory.py listen|connect ADDRESS PORT TURNS
"""
import errno
import mmap
import os
import random
import socket
import sys
import time

from ends import meet

PERIOD = 999983
SIZES = (700, 5000, 40000, 100000, 131072, 300000)
PATTERN = random.Random(5).randbytes(PERIOD)
TWICE = PATTERN + PATTERN
PAGE = mmap.PAGESIZE


def piece(at, size):
    at %= PERIOD
    return TWICE[at:at + size]


def have(chance, size):
    """Memory of the heap, or a mapping, which is larger so that it has an end to lose."""
    if chance.random() < 0.4:
        return bytearray(size)
    return mmap.mmap(-1, size + 2 * PAGE)


def recycle(chance, memory, size):
    """Nothing of what was sent or received may be needed from here on."""
    with memoryview(memory) as view:
        view[:size] = b"\xa5" * size
    if isinstance(memory, bytearray):
        return  # freed by the caller, and its end of the heap given back
    way = chance.randrange(3)
    if way == 0:
        memory.madvise(mmap.MADV_DONTNEED)
    elif way == 1:
        memory.resize(len(memory) + 64 * PAGE)
    if way != 2 or chance.random() < 0.5:
        memory.resize(PAGE)
    memory.close()


def send_file(sock, at, size):
    """Its pages may be read, and no more; and once it is shorter, none of them."""
    with open(os.memfd_create("file"), "wb+") as file:
        file.write(piece(at, size))
        file.flush()
        with mmap.mmap(file.fileno(), size, mmap.MAP_SHARED, mmap.PROT_READ) as memory:
            sock.sendall(memory)
            file.truncate(0)
            try:
                sys.exit(f"{sock.send(memory)} bytes were sent of memory that is not there")
            except OSError as error:
                if error.errno != errno.EFAULT:
                    raise


def send(sock, chance, at, size):
    if chance.random() < 0.3:
        send_file(sock, at, size)
        return
    memory = have(chance, size)
    with memoryview(memory) as view:
        view[:size] = piece(at, size)
        sock.sendall(view[:size])
    recycle(chance, memory, size)


def receive(sock, chance, at, size):
    memory = have(chance, size)
    with memoryview(memory) as view:
        got = 0
        while got < size:
            n = sock.recv_into(view[got:size], 0, chance.choice((0, socket.MSG_WAITALL)))
            if n == 0:
                sys.exit(f"the end after {at + got} bytes")
            got += n
        if view[:size] != piece(at, size):
            sys.exit(f"of {size} bytes from {at} on some are wrong")
    recycle(chance, memory, size)


def converse(sock, turns, first):
    """Sizes by the same chance at both ends; what becomes of the memory by another."""
    sizes, chance, at = random.Random(6), random.Random(first), 0
    for _ in range(turns):
        size = sizes.choice(SIZES) - sizes.randrange(2)
        for step in (send, receive) if first else (receive, send):
            step(sock, chance, at, size)
        at += size
    return 2 * at


def main():
    role, address, port, turns = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    sock = meet(role, address, port)
    if role == "listen":
        while sock.recv(1) == b"-":
            sock.sendall(b"-")
        sock.sendall(b"+")
    else:
        while not os.path.exists("/run/far/go"):
            sock.sendall(b"-")
            sock.recv(1)
            time.sleep(0.01)
        sock.sendall(b"+")
        sock.recv(1)
    print(f"{converse(sock, turns, role == 'connect')} bytes are right")


main()
