# SPDX-License-Identifier: Apache-2.0
"""The programs of the soak: how each is started, used, checked and disturbed."""
import contextlib
import glob
import os
import signal
import subprocess
import sys
import time

import harness

CLIENT_LIMIT_S = 120
PYTHONS = ("python3", os.path.basename(os.path.realpath(sys.executable)))

# argv: port, seed, bytes. Sends and receives at once, in pieces of all sizes.
ECHO_CLIENT = r"""
import hashlib, random, select, socket, sys
port, seed, total = map(int, sys.argv[1:])
rng = random.Random(seed)
data = rng.randbytes(total)
try:
    s = socket.create_connection(("127.0.0.1", port))
    s.setblocking(False)
    sent, got, want = 0, bytearray(), [s]
    while True:
        readable, writable, _ = select.select([s], want, [])
        if writable and sent < total:
            sent += s.send(data[sent:sent + rng.choice((1, 100, 5000, 70000))])
        elif writable:
            s.shutdown(socket.SHUT_WR)
            want = []
        if readable:
            part = s.recv(rng.choice((1, 1000, 100000)))
            if not part:
                break
            got += part
except OSError as e:
    sys.exit(20 + (e.errno or 0) % 100)
if got != data[:len(got)]:
    print("wrong bytes")
    sys.exit(1)
sys.exit(0 if len(got) == total else 19)
"""

ECHO_SERVER = r"""
import asyncio, sys
async def serve(reader, writer):
    try:
        while data := await reader.read(10000):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()
asyncio.run(main())
"""

NODE_SERVER = r"""
const http = require('http');
process.on('SIGTERM', () => process.exit(0));
http.createServer((req, res) => {
  req.on('error', () => {});
  res.on('error', () => {});
  req.pipe(res);
}).listen(parseInt(process.argv[2], 10), '127.0.0.1');
"""

# argv: port, seed. Keys of its own, so that nobody else changes them.
MEMCACHED_CLIENT = r"""
import random, socket, sys
port, seed = map(int, sys.argv[1:])
rng = random.Random(seed)
try:
    f = socket.create_connection(("127.0.0.1", port)).makefile("rwb")
    for i in range(200):
        key, value = b"k%d-%d" % (seed, i % 20), rng.randbytes(rng.choice((1, 90, 9000, 300000)))
        f.write(b"set %s 0 0 %d\r\n%s\r\n" % (key, len(value), value))
        f.flush()
        if f.readline() != b"STORED\r\n":
            sys.exit(18)
        f.write(b"get %s\r\n" % key)
        f.flush()
        head = f.readline()
        if head == b"END\r\n":
            continue
        if head != b"VALUE %s 0 %d\r\n" % (key, len(value)) or f.read(len(value)) != value:
            print("wrong bytes")
            sys.exit(1)
        f.readline(), f.readline()
except OSError as e:
    sys.exit(20 + (e.errno or 0) % 100)
"""

NGINX_CONFIG = """
user root;
worker_processes 2;
daemon off;
pid {dir}/nginx.pid;
error_log {dir}/error.log;
events {{ worker_connections 512; }}
http {{
  access_log off;
  sendfile on;
  client_body_temp_path {dir}/body;
  proxy_temp_path {dir}/proxy;
  fastcgi_temp_path {dir}/fastcgi;
  uwsgi_temp_path {dir}/uwsgi;
  scgi_temp_path {dir}/scgi;
  server {{ listen 127.0.0.1:{port}; root {dir}/files; }}
}}
"""

APACHE_CONFIG = """
ServerRoot {dir}
ServerName localhost
PidFile {dir}/httpd.pid
DefaultRuntimeDir {dir}
Listen 127.0.0.1:{port}
ErrorLog {dir}/httpd.log
LoadModule mpm_prefork_module {modules}/mod_mpm_prefork.so
LoadModule authz_core_module {modules}/mod_authz_core.so
StartServers 3
Timeout 30
DocumentRoot {dir}/files
{user}
"""


