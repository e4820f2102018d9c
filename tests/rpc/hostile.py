#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A peer that breaks the rules of ONC RPC, in Python: the other end's verdicts are to be libtirpc's.

usage: hostile.py client PORT        to a service: prints what came back for each lie
       hostile.py serve PORT-FILE    a service that lies in its answers, for as many connections as
                                     it has lies
"""
import os
import random
import socket
import struct
import sys

PROGRAM, NOTHING, NEXT, ECHO_TEXT, ECHO_BLOB = 0x20000099, 0, 1, 2, 3
LAST = 0x80000000
WARM = 150


def words(*numbers):
    return struct.pack(f">{len(numbers)}I", *(n & 0xffffffff for n in numbers))


def record(*parts):
    body = b"".join(parts)
    return words(LAST | len(body)) + body


def head(xid, procedure, version=1, rpc=2, program=PROGRAM, kind=0):
    return words(xid, kind, rpc, program, version, procedure)


NO_AUTH = words(0, 0, 0, 0)


def calls():
    """Bytes that a client may send. A whole call is at the end of those that leave the service in
    need of more."""
    good = record(head(7, NEXT), NO_AUTH, words(41))
    yield "good", good
    yield "in fragments", (words(10) + good[4:14] + words(3) + good[14:17] +
                           words(LAST | len(good[17:])) + good[17:])
    yield "byte by byte", b"".join(words(1) + good[i:i + 1] for i in range(4, len(good) - 1)) + \
        words(LAST | 1) + good[-1:]
    yield "empty last fragment", words(len(good) - 4) + good[4:] + words(LAST)
    yield "two at once", good + record(head(8, NEXT), NO_AUTH, words(1))
    yield "an answer", record(words(7, 1, 0, 0, 0, 0), words(1))
    yield "another version of RPC", record(head(7, NEXT, rpc=3), NO_AUTH, words(41))
    yield "no mark", words(0, 0, 0)
    yield "no words", record(b"") + good
    yield "short head", record(words(7, 0, 2)) + good
    yield "long credentials", record(head(7, NEXT), words(0, 401), b"x" * 404, words(0, 0)) + good
    yield "credentials that lie", record(head(7, NEXT), words(1, 400), b"x" * 20) + good
    yield "bad AUTH_SYS", record(head(7, NEXT), words(1, 20), words(1, 1000, 1, 1, 1), words(0, 0),
                                 words(41))
    yield "unknown flavor", record(head(7, NEXT), words(77, 0, 0, 0), words(41))
    yield "text that lies", record(head(7, ECHO_TEXT), NO_AUTH, words(1 << 30), b"abcd")
    yield "text without end", record(head(7, ECHO_TEXT), NO_AUTH, words(0xffffffff), b"abcd")
    yield "blob that lies", record(head(7, ECHO_BLOB), NO_AUTH, words(0x7fffffff), b"abcd")
    yield "no argument", record(head(7, NEXT), NO_AUTH)
    yield "too much", record(head(7, NEXT), NO_AUTH, words(41), b"y" * 70000) + good
    yield "long mark", words(LAST | 0x7fffffff) + good[4:]
    chance = random.Random(5)
    for i in range(40):
        body = bytearray(good[4:])
        for _ in range(chance.randrange(1, 4)):
            body[chance.randrange(len(body))] = chance.randrange(256)
        yield f"changed {i}", record(bytes(body))


def answers(xid):
    """Bytes that a service may answer a call of NEXT with."""
    good = record(words(xid, 1, 0, 0, 0, 0, 42))
    yield "good", good
    yield "in fragments", words(6) + good[4:10] + words(LAST | len(good[10:])) + good[10:]
    yield "other first", record(words(xid + 1, 1, 0, 0, 0, 0, 5)) + good
    yield "other with verifier", record(words(xid + 1, 1, 0, 3, 8, 1, 2, 0, 5)) + good
    yield "verifier", record(words(xid, 1, 0, 3, 8, 1, 2, 0, 42))
    yield "long verifier", record(words(xid, 1, 0, 0, 500), b"z" * 500)
    yield "a call", record(head(xid, NEXT), NO_AUTH) + good
    yield "no result", record(words(xid, 1, 0, 0, 0, 0))
    yield "unknown state", record(words(xid, 1, 0, 0, 0, 99, 1, 2))
    yield "unknown denial", record(words(xid, 1, 1, 99, 1, 2))
    yield "denied", record(words(xid, 1, 1, 1, 5))
    yield "another version of RPC", record(words(xid, 1, 1, 0, 3, 4))
    yield "mismatch", record(words(xid, 1, 0, 0, 0, 2, 5, 9))
    yield "neither", record(words(xid, 1, 7, 0, 0, 0)) + good
    yield "no words", record(b"") + good
    yield "empty marks", words(0, 0, 0)
    yield "one empty mark", words(0) + good
    yield "short", record(words(xid)) + good
    yield "long mark", words(LAST | 0x7fffffff) + good[4:12]
    yield "nothing", b""
    chance = random.Random(9)
    for i in range(40):
        body = bytearray(good[4:])
        body[4 + chance.randrange(len(body) - 4)] = chance.randrange(256)
        yield f"changed {i}", record(bytes(body))


def read_record(s):
    body = b""
    while True:
        mark = s.recv(4, socket.MSG_WAITALL)
        if len(mark) < 4:
            return None
        length = struct.unpack(">I", mark)[0]
        body += s.recv(length & ~LAST, socket.MSG_WAITALL)
        if length & LAST:
            return body


def client(port):
    for name, lie in calls():
        with socket.create_connection(("127.0.0.1", port)) as s:
            for i in range(WARM):
                s.sendall(record(head(i, NOTHING), NO_AUTH))
                assert read_record(s) == words(i, 1, 0, 0, 0, 0)
            s.sendall(lie)
            s.shutdown(socket.SHUT_WR)
            back, end = b"", "end"
            try:
                while more := s.recv(65536):
                    back += more
            except ConnectionResetError:
                end = "reset"
            # Whether bytes are left unread, and an end is a reset, is a matter of buffers.
            print(f"{name}: {back.hex()}", file=sys.stdout)
            assert end in ("end", "reset")
    print("end")


def serve(place):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with open(place + ".new", "w", encoding="ascii") as f:
            print(listener.getsockname()[1], file=f)
        os.rename(place + ".new", place)
        i, count = 0, 1
        while i < count:
            s, _ = listener.accept()
            with s:
                while call := read_record(s):
                    xid, procedure = struct.unpack(">I16xI", call[:24])
                    if procedure == NOTHING:
                        s.sendall(record(words(xid, 1, 0, 0, 0, 0)))
                        continue
                    lies = list(answers(xid))
                    count = len(lies)
                    s.sendall(lies[i][1])
                    s.shutdown(socket.SHUT_WR)
                    break
                while s.recv(65536):
                    pass
            i += 1
    print("end")


if sys.argv[1] == "client":
    client(int(sys.argv[2]))
elif sys.argv[1] == "serve":
    serve(sys.argv[2])
else:
    print(len(list(answers(0))))
