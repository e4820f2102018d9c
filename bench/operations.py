# SPDX-License-Identifier: Apache-2.0
"""What a message costs between two hosts, counted: what is asked of the RDMA device, system calls,
packets. It is the part of hosts.py behind --operations.

Messages go there and back by blocking calls, over one connection. Each is run with few turns and
with many, and the difference is divided by the messages of the turns more, so that what a connection
costs at its start and its end is not in it. A figure is the sum over both hosts: what one end does to
send a message, and the other to receive it. A remote procedure call is two messages.
"""
import collections
import re

from hosts import gid_index

SIZES = (64, 4096, 65536)
FEW, MANY = 100, 400
# A round of rpc-pace has so many calls of an int, which it makes one or more times.
ROUND_CALLS, FEW_ROUNDS, MANY_ROUNDS = 200, 1, 3
PORT = 7300
COUNT = "/run/verbs-count"
PRELOAD = "/tests/verbs_count.so"
TRIGGER = "hist:keys=common_pid.execname,id.syscall"
EVENT = "/sys/kernel/tracing/events/raw_syscalls/sys_enter"
LINE = re.compile(r"common_pid: (\S+) *\[ *(\d+)\], id: (?:sys_)?(\S+) *\[ *\d+\] \} hitcount: +(\d+)")
SHOWN = ("sends", "signalled", "post-recv", "completions", "poll", "arm", "event", "system calls",
         "packets")


def begin(side):
    side.must("mountpoint -q /sys/kernel/tracing || mount -t tracefs none /sys/kernel/tracing\n"
              f"rm -f {COUNT}; echo '{TRIGGER}' >{EVENT}/trigger")


def sent(side):
    return int(side.must("cat /sys/class/net/eth0/statistics/tx_packets"))


def end(side, program):
    """What has been counted of that program since `begin`, by name."""
    lines = side.must(f"cat {EVENT}/hist; echo '!{TRIGGER}' >{EVENT}/trigger")
    lines = LINE.findall(lines)
    # A line keeps the name that the process had at its first call of that kind, which may be that of
    # the program that executed this one.
    processes = {process for name, process, _, _ in lines if name == program[:15]}
    found = collections.Counter()
    for _, process, call, hits in lines:
        if process in processes:
            found["system calls"] += int(hits)
            found[f"{call}()"] += int(hits)
    for line in side.must(f"cat {COUNT} 2>/dev/null || true").splitlines():
        name, number = line.split()
        found[name] += int(number)
    return found


def counted(bed, programs, run, turns):
    before = [sent(side) for side in (bed.a, bed.b)]
    for side in (bed.a, bed.b):
        begin(side)
    run(turns)
    found = collections.Counter()
    for side, program, packets in zip((bed.a, bed.b), programs, before):
        found["packets"] += sent(side) - packets
        found.update(end(side, program))
    return found


def a_message(bed, programs, run, few=FEW, many=MANY, turns=1):
    """`run` makes as many times so many turns as it is told."""
    less, more = counted(bed, programs, run, few), counted(bed, programs, run, many)
    return {name: (more[name] - less[name]) / (2 * (many - few) * turns) for name in more}


def by_rstream(bed, pair, contender, size):
    def run(turns):
        how = f"-p {PORT} {contender.rstream} -T b -S {size} -C 1 -I {turns}"
        pair(bed, f"rstream -b {bed.server} {how}", f"rstream -s {bed.server} {how}", contender,
             contender, listening=contender.name != "rsockets")
    return a_message(bed, ("rstream", "rstream"), run)


def by_calls(bed, pair, contender):
    where = f"{bed.server}:{PORT}"

    def run(rounds):
        pair(bed, f"/tests/rpc-serve {where} run", f"/tests/rpc-pace {where} {rounds} int",
             contender, contender, listening=contender.name != "rsockets")
    return a_message(bed, ("rpc-serve", "rpc-pace"), run, FEW_ROUNDS, MANY_ROUNDS, ROUND_CALLS)


def by_verbs(bed, size):
    """Of the library's own example, which sends, receives, and sleeps in between."""
    gids = [gid_index(side, address) for side, address in zip((bed.a, bed.b), bed.addresses)]
    ping = (f"env LD_PRELOAD={PRELOAD} VERBS_COUNT={COUNT} ibv_rc_pingpong -d rxe0 -e -s {size} "
            "-n %d -g %d")

    def run(turns):
        bed.a.serve(ping % (turns, gids[0]), "ss -Hltn | grep :18515")
        bed.b.must(f"{ping % (turns, gids[1])} {bed.server}")
        bed.a.served()
    return a_message(bed, ("ibv_rc_pingpong", "ibv_rc_pingpong"), run)


def show(name, found):
    print(f"  {name:10}" + "".join(f"{found.get(what, 0):13.2f}" for what in SHOWN))
    calls = {n: c for n, c in found.items() if n.endswith("()") and c >= 0.005}
    print("             " + ", ".join(f"{n} {c:.2f}" for n, c in
                                     sorted(calls.items(), key=lambda kept: -kept[1])), flush=True)


def rows(bed, pair, contenders, callers):
    """By name, and by way, what counts a message."""
    yield "RPC: int to int", {c.name: lambda c=c: by_calls(bed, pair, c) for c in callers}
    for size in SIZES:
        yield f"{size} B", {
            **{c.name: lambda c=c, size=size: by_rstream(bed, pair, c, size) for c in contenders},
            "verbs": lambda size=size: by_verbs(bed, size)}


def table(bed, pair, contenders, callers, only=None):
    """By row and way, what was counted for a message; of rows whose name holds one of these texts."""
    results = {}
    for row, ways in rows(bed, pair, contenders, callers):
        if only and not any(text in row for text in only):
            continue
        print(f"messages of {row}\n            " + "".join(f"{what:>13}" for what in SHOWN))
        found = results[row] = {}
        for name, count in ways.items():
            found[name] = count()
            show(name, found[name])
    return results
