#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Unmodified programs between two hosts on a cable, all under Viaduct, with the relay and an
RDMA device on both: every byte, the path of each connection, and the counters of both ends.

usage: far.py [OPTION]... VIADUCT CACHE

The other programs come from VIADUCT's build folder. --expect says what the connections between
the hosts have to be on, and with `tcp` which reasons they may give: tcp[:REASON,...].
"""
import argparse
import contextlib
import json
import pathlib
import random
import re
import shlex
import sys
import time

import guest
import image
import kernel

ADDRESSES = ("10.9.0.1", "10.9.0.2")
SERVER = ADDRESSES[0]
RELAY = "/run/viaduct/relay.sock"
RELAY_UID = 990
HERE = pathlib.Path(__file__).resolve().parent
# Packets that come out of order count as lost for RDMA: no delay that varies. See links.py.
LOSS = "delay 1ms loss 1% duplicate 1%"
# Why a connection between hosts may be on TCP. A listener knows only that nobody has come.
REASONS = ("remote-peer", "plain-peer", "too-short")
# With honest ends.
OUR_MISTAKES = {"corrupt", "bypass", "identity", "kernel", "bad-hello"}
PAYLOAD_BYTES = 2000000
VALUES, VALUE_BYTES = 20, 100000
# At least, at most: as long as the set-up has taken, which a loaded machine draws out.
IPERF_S = 4, 60
LIMIT_S = 90
# Without movement, which a cable that loses needs to repeat; until the last round has ended.
INTEGRITY_WAIT_S, INTEGRITY_END_S = 120, 300
INTEGRITY = "--seed 7 --conns 8 --bytes 300000 --kill --signals"
TOLD_LINES = 40
SAID_CHARS = 2000


class Side:
    """One of the hosts: commands that end in time, and what the programs leave there."""

    def __init__(self, host, number):
        self.host = host
        self.name = host.name
        self.address = ADDRESSES[number]
        self.kept = {}

    def run(self, command, limit_s=LIMIT_S):
        """Ends it there, so that the guest can still be asked what has happened."""
        command = f"timeout -s KILL {limit_s} /usr/bin/dash -c {shlex.quote(command)}"
        status, output = self.host.run(command, limit_s + 60)
        if status == 137:
            output += self.host.run("cat /run/said")[1]
            status = f"not finished after {limit_s} s"
        return status, output

    def must(self, command, limit_s=LIMIT_S):
        status, output = self.run(command, limit_s)
        if status != 0:
            raise guest.Failure(f"guest {self.name}: {command.strip()}: status {status}\n"
                                f"{output[-SAID_CHARS:]}")
        return output

    def serve(self, command, ready):
        """Starts a command beside the others; returns once `ready` succeeds."""
        self.must(f"""rm -f /run/ended
            {{ {command}
            echo $? >/run/status; mv /run/status /run/ended
            }} </dev/null >/run/said 2>&1 &
            until {ready} >/dev/null 2>&1; do
                if [ -e /run/ended ]; then cat /run/said; exit 1; fi
                sleep 0.05
            done""")

    def served(self):
        return self.must("""until [ -e /run/ended ]; do sleep 0.05; done
            cat /run/said; exit $(cat /run/ended)""")

    def connections(self, port):
        """What `viaduct stat` says of those to this port of the server's host."""
        shown = self.must("/viaduct/viaduct stat --json 2>/run/far/stat-said")
        self.kept[f"stat-{port}.json"] = shown
        return [c for c in json.loads(shown)["connections"]
                if (c["local"]["address"], c["peer"]["address"]) in (ADDRESSES, ADDRESSES[::-1])
                and port in (c["local"]["port"], c["peer"]["port"])]

    def report(self, *names):
        """The sums over the processes of what has run by these names."""
        text = self.must("cat " + " ".join(f"/run/far/report-{name}" for name in names))
        lines = [json.loads(line) for line in text.splitlines()]
        total = {key: sum(line[key] for line in lines) for key in
                 ("connections", "upgraded", "downgraded", "tx_direct_bytes", "rx_direct_bytes",
                  "tx_tcp_bytes", "rx_tcp_bytes", "doorbells", "sleeps")}
        total["reasons"] = sorted({reason for line in lines for reason in line["reasons"]})
        return total


