#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A preloaded library that stands before libc, and loads with RTLD_DEEPBIND when a call is first made,
be it by Viaduct amid an upgrade: before Viaduct and behind it, nobody waits for ever or calls himself.

usage: wrapper.py LIBRARY WRAPPER FEW LOADING_WRAPPER
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

PROGRAM = """
import ctypes, socket
libc = ctypes.CDLL("libc.so.6")
listener = socket.create_server(("127.0.0.1", 0))
a = socket.create_connection(listener.getsockname())
b, _ = listener.accept()
for _ in range(100):
    a.sendall(b"there"); assert b.recv(5) == b"there"
    b.sendall(b"back"); assert a.recv(4) == b"back"
print(a.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
a.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
buf = ctypes.create_string_buffer(16)
print(libc.send(a.fileno(), b"by libc", 7, 0), libc.recv(b.fileno(), buf, 16, 0), buf.value)
a.shutdown(socket.SHUT_WR)
print(b.recv(1))
"""


def main():
    library, *wrappers = sys.argv[1:]
    case = [sys.executable, "-c", PROGRAM]

    def run(*preload, **variables):
        done = subprocess.run(case, stdout=subprocess.PIPE, timeout=60,
                              env=dict(os.environ, LD_PRELOAD=":".join(preload), **variables))
        assert done.returncode == 0, (preload, done.returncode)
        return done.stdout

    with tempfile.TemporaryDirectory() as tmp:
        for wrapper in wrappers:
            plain = run(wrapper)
            assert b"by libc" in plain
            for preload in ((wrapper, library), (library, wrapper)):
                path = pathlib.Path(tmp, "report")
                ours = run(*preload, VIADUCT_UPGRADE_AFTER="0", VIADUCT_REPORT=str(path))
                report = json.loads(path.read_text(encoding="utf-8"))
                path.unlink()
                print(preload, plain, ours, report, sep="\n")
                assert plain == ours
                # libc itself is loaded and bound: what is taken from it is known.
                if wrapper != wrappers[2]:
                    assert report["upgraded"] == 2 and not report["reasons"]
                    assert report["tx_direct_bytes"] > 100
                else:
                    assert list(report["reasons"]) == ["deepbind"]
    return 0


if __name__ == "__main__":
    sys.exit(main())