class Trouble(Exception):
    """An error such as a client may get when its server is killed."""


class Job:
    programs = ()
    stop_signal = signal.SIGTERM

    def __init__(self, run, rng):
        self.run, self.random = run, rng
        self.name = type(self).__name__.lower()
        self.port = harness.free_port()
        self.server = None
        self.clients = 0
        # How often a process of the server, or all of its connections, were killed; up to
        # which of these it serves again.
        self.kills = self.recovered = 0

    def begin(self, argv, stdin=None, out=True, **kw):
        self.clients += 1
        return subprocess.Popen(
            self.run.wrap("client", argv, kw.pop("user", None)),
            stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE if out else subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, cwd="/", **kw)

    def client(self, argv, stdin=None, **kw):
        """Its output; Trouble when it ends with an error, Failure when it hangs."""
        proc = self.begin(argv, stdin, **kw)
        try:
            out, _ = proc.communicate(stdin, timeout=CLIENT_LIMIT_S)
        except subprocess.TimeoutExpired as e:
            if not os.environ.get("APPS_KEEP"):
                proc.kill()
            raise harness.Failure(f"hangs: process {proc.pid}: {argv}") from e
        if b"wrong bytes" in out:
            raise harness.Failure(f"wrong bytes: {argv}")
        if proc.returncode:
            raise Trouble(f"{os.path.basename(argv[0])} status {proc.returncode}")
        return out

    def kill_client(self, argv, stdin=None, **kw):
        """Starts a client and kills it somewhere in its work."""
        proc = self.begin(argv, out=False, **kw)
        time.sleep(self.random.uniform(0, 0.5))
        proc.kill()
        proc.wait()

    def processes(self):
        """Descendants of the server that are its direct children."""
        with contextlib.suppress(OSError), \
                open(f"/proc/{self.server.pid}/task/{self.server.pid}/children",
                     encoding="ascii") as f:
            return [int(pid) for pid in f.read().split()]
        return []

    def kill_child(self):
        found = self.processes()
        if found:
            self.kills += 1
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.random.choice(found), signal.SIGKILL)

    def seed(self):
        return str(self.random.randrange(1 << 30))

    def quiet(self):
        """All clients are gone; what they have left behind may take a moment to go, too."""
        time.sleep(0.5)


class Redis(Job):
    programs = ("redis-server", "redis-check-rdb", "redis-cli", "redis-benchmark")

    def start(self):
        server, self.cli, self.bench = harness.need("redis-server", "redis-cli",
                                                    "redis-benchmark")
        self.server = self.run.server([server, "--port", str(self.port), "--bind",
                                       "127.0.0.1", "--save", "", "--dir", self.run.dir],
                                      self.port)

    def work(self):
        big = self.random.randbytes(self.random.choice((10, 5000, 3_000_000)))
        self.client([self.cli, "-p", str(self.port), "-x", "set", "big"], stdin=big)
        got = self.client([self.cli, "-p", str(self.port), "--raw", "get", "big"])
        if got not in (big, big + b"\n"):
            raise harness.Failure(f"wrong bytes: {len(got)} of {len(big)}")
        self.client([self.bench, "-p", str(self.port), "-q", "-t", "set,get", "-r", "1000",
                     *self.random.choice((["-n", "2000", "-c", "1"],
                                          ["-n", "20000", "-c", "20", "-P", "8"],
                                          ["-n", "2000", "-c", "20", "-d", "10000"]))])

    def disturb(self):
        if self.random.random() < 0.3:
            self.kills += 1
            self.client([self.cli, "-p", str(self.port), "client", "kill", "type", "normal"])
        else:
            self.kill_client([self.bench, "-p", str(self.port), "-q", "-t", "set,get",
                              "-n", "1000000", "-c", "10", "-d", "1000"])

    def quiet(self):
        # How much its keys take is a matter of the last choices.
        for command in (["flushall"], ["memory", "purge"]):
            self.client([self.cli, "-p", str(self.port), *command])
        super().quiet()


