#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Node's other servers: net in a cluster, in a worker thread, and by sockets sent to a child; tls;
http2. NODE names the program."""
import os
import subprocess

import harness

NODE = os.environ.get("NODE") or harness.need("node")
OPENSSL = harness.need("openssl")

SERVER = r"""
const net = require('net'), tls = require('tls'), http2 = require('http2'), fs = require('fs');
const cluster = require('cluster'), { fork } = require('child_process');
const { Worker, isMainThread, workerData } = require('worker_threads');
const [role, first, dir] = process.argv.slice(2);
const base = parseInt(first, 10);

/* All of it back, and the end when the peer has ended. */
function echo(s) {
  s.on('error', () => {});
  s.pipe(s);
}
function listen(at, server) {
  server.listen(base + at, '127.0.0.1');
}
if (!isMainThread) {
  listen(workerData, net.createServer({ allowHalfOpen: true }, echo));
} else if (role === 'child') {
  process.on('message', (_, s) => { echo(s); s.resume(); });
  process.on('disconnect', () => process.exit(0));
} else if (!cluster.isPrimary) {
  listen(1, net.createServer({ allowHalfOpen: true }, echo));
  process.on('disconnect', () => process.exit(0));
} else {
  const options = { key: fs.readFileSync(dir + '/key.pem'), cert: fs.readFileSync(dir + '/cert.pem') };
  const child = fork(__filename, ['child', first, dir]);
  cluster.setupPrimary({ exec: __filename, args: ['worker', first, dir] });
  cluster.fork();
  cluster.fork();
  const worker = new Worker(__filename, { argv: process.argv.slice(2), workerData: 2 });
  listen(3, net.createServer({ allowHalfOpen: true, pauseOnConnect: true },
                             (s) => child.send('socket', s)));
  listen(4, tls.createServer({ ...options, allowHalfOpen: true }, echo));
  const h2 = http2.createServer();
  h2.on('stream', (stream) => { stream.respond({ ':status': 200 }); stream.pipe(stream); });
  listen(5, h2);
  process.on('SIGTERM', async () => {
    await worker.terminate();
    child.disconnect();
    cluster.disconnect(() => process.exit(0));
    setInterval(() => {}, 1000);
  });
  listen(0, net.createServer({ allowHalfOpen: true }, echo));
}
"""

CLIENT = r"""
const net = require('net'), tls = require('tls'), http2 = require('http2');
const crypto = require('crypto');
const base = parseInt(process.argv[2], 10);
const sizes = [1, 100, 5000, 65536, 700000];

function sum(name, stream, n, turns) {
  return new Promise((ok, bad) => {
    const h = crypto.createHash('sha256');
    let got = 0, left = turns;
    stream.on('data', (d) => {
      h.update(d);
      got += d.length;
      if (got === n * (turns - left + 1) && --left)
        stream.write(Buffer.alloc(n, 'abcdefg'));
      else if (!left)
        stream.end();
    });
    stream.on('end', () => ok(`${name} ${n} ${got} ${h.digest('hex')}`));
    stream.on('error', bad);
    stream.write(Buffer.alloc(n, 'abcdefg'));
  });
}
(async () => {
  const jobs = [];
  ['net', 'cluster', 'thread', 'sent'].forEach((name, at) => {
    for (const n of sizes)
      jobs.push(sum(name, net.connect({ port: base + at, host: '127.0.0.1', allowHalfOpen: true }), n, 20));
  });
  for (const n of sizes)
    jobs.push(sum('tls', tls.connect({ port: base + 4, host: '127.0.0.1', rejectUnauthorized: false }), n, 20));
  const session = http2.connect(`http://127.0.0.1:${base + 5}`);
  const streams = sizes.map((n) => sum('http2', session.request({ ':method': 'POST', ':path': '/' }), n, 20));
  for (const line of await Promise.all([...jobs, ...streams])) console.log(line);
  session.close();
})().catch((e) => { console.error(e); process.exit(1); });
"""


def scenario(run):
    first = harness.free_ports(6)
    subprocess.run([OPENSSL, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                    "-nodes", "-days", "2", "-subj", "/CN=localhost", "-keyout", run.path("key.pem"),
                    "-out", run.path("cert.pem")], check=True, stderr=subprocess.DEVNULL)
    server = run.server([NODE, run.write("kinds.js", SERVER), "server", str(first), run.dir], first)
    for port in range(first, first + 6):
        run.wait_for(lambda: harness.listening(port), server, f"port {port}")
    result = run.client([NODE, run.write("client.js", CLIENT), str(first)])
    assert len(result.splitlines()) == 30, result
    return result


# Without those that go to workers and to the child there are 32.
harness.main(scenario, gains=40)
