#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A plugin that brings liburing, and is loaded for itself alone (RTLD_LOCAL), works as without
Viaduct, and what it reads from a connection comes.
usage: uring_plugin.py VIADUCT PLUGIN
"""
import json
import pathlib
import subprocess
import sys
import tempfile

SKIP = 77
PROGRAM = """
import ctypes, errno, os, socket, sys
plugin = ctypes.CDLL(sys.argv[1], ctypes.RTLD_LOCAL)
listener = socket.create_server(("127.0.0.1", 0))
a = socket.create_connection(listener.getsockname())
b, _ = listener.accept()
for _ in range(100):
    a.sendall(b"there"); assert b.recv(5) == b"there"
    b.sendall(b"back"); assert a.recv(4) == b"back"
def read(fd):
    buf = ctypes.create_string_buffer(16)
    return plugin.plugin_read(fd, buf, 7), buf.value
fd = os.memfd_create("file")
os.write(fd, b"content")
result, content = read(fd)
if result in (-errno.ENOSYS, -errno.EPERM) and "plain" in sys.argv:
    sys.exit(77)
print(result, content)
a.sendall(b"direct"); print(b.recv(6))
a.sendall(b"unread"); print(read(b.fileno()))
"""


def main():
    viaduct, plugin = sys.argv[1:]
    case = [sys.executable, "-c", PROGRAM, plugin]
    plain = subprocess.run([*case, "plain"], stdout=subprocess.PIPE, timeout=60)
    if plain.returncode == SKIP:
        print("no io_uring here")
        return SKIP
    with tempfile.TemporaryDirectory() as tmp:
        path = pathlib.Path(tmp, "report")
        ours = subprocess.run([viaduct, "run", "--report", path, "--upgrade-after", "0", "--",
                               *case], stdout=subprocess.PIPE, timeout=60)
        report = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    print(plain.stdout.decode(), ours.stdout.decode(), report, sep="\n")
    assert plain.returncode == ours.returncode == 0
    assert plain.stdout == ours.stdout and b"unread" in ours.stdout
    assert sum(line["tx_direct_bytes"] for line in report) >= 800
    assert [line["reasons"].get("io_uring") for line in report] == [2], "both ends go back"
    return 0


if __name__ == "__main__":
    sys.exit(main())