class Nginx(Job):
    programs = ("nginx", "curl")
    SIZES = (0, 1, 1000, 16385, 262_144, 4_000_003)

    def files(self):
        self.curl = harness.need("curl")
        os.makedirs(self.run.path("files"), exist_ok=True)
        for size in self.SIZES:
            self.run.write(f"files/{size}", bytes(i * 13 % 253 for i in range(size)))

    def start(self):
        self.files()
        nginx = harness.need("nginx")
        config = self.run.write("nginx.conf", NGINX_CONFIG.format(dir=self.run.dir,
                                                                  port=self.port))
        self.server = self.run.server([nginx, "-c", config, "-e",
                                       self.run.path("error.log")], self.port)

    def work(self):
        sizes = [self.random.choice(self.SIZES) for _ in range(8)]
        # Without --fail-early its status is that of the last file alone.
        got = self.client([self.curl, "-sS", "--fail-early",
                           *(f"http://127.0.0.1:{self.port}/{size}" for size in sizes)])
        want = b"".join(bytes(i * 13 % 253 for i in range(size)) for size in sizes)
        if got != want:
            raise harness.Failure(f"wrong bytes: {len(got)} of {len(want)}")

    def disturb(self):
        choice = self.random.random()
        if choice < 0.3:
            self.server.send_signal(signal.SIGHUP)
        elif choice < 0.5:
            self.kill_child()
        else:
            self.kill_client([self.curl, "-sS", "--limit-rate", "10M",
                              *[f"http://127.0.0.1:{self.port}/4000003"] * 4])

    def quiet(self):
        # Workers of before a reload leave when their last connection is idle.
        deadline = time.monotonic() + 20
        while len(self.processes()) > 2 and time.monotonic() < deadline:
            time.sleep(0.1)


class Apache(Nginx):
    programs = ("apache2", "curl")

    def start(self):
        self.files()
        httpd = harness.need("apache2")
        config = self.run.write("httpd.conf", APACHE_CONFIG.format(
            dir=self.run.dir, port=self.port, modules="/usr/lib/apache2/modules",
            user="User nobody\nGroup nogroup" if os.geteuid() == 0 else ""))
        self.server = self.run.server([httpd, "-D", "FOREGROUND", "-f", config], self.port)

    def disturb(self):
        choice = self.random.random()
        if choice < 0.3:
            self.server.send_signal(signal.SIGUSR1)
        elif choice < 0.5:
            self.kill_child()
        else:
            self.kill_client([self.curl, "-sS", *[f"http://127.0.0.1:{self.port}/4000003"] * 4])

    def quiet(self):
        # It keeps more children than it started with, for some time.
        self.server.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + 20
        time.sleep(2)
        while len(self.processes()) > 3 and time.monotonic() < deadline:
            time.sleep(0.1)


