#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nginx with curl (every file's checksum), with wrk, and as a proxy for itself."""
import os
import re

import harness

NGINX, CURL, WRK = harness.need("nginx", "curl", "wrk")

CONFIG = """
{user}
worker_processes 2;
daemon off;
pid {dir}/nginx.pid;
error_log {dir}/error.log;
events {{ worker_connections 512; }}
http {{
  access_log off;
  sendfile {sendfile};
  tcp_nopush on;
  client_body_temp_path {dir}/body;
  proxy_temp_path {dir}/proxy;
  fastcgi_temp_path {dir}/fastcgi;
  uwsgi_temp_path {dir}/uwsgi;
  scgi_temp_path {dir}/scgi;
  upstream files {{ server 127.0.0.1:{port}; keepalive 8; }}
  server {{ listen 127.0.0.1:{port}; root {dir}/files; }}
  server {{
    listen 127.0.0.1:{proxy};
    location / {{
      proxy_pass http://files;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
    }}
  }}
}}
"""

SIZES = (0, 1, 1000, 16384, 16385, 100_000, 262_144, 1_000_003, 8_000_000)


def one(run, sendfile):
    port, proxy = harness.free_port(), harness.free_port()
    os.makedirs(run.path("files"), exist_ok=True)
    want = []
    for size in SIZES:
        data = bytes(i * 13 % 253 for i in range(size))
        run.write(f"files/{size}", data)
        want.append(harness.sha(data))
    config = run.write("nginx.conf", CONFIG.format(dir=run.dir, port=port, proxy=proxy,
                                                   sendfile=sendfile,
                                                   # Its workers give up their rights.
                                                   user="user nobody nogroup;"
                                                   if os.geteuid() == 0 else ""))
    server = run.server([NGINX, "-c", config, "-e", run.path("error.log")], port)
    result = []
    for p in (port, proxy):
        for size, digest in zip(SIZES, want):
            data = run.client([CURL, "-sS", f"http://127.0.0.1:{p}/{size}"])
            if harness.sha(data) != digest:
                raise harness.Failure(f"file {size} by port {p} is wrong: {len(data)} bytes")
        # All of them again on one connection.
        urls = [f"http://127.0.0.1:{p}/{size}" for size in SIZES * 3]
        data = run.client([CURL, "-sS", *urls])
        result.append(harness.sha(data))
        out = run.client([WRK, "-t", "2", "-c", "20", "-d", "1s",
                          f"http://127.0.0.1:{p}/16384"]).decode()
        result.append(re.findall(r"Socket errors.*|Non-2xx.*", out))
        if not re.search(r"[1-9]\d* requests in", out):
            raise harness.Failure(f"wrk: {out}")
    run.stop(server)
    return result


def scenario(run):
    return one(run, "on") + one(run, "off")


harness.main(scenario, alone=True)
