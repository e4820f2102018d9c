#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The library opened late, from Python; and what `viaduct stat`, `explain` and the report tell of
its connections.

usage: stat.py VIADUCT LIBRARY
"""
import ctypes
import json
import os
import pathlib
import re
import select
import socket
import subprocess
import sys
import tempfile

VIADUCT, LIBRARY = sys.argv[1:3]
PATIENCE_MS = 100000
NAMES = ("puts put_bytes far_puts gets get_bytes far_gets atomics notifications_sent "
         "notifications_received imports imports_mapped redirections_full redirections_partial "
         "redirections_none registration_hits registration_misses registration_evictions "
         "registrations_broken messages_sent messages_received message_bytes").split()
PLACED = "messages_in_place"  # how many depends on when each end had the other's memory
ROUNDS = 100


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


def next_event(c):
    """One event, by the descriptor."""
    event = Event()
    assert select.select([call("vd_fd", c)], [], [], PATIENCE_MS / 1000)[0]
    assert call("vd_wait", c, ctypes.byref(event), 1, 0) == 1
    return event


def stat(*arguments):
    return subprocess.run([VIADUCT, "stat", *arguments], check=True, stdout=subprocess.PIPE,
                          text=True).stdout


def shown(fd):
    """The connection of this process with that descriptor, as `stat` has it."""
    return [c for c in json.loads(stat("--json"))["connections"]
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


def process():
    """The counts of this process."""
    found = [p for p in json.loads(stat("--json"))["processes"] if p["pid"] == os.getpid()]
    return plain(found[0]["counts"]["native"])


def metrics(prefix):
    """By name: all values of this process."""
    found = {}
    for name, value in re.findall(rf'^viaduct_{prefix}_(\w+)_total{{pid="{os.getpid()}".*}} (\d+)$',
                                  stat("--prometheus", "--per-connection"), re.M):
        found.setdefault(name, []).append(int(value))
    return found


def counts(**which):
    return {name: which.get(name, 0) for name in NAMES}


def plain(native):
    """Without what cannot be known beforehand."""
    placed = native.pop(PLACED)
    placed, sent = (sum(n) if isinstance(n, list) else n for n in (placed, native["messages_sent"]))
    assert 0 < placed <= sent, native
    return native


def use():
    """Does some of everything, on a connection that it closes and one that it does not."""
    a, b = open_pair()
    box, to = ctypes.create_string_buffer(64), ctypes.create_string_buffer(64)
    word, page = U64(5), made("vd_alloc", ctypes.c_size_t(100))
    for name, at, size, rights in (("box", box, 64, 2), ("word", ctypes.byref(word), 8, 3),
                                   ("page", page, 100, 3)):
        x = made("vd_export", b, name.encode(), at, ctypes.c_size_t(size), rights, None)
        if name == "box":
            region = x
    r, w, m = (made("vd_import", a, name, PATIENCE_MS) for name in (b"box", b"word", b"page"))
    for _ in range(2000):  # until it is upgraded
        if vd.vd_path(a) == 1 and vd.vd_path(b) == 1:
            break
        call("vd_flush", a)
    assert vd.vd_reason(a) == b"none", vd.vd_reason(a)
    detour = made("vd_redirect", region, U64(0), to, ctypes.c_size_t(64))
    call("vd_put", r, U64(0), b"v" * 64, ctypes.c_size_t(64), 7, 1)
    event = next_event(b)
    assert (event.kind, event.tag, event.len) == (1, 7, 64)
    call("vd_redirect_end", detour, None)
    assert to.raw == b"v" * 64 and box.raw == bytes(64)
    detour = made("vd_redirect", region, U64(0), to, ctypes.c_size_t(64))
    call("vd_put", r, U64(5), b"later", ctypes.c_size_t(5), 0, 0)
    call("vd_flush", a)
    call("vd_redirect_end", detour, None)
    call("vd_redirect_end", made("vd_redirect", region, U64(0), to, ctypes.c_size_t(64)), None)
    call("vd_put", m, U64(0), b"mapped", ctypes.c_size_t(6), 0, 0)
    call("vd_get", w, U64(0), to, ctypes.c_size_t(8))
    call("vd_get", m, U64(0), to, ctypes.c_size_t(6))
    old = U64()
    call("vd_fetch_add", w, U64(0), U64(2), ctypes.byref(old))
    assert old.value == 5
    for c, d in ((a, b), (b, a)) * ROUNDS:
        at = P()
        call("vd_reserve", c, ctypes.c_size_t(9), ctypes.byref(at))
        ctypes.memmove(at, b"a message", 9)
        call("vd_commit", c, ctypes.c_size_t(9))
        size = ctypes.c_size_t()
        call("vd_peek", d, ctypes.byref(at), ctypes.byref(size), PATIENCE_MS)
        assert ctypes.string_at(at, size.value) == b"a message"
        call("vd_release", d)
    return a, b


MESSAGES = {"messages_sent": ROUNDS, "messages_received": ROUNDS, "message_bytes": 9 * ROUNDS}
USED = (counts(puts=3, put_bytes=75, gets=2, get_bytes=14, atomics=1, notifications_sent=1,
               imports=3, imports_mapped=1, **MESSAGES),
        counts(notifications_received=1, redirections_full=1, redirections_partial=1,
               redirections_none=1, **MESSAGES))
TOTAL = {name: USED[0][name] + USED[1][name] for name in NAMES}
TWICE = {name: 2 * n for name, n in TOTAL.items()}


def look():
    """What others see of this process, which then ends, as does a child of it."""
    a, b = use()
    seen = [c for fd in sockets().values() for c in shown(fd)]
    assert sorted((plain(c["native"]) for c in seen), key=str) == sorted(USED, key=str), seen
    assert all(c["path"] == "ring" for c in seen)
    assert process() == TOTAL, process()
    found = plain(metrics("native"))
    assert found == {name: [n] for name, n in TOTAL.items()}, found
    found = {name: sorted(n) for name, n in plain(metrics("connection_native")).items()}
    assert found == {name: sorted(u[name] for u in USED) for name in NAMES}, found
    wide = " ".join(stat("--wide", "--pid", str(os.getpid())).split())
    assert ("NOTES-SENT NOTES-RCVD IMPORTS/MAPPED FULL/PART/NONE HITS/MISSES/EVICTED "
            "SENT/PLACED/RCVD") in wide, wide
    assert re.search(fr" 3 75 2 14 1 1 0 3/1 0/0/0 0/0/0 {ROUNDS}/\d+/{ROUNDS} ", wide), wide
    said = " ".join(subprocess.run([VIADUCT, "explain", str(os.getpid())], check=False,
                                   stdout=subprocess.PIPE, text=True).stdout.split())
    for text in ("native: 3 puts (75 bytes), 2 gets (14 bytes), 1 atomics; notifications: 1 sent, "
                 "0 received; imports: 3, mapped 1; redirections: 0 full, 0 partial, 0 none; messages: 100 sent (900 bytes, ",
                 "1 received; imports: 0, mapped 0; redirections: 1 full, 1 partial, 1 none; "
                 "messages: 100 sent (900 bytes, "):
        assert text in said, said
    vd.vd_close(a)
    vd.vd_close(b)
    assert process() == TOTAL, process()
    use()
    assert process() == TWICE, process()
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0


def main():
    if len(sys.argv) > 3:
        look()
        return
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report"
        subprocess.run([sys.executable, *sys.argv, "look"], check=True,
                       env={**os.environ, "VIADUCT_REPORT": str(report)})
        lines = [json.loads(line)["native"] for line in report.read_text().splitlines()]
        lines = [native and plain(native) for native in lines]
    assert lines == [None, TWICE], lines
    print("counted, shown, explained and reported")


if __name__ == "__main__":
    main()
