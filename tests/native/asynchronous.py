#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A binding of viaduct.h by cffi that reads the header itself, and asyncio on vd_fd: two ends put
to each other, get, count, and see the end.

usage: asynchronous.py HEADER LIBRARY
"""
import asyncio
import os
import pathlib
import re
import socket
import sys

HEADER, LIBRARY = sys.argv[1:3]
DEBIAN = "/usr/bin/python3"
PATIENCE_MS = 100000
ROUNDS = 200

try:
    import cffi
except ImportError:
    # The package is that of Debian's interpreter.
    if os.path.exists(DEBIAN) and "VD_TEST_AGAIN" not in os.environ:
        os.execve(DEBIAN, [DEBIAN, *sys.argv], {**os.environ, "VD_TEST_AGAIN": "1"})
    print("skipped: python3-cffi is not installed")
    sys.exit(77)


def declarations():
    """What the header declares, without what is the preprocessor's."""
    text = re.sub(r"/\*.*?\*/", "", pathlib.Path(HEADER).read_text(), flags=re.S)
    text = re.sub(r"#ifdef __cplusplus.*?#endif", "", text, flags=re.S)
    return re.sub(r"^#(?!define \w+[ \t]+\S).*$", "", text, flags=re.M)


ffi = cffi.FFI()
ffi.cdef(declarations())
vd = ffi.dlopen(LIBRARY)


def checked(result):
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result


def made(call, *arguments):
    """Of a call that writes a handle last."""
    handle = ffi.new(ffi.typeof(call).args[-1])
    checked(call(*arguments, handle))
    return handle[0]


class Connection:
    def __init__(self, handle):
        self.handle, self.ready = handle, asyncio.Event()
        self.fd = checked(vd.vd_fd(handle))
        asyncio.get_running_loop().add_reader(self.fd, self.ready.set)

    async def event(self):
        found = ffi.new("struct vd_event *")
        while True:
            n = vd.vd_wait(self.handle, found, 1, 0)
            if n == 1:
                return found
            assert n == -110, os.strerror(-n)  # ETIMEDOUT
            self.ready.clear()
            await asyncio.wait_for(self.ready.wait(), PATIENCE_MS / 1000)

    def close(self):
        asyncio.get_running_loop().remove_reader(self.fd)
        vd.vd_close(self.handle)


def pair():
    listener = made(vd.vd_listen, b"127.0.0.1", b"0")
    with socket.socket(fileno=os.dup(vd.vd_listener_fd(listener))) as s:
        port = str(s.getsockname()[1]).encode()
    a = made(vd.vd_connect, b"127.0.0.1", port, PATIENCE_MS)
    b = made(vd.vd_accept, listener, PATIENCE_MS)
    vd.vd_listener_close(listener)
    return a, b


async def serve(c, box, peer):
    """Answers each message by the same in capitals, until the peer has gone."""
    while True:
        event = await c.event()
        if event.kind == vd.VD_EVENT_END:
            assert event.result == 0
            return event.result
        assert ffi.from_handle(event.user) is c
        said = ffi.buffer(box, event.len)[:].upper()
        checked(vd.vd_put(peer, 0, said, len(said), event.tag, vd.VD_NOTIFY))


async def ask(c, box, peer):
    for i in range(ROUNDS):
        said = b"question %d" % i
        checked(vd.vd_put(peer, 0, said, len(said), i, vd.VD_NOTIFY))
        event = await c.event()
        assert (event.kind, event.tag) == (vd.VD_EVENT_NOTIFY, i)
        assert ffi.buffer(box, event.len)[:] == said.upper()


async def main():
    a, b = map(Connection, pair())
    boxes = [ffi.new("char[64]") for _ in range(2)]
    word, old = ffi.new("uint64_t *", 40), ffi.new("uint64_t *")
    user = ffi.new_handle(b)
    region = made(vd.vd_export, b.handle, b"box", boxes[1], 64, vd.VD_WRITE, user)
    made(vd.vd_export, a.handle, b"box", boxes[0], 64, vd.VD_WRITE, ffi.NULL)
    made(vd.vd_export, b.handle, b"word", word, 8, vd.VD_READ | vd.VD_WRITE, ffi.NULL)
    to_a = made(vd.vd_import, b.handle, b"box", PATIENCE_MS)
    to_b = made(vd.vd_import, a.handle, b"box", PATIENCE_MS)
    word_b = made(vd.vd_import, a.handle, b"word", PATIENCE_MS)
    server = asyncio.ensure_future(serve(b, boxes[1], to_a))
    await ask(a, boxes[0], to_b)
    checked(vd.vd_fetch_add(word_b, 0, 2, old))
    assert (old[0], word[0]) == (40, 42)
    checked(vd.vd_get(word_b, 0, old, 8))
    assert old[0] == 42
    assert vd.vd_put(to_b, 60, b"over", 5, 0, 0) == -34  # ERANGE
    assert vd.vd_put(word_b, 0, old, 8, 0, 8) == -22  # EINVAL
    assert ffi.string(vd.vd_reason(a.handle)) != b""
    a.close()
    assert await server == 0
    checked(vd.vd_unexport(region))
    b.close()
    print(f"{ROUNDS} messages each way, by cffi {cffi.__version__}")


asyncio.run(main())
