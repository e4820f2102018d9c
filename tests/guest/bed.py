# SPDX-License-Identifier: Apache-2.0
"""Two hosts on two cables with Viaduct on both, the relay and an RDMA device: runs programs there,
looks at the paths of their connections, and tells all that can be known when one fails."""
import argparse
import contextlib
import json
import pathlib
import re
import shlex
import sys
import time

import guest
import image
import kernel

ADDRESSES = {"IPv4": ("10.9.0.1", "10.9.0.2", 24), "IPv6": ("fd09::1", "fd09::2", 64)}
# On a cable, and by a device, of their own.
BESIDE = ("10.10.0.1", "10.10.0.2", 24)
NAMES = ("a", "b")
RELAY = "/run/viaduct/relay.sock"
RELAY_UID = 990
# Packets that come out of order count as lost for RDMA: no delay that varies. See links.py.
LOSS = "delay 1ms loss 1% duplicate 1%"
# Why a connection between hosts may be on TCP. A listener knows only that nobody has come.
REASONS = ("remote-peer", "plain-peer", "too-short")
LIMIT_S = guest.LIMIT_S
LOOKS = 3
TOLD_LINES = 40
SAID_CHARS = 2000


class Side:
    """One of the hosts: commands that end in time, and what the programs leave there."""

    def __init__(self, host):
        self.host = host
        self.name = host.name
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

    def device_packets(self, device=0):
        """What that RDMA device has sent."""
        said = self.must(f"rdma statistic show link rxe{device}/1")
        return int(re.search(r"sent_pkts (\d+)", said).group(1))

    def serve(self, command, ready):
        """Starts a command beside the others; returns once `ready` succeeds."""
        self.must(f"""rm -f /run/ended
            {{ {command}
            echo $? >/run/status; mv /run/status /run/ended
            }} </dev/null >/run/said 2>&1 &
            until {ready} >/dev/null 2>&1; do
                if [ -e /run/ended ]; then cat /run/said; exit 1; fi
                sleep 0.2
            done""")

    def served(self, limit_s=LIMIT_S):
        return self.must("""until [ -e /run/ended ]; do sleep 0.2; done
            cat /run/said; exit $(cat /run/ended)""", limit_s)

    def stop(self, program, how="INT"):
        self.must(f"kill -{how} $(pidof {program})")
        self.served()

    def reports(self, *names):
        """A line of each process of what has run by these names."""
        text = self.must("cat " + " ".join(f"/run/far/report-{name}" for name in names))
        return [json.loads(line) for line in text.splitlines()]

    def report(self, *names):
        """Their sums."""
        lines = self.reports(*names)
        total = {key: sum(line[key] for line in lines) for key in
                 ("connections", "upgraded", "downgraded", "tx_direct_bytes", "rx_direct_bytes",
                  "tx_tcp_bytes", "rx_tcp_bytes", "doorbells", "sleeps", "redirects",
                  "zero_copies")}
        total["reasons"] = sorted({reason for line in lines for reason in line["reasons"]})
        return total

    def fresh(self):
        """What was reported is kept: the next program by that name may be another user's."""
        self.must("""cd /run/far; rm -f go out
            for f in report-* log-*; do [ ! -e $f ] || { cat $f >>was/$f; rm $f; }; done""")


class Bed:
    """The two hosts, and what is expected of the connections between them. A is the server of
    all of them."""

    def __init__(self, a, b, options):
        self.a, self.b, self.options = a, b, options
        self.rdma = options.expect == "rdma"
        self.user = options.user
        self.redirect = options.redirect
        self.memlock_kb = None
        self.set_up_s = 0
        self.addresses = ADDRESSES["IPv6" if options.ipv6 else "IPv4"][:2]

    @property
    def server(self):
        return self.addresses[0]

    @contextlib.contextmanager
    def instead(self, family, user, memlock_kb):
        """Connections over that, and programs of that user, for a while."""
        kept = self.addresses, self.user, self.memlock_kb
        self.addresses, self.user, self.memlock_kb = ADDRESSES[family][:2], user, memlock_kb
        yield
        self.addresses, self.user, self.memlock_kb = kept

    def prefix(self, user=None):
        """What makes a program one of this user's, with as much memory to lock."""
        user = user or self.user
        return (f"prlimit --memlock={self.memlock_kb * 1024} " if self.memlock_kb else "") + \
            (as_user(user) if user else "")

    def under(self, name, user=None):
        """What makes a program of this user's one under Viaduct; its report has that name."""
        return (f"{self.prefix(user)} /viaduct/viaduct run --report /run/far/report-{name} "
                f"--redirect {self.redirect} "
                f"--upgrade-after {self.options.upgrade_after} --log debug:/run/far/log-{name} --")

    def fail(self, what):
        raise guest.Failure(what)

    def connections(self, side, port):
        """What `viaduct stat` says there of those to this port of the server's host."""
        shown = side.must("/viaduct/viaduct stat --json 2>/run/far/stat-said")
        side.kept[f"stat-{port}.json"] = shown
        return [c for c in json.loads(shown)["connections"]
                if {c["local"]["address"], c["peer"]["address"]} == set(self.addresses)
                and port in (c["local"]["port"], c["peer"]["port"])]

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

    def look(self, port, count=1, ways=("up", "down")):
        """Waits until one of `count` connections, seen from both ends, has these ways on RDMA; or
        all are on TCP, LOOKS times, since they do not cease to move. `up` is to the server."""
        end = time.monotonic() + LIMIT_S
        right = 0
        while True:
            found = {side.name: self.connections(side, port) for side in (self.a, self.b)}
            told, least = [], 1 if self.rdma else count
            for name, connections in found.items():
                wrong = [f"{c['program']}: {w}" for c in connections
                         if (w := self.wrong(c, ways))]
                if len(connections) < count or len(connections) - len(wrong) < least:
                    told.append(f"{name}: {wrong or ''} of {len(connections)} connections")
            right = 0 if told else right + 1
            if right >= (1 if self.rdma else LOOKS):
                for name, connections in found.items():
                    print(f"  {name}: " + ", ".join(
                        f"{c['program']} {c['path']} ({c['reason']})" for c in connections))
                return
            ended = any(side.run("test -e /run/ended")[0] == 0 for side in (self.a, self.b))
            if ended or time.monotonic() > end:
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
            side.fresh()


