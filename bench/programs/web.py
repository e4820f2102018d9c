# SPDX-License-Identifier: Apache-2.0
"""nginx with wrk: small and large files, and a connection for each request."""
import os
import shutil

from programs.rig import SEARCH, Failure, client, find_number, measure, servers

NO_UNIX = "wrk has no AF_UNIX"
NGINX = """
{user}
worker_processes 1;
daemon off;
pid {folder}/pid;
error_log stderr error;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    keepalive_requests 100000000;
    {sendfile}
    server {{
        listen 127.0.0.1:{port};
        root {folder}/www;
    }}
}}
"""
CASES = (("128 B c1", 1, "small", []), ("128 B c32", 32, "small", []),
         ("1 MB c32", 32, "large", []),
         ("128 B c32 close", 32, "small", ["-H", "Connection: close"]))


def app_nginx(bench):
    """nginx with wrk"""

    def command_for(_way, port):
        folder = bench.new_folder()
        www = folder / "www"
        www.mkdir()
        (www / "small").write_bytes(b"x" * 128)
        (www / "large").write_bytes(b"x" * 2**20)
        user = "user root;" if os.geteuid() == 0 else ""
        conf = folder / "nginx.conf"
        conf.write_text(NGINX.format(user=user, folder=folder, port=port,
                                     sendfile="sendfile on;"))
        return [shutil.which("nginx", path=SEARCH), "-c", str(conf), "-p", str(folder)]

    with servers(bench, bench.ways(NO_UNIX), command_for) as where:
        for name, clients, file, options in CASES:
            def once(way, report, clients=clients, file=file, options=options):
                text = client(bench, way, [
                    "wrk", "-t", "1", "-c", str(clients), "-d", f"{bench.whole_seconds}s",
                    *options, f"http://127.0.0.1:{where[way]}/{file}"], report)
                if "Non-2xx" in text or "Socket errors" in text:
                    raise Failure(text.strip()[-150:])
                return find_number(r"Requests/sec:\s*([0-9.]+)", text)
            measure(bench, "nginx", name, "req/s", once, no_unix=NO_UNIX)
