#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Node's http server and client: kept connections, large bodies both ways, pipes."""
import os

import harness

NODE = os.environ.get("NODE") or harness.need("node")

SERVER = r"""
const http = require('http');
process.on('SIGTERM', () => process.exit(0));
http.createServer((req, res) => {
  if (req.method === 'POST') {
    req.pipe(res);
    return;
  }
  const n = parseInt(req.url.slice(1), 10);
  const b = Buffer.alloc(n);
  for (let i = 0; i < n; i++) b[i] = (i * 7 + n) % 251;
  res.end(b);
}).listen(parseInt(process.argv[2], 10), '127.0.0.1');
"""

CLIENT = r"""
const http = require('http'), crypto = require('crypto');
const port = parseInt(process.argv[2], 10);
const agent = new http.Agent({ keepAlive: true, maxSockets: 6 });
function ask(method, path, body) {
  return new Promise((ok, bad) => {
    const req = http.request({ port, host: '127.0.0.1', method, path, agent }, (res) => {
      const h = crypto.createHash('sha256');
      let n = 0;
      res.on('data', (d) => { h.update(d); n += d.length; });
      res.on('end', () => ok(`${path} ${n} ${h.digest('hex')}`));
      res.on('error', bad);
    });
    req.on('error', bad);
    req.end(body);
  });
}
(async () => {
  const sizes = [0, 1, 100, 5000, 65536, 300000, 2000000];
  const jobs = [];
  for (let i = 0; i < 20; i++)
    for (const n of sizes) jobs.push(ask('GET', '/' + n));
  for (const n of sizes) jobs.push(ask('POST', '/echo' + n, Buffer.alloc(n, 'abcdefg')));
  for (const line of await Promise.all(jobs)) console.log(line);
  agent.destroy();
})().catch((e) => { console.error(e); process.exit(1); });
"""


def scenario(run):
    port = harness.free_port()
    server = run.write("server.js", SERVER)
    client = run.write("client.js", CLIENT)
    run.server([NODE, server, str(port)], port)
    return run.client([NODE, client, str(port)])


harness.main(scenario)
