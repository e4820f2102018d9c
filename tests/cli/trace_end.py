#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One process with connections, for trace.py: does what it is told on stdin, line by line.

What it sends is known: stream(seed, at, n). What it receives it compares with that.
"""
import functools
import os
import random
import socket
import sys

PERIOD = 1048573  # a prime, so that no buffer's size divides it


@functools.lru_cache(maxsize=None)
def pool(seed):
    return random.Random(seed).randbytes(PERIOD)


def stream(seed, at, n):
    begin = at % PERIOD
    return (pool(seed)[begin:begin + n] if begin + n <= PERIOD else
            (pool(seed)[begin:] + pool(seed) * (n // PERIOD + 1))[:n])


FAMILY = {"4": (socket.AF_INET, "127.0.0.1"), "6": (socket.AF_INET6, "::1"),
          "mapped": (socket.AF_INET6, "::ffff:127.0.0.1")}


class End:
    def __init__(self):
        self.socks = {}

    def keep(self, sock):
        self.socks[sock.fileno()] = sock
        return sock.fileno()

    def listen(self, family):
        kind, address = FAMILY[family]
        sock = socket.socket(kind)
        sock.bind((address, 0))
        sock.listen()
        self.listener = sock
        return sock.getsockname()[1]

    def accept(self):
        return self.keep(self.listener.accept()[0])

    def connect(self, family, port):
        kind, address = FAMILY[family]
        sock = socket.socket(kind)
        sock.connect((address, int(port)))
        return self.keep(sock)

    def send(self, fd, seed, at, n, piece):
        fd, seed, at, n, piece = map(int, (fd, seed, at, n, piece))
        for begin in range(0, n, piece):
            self.socks[fd].sendall(stream(seed, at + begin, min(piece, n - begin)))
        return n

    def recv(self, fd, seed, at, n):
        fd, seed, at, n = map(int, (fd, seed, at, n))
        got = 0
        while got < n:
            data = self.socks[fd].recv(min(n - got, 1 << 20))
            if data != stream(seed, at + got, len(data)) or not data:
                return f"wrong at {at + got}"
            got += len(data)
        return n

    def urgent(self, fd):
        return self.socks[int(fd)].send(b"!", socket.MSG_OOB)

    def shutdown(self, fd):
        self.socks[int(fd)].shutdown(socket.SHUT_WR)
        return 0

    def close(self, fd):
        self.socks.pop(int(fd)).close()
        return 0

    def fork(self, fd, seed, at, n):
        """A child sends: its bytes are no part of our trace."""
        pid = os.fork()
        if pid == 0:
            self.send(fd, seed, at, n, n)
            os._exit(0)
        return os.waitpid(pid, 0)[1]

    def descriptors(self):
        names = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
                 if os.path.islink(f"/proc/self/fd/{fd}")]
        return sum("viaduct-trace" in name for name in names)

    def part(self):
        """From here on a child does what we are told: its pid."""
        pid = os.fork()
        if pid:
            os._exit(os.waitpid(pid, 0)[1] != 0)
        return os.getpid()

    def drop(self, uid):
        os.setuid(int(uid))
        return os.getuid()

    def become(self):
        os.execvp("sleep", ["sleep", "60"])


def main():
    end = End()
    for line in sys.stdin:
        name, *arguments = line.split()
        try:
            answer = getattr(end, name)(*arguments)
        except OSError as error:
            answer = error
        print(answer, flush=True)


if __name__ == "__main__":
    main()
