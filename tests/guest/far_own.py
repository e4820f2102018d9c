# SPDX-License-Identifier: Apache-2.0
"""The small programs of this folder between two hosts: transfer.py and others. far.py runs them. Each
goes on in turns until the paths have been looked at, and moves its bytes then."""
import pathlib

from bed import BESIDE, listening

HERE = pathlib.Path(__file__).resolve().parent
PAYLOAD_BYTES = 2000000
MEMLOCK_KB = 8192
REDIRECT, TURNS = 4096, 60


def transfer(bed):
    port, count = 7000, PAYLOAD_BYTES
    command = f"python3 -S /tests/transfer.py %s {bed.server} {port} {count}"
    bed.a.serve(f"{bed.under('transfer')} {command % 'listen'}", listening(port))
    bed.b.serve(f"{bed.under('transfer')} {command % 'connect'} /run/far/go", "true")
    bed.look(port)
    bed.go()
    for side in (bed.b, bed.a):
        if (words := f"{count} bytes are right") not in (said := side.served()):
            bed.fail(f"{side.name} does not say '{words}': {said}")
    bed.judge("transfer", ["transfer"], 1, 1)
    # What one end sends when the other has shut down its own sending goes over TCP.
    most = max(side.report("transfer")["tx_direct_bytes"] for side in (bed.a, bed.b))
    if bed.rdma and most < count:
        bed.fail(f"the end that was first has sent {most} of {count} bytes direct")


def redirected(bed, name, port, turns):
    """Both ends of that program, with receives that are redirected."""
    before, bed.redirect = bed.redirect, REDIRECT
    command = f"python3 -S /tests/{name}.py %s {bed.server} {port} {turns}"
    bed.a.serve(f"{bed.under(name)} {command % 'listen'}", listening(port))
    bed.b.serve(f"{bed.under(name)} {command % 'connect'}", "true")
    bed.redirect = before
    bed.look(port)
    bed.go()


def redirect(bed, turns=TURNS):
    """Receives that give their memory away, and take it back: by signals and time-outs."""
    redirected(bed, "redirect", 7001, turns)
    said = bed.b.served()
    if " bytes are right" not in said:
        bed.fail(f"B does not say that its bytes are right: {said}")
    bed.a.served()
    count = int(said.splitlines()[-1].split()[0])  # after what Python may warn of
    print(f"  {said.splitlines()[-1]}")
    bed.judge("redirect", ["redirect"], count, 1)
    counts = [side.report("redirect")["redirects"] for side in (bed.a, bed.b)]
    if bed.rdma and (counts[0] != counts[1] or counts[0] < 2):
        bed.fail(f"there were {counts[0]} and {counts[1]} redirects")
    if bed.rdma and bed.a.report("redirect")["zero_copies"] < 1:
        bed.fail("nothing was sent without a copy")


def learns(bed):
    """Nobody has measured the other host: a long connection finds out whether redirection pays."""
    port, path = 7008, pathlib.Path("/var/lib/viaduct/learnt")
    command = f"python3 -S /tests/redirect.py %s {bed.server} {port} 0"
    bed.a.serve(f"{bed.under('learns')} {command % 'listen'}", listening(port))
    bed.b.serve(f"{bed.under('learns')} {command % 'connect'} {path}", "true")
    bed.look(port)
    bed.go()
    said = bed.b.served()
    print(f"  {said.splitlines()[-1]}")
    if " bytes are right" not in said:
        bed.fail(f"B does not say that its bytes are right: {said}")
    bed.a.served()
    bed.judge("learns", ["learns"], int(said.splitlines()[-1].split()[0]), 1)
    host = bed.addresses[0]
    bed.b.must(f"cat {path}; grep -Eqx '{host} (16384|off) 20[0-9-]{{8}} (0|16384) rxe0' {path}")
    said = bed.b.run(f"/viaduct/viaduct explain {host}:{port}")[1]
    if "have found out on 20" not in " ".join(said.split()):
        bed.fail(f"explain: {said}")
    if bed.b.report("learns")["redirects"] < 1:
        bed.fail("nothing was offered")
    bed.b.must(f"rm {path}")


