#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two ends in two time namespaces, whose monotonic clocks differ: bytes that the sender holds back
(MSG_MORE) are held from the other end, too, be its clock behind or ahead.

usage: timens.py VIADUCT
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

SKIP = 77
ROUNDS = 20
PROGRAM = f"""
import select, socket, subprocess, sys
other, role = sys.argv[1:3]
def line(): return sys.stdin.readline()
if role == "client":
    s = socket.create_connection(("127.0.0.1", int(sys.argv[3])))
    for _ in range(300):
        s.sendall(b"ping"); assert s.recv(4) == b"pong"
    for _ in range({ROUNDS}):
        s.send(b"abc", socket.MSG_MORE)
        print("sent", flush=True); line()
        s.send(b"def"); line()
    sys.exit(0)
l = socket.create_server(("127.0.0.1", 0))
client = subprocess.Popen([*other.split(), sys.executable, __file__, other, "client", str(l.getsockname()[1])],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
s, _ = l.accept()
for _ in range(300):
    assert s.recv(4) == b"ping"; s.sendall(b"pong")
held = 0
for _ in range({ROUNDS}):
    assert client.stdout.readline() == "sent\\n"
    held += not select.select([s], [], [], 0)[0]
    client.stdin.write("on\\n")
    got = b""
    while len(got) < 6:
        got += s.recv(6 - len(got))
    assert got == b"abcdef"
    client.stdin.write("on\\n")
assert client.wait() == 0
# A busy machine may let the time pass in which they are held, but not each time.
print("held" if held else "never held")
"""


def main():
    viaduct = sys.argv[1]
    ahead = "unshare --time --monotonic 100000 --fork"
    if subprocess.run([*ahead.split(), "true"], stderr=subprocess.DEVNULL).returncode:
        print("no time namespace can be made here")
        return SKIP
    with tempfile.TemporaryDirectory() as tmp:
        program, path = pathlib.Path(tmp, "program.py"), pathlib.Path(tmp, "report")
        program.write_text(PROGRAM, encoding="utf-8")
        for client, server in ((ahead, ""), ("", ahead)):
            # The other one comes back into the namespace of this test.
            back = client or f"nsenter --time=/proc/{os.getpid()}/ns/time"
            case = [*server.split(), viaduct, "run", "--report", path, "--upgrade-after", "0",
                    "--", sys.executable, program, back, "server"]
            done = subprocess.run(case, stdout=subprocess.PIPE, timeout=100)
            report = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            path.unlink()
            print(case, done.stdout, report, sep="\n")
            assert done.returncode == 0 and done.stdout == b"held\n"
            assert sum(one["upgraded"] for one in report) == 2
            assert sum(one["tx_direct_bytes"] for one in report) > 600
    return 0


if __name__ == "__main__":
    sys.exit(main())
