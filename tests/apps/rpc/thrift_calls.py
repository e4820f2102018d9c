# SPDX-License-Identifier: Apache-2.0
"""Thrift's servers and clients for calls.thrift.

usage: thrift_calls.py GENERATED serve|call KIND PORT

KIND: threads, pool or nonblocking.
"""
import collections
import hashlib
import signal
import sys
import threading

sys.path.insert(0, sys.argv[1])
from calls import Calls  # noqa: E402
from calls.ttypes import Refused, Tree  # noqa: E402
from thrift.protocol import TBinaryProtocol, TCompactProtocol  # noqa: E402
from thrift.server import TNonblockingServer, TServer  # noqa: E402
from thrift.Thrift import TApplicationException  # noqa: E402
from thrift.transport import TSocket, TTransport  # noqa: E402

HOST = "127.0.0.1"
FRAMED = {"nonblocking"}
# Thrift's server without blocking reads 8,192 bytes at a time, and closes a connection where just so
# many have come and no more: on any socket, by chance. One read has to take a whole call.
SIZES = (0, 1, 4095, 65536, 1_000_003, 5_000_000)
ONE_READ = 8000
PROTOCOLS = {"threads": TBinaryProtocol.TBinaryProtocolAcceleratedFactory,
             "pool": TCompactProtocol.TCompactProtocolFactory,
             "nonblocking": TBinaryProtocol.TBinaryProtocolFactory}


class Handler:
    def __init__(self):
        self.lock, self.sum = threading.Lock(), 0

    def next(self, n):
        return n + 1

    def echo(self, data):
        return data

    def mirror(self, tree):
        below = [self.mirror(x) for x in reversed(tree.below)]
        return Tree(-tree.number, tree.name[::-1], below)

    def count(self, words):
        return dict(collections.Counter(words))

    def refuse(self, code):
        raise Refused(code, f"as asked: {code}")

    def fail(self):
        raise ValueError("not declared")

    def note(self, n):
        with self.lock:
            self.sum += n

    def noted(self):
        return self.sum


def serve(kind, port):
    listener = TSocket.TServerSocket(HOST, port)
    processor = Calls.Processor(Handler())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if kind == "nonblocking":
        TNonblockingServer.TNonblockingServer(processor, listener,
                                              PROTOCOLS[kind](), threads=3).serve()
    transport = TTransport.TBufferedTransportFactory()
    if kind == "threads":
        TServer.TThreadedServer(processor, listener, transport, PROTOCOLS[kind](),
                                daemon=True).serve()
    pool = TServer.TThreadPoolServer(processor, listener, transport, PROTOCOLS[kind](),
                                     daemon=True)
    pool.setNumThreads(6)
    pool.serve()


def connect(kind, port):
    transport = TSocket.TSocket(HOST, port)
    transport = (TTransport.TFramedTransport if kind in FRAMED
                 else TTransport.TBufferedTransport)(transport)
    transport.open()
    return Calls.Client(PROTOCOLS[kind]().getProtocol(transport)), transport


def tree(depth, number=1):
    below = [tree(depth - 1, number * 3 + i) for i in range(3)] if depth else []
    return Tree(number, f"node {number}", below)


def said(function, *arguments):
    try:
        return function(*arguments)
    except Refused as e:
        return "refused", e.code, e.why
    except TApplicationException as e:
        return "application", e.type


def crowd(kind, port):
    """Threads, each with connections of its own."""
    lines = []

    def one(n):
        wrong = 0
        for i in range(3):
            client, transport = connect(kind, port)
            for j in range(12):
                data = bytes([n, i]) * (j * j * j * n)
                wrong += client.next(j) != j + 1 or client.echo(data) != data
            transport.close()
        lines.append((n, wrong))

    threads = [threading.Thread(target=one, args=(n,)) for n in range(5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return sorted(lines)


def call(kind, port):
    client, transport = connect(kind, port)
    print([client.next(n) for n in range(300)][-1])
    short = kind == "nonblocking"
    for size in [min(size, ONE_READ) for size in SIZES] if short else SIZES:
        data = bytes(range(251)) * (size // 251 + 1)
        print(size, hashlib.sha256(client.echo(data[:size])).hexdigest()[:16])
    print(hashlib.sha256(repr(client.mirror(tree(3 if short else 5))).encode()).hexdigest()[:16])
    print(sorted(client.count(["a", "b", "a"] * 400).items()))
    print(said(client.refuse, 7), said(client.next, 1))
    if not short:  # that one loses calls that follow one without an answer
        for n in range(2000):
            client.note(n)
        print(client.noted())
    print(said(client.fail))
    transport.close()
    print(crowd(kind, port))


if __name__ == "__main__":
    (serve if sys.argv[2] == "serve" else call)(sys.argv[3], int(sys.argv[4]))