def memory(bed, turns=TURNS):
    """Memory that goes, or becomes something else, right after the call that had it."""
    redirected(bed, "memory", 7005, turns)
    said = [side.served().splitlines()[-1] for side in (bed.b, bed.a)]
    if said[0] != said[1] or " bytes are right" not in said[0]:
        bed.fail(f"B and A do not say that their bytes are right: {said}")
    print(f"  {said[0]}")
    count = int(said[0].split()[0]) // 2
    bed.judge("memory", ["memory"], count, 1)
    for side in (bed.a, bed.b):
        if bed.rdma and side.report("memory")["redirects"] < 2:
            bed.fail(f"{side.name}: nothing was redirected")
        if bed.rdma and side.report("memory")["zero_copies"] < 1:
            bed.fail(f"{side.name}: nothing was sent without a copy")


def tail(bed):
    """More messages than there is credit for, from a sender that then has nothing to say."""
    port = 7002
    for pause_s in (0, 0.5):
        bed.fresh()
        command = f"python3 -S /tests/tail.py %s {bed.server} {port} {pause_s}"
        bed.a.serve(f"{bed.under('tail')} {command % 'listen'}", listening(port))
        bed.b.serve(f"{bed.under('tail')} {command % 'connect'}", "true")
        bed.look(port)
        bed.go()
        bed.b.served()
        said = bed.a.served()
        if "bytes are right" not in said:
            bed.fail(f"A does not say that its bytes are right: {said}")
        bed.judge("tail", ["tail"], 1, int(said.split()[-4]))


def packets(side):
    """What each device has sent."""
    return [side.device_packets(i) for i in range(2)]


def ways(bed):
    """Two connections of the same two processes, on two cables: each goes by the device that
    has its address, and needs no other."""
    port, first, beside = 7003, bed.addresses, BESIDE[:2]
    command = f"python3 -S /tests/ways.py %s {port} /run/far {first[0]} {beside[0]}"
    bed.a.serve(f"{bed.under('ways')} {command % 'listen'}",
                f"test 2 = $(ss -Hltn sport = :{port} | wc -l)")
    bed.b.serve(f"{bed.under('ways')} {command % 'connect'}", "true")
    for bed.addresses in (beside, first):
        bed.look(port)
    def go_by(i):
        bed.b.must(f"""cd /run/far; touch go-{i}
            until [ -e went-{i} ]; do sleep 0.05; done; rm go-{i}; rm went-{i}""")

    bed.b.must("touch /run/far/quiet")
    go_by(0)
    go_by(1)  # after it no turn is under way
    for i, cut in ((0, False), (1, False), (0, True)):
        if cut:
            bed.a.must("ip link set eth1 down")
        before = [packets(side) for side in (bed.a, bed.b)]
        go_by(i)
        sent = [[now - was for now, was in zip(packets(side), past)]
                for side, past in zip((bed.a, bed.b), before)]
        print(f"  by the {('first', 'second')[i]}{', the other cut' if cut else ''}: A and B "
              f"have sent {sent[0]} and {sent[1]} packets by their devices")
        if bed.rdma and (min(s[i] for s in sent) < 300 or max(s[1 - i] for s in sent) > 30):
            bed.fail(f"connection {i} has gone by the other device")
    bed.a.must("ip link set eth1 up")
    bed.go()
    if "all came back" not in (said := bed.b.served()):
        bed.fail(f"B says {said}")
    bed.a.served()


