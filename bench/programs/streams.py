# SPDX-License-Identifier: Apache-2.0
"""iperf3, NetPIPE and sockperf: nothing but the connection."""
from programs.rig import (Failure, client, find_number, free_port, measure, server,
                          servers)


def app_iperf3(bench):
    """iperf3, one stream"""
    no_unix = "iperf3 has no AF_UNIX"

    def command_for(_way, port):
        return ["iperf3", "-s", "-B", "127.0.0.1", "-p", str(port)]

    with servers(bench, bench.ways(no_unix), command_for) as where:
        for name, options in (("forward", []), ("reverse", ["-R"]),
                              ("64 KiB", ["-l", "64K"]), ("1 KiB", ["-l", "1K"])):
            def once(way, report, options=options):
                text = client(bench, way, [
                    "iperf3", "-c", "127.0.0.1", "-p", str(where[way]), "-f", "m",
                    "-t", bench.whole_seconds, *options], report)
                return find_number(r"([0-9.]+) Mbits/sec\s+receiver", text, 1 / 8000)
            measure(bench, "iperf3", name, "GB/s", once, no_unix=no_unix)


# size in bytes, and whether the time is what counts
NETPIPE = ((64, True), (16384, False), (65536, False), (1048576, False))


def app_netpipe(bench):
    """NetPIPE (NPtcp): round trip divided by two, and throughput"""
    for size, lower in NETPIPE:
        def once(way, report, size=size, lower=lower):
            port = free_port()
            out = bench.new_folder() / "np.out"
            # Both ends must be told the same.
            same = ["-P", str(port), "-l", str(size), "-u", str(size + 1), "-p", "0"]
            with server(bench, way, ["NPtcp", *same], port):
                client(bench, way, ["NPtcp", "-h", "127.0.0.1", *same, "-o", str(out)],
                       report)
            return netpipe_figure(out, size, lower)
        measure(bench, "netpipe", f"{size} B", "us" if lower else "GB/s", once, lower,
                no_unix="NetPIPE has no AF_UNIX")


def netpipe_figure(out, size, lower):
    for line in out.read_text().splitlines():
        length, megabits, seconds = line.split()[:3]
        if int(length) == size:
            return float(seconds) * 1e6 if lower else float(megabits) * 2**20 / 8e9
    raise Failure("no line for this size")


SPIN = ["--nonblocked"]  # recvfrom until something is there
# What a second may bring at most: sockperf counts on less by itself, and then gives up.
MOST = "--mps=5000000"
# name, bytes, and what both ends are told unless Viaduct runs them
SOCKPERF = (("64 B", 64, []), ("4096 B", 4096, []), ("64 B, rest spins", 64, SPIN))


def app_sockperf(bench):
    """sockperf ping-pong: half a round trip"""
    for name, size, others in SOCKPERF:
        def once(way, report, size=size, others=others):
            port = free_port()
            same = ["--tcp", "-i", "127.0.0.1", "-p", str(port),
                    *(others if way != "viaduct" else [])]
            # One for each run: one that spins takes a processor.
            with server(bench, way, ["sockperf", "sr", *same], port):
                text = client(bench, way, ["sockperf", "pp", *same, "-m", str(size),
                                           "-t", bench.whole_seconds, MOST], report)
            return find_number(r"Latency is\s+([0-9.]+)", text)
        measure(bench, "sockperf", name, "us", once, True,
                no_unix="this sockperf has no AF_UNIX")