def as_user(uid):
    return f"setpriv --reuid {uid} --regid {uid} --clear-groups"


def listening(port):
    return f"ss -Hltn | grep -q :{port}"


# ---- the image and the set-up ----

def built(options, path):
    path = options.viaduct.resolve().parent / path
    if not path.exists():
        raise kernel.Missing(f"{path} is not built")
    return path


def make_image(debian, options):
    """Without the programs under test."""
    content = image.Image(debian)
    content.rdma()
    content.viaduct(built(options, "viaduct"))
    for path, name in (("viaductd", "viaductd"), ("tests/relay/relay-meet", "meet")):
        content.binary(built(options, path), f"/tests/{name}")
    for program in ("setpriv", "prlimit"):
        content.program(program)
    key = image.output(built(options, "viaductd"), "--new-key", "far")
    content.data("/tests/key", key.encode())
    content.data("/tests/viaductd.conf", f"socket = {RELAY}\nkey-file = /run/viaduct/key\n"
                 "log = debug:/run/viaduct/log\n".encode())
    entry = f"viaductd:x:{RELAY_UID}:"
    for path, more in (("/etc/passwd", f"{RELAY_UID}::/nonexistent:/bin/sh"), ("/etc/group", "")):
        content.data(path, f"{image.FILES[path]}{entry}{more}\n".encode())
    content.data("/etc/hosts", image.FILES["/etc/hosts"].encode() + "".join(
        f"{address} {name}\n" for address, name in zip(ADDRESSES["IPv4"], NAMES)).encode())
    return content


def start_relay(side):
    user = as_user(RELAY_UID)
    side.must(f"""cd /; {user} /tests/viaductd --config /run/viaduct/viaductd.conf --check &&
        {user} /tests/viaductd --config /run/viaduct/viaductd.conf && test -S {RELAY}""")


def lose(side, netem):
    """What the cable does from now on to what this host sends; None: nothing."""
    side.must("tc qdisc del dev eth0 root 2>/dev/null; " +
              (f"tc qdisc add dev eth0 root netem {netem}" if netem else "true"))


def set_up(side, number, options):
    """The network, the RDMA device, and the relay as a user of its own."""
    side.must("dmesg -c >/dev/null; modprobe virtio_net\n"
              "mkdir -p /run/far/www /run/far/was /run/viaduct; chmod 1777 /run/far /run/far/www\n"
              f"hostname {NAMES[number]}")
    for family in ADDRESSES.values():
        nodad = "nodad" if ":" in family[number] else ""
        side.must(f"ip addr add {family[number]}/{family[2]} dev eth0 {nodad}")
    side.must("echo 1 >/proc/sys/net/ipv6/conf/eth0/keep_addr_on_down; ip link set eth0 up; "
              f"ip addr add {BESIDE[number]}/{BESIDE[2]} dev eth1; ip link set eth1 up")
    if "rxe" not in options.without:
        side.must("for m in crc32_generic rdma_rxe ib_uverbs rdma_ucm; do modprobe $m; done; "
                  "for i in 0 1; do rdma link add rxe$i type rxe netdev eth$i; "
                  "rdma link show rxe$i/1 | grep -q 'state ACTIVE' && ibv_devinfo -d rxe$i || "
                  "exit; done")
    # Init has set it.
    side.must("test \"$(ulimit -l)\" = unlimited")
    if "relay" not in options.without:
        side.must(f"""cp /tests/key /tests/viaductd.conf /run/viaduct
            chmod 600 /run/viaduct/key
            chown -R {RELAY_UID}:{RELAY_UID} /run/viaduct""")
        start_relay(side)
    lose(side, options.loss)
    # See tests/integrity/run.py.
    side.must("echo 0 >/proc/sys/net/ipv4/tcp_invalid_ratelimit")


