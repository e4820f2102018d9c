#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two hosts on a cable: the native interface beside raw verbs, and answers that are redirected.

The hosts are QEMU guests in software with Debian's kernel and its software RDMA device (rxe): only
what stands in one row can be compared. Each row is run over each contender in turn, and again.
Figures are medians; ratios are medians of the ratios within a round, with the least and the
greatest: of what polls to the first contender, of what sleeps to `ibv_rc_pingpong -e`, which does,
too. Packets are those that both devices have sent, for one trip or transfer. A run that was not by
RDMA is a failure. ib_write_lat and ib_write_bw are of the package perftest, and are left out
without it.

usage: puts.py [OPTION]... VIADUCT CACHE

The other programs come from VIADUCT's build folder. CACHE keeps the kernel.
"""
import os
import pathlib
import re
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "guest"))
import bed as beds  # noqa: E402
import guest  # noqa: E402
import hosts  # noqa: E402
import kernel  # noqa: E402

SERVER = beds.ADDRESSES["IPv4"][0]
PORT, VERBS_PORT = 7310, 18515
LIMIT_S = 300
TURNS, STREAM_BYTES, REDIRECT_ROUNDS = 300, 4 << 20, 11
WARM_UP = 50  # of puts.c
# By the device from this size on; without it by frames.
DEVICE = "VIADUCT_REDIRECT=1024"
# Longer than any trip: as programs of raw verbs poll.
POLLS = "VIADUCT_SPIN=1000000"
PERFTEST = ("ib_write_lat", "ib_write_bw")


def native(bed, mode, setting, *numbers):
    """What the client says, without the path at its end."""
    bed.fresh()
    under = (f"env LD_LIBRARY_PATH=/viaduct {setting} VIADUCT_REPORT=/run/far/report-puts "
             "/tests/puts")
    bed.a.serve(f"{under} serve {PORT}", beds.listening(PORT))
    said = bed.b.must(f"{under} {mode} {SERVER} {PORT} {' '.join(map(str, numbers))}", LIMIT_S)
    bed.a.served(LIMIT_S)
    *said, path = said.rsplit(maxsplit=1)
    if path != "rdma":
        bed.fail(f"{mode}: the path is {path}")
    counts = bed.b.reports("puts")[0]["native"]
    if DEVICE in setting and counts["far_puts"] < counts["puts"] // 2:
        bed.fail(f"{mode}: of {counts['puts']} puts {counts['far_puts']} were by the device")
    return said[0]


def trip(setting=""):
    return lambda bed, size: float(native(bed, "trip", setting, size, TURNS))


def stream(setting="", mode="stream"):
    def measure(bed, size):
        return size / float(native(bed, mode, setting, size, STREAM_BYTES // size)) / 1.048576
    return measure


LOGP_TURNS = 60


def logp(bed, size):
    """o of the end that puts, o of the end that takes, and g: microseconds."""
    return [float(us) for us in native(bed, "logp", "", size, LOGP_TURNS).split()]


def verbs(bed, program, size, more):
    """Both ends of one of the programs of raw verbs; what the client says."""
    gids = [hosts.gid_index(side, address)
            for side, address in zip((bed.a, bed.b), beds.ADDRESSES["IPv4"])]
    by = "-g" if program.startswith("ibv_") else "-F -x"
    server, client = (f"{program} -d rxe0 {by} {gid} -s {size} {more}" for gid in gids)
    bed.a.serve(server, beds.listening(VERBS_PORT))
    said = bed.b.must(f"{client} {SERVER}", LIMIT_S)
    bed.a.served(LIMIT_S)
    return said


def pingpong(more="", program="ibv_rc_pingpong"):
    def measure(bed, size):
        said = verbs(bed, program, size, f"-n {TURNS} {more}")
        return float(re.search(r"= ([\d.]+) usec/iter", said).group(1))
    return measure


# Its own figures are by the processor's time stamps, which such a guest does not count evenly. But
# so many seconds are by the kernel's clock; of these so many at either end do not count.
PERFTEST_S, MARGIN_S = 4, 1


def perftest(program, more=""):
    """Microseconds an iteration."""
    def measure(bed, size):
        said = verbs(bed, program, size, f"-D {PERFTEST_S} -f {MARGIN_S} {more}")
        found = re.findall(rf"^\s*{size}\s+(\d+)\s", said, re.M)
        if len(found) != 1 or found[0] == "0":
            bed.fail(f"{program} says {said}")
        return (PERFTEST_S - 2 * MARGIN_S) * 1e6 / int(found[0])
    return measure


class Contender:
    """`turns`: of a run, if they are known. `beside`: the one to which its ratio is."""

    def __init__(self, name, measure, turns, beside, needs=None):
        self.name, self.measure, self.turns = name, measure, turns
        self.beside, self.needs = beside, needs


def trips(size):
    """Those that measure so many bytes, there and back."""
    polls, sleeps = "ibv_rc_pingpong", "ibv_rc_pingpong -e"
    found = [Contender(polls, pingpong(), TURNS, polls),
             Contender("ib_write_lat", perftest("ib_write_lat"), None, polls, "ib_write_lat"),
             Contender("put, polls", trip(POLLS), TURNS + WARM_UP, polls),
             Contender(sleeps, pingpong("-e"), TURNS, sleeps),
             Contender("put", trip(), TURNS + WARM_UP, sleeps)]
    if size >= 4096:
        found.append(Contender("put by the device", trip(DEVICE), TURNS + WARM_UP, sleeps))
    return found


def streams(size):
    count, raw = STREAM_BYTES // size, "ib_write_bw"
    return [Contender(raw, perftest("ib_write_bw", "-t 16"), None, raw, raw),
            Contender("put", stream(), 6 * count, raw),
            Contender("put by the device", stream(DEVICE), 6 * count, raw),
            Contender("the same, lent", stream(DEVICE, "lent"), 6 * count, raw)]


TRIPS = (8, 64, 1024, 4096, 8192, 16384, 65536)
STREAMS = (65536, 1 << 20)
ROWS = {f"there and back, {size} B": (size, trips(size)) for size in TRIPS} | \
       {f"one way, {size} B": (size, streams(size)) for size in STREAMS}


def sent(bed):
    return sum(side.device_packets() for side in (bed.a, bed.b))


def row(bed, name, rounds, have):
    size, contenders = ROWS[name]
    contenders = [c for c in contenders if not c.needs or c.needs in have]
    found = {c.name: [] for c in contenders}
    packets = {}
    for _ in range(rounds):
        for c in contenders:
            before = sent(bed)
            found[c.name].append(c.measure(bed, size))
            packets[c.name] = f"{(sent(bed) - before) / c.turns:6.1f} packets" if c.turns else ""
    print(f"{name} (load {os.getloadavg()[0]:.0f})")
    for c in contenders:
        times = found[c.name]
        ratios = [own / other for own, other in zip(times, found.get(c.beside, times))]
        print(f"  {c.name:19} {statistics.median(times):10.1f} us  "
              f"{statistics.median(ratios):5.2f} x ({min(ratios):.2f} to {max(ratios):.2f})  "
              f"{packets[c.name]}", flush=True)


def redirection(bed):
    print(f"answers, redirected before the question, after half, after all (load "
          f"{os.getloadavg()[0]:.0f})")
    print("  bytes, and for each: us, and how often it was full/partial/none")
    for line in native(bed, "redirect", "", REDIRECT_ROUNDS).splitlines():
        print(f"  {line}")


def overheads(bed, rounds):
    found = list(zip(*(logp(bed, 64) for _ in range(rounds))))
    print(f"puts of 64 B (load {os.getloadavg()[0]:.0f})")
    for name, times in zip(("o, send", "o, receive", "g"), found):
        print(f"  {name:19} {statistics.median(times):10.1f} us  ({min(times):.1f} to {max(times):.1f})")


def add(content, options):
    """What the image needs; returns which programs of perftest there are."""
    content.binary(beds.built(options, "tests/native/puts-bench"), "/tests/puts")
    content.file("/viaduct/libviaduct.so.0", beds.built(options, "libviaduct.so.0"))
    have = []
    for program in PERFTEST:
        try:
            content.program(program)
            have.append(program)
        except kernel.Missing as missing:
            print(missing)
    return have


def compare(*arguments):
    parser = beds.parser("puts.py")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", action="append", metavar="TEXT",
                        help="rows whose name holds this text, and others that are named so; "
                        "'redirection', 'overheads'")
    options = beds.parse(parser, ["--expect", "rdma", *arguments])
    debian = kernel.kernel(options.cache)
    content = beds.make_image(debian, options)
    content.python("glob", "socket")
    have = add(content, options)
    with beds.hosts(debian, content, options) as bed:
        print(bed.a.must("ibv_devinfo -v -d rxe0 | grep -E 'atomic_cap|max_qp_rd_atom|active_mtu'"))
        for name in ROWS:
            if not options.only or any(text in name for text in options.only):
                row(bed, name, options.rounds, have)
        if not options.only or "overheads" in options.only:
            overheads(bed, options.rounds)
        if not options.only or "redirection" in options.only:
            redirection(bed)


if __name__ == "__main__":
    guest.main(compare)