def forks(bed):
    """A child has the connection, too: both ends are on TCP, and it can be used, until it ends."""
    port = 7004
    command = f"python3 -S /tests/forks.py %s {bed.server} {port} /run/far"
    bed.a.serve(f"{bed.under('forks')} {command % 'listen'}", listening(port))
    bed.b.serve(f"{bed.under('forks')} {command % 'connect'}", "true")
    def step(name):
        bed.b.must(f"""cd /run/far; touch {name}
            until [ -e {name}-done ]; do sleep 0.05; done; rm {name}; rm {name}-done""")

    for _ in range(2):
        bed.look(port)
        step("fork")
        step("child")
        for side, reason in ((bed.a, "shared"), (bed.b, "peer-asked")):
            found = {(c["path"], c["reason"]) for c in bed.connections(side, port)}
            if bed.rdma and found != {("tcp", reason)}:
                bed.fail(f"{side.name}: {found}")
        step("child")
        step("reap")
    bed.look(port)
    bed.go()
    if "all came back" not in (said := bed.b.served()):
        bed.fail(f"B says {said}")
    bed.a.served()
    bed.judge("forks", ["forks"], 1, 1)


def lowat(bed):
    """SO_RCVLOWAT over bytes that lie unread, as the other end goes to TCP, and sends more."""
    port = 7009
    command = f"python3 -S /tests/lowat.py %s {bed.server} {port}"
    bed.a.serve(f"{bed.under('lowat')} {command % 'listen'}", listening(port))
    bed.b.serve(f"{bed.under('lowat')} {command % 'connect'}", "true")
    bed.look(port)
    bed.go()
    if "all bytes are right" not in (said := bed.b.served()):
        bed.fail(f"B says {said}")
    bed.a.served()
    bed.judge("lowat", ["lowat"], 64, 1)


def unprivileged(bed):
    """Another family, and another user, with as much locked memory as Debian lets him have."""
    with bed.instead("IPv6", 1000, MEMLOCK_KB):
        transfer(bed)


def slower(bed):
    """RDMA was measured to be slower than TCP, by one end or both: what follows is on TCP, and the
    other end is told."""
    port, count = 7006, 100000
    command = f"python3 -S /tests/transfer.py %s {bed.server} {port} {count}"
    kept = pathlib.Path("/var/lib/viaduct/redirect")
    peers = dict(zip((bed.b, bed.a), bed.addresses))
    for sides in ([bed.b], [bed.a], [bed.a, bed.b]):
        bed.fresh()
        for side in sides:
            side.must(f"mkdir -p {kept.parent}; "
                      f"echo '{peers[side]} off 2026-01-31 slower' >{kept}")
        bed.a.serve(f"{bed.under('slower')} {command % 'listen'}", listening(port))
        bed.b.serve(f"{bed.under('slower')} {command % 'connect'}", "true")
        said = [end.served() for end in (bed.b, bed.a)]
        for side in sides:
            side.must(f"rm {kept}")
        reports = {end.name: end.report("slower") for end in (bed.a, bed.b)}
        print(f"  {reports}")
        if any(f"{count} bytes are right" not in words for words in said):
            bed.fail(f"the ends say {said}")
        if any(r["upgraded"] or r["tx_direct_bytes"] for r in reports.values()):
            bed.fail("not everything has stayed on TCP")
        right = {side.name: ["slower" if side in sides else "peer-asked"] for side in peers}
        if bed.rdma and any(reports[name]["reasons"] != right[name] for name in right):
            bed.fail(f"the reasons are not {right}")


# Of each: what runs, the Debian programs that it needs, and what more is made for it.
PROGRAMS = {"transfer": (transfer, [], None),
            "redirect": (redirect, [], None),
            "learns": (learns, [], None),
            "memory": (memory, [], None),
            "tail": (tail, [], None),
            "ways": (ways, [], None),
            "forks": (forks, [], None),
            "lowat": (lowat, [], None),
            "unprivileged": (unprivileged, [], None),
            "slower": (slower, [], None)}


def add(content):
    """What all of them need in the image."""
    content.python("fcntl", "mmap", "os", "random", "select", "signal", "socket", "struct", "sys",
                   "termios", "threading")
    for name in ("ends.py", "transfer.py", "redirect.py", "memory.py", "tail.py", "ways.py",
                 "forks.py", "lowat.py"):
        content.file(f"/tests/{name}", HERE / name)
