#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two hosts on a cable: TCP, Viaduct over RDMA, rsockets and the kernel's SMC-R side by side.

The hosts are QEMU guests in software with Debian's kernel and its software RDMA device (rxe), so
that the figures themselves mean nothing: only what stands in one row can be compared. Each row is
one program, run over each contender in turn, and again. Figures are medians; ratios are medians
of the ratios to TCP within a round, with the least and the greatest, and above 1 is faster. A run
under Viaduct in which nothing went over RDMA is a failure; SMC does not count where a connection
has fallen back to TCP, and rsockets neither where the device has sent next to nothing.

`plain-peer` is what a connection costs that cannot be accelerated: the client under Viaduct, with
daemon and device, the server without.

With --operations nothing is timed: what a message costs each of them is counted (operations.py).

usage: hosts.py [OPTION]... VIADUCT CACHE

The other programs come from VIADUCT's build folder. CACHE keeps the kernel.
"""
import contextlib
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "guest"))
import bed as beds  # noqa: E402
import guest  # noqa: E402
import kernel  # noqa: E402
import operations  # noqa: E402

SERVER = beds.ADDRESSES["IPv4"][0]
PORT = 7300
SECONDS = 2
RSPRELOAD = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so"
LIMIT_S = 120
# A run moves more than that.
PACKETS_LEAST = 100


class Refused(Exception):
    """A contender that cannot run this program: what it said."""


class Contender:
    def __init__(self, name, before="", rstream="-T s"):
        self.name, self.before, self.rstream = name, before, rstream


CONTENDERS = [
    Contender("tcp"),
    Contender("viaduct", "/viaduct/viaduct run --report /run/far/report-hosts "
              "--log debug:/run/far/log-hosts --upgrade-after 0 --"),
    Contender("rsockets", f"env LD_PRELOAD=/tests/rsock.so:{RSPRELOAD}", rstream=""),
    Contender("smc", "env LD_PRELOAD=/tests/smc.so SMC_TOLD=/run/smc"),
]
TCP = CONTENDERS[0]
# Only from the sixteenth operation on, as a user would have it.
ACCELERATED = Contender("viaduct, plain peer",
                        CONTENDERS[1].before.replace(" --upgrade-after 0", ""))


def pair(bed, server, client, server_by, client_by, listening=True, direct=True):
    """Both ends of one run; what the client says. `direct`: bytes must go over RDMA. Sockets of
    rsockets are not `listening` for ss, and tell nobody when they are TCP's after all."""
    bed.fresh()
    ready = beds.listening(PORT) if listening else "sleep 1"
    bed.a.serve(f"{server_by.before} {server}", ready)
    before = bed.b.device_packets()
    status, said = bed.b.run(f"{client_by.before} {client}", LIMIT_S)
    if status != 0:
        bed.a.run("kill $(pidof rstream python3 rpc-serve) 2>/dev/null; true")
        raise Refused(f"status {status}: {said.strip()[-200:]}")
    bed.a.served(LIMIT_S)
    if client_by.name == "smc":
        paths = bed.b.must("cat /run/smc 2>&-; rm -f /run/smc").split()
        if not paths:
            raise Refused("no connection has told whether it was SMC's")
        if set(paths) != {"smc"}:
            raise Refused(f"{paths.count('tcp')} of {len(paths)} connections fell back to TCP")
    if not listening:
        sent = bed.b.device_packets() - before
        if sent < PACKETS_LEAST:
            raise Refused(f"the device has sent {sent} packets: that was TCP")
    if client_by.name == "viaduct" and direct and not bed.b.report("hosts")["tx_direct_bytes"]:
        bed.fail(f"nothing went over RDMA: {bed.b.report('hosts')}")
    return said


def rstream(bed, contender, size, count, turns):
    """Microseconds a transfer: `turns` there and back of `count` transfers each."""
    native = contender.name == "rsockets"
    by = TCP if native else contender
    how = f"-p {PORT} {contender.rstream} -S {size} -C {count} -I {turns}"
    said = pair(bed, f"rstream -b {SERVER} {how}", f"rstream -s {SERVER} {how}", by, by,
                listening=not native)
    return float(said.strip().splitlines()[-1].split()[-1])


def latency(size):
    return lambda bed, contender: rstream(bed, contender, size, 1, 500)


