#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""HAProxy in front of nginx, as master and worker, by HTTP and by TCP: curl and wrk."""
import os
import re

import harness

HAPROXY, NGINX, CURL, WRK = harness.need("haproxy", "nginx", "curl", "wrk")

CONFIG = """
global
  maxconn 500
  nbthread {threads}
{user}
defaults
  timeout connect 30s
  timeout client 30s
  timeout server 30s
listen http
  mode http
  bind 127.0.0.1:{http}
  server a 127.0.0.1:{port}
listen tcp
  mode tcp
  bind 127.0.0.1:{tcp}
  server a 127.0.0.1:{port}
"""

BEHIND = """
{user}
worker_processes 1;
daemon off;
pid {dir}/nginx.pid;
error_log {dir}/error.log;
events {{ worker_connections 512; }}
http {{
  access_log off;
  client_body_temp_path {dir}/body;
  proxy_temp_path {dir}/proxy;
  fastcgi_temp_path {dir}/fastcgi;
  uwsgi_temp_path {dir}/uwsgi;
  scgi_temp_path {dir}/scgi;
  server {{ listen 127.0.0.1:{port}; root {dir}/files; }}
}}
"""

SIZES = (0, 1, 1000, 16385, 262_144, 1_000_003, 8_000_000)


def ask(run, port):
    urls = [f"http://127.0.0.1:{port}/{size}" for size in SIZES]
    result = [harness.sha(run.client([CURL, "-sS", url])) for url in urls]
    # All of them again on one connection.
    result.append(harness.sha(run.client([CURL, "-sS", *urls * 3])))
    out = run.client([WRK, "-t", "2", "-c", "20", "-d", "1s",
                      f"http://127.0.0.1:{port}/1000"]).decode()
    if not re.search(r"[1-9]\d* requests in", out):
        raise harness.Failure(f"wrk: {out}")
    return result + re.findall(r"Socket errors.*|Non-2xx.*", out)


def one(run, threads):
    port, http, tcp = (harness.free_port() for _ in range(3))
    root = os.geteuid() == 0
    behind = run.write("nginx.conf", BEHIND.format(
        dir=run.dir, port=port, user="user nobody nogroup;" if root else ""))
    config = run.write("haproxy.cfg", CONFIG.format(
        port=port, http=http, tcp=tcp, threads=threads,
        user="  user nobody\n  group nogroup" if root else ""))
    server = run.server([NGINX, "-c", behind, "-e", run.path("error.log")], port)
    proxy = run.server([HAPROXY, "-W", "-f", config], tcp)
    result = ask(run, http) + ask(run, tcp)
    run.stop(proxy)
    run.stop(server)
    return result


def scenario(run):
    os.makedirs(run.path("files"), exist_ok=True)
    for size in SIZES:
        run.write(f"files/{size}", bytes(i * 13 % 253 for i in range(size)))
    return one(run, 1) + one(run, 2)


harness.main(scenario, alone=True)
