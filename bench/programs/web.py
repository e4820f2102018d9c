# SPDX-License-Identifier: Apache-2.0
"""nginx and caddy with wrk: small and large files, and a connection for each request; and Node with itself."""
import os
import pathlib
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


def files(folder):
    """A folder with what is asked for."""
    www = folder / "www"
    www.mkdir()
    (www / "small").write_bytes(b"x" * 128)
    (www / "large").write_bytes(b"x" * 2**20)
    return www


def ask_by_wrk(bench, name, command_for, cases):
    with servers(bench, bench.ways(NO_UNIX), command_for) as where:
        for case, clients, file, options in cases:
            def once(way, report, clients=clients, file=file, options=options):
                text = client(bench, way, [
                    "wrk", "-t", "1", "-c", str(clients), "-d", f"{bench.whole_seconds}s",
                    *options, f"http://127.0.0.1:{where[way]}/{file}"], report)
                if "Non-2xx" in text or "Socket errors" in text:
                    raise Failure(text.strip()[-150:])
                return find_number(r"Requests/sec:\s*([0-9.]+)", text)
            measure(bench, name, case, "req/s", once, no_unix=NO_UNIX)


def app_nginx(bench):
    """nginx with wrk"""

    def command_for(_way, port):
        folder = bench.new_folder()
        files(folder)
        user = "user root;" if os.geteuid() == 0 else ""
        conf = folder / "nginx.conf"
        conf.write_text(NGINX.format(user=user, folder=folder, port=port,
                                     sendfile="sendfile on;"))
        return [shutil.which("nginx", path=SEARCH), "-c", str(conf), "-p", str(folder)]

    ask_by_wrk(bench, "nginx", command_for, CASES)


def app_caddy(bench):
    """caddy, which is in Go, with wrk"""

    def command_for(_way, port):
        folder = bench.new_folder()
        return ["env", f"HOME={folder}", shutil.which("caddy", path=SEARCH), "file-server", "--listen",
                f"127.0.0.1:{port}", "--root", str(files(folder))]

    ask_by_wrk(bench, "caddy", command_for, CASES[:-1])


NODE_CASES = (("echo 64 B c1", "echo", 1), ("echo 64 B c32", "echo", 32), ("http c32", "http", 32))


def node_program():
    """NODE names another than the one in PATH."""
    return shutil.which(os.environ.get("NODE", "node"), path=SEARCH)


def app_node(bench):
    """Node's net and http, both ends"""
    script = [node_program(), str(pathlib.Path(__file__).with_name("echo.js"))]
    for name, mode, clients in NODE_CASES:
        def command_for(_way, where, mode=mode):
            return [*script, "server", mode, str(where)]

        with servers(bench, bench.ways(), command_for) as where:
            def once(way, report, mode=mode, clients=clients, where=where):
                text = client(bench, way, [*script, "client", mode, str(where[way]), str(clients),
                                           str(bench.seconds)], report)
                return find_number(r"^([0-9.]+) round trips", text)
            measure(bench, "node", name, "1/s", once)