class Bed:
    """The two hosts, and what is expected of the connections between them."""

    def __init__(self, a, b, options):
        self.a, self.b, self.options = a, b, options
        self.rdma = options.expect == "rdma"
        self.set_up_s = 0

    def under(self, name):
        user = as_user(self.options.user) if self.options.user else ""
        return (f"{user} /viaduct/viaduct run --report /run/far/report-{name} "
                f"--upgrade-after {self.options.upgrade_after} --log debug:/run/far/log-{name} --")

    def fail(self, what):
        raise guest.Failure(what)

    def wrong(self, connection, ways):
        """In words, what is not as expected; None when nothing is."""
        path, reason = connection["path"], connection["reason"]
        if self.rdma:
            used = {"up": "sent", "down": "received"}
            if connection["role"] == "accepted":
                used = {"up": "received", "down": "sent"}
            paths = {way: connection[used[way]]["path"] for way in ways}
            if set(paths.values()) == {"rdma"} and path in ("rdma", "switching"):
                return None
            return f"path {path}, {paths}, reason {reason}"
        if path == "tcp" and reason in self.options.reasons:
            return None
        return f"path {path}, reason {reason}, not tcp by one of {self.options.reasons}"

    def look(self, port, count=1, ways=("up", "down"), looks=3):
        """Waits until one of `count` connections, seen from both ends, has these ways on RDMA; or
        all are on TCP, several times, since they do not cease to move. `up` is to the server."""
        end = time.monotonic() + LIMIT_S / 2
        right = 0
        while True:
            found = {side.name: side.connections(port) for side in (self.a, self.b)}
            told, least = [], 1 if self.rdma else count
            for name, connections in found.items():
                wrong = [f"{c['program']}: {w}" for c in connections
                         if (w := self.wrong(c, ways))]
                if len(connections) < count or len(connections) - len(wrong) < least:
                    told.append(f"{name}: {wrong or ''} of {len(connections)} connections")
            right = 0 if told else right + 1
            if right >= (1 if self.rdma else looks):
                for name, connections in found.items():
                    print(f"  {name}: " + ", ".join(
                        f"{c['program']} {c['path']} ({c['reason']})" for c in connections))
                return
            if time.monotonic() > end:
                self.fail(f"port {port}: " + "; ".join(told))
            time.sleep(0.1)

    def judge(self, server, clients, sent_by_server, sent_by_client, exact=True):
        """Both ends' reports. At least so many bytes went the expected way; `exact`: what one
        has sent the other has read."""
        reports = self.a.report(server), self.b.report(*clients)
        for side, report in zip("AB", reports):
            print(f"  {side}: " + " ".join(f"{k}={v}" for k, v in report.items()))
        for side, report, least in zip("AB", reports, (sent_by_server, sent_by_client)):
            if self.rdma and (not report["upgraded"] or report["tx_direct_bytes"] < least):
                self.fail(f"{side}: of {least} bytes {report['tx_direct_bytes']} went direct, "
                          f"{report['upgraded']} connections are upgraded")
            # Bytes on TCP are counted only until a connection is known to stay there.
            if not self.rdma and (report["upgraded"] or report["tx_direct_bytes"]):
                self.fail(f"{side}: not everything has stayed on TCP")
            if not self.rdma and not (set(report["reasons"]) <= set(self.options.reasons) and
                                      report["reasons"]):
                self.fail(f"{side}: the reasons are {report['reasons']}")
        for one, other in (reports, reversed(reports)) if exact else ():
            if one["tx_direct_bytes"] != other["rx_direct_bytes"]:
                self.fail(f"{one['tx_direct_bytes']} bytes were sent direct, "
                          f"{other['rx_direct_bytes']} received")

    def go(self):
        self.b.must("touch /run/far/go")
        self.a.must("touch /run/far/go")

    def fresh(self):
        for side in (self.a, self.b):
            side.must("rm -f /run/far/go /run/far/out")


def as_user(uid):
    return f"setpriv --reuid {uid} --regid {uid} --clear-groups"


def listening(port):
    return f"ss -Hltn | grep -q :{port}"


# ---- the programs: each goes on in turns until the paths have been looked at, and moves its
# bytes then ----

def transfer(bed):
    port, count = 7000, PAYLOAD_BYTES
    command = f"python3 -S /tests/transfer.py %s {SERVER} {port} {count}"
    bed.a.serve(f"{bed.under('transfer')} {command % 'listen'}", listening(port))
    bed.b.serve(f"{bed.under('transfer')} {command % 'connect'} /run/far/go", "true")
    bed.look(port)
    bed.go()
    for side in (bed.b, bed.a):
        if (words := f"{count} bytes are right") not in (said := side.served()):
            bed.fail(f"{side.name} does not say '{words}': {said}")
    # What one end sends when the other has shut down its own sending goes over TCP.
    bed.judge("transfer", ["transfer"], 1, count)


