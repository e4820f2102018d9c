#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two hosts on a cable, under Debian's own kernel: RDMA verbs between them, by rxe; and
Viaduct's programs, whose connections between hosts stay on TCP, with that reason.

usage: hosts.py VIADUCT CACHE
"""
import json
import pathlib
import re

import guest
import image
import kernel

ADDRESSES = {"IPv4": ("10.7.0.1", "10.7.0.2", 24), "IPv6": ("fd07::1", "fd07::2", 64)}
PORT = 7000
BYTES = 3000000
VIADUCT = "/viaduct/viaduct run --report /run/report --upgrade-after 0 --"
TRANSFER = "python3 -S /tests/transfer.py"
LISTENING = f"ss -Hltn | grep :{PORT}"
# What a user of a network may meet there.
NETEM = "netem delay 1ms 1ms loss 1% duplicate 1% reorder 5%"


def set_up(host, number):
    host.must("modprobe virtio_net")
    for *addresses, prefix in ADDRESSES.values():
        nodad = "nodad" if ":" in addresses[number] else ""
        host.must(f"ip addr add {addresses[number]}/{prefix} dev eth0 {nodad}")
    host.must("ip link set eth0 up; modprobe crc32_generic; modprobe rdma_rxe; "
              "modprobe ib_uverbs; modprobe rdma_ucm; "
              "rdma link add rxe0 type rxe netdev eth0")


def gid_index(host, address):
    """Where the port of rxe0 has the global identifier that means this address."""
    wanted = address if ":" in address else f"::ffff:{address}"
    code = ("import glob, socket\n"
            "for path in glob.glob('/sys/class/infiniband/rxe0/ports/1/gids/*'):\n"
            "    text = open(path).read().strip()\n"
            "    if socket.inet_pton(socket.AF_INET6, text) == "
            f"socket.inet_pton(socket.AF_INET6, '{wanted}'):\n"
            "        print(path.rsplit('/', 1)[1])\n")
    found = host.must(f"python3 -S -c \"{code}\"").split()
    if len(found) != 1:
        raise guest.Failure(f"guest {host.name}: rxe0 has {len(found)} GIDs of {address}")
    return int(found[0])


def pair(a, b, server, ready, client, words, but_not=None):
    """A server on A, its client on B: both must succeed, and both say these words."""
    a.serve(server, ready)
    outputs = (b.must(client), a.served())
    for host, output in zip("BA", outputs):
        if words not in output or (but_not and but_not in output):
            raise guest.Failure(f"guest {host} does not say '{words}': {output}")


def packets(host):
    shown = host.must("rdma statistic show link rxe0/1")
    return int(re.search(r"sent_pkts (\d+)", shown).group(1))


def verbs(a, b, family):
    server, client, _ = ADDRESSES[family]
    before = packets(a), packets(b)
    # The first words are exchanged over TCP, on IPv4; the GIDs say where the verbs go.
    ping = "ibv_rc_pingpong -d rxe0 -c -n 200 -g"
    pair(a, b, f"{ping} {gid_index(a, server)}", "ss -Hltn | grep :18515",
         f"{ping} {gid_index(b, client)} {ADDRESSES['IPv4'][0]}", "200 iters in")
    # It compares the bytes (-V). Its status says little: at its end one of its threads may
    # wait for an event on what the other has closed.
    ping = f"rping -v -V -C 10 -S 100 -a {server}"
    pair(a, b, f"{ping} -s || true", "rdma resource show cm_id | grep LISTEN",
         f"{ping} -c || true", "rdma-ping-9", "mismatch")
    sent = packets(a) - before[0], packets(b) - before[1]
    print(f"{family}: ibv_rc_pingpong and rping, {sent[0]} and {sent[1]} RoCE packets")
    if min(sent) < 200:
        raise guest.Failure("too few went over rxe0")


def reports(host):
    lines = [json.loads(line) for line in host.must("cat /run/report").splitlines()]
    return {key: sum(line[key] for line in lines) for key in
            ("connections", "upgraded", "tx_tcp_bytes", "rx_tcp_bytes", "tx_direct_bytes")}, \
        {reason for line in lines for reason in line["reasons"]}


def transfer(a, b, family, a_is, b_is):
    """One connection from B to A, each plain or under Viaduct; what the reports say."""
    server = ADDRESSES[family][0]
    under = {"plain": "", "viaduct": VIADUCT}
    ends = {a.name: (a, a_is), b.name: (b, b_is)}
    for host, _ in ends.values():
        host.must("rm -f /run/report")
    pair(a, b, f"{under[a_is]} {TRANSFER} listen {server} {PORT} {BYTES}", LISTENING,
         f"{under[b_is]} {TRANSFER} connect {server} {PORT} {BYTES}",
         f"{BYTES} bytes are right")
    return {name: reports(host) for name, (host, how) in ends.items() if how == "viaduct"}


def expect_tcp(found, connector):
    """The listener cannot know more than that nobody has come to the rendezvous."""
    for host, (counts, reasons) in found.items():
        print(f"  {host}: {counts} {sorted(reasons)}")
        if counts["connections"] != 1 or counts["upgraded"] or counts["tx_direct_bytes"]:
            raise guest.Failure("a connection between hosts must be one on TCP")
        if not reasons or not reasons <= ({"plain-peer", "too-short"} if host == "A"
                                          else {connector}):
            raise guest.Failure(f"the reasons of {host} are {sorted(reasons)}")


def expect_direct(found):
    (counts, _), = found.values()
    print(f"  {counts}")
    if counts["upgraded"] != 2 or not counts["tx_direct_bytes"]:
        raise guest.Failure("between two programs of one host nothing was upgraded")


def between_hosts(a, b):
    for family, (_, own, _) in ADDRESSES.items():
        for ends in (("viaduct", "viaduct"), ("plain", "viaduct"), ("viaduct", "plain")):
            print(f"{family}: listener {ends[0]}, connector {ends[1]}")
            expect_tcp(transfer(a, b, family, *ends), "plain-peer")
        print(f"{family}: on the connector's host, Viaduct serves the same port")
        b.serve(f"{VIADUCT} {TRANSFER} listen {own} {PORT} {BYTES}", LISTENING)
        expect_tcp(transfer(a, b, family, "viaduct", "viaduct"), "remote-peer")
        b.must("killall python3")


def lossy(a, b):
    print(f"{NETEM} on the cable")
    for host in (a, b):
        host.must(f"tc qdisc add dev eth0 root {NETEM}")
    # An end that only acknowledges may send too little for one loss in a hundred.
    for _ in range(20):
        expect_tcp(transfer(a, b, "IPv4", "viaduct", "viaduct"), "plain-peer")
        if not any("dropped 0," in host.must("tc -s qdisc show dev eth0") for host in (a, b)):
            return
    raise guest.Failure("netem has dropped nothing")


def test(viaduct, cache):
    debian = kernel.kernel(cache)
    content = image.Image(debian)
    content.rdma()
    content.viaduct(viaduct)
    content.python("glob", "json", "random", "socket", "threading")
    for name in ("ends.py", "transfer.py"):
        content.file(f"/tests/{name}", pathlib.Path(__file__).with_name(name))
    with guest.boot(debian, content, count=2) as (a, b):
        print(f"kernel {debian.version}, two hosts")
        set_up(a, 0)
        set_up(b, 1)
        for family in ADDRESSES:
            verbs(a, b, family)
        print("both ends on one host")
        expect_direct(transfer(a, a, "IPv4", "viaduct", "viaduct"))
        between_hosts(a, b)
        lossy(a, b)


if __name__ == "__main__":
    guest.main(test)