class Postgres(Job):
    programs = ("postgres", "psql", "pgbench")
    stop_signal = signal.SIGINT

    def start(self):
        harness.need("setpriv")
        self.bin = (sorted(glob.glob("/usr/lib/postgresql/*/bin")) or [""])[-1]
        data = self.run.path("data")
        os.mkdir(data)
        subprocess.run(["chown", "postgres", data], check=True)
        subprocess.run(["setpriv", "--reuid", "postgres", "--regid", "postgres",
                        "--clear-groups", "--", f"{self.bin}/initdb", "-D", data,
                        "--no-sync", "-A", "trust", "-E", "UTF8", "--locale=C"],
                       stdout=subprocess.DEVNULL, check=True, cwd="/")
        self.server = self.run.server(
            [f"{self.bin}/postgres", "-D", data, "-p", str(self.port), "-c",
             "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c",
             "fsync=off", "-c", "shared_buffers=16MB"], self.port, user="postgres", cwd="/")
        self.where = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres"]
        self.run.wait_for(lambda: subprocess.run(
            [f"{self.bin}/pg_isready", *self.where], stdout=subprocess.DEVNULL,
            cwd="/").returncode == 0, self.server, "PostgreSQL to be ready")
        self.pg("pgbench", "-i", "-q", "-s", "1", "postgres")

    def pg(self, tool, *args):
        return self.client([f"{self.bin}/{tool}", *self.where, *args], user="postgres")

    def work(self):
        self.pg("pgbench", "-n", *self.random.choice((
            ("-c", "1", "-t", "50"), ("-c", "6", "-j", "2", "-t", "20"),
            ("-c", "6", "-t", "100", "-S", "-M", "prepared"))), "postgres")
        # One statement: one view of both tables.
        got = self.pg("psql", "-X", "-A", "-t", "-c", "select (select sum(abalance) from "
                      "pgbench_accounts) = (select coalesce(sum(delta), 0) from "
                      "pgbench_history), repeat('x', 500000)", "postgres")
        if got != b"t|" + b"x" * 500000 + b"\n":
            raise harness.Failure(f"wrong bytes: {len(got)}: {got[:100]!r}")

    def disturb(self):
        choice = self.random.random()
        if choice < 0.3:
            self.server.send_signal(signal.SIGHUP)
        elif choice < 0.4:
            self.kill_child()  # all backends end, and the server recovers
        else:
            self.kill_client([f"{self.bin}/pgbench", *self.where, "-n", "-c", "4", "-t",
                              "10000", "-S", "postgres"], user="postgres")


class Memcached(Job):
    programs = ("memcached", *PYTHONS)

    def start(self):
        self.server = self.run.server(
            [harness.need("memcached"), "-l", "127.0.0.1", "-p", str(self.port), "-m", "64",
             *(["-u", "nobody"] if os.geteuid() == 0 else [])], self.port)

    def argv(self):
        return [sys.executable, "-c", MEMCACHED_CLIENT, str(self.port), self.seed()]

    def work(self):
        self.client(self.argv())

    def disturb(self):
        self.kill_client(self.argv())


class Asyncio(Job):
    programs = PYTHONS

    def start(self):
        self.server = self.run.server([sys.executable, "-c", ECHO_SERVER, str(self.port)],
                                      self.port)

    def argv(self):
        size = self.random.choice((0, 1, 3000, 200_000, 5_000_000))
        return [sys.executable, "-c", ECHO_CLIENT, str(self.port), self.seed(), str(size)]

    def work(self):
        self.client(self.argv())

    def disturb(self):
        self.kill_client(self.argv())


class Socat(Asyncio):
    """A process for each connection, and a program behind it."""
    programs = ("socat",)

    def start(self):
        self.server = self.run.server(
            [harness.need("socat"), "-t60",
             f"TCP-LISTEN:{self.port},fork,reuseaddr,backlog=64,bind=127.0.0.1", "EXEC:cat"],
            self.port)

    def disturb(self):
        if self.random.random() < 0.3:
            self.kill_child()
        else:
            super().disturb()


class Node(Job):
    programs = ("node", "curl")

    def start(self):
        node, self.curl = harness.need("node", "curl")
        self.server = self.run.server([node, self.run.write("server.js", NODE_SERVER),
                                       str(self.port)], self.port)

    def argv(self):
        return [self.curl, "-sS", "-H", "Expect:", "--data-binary", "@-",
                f"http://127.0.0.1:{self.port}/"]

    def work(self):
        body = self.random.randbytes(self.random.choice((0, 1, 70000, 4_000_000)))
        got = self.client(self.argv(), stdin=body)
        if got != body:
            raise harness.Failure(f"wrong bytes: {len(got)} of {len(body)}")

    def disturb(self):
        self.kill_client([*self.argv()[:-2], f"@{sys.executable}", self.argv()[-1]])


JOBS = {job.__name__.lower(): job for job in (Redis, Nginx, Apache, Postgres, Memcached,
                                              Asyncio, Socat, Node)}