def meet(bed):
    """Two small programs meet through the daemons: the key, the cable and sock_diag are right."""
    inside = "exec 2>/run/far/meet-said; /tests/meet publish /run/viaduct/relay.sock 0"
    bed.a.serve(f"nc -l -p 7400 -e /usr/bin/dash -c '{inside} >/run/far/meet'", listening(7400))
    ask = f"until /tests/meet ask {RELAY} 0 >/run/far/meet; do sleep 0.1; done"
    bed.b.must(f"nc {ADDRESSES['IPv4'][0]} 7400 -e /usr/bin/dash -c '{ask}' </dev/null; "
               "cat /run/far/meet")
    answer = bed.b.must("cat /run/far/meet")
    bed.a.served()
    asked = bed.a.must("cat /run/far/meet")
    if answer != "answer: I am the holder\n" or "asked: I am the asker\n" not in asked:
        bed.fail(f"the relay: '{answer}', '{asked}'")
    bed.b.must("grep 'link made' /run/viaduct/log")


# ---- what is told ----

def logs(side):
    """By name, all that a guest can tell."""
    side.run("cd /run/far; ps -o pid,stat,args | grep -v ']$' >ps; ss -tanpe >ss; dmesg >dmesg; "
             "/viaduct/viaduct stat --json >stat.json 2>&1; "
             "rdma resource show >rdma 2>&1; rdma statistic show link rxe0/1 >>rdma 2>&1; "
             "tc -s qdisc show dev eth0 >tc; cp /run/said said; "
             "cp /run/viaduct/log viaductd.log; "
             "for f in report-* log-*; do [ ! -e $f ] || cat $f >>was/$f; done; "
             "for t in /proc/[0-9]*/task/*; do [ -z \"$(tr -d '\\0' <$t/cmdline)\" ] || "
             "head -n 1 $t/comm $t/syscall $t/wchan; done >threads 2>&1; true", 60)
    names = side.run("cd /run/far; for f in was/* ps ss dmesg stat.json rdma tc said "
                     "threads viaductd.log; do test -f $f && echo $f; done; true", 30)[1].split()
    return side.kept | {name.removeprefix("was/"): side.run(f"cat /run/far/{name}", 30)[1]
                        for name in names}


def tell(sides, options, failed):
    for side in sides:
        if side.host.process.poll() is not None:
            continue
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


# ---- what a test does ----

def parser(name):
    """The options that every test on this bed has."""
    made = argparse.ArgumentParser(prog=name)
    made.add_argument("viaduct", type=pathlib.Path)
    made.add_argument("cache")
    made.add_argument("--expect", default="tcp", metavar="rdma|tcp[:REASON,...]",
                      help="what the connections are on, and the reasons allowed on TCP")
    made.add_argument("--keep-logs", metavar="DIR",
                      help="everything that both guests can tell, in A and B below this folder")
    made.add_argument("--upgrade-after", type=int, default=0, metavar="N",
                      help="operations, as for `viaduct run`; default 0")
    made.add_argument("--redirect", default="auto", metavar="SIZE",
                      help="receives of so many bytes are redirected, as of viaduct run")
    made.add_argument("--user", type=int, metavar="UID", help="of the programs, not root")
    made.add_argument("--ipv6", action="store_true", help="the connections are over IPv6")
    made.add_argument("--loss", nargs="?", const=LOSS, metavar="NETEM",
                      help=f"what the cable does, at both ends, default: {LOSS.replace('%', '%%')}")
    made.add_argument("--without", action="append", default=[], choices=["rxe", "relay"],
                      help="no RDMA device, or no relay, on both hosts")
    return made


def parse(made, arguments):
    options = made.parse_args(arguments)
    options.expect, _, reasons = options.expect.partition(":")
    options.reasons = tuple(filter(None, reasons.split(","))) or REASONS
    if options.expect not in ("rdma", "tcp"):
        made.error("--expect rdma or tcp")
    return options


@contextlib.contextmanager
def hosts(debian, content, options):
    """The two, set up; a failure comes with what both can tell."""
    began = time.monotonic()
    with guest.boot(debian, content, count=2, cables=2, memory_mb=1024) as booted:
        sides = [Side(host) for host in booted]
        ready = time.monotonic()
        print(f"kernel {debian.version}, two hosts, {ready - began:.1f} s", flush=True)
        bed = Bed(*sides, options)
        try:
            for number, side in enumerate(sides):
                set_up(side, number, options)
            if "relay" not in options.without:
                meet(bed)
            bed.set_up_s = time.monotonic() - ready
            print(f"set up after {bed.set_up_s:.1f} s more", flush=True)
            yield bed
        except guest.Failure:
            with contextlib.suppress(guest.Failure):
                tell(sides, options, failed=True)
            sys.stdout.flush()
            raise
        tell(sides, options, failed=False)


def cases(bed, chosen):
    """Runs functions by name, with the time that each has taken."""
    for name, case in chosen.items():
        began = time.monotonic()
        print(f"{name}:", flush=True)
        bed.fresh()
        case(bed)
        print(f"  {time.monotonic() - began:.1f} s", flush=True)
