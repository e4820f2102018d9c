#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Libraries that are loaded with RTLD_DEEPBIND move a connection's bytes as without Viaduct: over
the direct path where all that they call can be pointed at Viaduct, by TCP where not.

usage: deep_plugin.py VIADUCT LAZY NOW CONSTRUCTOR LAZY_CONSTRUCTOR UNSEALED_CONSTRUCTOR OWN_READ
"""
import ctypes
import json
import pathlib
import subprocess
import sys
import tempfile

PROGRAM = """
import ctypes, os, signal, socket, sys
FLAGS = os.RTLD_LAZY | os.RTLD_DEEPBIND
early = "early" in sys.argv
def load():
    return ctypes.CDLL(sys.argv[1], FLAGS)
def pair():
    listener = socket.create_server(("127.0.0.1", 0))
    a = socket.create_connection(listener.getsockname())
    b, _ = listener.accept()
    for _ in range(100):
        a.sendall(b"there"); assert b.recv(5) == b"there"
        b.sendall(b"back"); assert a.recv(4) == b"back"
    return a, b
def call(function, end):
    buf = ctypes.create_string_buffer(16)
    print(function, getattr(plugin, function)(end.fileno(), buf, 8), buf.value)
def many():
    buf = ctypes.create_string_buffer(100)
    return sum(plugin.plugin_send(a.fileno(), buf, 100) + plugin.plugin_recv(b.fileno(), buf, 100)
               for _ in range(100))
if "handler" in sys.argv:
    signal.signal(signal.SIGSYS, lambda *_: print("SIGSYS"))
if "blocked" in sys.argv:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGSYS])
if early:
    plugin = load()
print(signal.getsignal(signal.SIGSYS) == signal.SIG_DFL, signal.pthread_sigmask(signal.SIG_BLOCK, []))
a, b = pair()
import select
select.select([a, b], [], [], 0)
a.sendall(b"before")
if not early:
    plugin = load()
call("plugin_recv", b)
for function in ("plugin_recv", "plugin_read", "plugin_named"):
    print(plugin.plugin_send(a.fileno(), b"again", 5))
    call(function, b)
    b.setblocking(False); call(function, b); b.setblocking(True)
print(many())
# It goes, and comes again.
import _ctypes
_ctypes.dlclose(plugin._handle)
plugin = load()
print(plugin.plugin_send(b.fileno(), b"late", 4))
call("plugin_read", a)
"""


def sees_constructors():
    """Whether the kernel shows the loader's calls: syscall user dispatch, of Linux 5.11."""
    return ctypes.CDLL(None).prctl(59, *[ctypes.c_ulong(0)] * 4) == 0


def main():
    viaduct, lazy, now, begins, begins_lazy, begins_unsealed, own_read = sys.argv[1:]
    sees = sees_constructors()
    with tempfile.TemporaryDirectory() as tmp:
        # Sockets that are there before the first load go to TCP, and those that are at a later one.
        for plugin, when, direct in ((lazy, "early", True), (now, "early", True),
                                     (begins, "early", sees), (begins, "early blocked", sees),
                                     (begins_lazy, "early", sees), (begins, "early handler", False),
                                     (begins_unsealed, "early", False),
                                     (own_read, "early", False),
                                     (lazy, "late", None), (begins, "late", None),
                                     (own_read, "late", None)):
            case = [sys.executable, "-c", PROGRAM, plugin, *when.split()]
            path = pathlib.Path(tmp, "report")
            plain = subprocess.run(case, stdout=subprocess.PIPE, timeout=60)
            ours = subprocess.run([viaduct, "run", "--report", path, "--upgrade-after", "0", "--",
                                   *case], stdout=subprocess.PIPE, timeout=60)
            report = json.loads(path.read_text(encoding="utf-8"))
            path.unlink()
            print(plugin, when, plain.stdout.decode(), ours.stdout.decode(), report, sep="\n")
            assert plain.returncode == ours.returncode == 0
            assert plain.stdout == ours.stdout and b"plugin_read" in ours.stdout
            assert list(report["reasons"]) == ["deepbind"], "all are on TCP at last"
            if direct is not None:
                assert (report["upgraded"] == 2) == direct
                # More than the program itself sends.
                assert (report["tx_direct_bytes"] >= 10000) == direct
    return 0


if __name__ == "__main__":
    sys.exit(main())
