#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`viaduct doctor HOST` between two hosts with RDMA: the whole way, to bytes that went over it;
and what is taken away is named.

usage: way.py [OPTION]... VIADUCT CACHE
"""
import json
import time

import bed as beds
import guest
import hosts
import kernel

SERVER, CLIENT = beds.ADDRESSES["IPv4"][:2]
IPV6 = beds.ADDRESSES["IPv6"][0]
USER = 1000
PORT = 7431
KEPT = "/var/lib/viaduct/redirect"
ALL = ["name", "route", "device", "daemon", "relay", "answer", "connection", "latency",
       "sending", "receiving", "device-there", "relay-back", "against-tcp", "redirect"]


def fail(what, checks):
    raise guest.Failure(what + "\n" + "\n".join(
        f"  {c['state']:7}  {c['name']:14} {c['text']} {c['remedy']}" for c in checks.values()))


# On the cable RoCE alone is lost: UDP to this port.
NO_ROCE = """tc qdisc add dev eth0 root handle 1: prio
    tc qdisc add dev eth0 parent 1:3 netem loss 100%
    tc filter add dev eth0 parent 1: protocol ip u32 match ip protocol 17 0xff \\
        match ip dport 4791 0xffff flowid 1:3"""


def doctor(side, title, problems=(), notes=(), either=(), user=None, before="", server=SERVER,
           options=""):
    """The checks of the way to A by name; these are the problems, and these the notes. Those of
    `either` are a note or none, as the times have come out that were measured."""
    began = time.monotonic()
    under = beds.as_user(user) if user else ""
    status, shown = side.run(f"{before} exec {under} /viaduct/viaduct doctor --json {options} "
                             f"{server}")
    print(f"{title}: {time.monotonic() - began:.1f} s", flush=True)
    try:
        checks = {c["name"]: c for c in json.loads(shown)["checks"]}
    except ValueError as error:
        raise guest.Failure(f"{title}: status {status}, {error}: {shown}") from error
    for c in checks.values():
        print(f"  {c['state']:7}  {c['name']:14} {c['text']}")
    for state, wanted in (("problem", problems), ("note", notes)):
        said = [n for n, c in checks.items() if c["state"] == state and n not in either]
        if said != list(wanted):
            fail(f"{title}: the {state}s are not {wanted}", checks)
    if status != (1 if problems else 0):
        fail(f"{title}: status {status}", checks)
    return checks


def has(checks, name, words):
    if words not in checks[name]["text"] + " " + checks[name]["remedy"]:
        fail(f"{name} does not say '{words}'", checks)


def answering(side, user=None):
    under = beds.as_user(user) if user else ""
    side.serve(f"{under} /viaduct/viaduct doctor --answer", beds.listening(PORT))


def end_answering(side):
    side.must("kill $(pidof viaduct) && until ! pidof viaduct; do sleep 0.05; done")


def all_by_rdma(a, b, title, server=SERVER, **how):
    before = [hosts.packets(side.host) for side in (a, b)]
    checks = doctor(b, title, server=server, **how)
    if list(checks) != ALL or checks["connection"]["value"] != "rdma":
        fail("not all of it was tried over RDMA", checks)
    has(checks, "connection", f"bytes to {server} go by rdma, bytes from it by rdma")
    for name, unit in (("latency", "us"), ("sending", "MB/s"), ("receiving", "MB/s"),
                       ("relay", "us"), ("relay-back", "us")):
        if checks[name]["unit"] != unit or not checks[name]["value"] > 0:
            fail(f"{name} has no value", checks)
    for name in ("latency", "sending", "receiving"):
        has(checks, name, " by rdma")
    for name in ("device", "device-there"):
        has(checks, name, "rxe0, port 1, GID ")
    # By the device's own counts: a throughput is of 64 KiB at least, in packets of 1 KiB.
    for side, sent in zip((a, b), before):
        more = hosts.packets(side.host) - sent
        print(f"  {side.name}: {more} RoCE packets")
        if more < 64:
            fail(f"{side.name}: too few went over rxe0", checks)
    return checks


def verdict(checks, b):
    """RDMA is slower than TCP, on such a device, but not surely on a busy machine. The line that is
    kept says the same. As notes: ["against-tcp"] or none."""
    notes = ["against-tcp"] if checks["against-tcp"]["state"] == "note" else []
    kept = " slower" if notes else ""
    has(checks, "against-tcp",
        f"RDMA is {'' if notes else 'not '}slower; by it and by TCP: a round trip ")
    b.must(f"test $(grep -c '^{SERVER} [0-9a-z]* 20[0-9-]*{kept}$' {KEPT}) = 1 && "
           f"test $(grep -c '^{SERVER} ' {KEPT}) = 1")
    return notes


def measured(a, b):
    """What was measured is kept, whatever else the file holds, until it is measured again."""
    other = "192.0.2.1 4096 2026-01-01"
    checks = all_by_rdma(a, b, "all of it, measured", either=["against-tcp"])
    has(checks, "redirect", "16K")
    slower = verdict(checks, b)
    b.must(f"test $(stat -c %a {KEPT}) = 644")
    checks = all_by_rdma(a, b, "as it was", notes=slower)
    for name in ("against-tcp", "redirect"):
        has(checks, name, ", as measured on 2")
    b.must(f"echo {SERVER} 77777 $(date -u +%F) >{KEPT}; echo '{other}' >>{KEPT}")
    checks = all_by_rdma(a, b, "as it was kept")
    has(checks, "against-tcp", "RDMA is not slower, as measured on 2")
    has(checks, "redirect", "77777 bytes or more")
    checks = doctor(b, "measured again", options="--measure", either=["against-tcp"])
    has(checks, "redirect", "256K")
    b.must(f"! grep -q 77777 {KEPT} && grep -q '^{other}$' {KEPT}")
    return verdict(checks, b)


def measured_there(a, b, slower):
    """Who answers helps to measure all the same, and says what holds for others."""
    a.must(f"mkdir -p $(dirname {KEPT}); echo '{CLIENT} off 2026-01-01 slower' >{KEPT}")
    answering(a)
    checks = all_by_rdma(a, b, "measured there", notes=["connection", *slower])
    has(checks, "connection", f"viaduct doctor --measure {CLIENT}")
    a.must(f"rm {KEPT}")
    end_answering(a)


def whole_way(a, b):
    doctor(b, "nobody answers", notes=["answer"])
    answering(a)
    slower = measured(a, b)
    end_answering(a)
    measured_there(a, b, slower)
    for server in (SERVER, IPV6):
        b.must(f"echo {server} off $(date -u +%F) >>{KEPT}.new")
    b.must(f"mv {KEPT}.new {KEPT}")
    answering(a, USER)
    all_by_rdma(a, b, "all of it, of users", user=USER)
    all_by_rdma(a, b, "all of it, on IPv6", server=IPV6)


def no_memory(b):
    checks = doctor(b, "no memory can be pinned", ["device", "connection"], user=USER,
                    before="ulimit -l 64;")
    has(checks, "device", "ulimit -l")
    if "sending" not in checks or " by tcp" not in checks["sending"]["text"]:
        fail("nothing was measured over TCP", checks)


def no_roce(a, b):
    """TCP goes on, whichever of the ways RoCE is cut on; nobody loses the connection by it."""
    for blocked in ([a], [b], [a, b]):
        for side in blocked:
            side.must(NO_ROCE)
        names = " and ".join(side.name for side in blocked)
        checks = doctor(b, f"no RoCE from {names}", ["connection"])
        has(checks, "connection", "UDP port 4791")
        if "dropped 0," in blocked[0].must("tc -s qdisc show dev eth0 | grep -A 1 netem"):
            fail("nothing was dropped", checks)
        for side in blocked:
            side.must("tc qdisc del dev eth0 root")


def no_daemon(a, b):
    a.must("kill $(pidof viaductd) && until ! pidof viaductd; do sleep 0.05; done")
    checks = doctor(b, "nor a viaductd", ["relay", "connection", "device-there", "relay-back"])
    has(checks, "relay", "cannot be connected: Connection refused")
    has(checks, "connection", "the two ends have not found each other")


def no_device(a, b):
    end_answering(a)  # rxe waits for whoever has it open
    a.must("rdma link delete rxe0")
    answering(a, USER)
    checks = doctor(b, "no device there", ["connection", "device-there"])
    has(checks, "connection", "there, no RDMA device has this connection's address")
    has(checks, "device-there", f"viaduct doctor {CLIENT}")


def test(*arguments):
    made = beds.parser("way.py")
    options = beds.parse(made, arguments)
    debian = kernel.kernel(options.cache)
    with beds.hosts(debian, beds.make_image(debian, options), options) as bed:
        a, b = bed.a, bed.b
        whole_way(a, b)
        no_memory(b)
        no_roce(a, b)
        all_by_rdma(a, b, "all of it, again")
        no_device(a, b)
        no_daemon(a, b)


if __name__ == "__main__":
    guest.main(test)