def redis_commands():
    """What redis-cli is told, and what it has to answer."""
    chance = random.Random(5)
    values = [chance.randbytes(VALUE_BYTES // 2).hex() for _ in range(VALUES)]
    told = [f"SET k{i} {value}" for i, value in enumerate(values)]
    told += [f"GET k{i}" for i in range(VALUES)]
    return "\n".join(told) + "\n", "OK\n" * VALUES + "\n".join(values) + "\n"


def redis(bed):
    port = 6379
    bed.a.serve(f"{bed.under('redis-server')} redis-server --port {port} --bind {SERVER} "
                "--protected-mode no --save '' --appendonly no --dir /run/far", listening(port))
    bed.b.serve(f"""{{ while [ ! -e /run/far/go ]; do echo PING; sleep 0.02; done
        cat /tests/redis; }} | {bed.under('redis-cli')} redis-cli -h {SERVER} -p {port} \
        >/run/far/out""", "grep -q PONG /run/far/out")
    bed.look(port)
    bed.go()
    bed.b.served()
    # Its answers, and nothing that has come twice or too late.
    bed.b.must("grep -v '^PONG$' /run/far/out | cmp - /tests/redis.right")
    kinds = 0
    for arguments in ("-c 1 -n 200 -d 64", "-c 8 -n 800 -d 1000",
                      "-c 4 -n 1600 -d 1000 -P 16"):
        said = bed.b.must(f"{bed.under('redis-benchmark')} redis-benchmark -h {SERVER} "
                          f"-p {port} -q -t set,get {arguments}")
        kinds += len(re.findall(r"(?:SET|GET): [0-9.]+ requests per second", said))
    if kinds != 6:
        bed.fail(f"redis-benchmark has done {kinds} of 6 runs: {said}")
    stop(bed.a, "redis-server")
    bed.judge("redis-server", ["redis-cli", "redis-benchmark"], VALUES * VALUE_BYTES,
              VALUES * VALUE_BYTES)
    benchmark = bed.b.report("redis-benchmark")
    print(f"  redis-benchmark: {benchmark['upgraded']} upgraded")
    if bed.rdma and not benchmark["upgraded"]:
        bed.fail("nothing of redis-benchmark was upgraded")


NGINX = f"""
user root; worker_processes 1; daemon off; pid /run/far/nginx.pid;
error_log /run/far/log-nginx-own;
events {{ worker_connections 64; }}
http {{
  access_log off; sendfile on; client_max_body_size 0;
  client_body_temp_path /run/far/body; proxy_temp_path /run/far/proxy;
  fastcgi_temp_path /run/far/fastcgi; uwsgi_temp_path /run/far/uwsgi;
  scgi_temp_path /run/far/scgi;
  server {{ listen {SERVER}:8080; root /run/far/www; dav_methods PUT; }}
}}
"""


def nginx(bed):
    """An upload in pieces, and the same file back; then another, by three connections."""
    port, url = 8080, f"http://{SERVER}:8080"
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
    stop(bed.a, "nginx", "TERM")
    # The first of the file may be under way before nginx's first send is direct.
    bed.judge("nginx", ["curl", "curl-more"], PAYLOAD_BYTES // 2, PAYLOAD_BYTES)


def iperf3(bed):
    port = 5201
    seconds = int(min(max(IPERF_S[0], bed.set_up_s), IPERF_S[1]))
    for name, way in (("iperf3", ""), ("iperf3-back", "-R")):
        bed.fresh()
        bed.a.serve(f"{bed.under(name)} iperf3 -s -1 -B {SERVER} -p {port}", listening(port))
        bed.b.serve(f"{bed.under(name)} iperf3 -c {SERVER} -p {port} -J -t {seconds} {way} "
                    ">/run/far/out", "test 2 = $(ss -Htn state established dport = :5201 | wc -l)")
        # A second connection controls the first.
        bed.look(port, 2, ["down" if way else "up"], looks=1)
        bed.b.served()
        bed.a.served()
        told = json.loads(bed.b.must("cat /run/far/out"))["end"]
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
    bed.a.serve(command % ("server", *ADDRESSES), "true")
    try:
        said = bed.b.must(command % ("client", *ADDRESSES[::-1]), limit_s)
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


def stop(side, program, how="INT"):
    side.must(f"kill -{how} $(pidof {program})")
    side.served()


# ---- the bed ----

PROGRAMS = {"transfer": (transfer, []),
            "redis": (redis, ["redis-server", "redis-cli", "redis-benchmark"]),
            "nginx": (nginx, ["nginx", "curl"]),
            "iperf3": (iperf3, ["iperf3"]),
            "integrity": (integrity, [])}


def make_image(debian, build, options):
    content = image.Image(debian)
    content.rdma()
    content.viaduct(build / "viaduct")
    for path, name in (("viaductd", "viaductd"), ("tests/relay/relay-meet", "meet"),
                       ("tests/integrity/integrity", "integrity")):
        if not (build / path).exists():
            raise kernel.Missing(f"{build / path} is not built")
        content.binary(build / path, f"/tests/{name}")
    content.program("setpriv")
    content.python("random", "socket", "threading")
    content.file("/tests/transfer.py", HERE / "transfer.py")
    key = image.output(build / "viaductd", "--new-key", "far")
    content.data("/tests/key", key.encode())
    content.data("/tests/viaductd.conf", f"socket = {RELAY}\nkey-file = /run/viaduct/key\n"
                 f"log = debug:/run/viaduct/log\nlisten = 0.0.0.0\n".encode())
    entry = f"viaductd:x:{RELAY_UID}:"
    for path, more in (("/etc/passwd", f"{RELAY_UID}::/nonexistent:/bin/sh"), ("/etc/group", "")):
        content.data(path, f"{image.FILES[path]}{entry}{more}\n".encode())
    content.data("/tests/payload", random.Random(4).randbytes(PAYLOAD_BYTES))
    told, right = redis_commands()
    content.data("/tests/redis", told.encode())
    content.data("/tests/redis.right", right.encode())
    content.data("/tests/nginx.conf", NGINX.encode())
    for name in options.only:
        for program in PROGRAMS[name][1]:
            content.program(program)
    return content


def set_up(side, number, options):
    """The network, the RDMA device, and the relay as a user of its own."""
    side.must("dmesg -c >/dev/null; modprobe virtio_net\n"
              "mkdir -p /run/far/www /run/viaduct; chmod 1777 /run/far /run/far/www\n"
              f"ip addr add {ADDRESSES[number]}/24 dev eth0 && ip link set eth0 up")
    if "rxe" not in options.without:
        side.must("for m in crc32_generic rdma_rxe ib_uverbs rdma_ucm; do modprobe $m; done; "
                  "rdma link add rxe0 type rxe netdev eth0; "
                  "rdma link show rxe0/1 | grep -q 'state ACTIVE' && ibv_devinfo -d rxe0")
    # Init has set it.
    side.must("test \"$(ulimit -l)\" = unlimited")
    if "relay" not in options.without:
        user = as_user(RELAY_UID)
        side.must(f"""cp /tests/key /tests/viaductd.conf /run/viaduct
            chmod 600 /run/viaduct/key
            chown -R {RELAY_UID}:{RELAY_UID} /run/viaduct
            cd /; {user} /tests/viaductd --config /run/viaduct/viaductd.conf --check &&
            {user} /tests/viaductd --config /run/viaduct/viaductd.conf &&
            test -S {RELAY} && cat /run/viaduct/log""")
    if options.loss:
        side.must(f"tc qdisc add dev eth0 root netem {options.loss}")
    # See tests/integrity/run.py.
    side.must("echo 0 >/proc/sys/net/ipv4/tcp_invalid_ratelimit")


def meet(bed):
    """Two small programs meet through the daemons: the key, the cable and sock_diag are right."""
    inside = "exec 2>/run/far/meet-said; /tests/meet publish /run/viaduct/relay.sock 0"
    bed.a.serve(f"nc -l -p 7400 -e /usr/bin/dash -c '{inside} >/run/far/meet'", listening(7400))
    ask = f"until /tests/meet ask {RELAY} 0 >/run/far/meet; do sleep 0.1; done"
    bed.b.must(f"nc {SERVER} 7400 -e /usr/bin/dash -c '{ask}' </dev/null; cat /run/far/meet")
    answer = bed.b.must("cat /run/far/meet")
    bed.a.served()
    asked = bed.a.must("cat /run/far/meet")
    if answer != "answer: I am the holder\n" or "asked: I am the asker\n" not in asked:
        bed.fail(f"the relay: '{answer}', '{asked}'")
    bed.b.must("grep 'link made' /run/viaduct/log")


def logs(side):
    """By name, all that a guest can tell."""
    side.run("cd /run/far; ps -o pid,stat,args | grep -v ']$' >ps; ss -tanpe >ss; dmesg >dmesg; "
             "/viaduct/viaduct stat --json >stat.json 2>&1; "
             "rdma resource show >rdma 2>&1; rdma statistic show link rxe0/1 >>rdma 2>&1; "
             "tc -s qdisc show dev eth0 >tc; cp /run/said said; "
             "cp /run/viaduct/log viaductd.log; "
             "for t in /proc/[0-9]*/task/*; do [ -z \"$(tr -d '\\0' <$t/cmdline)\" ] || "
             "head -n 1 $t/comm $t/syscall $t/wchan; done >threads 2>&1; true", 60)
    names = side.run("cd /run/far; for f in log-* report-* ps ss dmesg stat.json rdma tc said "
                     "threads viaductd.log; do test -f $f && echo $f; done; true", 30)[1].split()
    return side.kept | {name: side.run(f"cat /run/far/{name}", 30)[1] for name in names}


def tell(sides, options, failed):
    for side in sides:
        found = logs(side)
        if options.keep_logs:
            folder = pathlib.Path(options.keep_logs, side.name)
            folder.mkdir(parents=True, exist_ok=True)
            for old in folder.iterdir():
                old.unlink()
            for name, text in found.items():
                (folder / name).write_text(text)
        if failed:
            for name, text in found.items():
                lines = text.splitlines()
                if name.endswith(".json") or name == "threads" or not lines:
                    continue
                print(f"---- guest {side.name}: {name}, the last {TOLD_LINES} of {len(lines)}")
                print("\n".join(lines[-TOLD_LINES:]))


def programs(bed, names):
    for name in names:
        began = time.monotonic()
        print(f"{name}:", flush=True)
        bed.fresh()
        PROGRAMS[name][0](bed)
        print(f"  {time.monotonic() - began:.1f} s", flush=True)


def have(name):
    with contextlib.suppress(kernel.Missing):
        for program in PROGRAMS[name][1]:
            kernel.find(program)
        return True
    return False


def parse(arguments):
    parser = argparse.ArgumentParser(prog="far.py")
    parser.add_argument("viaduct", type=pathlib.Path)
    parser.add_argument("cache")
    parser.add_argument("--expect", default="tcp", metavar="rdma|tcp[:REASON,...]",
                        help="what the connections are on, and the reasons allowed on TCP")
    parser.add_argument("--only", action="append", choices=[*PROGRAMS][:-1],
                        help="this program, and others that are named so")
    parser.add_argument("--keep-logs", metavar="DIR",
                        help="everything that both guests can tell, in A and B below this folder")
    parser.add_argument("--upgrade-after", type=int, default=0, metavar="N",
                        help="operations, as for `viaduct run`; default 0")
    parser.add_argument("--user", type=int, metavar="UID", help="of the programs, not root")
    parser.add_argument("--loss", nargs="?", const=LOSS, metavar="NETEM",
                        help=f"what the cable does, at both ends, default: {LOSS}")
    parser.add_argument("--without", action="append", default=[], choices=["rxe", "relay"],
                        help="no RDMA device, or no relay, on both hosts")
    parser.add_argument("--integrity", type=int, metavar="SECONDS",
                        help="the integrity test instead of the programs")
    parser.add_argument("--arguments", default=INTEGRITY, metavar="TEXT",
                        help=f"of the integrity test, default: {INTEGRITY}")
    options = parser.parse_args(arguments)
    options.expect, _, reasons = options.expect.partition(":")
    options.reasons = tuple(filter(None, reasons.split(","))) or REASONS
    if options.expect not in ("rdma", "tcp"):
        parser.error("--expect rdma or tcp")
    if options.integrity:
        options.only = ["integrity"]
    elif not options.only:
        programs = [*PROGRAMS][:-1]
        options.only = [name for name in programs if have(name)]
        for name in set(programs) - set(options.only):
            print(f"{name} is left out: not all of {PROGRAMS[name][1]} are installed")
    return options


def test(*arguments):
    options = parse(arguments)
    debian = kernel.kernel(options.cache)
    began = time.monotonic()
    content = make_image(debian, options.viaduct.resolve().parent, options)
    with guest.boot(debian, content, count=2, memory_mb=1024) as hosts:
        sides = [Side(host, number) for number, host in enumerate(hosts)]
        booted = time.monotonic()
        print(f"kernel {debian.version}, two hosts, {booted - began:.1f} s", flush=True)
        bed = Bed(*sides, options)
        try:
            for number, side in enumerate(sides):
                set_up(side, number, options)
            if "relay" not in options.without:
                meet(bed)
            bed.set_up_s = time.monotonic() - booted
            print(f"set up after {bed.set_up_s:.1f} s more", flush=True)
            programs(bed, options.only)
        except guest.Failure:
            with contextlib.suppress(guest.Failure):
                tell(sides, options, failed=True)
            sys.stdout.flush()
            raise
        tell(sides, options, failed=False)


if __name__ == "__main__":
    guest.main(test)
