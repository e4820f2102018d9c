# SPDX-License-Identifier: Apache-2.0
"""Programs as Debian has them, between two hosts, and the integrity test: far.py runs them. What a
program needs in the image is added by its function NAME_image."""
import json
import os
import pathlib
import random
import re
import subprocess
import tempfile
import time

import bed as beds
import guest
import image
import kernel
from bed import ADDRESSES, SAID_CHARS, listening
from far_own import MEMLOCK_KB, PAYLOAD_BYTES

APPS = pathlib.Path(__file__).resolve().parents[1] / "apps"
# With honest ends.
OUR_MISTAKES = {"corrupt", "bypass", "identity", "kernel", "bad-hello"}
VALUES, VALUE_BYTES = 20, 100000
# Each way, at least, of tests/apps/openmpi.c with two ranks.
MPI_BYTES = 25000000
ROWS, ROW_BYTES = 2000, 500
# At least, at most: as long as the set-up has taken, which a loaded machine draws out.
IPERF_S = 4, 60
# Without movement, which a cable that loses needs to repeat; until the last round has ended.
INTEGRITY_WAIT_S, INTEGRITY_END_S = 120, 300


def redis_commands():
    """What redis-cli is told, and what it has to answer."""
    chance = random.Random(5)
    values = [chance.randbytes(VALUE_BYTES // 2).hex() for _ in range(VALUES)]
    told = [f"SET k{i} {value}" for i, value in enumerate(values)]
    told += [f"GET k{i}" for i in range(VALUES)]
    return "\n".join(told) + "\n", "OK\n" * VALUES + "\n".join(values) + "\n"


def redis_image(content):
    told, right = redis_commands()
    content.data("/tests/redis", told.encode())
    content.data("/tests/redis.right", right.encode())


def redis_saves(bed, port):
    """The server forks to save: afterwards its connections are where they were."""
    cli = f"redis-cli -h {bed.server} -p {port}"
    for _ in range(2):
        bed.a.must(f"{cli} BGSAVE && while {cli} INFO persistence | grep -q "
                   f"rdb_bgsave_in_progress:1; do sleep 0.1; done && "
                   f"{cli} INFO persistence | grep rdb_last_bgsave_status:ok")
        bed.look(port)


def redis(bed):
    port = 6379
    bed.a.serve(f"{bed.under('redis-server')} redis-server --port {port} --bind {bed.server} "
                "--protected-mode no --save '' --appendonly no --dir /run/far", listening(port))
    bed.b.serve(f"""{{ while [ ! -e /run/far/go ]; do echo PING; sleep 0.02; done
        cat /tests/redis; }} | {bed.under('redis-cli')} redis-cli -h {bed.server} -p {port} \
        >/run/far/out""", "grep -q PONG /run/far/out")
    bed.look(port)
    if bed.rdma:
        redis_saves(bed, port)
    bed.go()
    bed.b.served()
    # Its answers, and nothing that has come twice or too late.
    bed.b.must("grep -v '^PONG$' /run/far/out | cmp - /tests/redis.right")
    kinds = 0
    for arguments in ("-c 1 -n 200 -d 64", "-c 8 -n 800 -d 1000",
                      "-c 4 -n 1600 -d 1000 -P 16"):
        said = bed.b.must(f"{bed.under('redis-benchmark')} redis-benchmark -h {bed.server} "
                          f"-p {port} -q -t set,get {arguments}")
        kinds += len(re.findall(r"(?:SET|GET): [0-9.]+ requests per second", said))
    if kinds != 6:
        bed.fail(f"redis-benchmark has done {kinds} of 6 runs: {said}")
    bed.a.stop("redis-server")
    bed.judge("redis-server", ["redis-cli", "redis-benchmark"], VALUES * VALUE_BYTES,
              VALUES * VALUE_BYTES)
    benchmark = bed.b.report("redis-benchmark")
    print(f"  redis-benchmark: {benchmark['upgraded']} upgraded")
    if bed.rdma and not benchmark["upgraded"]:
        bed.fail("nothing of redis-benchmark was upgraded")


V4, V6 = (addresses[0] for addresses in ADDRESSES.values())
NGINX = f"""
user root; worker_processes 1; daemon off; pid /run/far/nginx.pid;
error_log /run/far/log-nginx-own;
events {{ worker_connections 64; }}
http {{
  access_log off; sendfile on; client_max_body_size 0;
  client_body_temp_path /run/far/body; proxy_temp_path /run/far/proxy;
  fastcgi_temp_path /run/far/fastcgi; uwsgi_temp_path /run/far/uwsgi;
  scgi_temp_path /run/far/scgi;
  server {{ listen {V4}:8080; listen [{V6}]:8080; root /run/far/www; dav_methods PUT; }}
}}
"""


def nginx_image(content):
    content.data("/tests/payload", random.Random(4).randbytes(PAYLOAD_BYTES))
    content.data("/tests/nginx.conf", NGINX.encode())


def nginx(bed):
    """An upload in pieces, and the same file back; then another, by three connections."""
    port = 8080
    url = f"http://[{V6}]:{port}" if bed.server == V6 else f"http://{V4}:{port}"
    bed.a.must("cp /tests/payload /run/far/www")
    bed.a.serve(f"{bed.under('nginx')} nginx -c /tests/nginx.conf -e /run/far/log-nginx-own",
                listening(port))
    bed.b.serve(f"""{{ while [ ! -e /run/far/go ]; do echo turn; sleep 0.02; done
        cat /tests/payload; }} | tee /run/far/sent | {bed.under('curl')} curl -sSf -T - {url}/up \
        --next -sSf -o /run/far/out {url}/up""", "test -s /run/far/sent")
    bed.look(port, ways=["up"])
    bed.go()
    bed.b.served()
    bed.b.must("cmp /run/far/sent /run/far/out && "
               f"test $(wc -c </run/far/out) -gt {PAYLOAD_BYTES}")
    for _ in range(3):
        bed.b.must(f"{bed.under('curl-more')} curl -sSf {url}/payload | cmp - /tests/payload")
    bed.a.stop("nginx", "TERM")
    # The first of the file may be under way before nginx's first send is direct.
    bed.judge("nginx", ["curl", "curl-more"], PAYLOAD_BYTES // 2, PAYLOAD_BYTES)


# Where Debian has PostgreSQL's own programs; those in PATH are scripts around them.
def postgres_folder():
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not found:
        raise kernel.Missing("postgres is missing (package postgresql)")
    return found[-1].parent


NOBODY = 65534
DATA = "/tests/postgres"
POSTGRES = (f"-D {DATA} -c unix_socket_directories= -c fsync=off -c jit=off -c autovacuum=off "
            "-c shared_buffers=16MB -c dynamic_shared_memory_type=mmap")


def initdb(folder, data):
    """A new database, made on this machine: not by root, which initdb refuses."""
    os.mkdir(data)
    user = []
    if os.geteuid() == 0:
        os.chmod(data.parent, 0o755)
        os.chown(data, NOBODY, NOBODY)
        user = beds.as_user(NOBODY).split()
    made = subprocess.run([*user, folder / "initdb", "-D", data, "-U", "postgres", "-A", "trust",
                           "-E", "UTF8", "--locale=C", "--no-sync", "--wal-segsize=1"],
                          cwd="/", env=os.environ | {"TZ": "GMT"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if made.returncode:
        raise guest.Failure(f"initdb: {made.stdout.decode()}")
    with open(data / "pg_hba.conf", "a", encoding="ascii") as allowed:
        allowed.write("host all all all trust\n")


def postgres_rows():
    chance = random.Random(6)
    return "".join(f"{i}\t{chance.randbytes(ROW_BYTES).hex()}\n" for i in range(ROWS))


def postgres_image(content):
    folder = postgres_folder()
    for name in ("postgres", "pg_isready", "psql", "pgbench"):
        content.binary(folder / name)
    zones = pathlib.Path("/usr/share/postgresql", folder.parent.name, "timezonesets")
    content.tree(zones, zones)
    content.folder(folder.parent / "lib")
    with tempfile.TemporaryDirectory(prefix="viaduct-guest-") as kept:
        data = pathlib.Path(kept, "data")
        initdb(folder, data)
        for path in (data, *data.rglob("*")):
            place = f"{DATA}/{path.relative_to(data)}"
            if path.is_dir():
                content.folder(place, 0o700)
            else:
                content.data(place, path.read_bytes(), 0o600)
    rows = postgres_rows()
    content.data("/tests/rows", rows.encode())
    content.data("/tests/sql", "create table t (a int, b text);\ncopy t from stdin;\n"
                 f"{rows}\\.\n\\o /run/far/copied\ncopy t to stdout;\n".encode())


def postgres(bed):
    """A process of the server's for each connection, which has accepted none itself."""
    port, folder = 5432, postgres_folder()
    where = f"-h {bed.server} -p {port} -U postgres"
    user = bed.user or NOBODY
    bed.a.must(f"chown -R {user}:{user} {DATA}")
    bed.a.serve(f"cd /; {bed.under('postgres', user)} {folder}/postgres -p {port} {POSTGRES} "
                f"-c listen_addresses={bed.server}", f"{folder}/pg_isready {where}")
    bed.b.serve(f"""{{ while [ ! -e /run/far/go ]; do echo 'select 7;'; sleep 0.02; done
        cat /tests/sql; }} | {bed.under('psql')} {folder}/psql {where} -XqAt -v ON_ERROR_STOP=1 \
        postgres >/run/far/out""", "true")
    bed.look(port)
    bed.go()
    bed.b.served()
    bed.b.must("cmp /run/far/copied /tests/rows")
    pgbench = f"{bed.under('pgbench')} {folder}/pgbench {where}"
    bed.b.must(f"{pgbench} -i -q postgres")
    clients = 0
    for arguments, count in (("-c 4 -j 2 -t 25", 100), ("-c 2 -t 5 -C", 10),
                             ("-c 4 -t 50 -S -M prepared", 200)):
        said = bed.b.must(f"{pgbench} -n {arguments} postgres")
        if f"actually processed: {count}/{count}\n" not in said or \
                "failed transactions: 0 " not in said:
            bed.fail(f"pgbench {arguments}: {said}")
    done = bed.b.must(f"{folder}/psql {where} -XqAt -c 'select count(*) from pgbench_history' "
                      "postgres")
    if done != "110\n":
        bed.fail(f"of 110 transactions {done} are there")
    postmaster = int(bed.a.must(f"head -n 1 {DATA}/postmaster.pid"))
    bed.a.must(f"kill -INT {postmaster}")
    bed.a.served()
    bed.judge("postgres", ["psql", "pgbench"], ROWS * ROW_BYTES, ROWS * ROW_BYTES)
    children = [line for line in bed.a.reports("postgres") if line["upgraded"]]
    print(f"  {len(children)} processes of the server have upgraded one connection each")
    if any(c["upgraded"] > 1 or c["pid"] == postmaster for c in children):
        bed.fail(f"the upgrades are not the children's: {children}")


# Open MPI loads each of these that its folder has; most are for networks and files.
MPI_FOLDER = pathlib.Path("/usr/lib/x86_64-linux-gnu/openmpi/lib/openmpi3")
MPI_PARTS = re.compile(r"mca_(?!.*(ucx|ofi|psm|openib|monitoring|slurm|flux|jsm|gridengine)"
                       r"|io_|fs_|fcoll|fbtl|sharedfp|spml|scoll|sshmem|memheap|osc|btl_sm)\w+\.so")
MPI_PORT, LAUNCHER_PORT = 7600, 7500
MPI = ("--allow-run-as-root --mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include eth0 "
       f"--mca oob_tcp_if_include eth0 --mca btl_tcp_port_min_v4 {MPI_PORT} --bind-to none "
       "--mca plm_rsh_agent /tests/agent --mca plm_rsh_no_tree_spawn 1 --host a,b -np 2")
# In the place of ssh: HOST COMMAND...
AGENT = f"""#!/bin/sh
host=$1
shift
echo "$*" | nc $host {LAUNCHER_PORT}
"""


def mpi_image(content):
    if not MPI_FOLDER.exists():
        raise kernel.Missing("Open MPI's parts are missing (package openmpi-bin)")
    for name in ("mpirun", "orted"):
        content.program(name)
    for part in MPI_FOLDER.iterdir():
        if MPI_PARTS.fullmatch(part.name):
            content.binary(part)
    content.data("/tests/agent", AGENT.encode(), 0o755)
    with tempfile.TemporaryDirectory(prefix="viaduct-guest-") as kept:
        program = pathlib.Path(kept, "mpi")
        subprocess.run([kernel.find("mpicc"), "-O2", "-o", program, APPS / "openmpi.c"],
                       check=True)
        # What its ranks have to receive, here without any network.
        right = image.output(kernel.find("mpirun"), "--allow-run-as-root", "--oversubscribe",
                             "--mca", "pml", "ob1", "--mca", "btl", "self,vader", "-np", "2",
                             program)
        content.data("/tests/mpi", program.read_bytes(), 0o755)
        for library in image.libraries(program):
            content.file(library, library)
    content.data("/tests/mpi.right", right.encode())


def mpi(bed):
    """One rank on each host, which Open MPI's own daemons start over TCP, as their own user."""
    user = bed.prefix()
    with bed.instead("IPv4", None, None):
        under = bed.under("mpi")
    bed.b.must(f"{user} nc -ll -p {LAUNCHER_PORT} -e /usr/bin/dash </dev/null >/run/far/launcher 2>&1 &")
    bed.a.must(f"{user} mpirun {MPI} {under} /tests/mpi 2>&1 >/run/far/out && "
               "cmp /run/far/out /tests/mpi.right")
    bed.b.must("kill $(pidof nc)")
    bed.judge("mpi", ["mpi"], MPI_BYTES // 2, MPI_BYTES // 2)


MEMCACHED_VALUES = 200
MEMCACHED_CLIENT = f"""
import os, random, socket, sys, time
chance = random.Random(8)
sock = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
sock.connect((sys.argv[1], 11211))
talk = sock.makefile("rwb")
def say(words, answer):
    talk.write(words)
    talk.flush()
    if (got := talk.read(len(answer))) != answer:
        sys.exit(f"{{got}} is the answer to {{words[:40]}}")
while not os.path.exists("/run/far/go"):
    say(b"get none\\r\\n", b"END\\r\\n")
    time.sleep(0.01)
values = [chance.randbytes(i * i % 20000) for i in range({MEMCACHED_VALUES})]
for i, value in enumerate(values):
    say(b"set k%d 0 0 %d\\r\\n%s\\r\\n" % (i, len(value), value), b"STORED\\r\\n")
say(b"".join(b"get k%d\\r\\n" % i for i in range(len(values))),
    b"".join(b"VALUE k%d 0 %d\\r\\n%s\\r\\nEND\\r\\n" % (i, len(value), value)
             for i, value in enumerate(values)))
print(sum(map(len, values)), "bytes are right")
"""


def memcached_image(content):
    content.data("/tests/memcached.py", MEMCACHED_CLIENT.encode())


def memcached(bed):
    port = 11211
    bed.a.serve(f"{bed.under('memcached')} memcached -u root -l {bed.server} -p {port} -U 0 -t 2",
                listening(port))
    bed.b.serve(f"{bed.under('cached')} python3 -S /tests/memcached.py {bed.server}", "true")
    bed.look(port)
    bed.go()
    count = int(bed.b.served().splitlines()[-1].split()[0])  # after what Python may warn of
    bed.a.stop("memcached")
    bed.judge("memcached", ["cached"], count, count)


def iperf3(bed):
    port = 5201
    seconds = int(min(max(IPERF_S[0], bed.set_up_s), IPERF_S[1]))
    for name, way in (("iperf3", ""), ("iperf3-back", "-R")):
        bed.fresh()
        bed.a.serve(f"{bed.under(name)} iperf3 -s -1 -B {bed.server} -p {port}", listening(port))
        # Time ends it: on a slow day nobody could look at its connections before.
        bed.b.must(f"{bed.under(name)} iperf3 -c {bed.server} -p {port} -J -t {seconds} {way} "
                   ">/run/far/out", seconds + beds.LIMIT_S)
        bed.a.served()
        text = bed.b.must("cat /run/far/out")
        told = json.loads(text)["end"]
        if "sum_sent" not in told:
            bed.fail(f"iperf3 has no sums: {text[-500:]}")
        sent, received = (told[key]["bytes"] for key in ("sum_sent", "sum_received"))
        print(f"  {sent} bytes sent, {received} received")
        if not received:
            bed.fail("nothing arrived")
        # What is sent before the ends have met goes over TCP, and time ends the rest.
        least = sent // 2 if bed.rdma else 0
        bed.judge(name, [name], *((least, 0) if way else (0, least)), exact=False)


def integrity(bed):
    """Random calls for a while, every byte checked: see tests/integrity. Its control goes by
    datagrams."""
    seconds = bed.options.integrity
    limit_s = seconds + INTEGRITY_END_S
    command = (f"{bed.under('integrity')} /tests/integrity --side %s --own %s --peer %s "
               f"--seconds {seconds} {bed.options.arguments} --wait {INTEGRITY_WAIT_S}")
    bed.a.serve(command % ("server", *ADDRESSES["IPv4"][:2]), "true")
    try:
        said = bed.b.must(command % ("client", *ADDRESSES["IPv4"][1::-1]), limit_s)
    except guest.Failure as failure:
        bed.fail(f"{failure}\nguest A: {bed.a.host.run('cat /run/said')[1][-SAID_CHARS:]}")
    print(f"  B: {said}  A: {bed.a.served()}", end="")
    for side in (bed.a, bed.b):
        report = side.report("integrity")
        print(f"  {side.name}: {report}")
        if wrong := set(report["reasons"]) & OUR_MISTAKES:
            bed.fail(f"{side.name}: reasons {wrong}")
        if bool(report["upgraded"]) != bed.rdma or bool(report["tx_direct_bytes"]) != bed.rdma:
            bed.fail(f"{side.name}: upgraded={report['upgraded']} "
                     f"tx_direct_bytes={report['tx_direct_bytes']}")




def locked(bed):
    """Two processes meet a server that may lock memory for one link: one connection stays on TCP,
    and who asks is told why."""
    port, server = 6379, bed.server
    with bed.instead("IPv4" if server == V4 else "IPv6", 1000, MEMLOCK_KB):
        said = bed.a.run(f"{bed.prefix()} /viaduct/viaduct doctor")[1]
        if "room for 1 link\n" not in said:
            bed.fail(f"doctor: {said}")
        bed.a.serve(f"{bed.under('locked')} redis-server --port {port} --bind {server} "
                    "--protected-mode no --save '' --dir /run/far", listening(port))
    bed.b.serve("".join(f"""{{ while [ ! -e /run/far/go ]; do echo PING; sleep 0.02; done; }} |
        {bed.under('cli')} redis-cli -h {server} -p {port} >/run/far/out-{i} &\n"""
                        for i in range(2)) + "wait", "true")
    right = {"A": ["locked-memory", "none"], "B": ["none", "peer-asked"]}
    found, end = None, time.monotonic() + beds.LIMIT_S
    while found != right:
        if time.monotonic() > end:
            bed.fail(f"the reasons are {found}, not {right}")
        found = {side.name: sorted(c["reason"] for c in bed.connections(side, port))
                 for side in (bed.a, bed.b)}
    print(f"  {found}")
    said = bed.a.run("/viaduct/viaduct explain $(pidof redis-server)")[1]
    if f"may lock {MEMLOCK_KB * 1024} bytes" not in said:
        bed.fail(f"explain: {said}")
    bed.go()
    bed.b.served()
    bed.a.stop("redis-server")
    bed.judge("locked", ["cli"], 1, 1)


# Of each: what runs, what it needs, and what more is made for it.
PROGRAMS = {"redis": (redis, ["redis-server", "redis-cli", "redis-benchmark"], redis_image),
            "nginx": (nginx, ["nginx", "curl"], nginx_image),
            "postgres": (postgres, [], postgres_image),
            "mpi": (mpi, ["mpirun", "orted"], mpi_image),
            "memcached": (memcached, ["memcached"], memcached_image),
            "iperf3": (iperf3, ["iperf3"], None),
            "locked": (locked, ["redis-server", "redis-cli"], None)}
