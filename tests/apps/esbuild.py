#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""esbuild from the npm registry, a statically linked program of a known version of Go: it serves files,
and what it builds anew at each request, to several clients. Skipped where npm cannot fetch it.

usage: ESBUILD_RELEASE=RELEASE esbuild.py VIADUCT [MODE...]
"""
import os
import subprocess
import sys

import harness
import npm

PROGRAM = npm.program(os.environ.get("ESBUILD_CACHE"), "@esbuild/linux-x64",
                      os.environ.get("ESBUILD_RELEASE", "latest"), "package/bin/esbuild")
MODULES = 60
CLIENT = r"""
import hashlib, http.client, sys, threading
port = int(sys.argv[1])
said = {}
def ask(i):
    c = http.client.HTTPConnection('127.0.0.1', port, timeout=60)
    for k in range(25):
        for path in ('/index.html', '/large.txt', '/app.js', '/missing'):
            c.request('GET', path)
            r = c.getresponse()
            body = r.read()
            if path == '/missing':
                body = b''
            said.setdefault((path, r.status, hashlib.sha256(body).hexdigest()[:16]), []).append(i)
    c.close()
threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
for t in threads: t.start()
for t in threads: t.join()
for key, who in sorted(said.items()):
    print(*key, len(who))
"""


def fill(run):
    os.mkdir(run.path("www"))
    os.mkdir(run.path("src"))
    run.write("www/index.html", "<p>hello</p>\n" * 10)
    run.write("www/large.txt", b"".join(b"%d\n" % (i * i) for i in range(60000)))
    for i in range(MODULES):
        run.write(f"src/m{i}.js", f"export function f{i}(x) {{ return x * {i} + x }}\n")
    run.write("src/app.js", "".join(f"import {{ f{i} }} from './m{i}.js'\nconsole.log(f{i}({i}))\n"
                                    for i in range(MODULES)))


def scenario(run):
    fill(run)
    port = harness.free_port()
    # It serves until its standard input ends. What it builds names files as seen from its folder.
    server = run.server([str(PROGRAM), "src/app.js", "--bundle", "--log-level=error",
                         "--outdir=www", "--servedir=www", f"--serve=127.0.0.1:{port}"],
                        port, stdin=subprocess.PIPE, cwd=run.dir)
    out = run.client([sys.executable, "-c", CLIENT, str(port)])
    run.stop(server)
    return out


harness.main(scenario)
