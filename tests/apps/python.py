#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Python's http.server with urllib, and an asyncio echo server with many clients."""
import os
import signal
import sys

import harness

SIZES = (0, 1, 5000, 65536, 1_000_003)

FETCH = r"""
import hashlib, http.client, sys, urllib.request
port, sizes = int(sys.argv[1]), sys.argv[2].split(",")
for size in sizes:
    data = urllib.request.urlopen(f"http://127.0.0.1:{port}/{size}").read()
    print(size, len(data), hashlib.sha256(data).hexdigest())
conn = http.client.HTTPConnection("127.0.0.1", port)
for size in sizes * 5:
    conn.request("GET", f"/{size}")
    data = conn.getresponse().read()
    print(size, len(data), hashlib.sha256(data).hexdigest())
"""

SERVE = r"""
import http.server, sys
http.server.SimpleHTTPRequestHandler.protocol_version = "HTTP/1.1"
http.server.test(HandlerClass=http.server.SimpleHTTPRequestHandler,
                 ServerClass=http.server.ThreadingHTTPServer, port=int(sys.argv[1]),
                 bind="127.0.0.1", protocol="HTTP/1.1")
"""

ECHO = r"""
import asyncio, sys

async def serve(reader, writer):
    while data := await reader.read(10000):
        writer.write(data)
        await writer.drain()
    writer.close()

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()

asyncio.run(main())
"""

ECHO_CLIENT = r"""
import asyncio, hashlib, sys

async def talk(port, n):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    h = hashlib.sha256()
    for i in range(60):
        data = (bytes((n * 7 + i + j) & 255 for j in range(256)) * 42)[:1 + i * i * 3]
        writer.write(data)
        await writer.drain()
        back = await reader.readexactly(len(data))
        assert back == data, (n, i)
        h.update(back)
    big = (bytes((n + j * 11) & 255 for j in range(256)) * 5860)[:1_500_000]
    async def feed():
        writer.write(big)
        await writer.drain()
        writer.write_eof()
    _, back = await asyncio.gather(feed(), reader.read(-1))
    assert back == big, n
    h.update(back)
    writer.close()
    await writer.wait_closed()
    return h.hexdigest()

async def main():
    port = int(sys.argv[1])
    for digest in await asyncio.gather(*(talk(port, n) for n in range(20))):
        print(digest)

asyncio.run(main())
"""


def scenario(run):
    port, echo = harness.free_port(), harness.free_port()
    for size in SIZES:
        run.write(str(size), bytes(i * 17 % 249 for i in range(size)))
    run.server([sys.executable, "-c", SERVE, str(port)], port, cwd=run.dir)
    fetched = run.client([sys.executable, "-c", FETCH, str(port),
                          ",".join(map(str, SIZES))])
    run.server([sys.executable, "-c", ECHO, str(echo)], echo)
    echoed = run.client([sys.executable, "-c", ECHO_CLIENT, str(echo)],
                        env=dict(os.environ, PYTHONASYNCIODEBUG="0"))
    for proc in run.started:
        run.stop(proc, signal.SIGINT)
    return fetched, echoed


harness.main(scenario)
