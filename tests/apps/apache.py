#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Apache httpd, prefork and event: files, uploads to a CGI, a proxy, ab."""
import os
import re
import sys

import harness

HTTPD, AB, CURL = harness.need("apache2", "ab", "curl")
MODULES = "/usr/lib/apache2/modules"
if not os.path.isdir(MODULES):
    print(f"skipped: {MODULES} is missing")
    sys.exit(harness.SKIP)

CONFIG = """
ServerRoot {dir}
ServerName localhost
PidFile {dir}/pid-{mpm}
DefaultRuntimeDir {dir}
Listen 127.0.0.1:{port}
Listen 127.0.0.1:{proxy}
ErrorLog {dir}/error.log
LoadModule mpm_{mpm}_module {modules}/mod_mpm_{mpm}.so
LoadModule authz_core_module {modules}/mod_authz_core.so
LoadModule alias_module {modules}/mod_alias.so
LoadModule proxy_module {modules}/mod_proxy.so
LoadModule proxy_http_module {modules}/mod_proxy_http.so
LoadModule {cgi}_module {modules}/mod_{cgi}.so
{sock}
StartServers 2
Timeout 30
KeepAliveTimeout 5
MaxKeepAliveRequests 0
EnableSendfile {sendfile}
DocumentRoot {dir}/files
ScriptAlias /cgi/ {dir}/cgi/
{user}
<VirtualHost 127.0.0.1:{proxy}>
ProxyPass / http://127.0.0.1:{port}/ ttl=2
</VirtualHost>
"""

SUM = "#!/bin/sh\necho Content-Type: text/plain\necho\nexec sha256sum\n"
SIZES = (0, 1, 1000, 16385, 262_144, 1_000_003, 4_000_000)


def one(run, mpm, sendfile):
    port, proxy = harness.free_port(), harness.free_port()
    cgi = "cgid" if mpm == "event" else "cgi"
    config = run.write("httpd.conf", CONFIG.format(
        dir=run.dir, mpm=mpm, port=port, proxy=proxy, modules=MODULES, sendfile=sendfile,
        cgi=cgi, sock=f"ScriptSock {run.dir}/cgisock" if cgi == "cgid" else "",
        user="User nobody\nGroup nogroup" if os.geteuid() == 0 else ""))
    server = run.server([HTTPD, "-D", "FOREGROUND", "-f", config], port)
    largest = run.path(f"files/{SIZES[-1]}")
    result = []
    for p in (port, proxy):
        url = f"http://127.0.0.1:{p}"
        # A connection for each, then all of them three times on one.
        result.append(harness.sha(run.client(
            [CURL, "-sS", "-H", "Connection: close",
             *(f"{url}/{size}" for size in SIZES)])))
        result.append(harness.sha(run.client(
            [CURL, "-sS", *(f"{url}/{size}" for size in SIZES * 3)])))
        result.append(run.client([CURL, "-sS", "--data-binary", f"@{largest}",
                                  f"{url}/cgi/sum"]))
        for args in (["-n", "100", "-c", "4"], ["-n", "1000", "-c", "8", "-k"]):
            out = run.client([AB, "-q", *args, f"{url}/16385"]).decode()
            result.append(re.findall(r"(?:Complete|Failed) requests: +\d+|Non-2xx.*", out))
    result.append(run.stop(server))
    return result


def scenario(run):
    os.makedirs(run.path("files"), exist_ok=True)
    os.makedirs(run.path("cgi"), exist_ok=True)
    for size in SIZES:
        run.write(f"files/{size}", bytes(i * 13 % 253 for i in range(size)))
    os.chmod(run.write("cgi/sum", SUM), 0o755)
    return one(run, "prefork", "on"), one(run, "event", "off")


harness.main(scenario, alone=True)