def bandwidth(size):
    return lambda bed, contender: rstream(bed, contender, size, 2000000 // size, 4)


def connects(what, server_by=None):
    def measure(bed, contender):
        serve = f"python3 -S /tests/connects.py serve {SERVER} {PORT}"
        client = f"python3 -S /tests/connects.py {what} {SERVER} {PORT} {SECONDS}"
        said = pair(bed, serve, client, server_by or contender, contender,
                    listening=contender.name != "rsockets", direct=what == "turns")
        return 1e6 / float(said.splitlines()[-1].split()[0])
    return measure


def remote_call(kind):
    """A call of libtirpc's, by the programs of tests/rpc."""
    def measure(bed, contender):
        where = f"{SERVER}:{PORT}"
        said = pair(bed, f"/tests/rpc-serve {where} run", f"/tests/rpc-pace {where} 3 {kind}",
                    contender, contender, listening=contender.name != "rsockets")
        return float(said.splitlines()[-1].split()[1])
    return measure


# Each gives microseconds.
ROWS = {
    "round trip, 64 B (rstream)": (latency(64), CONTENDERS),
    "round trip, 4 KiB (rstream)": (latency(4096), CONTENDERS),
    "round trip, 64 KiB (rstream)": (latency(65536), CONTENDERS),
    "stream, 64 B (rstream)": (bandwidth(64), CONTENDERS),
    "stream, 1 KiB (rstream)": (bandwidth(1024), CONTENDERS),
    "stream, 64 KiB (rstream)": (bandwidth(65536), CONTENDERS),
    "byte there and back (Python)": (connects("turns"), CONTENDERS),
    "connection made and used (Python)": (connects("connect"), CONTENDERS),
    "RPC: null call": (remote_call("null"), CONTENDERS),
    "RPC: int to int": (remote_call("int"), CONTENDERS),
    "RPC: 1 KiB argument": (remote_call("1KiB"), CONTENDERS),
    "RPC: 64 KiB argument": (remote_call("64KiB"), CONTENDERS),
    "RPC: 1 MiB argument": (remote_call("1024KiB"), CONTENDERS),
    "plain-peer: byte there and back": (connects("turns", TCP), [TCP, ACCELERATED]),
    "plain-peer: connection made and used": (connects("connect", TCP), [TCP, ACCELERATED]),
}


def row(bed, name, rounds):
    measure, contenders = ROWS[name]
    found = {c.name: [] for c in contenders}
    refused = {}
    for _ in range(rounds):
        for contender in contenders:
            if contender.name in refused:
                continue
            try:
                found[contender.name].append(measure(bed, contender))
            except Refused as reason:
                refused[contender.name] = str(reason)
    print(name, flush=True)
    results = {}
    for contender in contenders:
        times = found[contender.name]
        if contender.name in refused or not times:
            print(f"  {contender.name:22} does not run: {refused.get(contender.name)}")
            continue
        ratios = [t / own for t, own in zip(found["tcp"], times)]
        results[contender.name] = {"us": times, "ratios": ratios}
        print(f"  {contender.name:22} {statistics.median(times):10.1f} us  "
              f"{statistics.median(ratios):6.2f} x ({min(ratios):.2f} to {max(ratios):.2f})",
              flush=True)
    return results


def preloaded(folder, name):
    library = pathlib.Path(folder, f"{name}.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library,
                    HERE / "programs" / f"{name}.c"], check=True)
    return library


def parse(arguments):
    parser = beds.parser("hosts.py")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", action="append", metavar="TEXT",
                        help="rows whose name holds this text, and others that are named so")
    parser.add_argument("--operations", action="store_true",
                        help="counts what is asked of the device and the kernel for a message")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    return beds.parse(parser, ["--expect", "rdma", *arguments])


def count(bed, only):
    """SMC is left out: between such devices it is TCP."""
    env = f"env VERBS_COUNT={operations.COUNT} LD_PRELOAD={operations.PRELOAD}"
    rsockets = f"{env}:/tests/rsock.so:{RSPRELOAD}"
    viaduct = Contender("viaduct", f"{env} {CONTENDERS[1].before}", CONTENDERS[1].rstream)
    return operations.table(bed, pair,
                            [TCP, viaduct, Contender("rsockets", env, "")],
                            [TCP, viaduct, Contender("rsockets", rsockets)], only)


def content(debian, options, held, preloads=("rsock", "verbs_count")):
    """What the guests have: the image. `held` keeps a folder until it is written."""
    folder = held.enter_context(tempfile.TemporaryDirectory(prefix="viaduct-hosts-"))
    made = beds.make_image(debian, options)
    for program in ("rstream", "pidof", "sleep"):
        made.program(program)
    made.python("glob", "socket", "time")
    made.binary(RSPRELOAD, RSPRELOAD)
    for name in preloads:
        made.binary(preloaded(folder, name), f"/tests/{name}.so")
    made.file("/tests/connects.py", HERE / "programs" / "connects.py")
    made.binary(beds.built(options, "libviaduct-rpc.so"), "/viaduct/libviaduct-rpc.so")
    for name in ("rpc-serve", "rpc-pace"):
        made.binary(beds.built(options, f"tests/rpc/{name}"), f"/tests/{name}")
    made.file("/etc/netconfig", "/etc/netconfig")  # libtirpc's list of transports
    return made


def set_up(bed):
    for side in (bed.a, bed.b):
        side.must("sysctl -w net.ipv4.tcp_congestion_control=cubic")


def compare(*arguments):
    options = parse(arguments)
    rows = [name for name in ROWS
            if not options.only or any(text in name for text in options.only)]
    kernel.MODULES += ["smc"]
    debian = kernel.kernel(options.cache)
    results = {}
    with contextlib.ExitStack() as held:
        made = content(debian, options, held, ("smc", "rsock", "verbs_count"))
        bed = held.enter_context(beds.hosts(debian, made, options))
        set_up(bed)
        for side in (bed.a, bed.b):
            side.must("modprobe smc")
        if options.operations:
            results = count(bed, options.only)
            rows = []
        for name in rows:
            results[name] = row(bed, name, options.rounds)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    guest.main(compare)
