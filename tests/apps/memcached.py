#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""memcached, spoken to by several threads of a Python client."""
import sys

import harness

MEMCACHED = harness.need("memcached")

CLIENT = r"""
import hashlib, socket, sys, threading
port = int(sys.argv[1])
digests = [None] * 8

def talk(n):
    s = socket.create_connection(("127.0.0.1", port))
    f = s.makefile("rwb")
    h = hashlib.sha256()
    for i in range(400):
        value = bytes((n + i * 31 + j) & 255 for j in range(i * i % 7000))
        f.write(b"set k%d-%d 0 0 %d\r\n%s\r\n" % (n, i, len(value), value))
        f.flush()
        h.update(f.readline())
        f.write(b"get k%d-%d\r\n" % (n, i))
        f.flush()
        line = f.readline()
        h.update(line)
        h.update(f.read(int(line.split()[3]) + 7))
    # Many requests, then all the answers.
    f.write(b"".join(b"get k%d-%d\r\n" % (n, i) for i in range(400)))
    f.flush()
    for i in range(400):
        line = f.readline()
        h.update(f.read(int(line.split()[3]) + 7))
    f.write(b"quit\r\n")
    f.flush()
    h.update(f.read())
    digests[n] = h.hexdigest()

threads = [threading.Thread(target=talk, args=(n,)) for n in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
print(digests)
"""


def scenario(run):
    port = harness.free_port()
    run.server([MEMCACHED, "-u", "root", "-l", "127.0.0.1", "-p", str(port), "-U", "0",
                "-t", "3"], port)
    return run.client([sys.executable, "-c", CLIENT, str(port)])


harness.main(scenario)
