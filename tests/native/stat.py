#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The library from Python, opened late, with asyncio on vd_fd; and what `viaduct stat` and
`explain` show of its connections.

usage: stat.py VIADUCT LIBRARY
"""
import asyncio
import ctypes
import json
import os
import socket
import subprocess
import sys

VIADUCT, LIBRARY = sys.argv[1:3]
PATIENCE_MS = 100000


class Event(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_uint32), ("tag", ctypes.c_uint32),
                ("where", ctypes.c_void_p), ("user", ctypes.c_void_p),
                ("offset", ctypes.c_uint64), ("len", ctypes.c_uint64),
                ("result", ctypes.c_int32), ("reserved", ctypes.c_uint32)]


vd = ctypes.CDLL(LIBRARY)
vd.vd_reason.restype = ctypes.c_char_p
P, U64 = ctypes.c_void_p, ctypes.c_uint64


def call(name, *arguments):
    result = getattr(vd, name)(*arguments)
    assert result >= 0, (name, os.strerror(-result))
    return result


def made(name, *arguments):
    """Of a call that writes a handle last."""
    handle = P()
    call(name, *arguments, ctypes.byref(handle))
    return handle


def open_pair():
    listener = made("vd_listen", b"127.0.0.1", b"0")
    with socket.socket(fileno=os.dup(call("vd_listener_fd", listener))) as s:
        port = str(s.getsockname()[1]).encode()
    a = made("vd_connect", b"127.0.0.1", port, PATIENCE_MS)
    b = made("vd_accept", listener, PATIENCE_MS)
    vd.vd_listener_close(listener)
    return a, b


async def next_event(c):
    """One event, by the loop."""
    loop, ready, event = asyncio.get_running_loop(), asyncio.Event(), Event()
    fd = call("vd_fd", c)
    loop.add_reader(fd, ready.set)
    try:
        await asyncio.wait_for(ready.wait(), PATIENCE_MS / 1000)
    finally:
        loop.remove_reader(fd)
    assert call("vd_wait", c, ctypes.byref(event), 1, 0) == 1
    return event


def shown(fd):
    """The connection of this process with that descriptor, as `stat` has it."""
    out = subprocess.run([VIADUCT, "stat", "--json"], check=True, stdout=subprocess.PIPE).stdout
    return [c for c in json.loads(out)["connections"]
            if c["pid"] == os.getpid() and fd in c["fds"]]


def sockets():
    """Descriptors of connected TCP sockets, by the peer's port."""
    found = {}
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            with socket.socket(fileno=os.dup(fd)) as s:
                if s.family == socket.AF_INET and s.type == socket.SOCK_STREAM:
                    found[s.getpeername()[1]] = fd
        except OSError:
            continue
    return found


def main():
    a, b = open_pair()
    box, to = ctypes.create_string_buffer(64), ctypes.create_string_buffer(64)
    word = U64(5)
    x = made("vd_export", b, b"box", box, ctypes.c_size_t(64), 2, None)
    y = made("vd_export", b, b"word", ctypes.byref(word), ctypes.c_size_t(8), 3, None)
    r = made("vd_import", a, b"box", PATIENCE_MS)
    w = made("vd_import", a, b"word", PATIENCE_MS)
    for _ in range(2000):  # until it is upgraded
        if vd.vd_path(a) == 1 and vd.vd_path(b) == 1:
            break
        call("vd_flush", a)
    assert vd.vd_reason(a) == b"none", vd.vd_reason(a)
    detour = made("vd_redirect", x, U64(0), to, ctypes.c_size_t(64))
    call("vd_put", r, U64(0), b"v" * 64, ctypes.c_size_t(64), 7, 1)
    event = asyncio.run(next_event(b))
    assert (event.kind, event.tag, event.len) == (1, 7, 64)
    call("vd_redirect_end", detour, None)
    assert to.raw == b"v" * 64 and box.raw == bytes(64)
    call("vd_redirect_end", made("vd_redirect", x, U64(0), to, ctypes.c_size_t(64)), None)
    call("vd_put", r, U64(5), b"later", ctypes.c_size_t(5), 0, 0)
    old = U64()
    call("vd_fetch_add", w, U64(0), U64(2), ctypes.byref(old))
    assert old.value == 5

    counts = [c["native"] for fd in sockets().values() for c in shown(fd)]
    assert sorted((n["puts"], n["gets"], n["notifications"], n["redirections_full"],
                   n["redirections_partial"], n["redirections_none"])
                  for n in counts) == [(0, 0, 1, 1, 0, 1), (2, 1, 0, 0, 0, 0)], counts
    assert all(c["path"] == "ring" for fd in sockets().values() for c in shown(fd))
    said = " ".join(subprocess.run([VIADUCT, "explain", str(os.getpid())], check=False,
                                   stdout=subprocess.PIPE, text=True).stdout.split())
    assert "native: 2 puts, 1 gets, 0 notifications" in said, said
    call("vd_unexport", y)
    vd.vd_close(a)
    vd.vd_close(b)
    print("counted, shown and explained")


if __name__ == "__main__":
    main()
