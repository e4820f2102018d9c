# SPDX-License-Identifier: Apache-2.0
"""SCILAN's figures and tables."""
from .mechanisms import RECEIVE_COPY, Mechanisms
from .pairs import WakeUps
from .row import Row
from .ways import Apps, Bench
from .why import COPY_BOUND, NO_WIRE

ROWS = [
    Row("scilan-5a", "Fig. 5a: throughput, and the hardware's limit",
        "at the limit of two copies (21.8 MB/s); 90 % of it at 1,500 bytes",
        Bench([("stream", "bytes")], [1500, 256, 4096, 16384, 65536], "tcp,viaduct,floor"),
        1, "1500 B", base="floor",
        more="", less="The raw ring does nothing but copy: no socket, no check of the descriptor, "
                      "no count of bytes."),
    Row("scilan-5b", "Fig. 5b: without flow control, without receive copy",
        "flow control costs very little; the receive copy is what bounds. Without flow control a ring of "
        "ours would overwrite what is unread, so there is no such figure",
        Mechanisms([("viaduct", 0), ("without the receive copy", RECEIVE_COPY)], [32768, 1500]),
        way="without the receive copy", base="viaduct"),
    Row("scilan-t2a", "Table 2a: the receive copy alone",
        "36 MB/s (Pentium), 178 and 214 MB/s (UltraSPARC)",
        Bench([("copy", "bytes")], [16384, 1500, 65536], "ring")),
    Row("scilan-t2b", "Table 2b: latency against other stacks",
        "100baseT 209.3, SCILAN with interrupts 179.8, polling 16.1 us",
        Bench([("rtt", "time")], [4], "tcp,viaduct,tcp-spin,unix,floor"), 209.3 / 16.1, "4 B",
        more=NO_WIRE, less="TCP needs no interrupts of a device here."),
    Row("scilan-6a", "Fig. 6a: throughput against other stacks",
        "more than twice any other at all sizes",
        Bench([("stream", "bytes")], [8192, 1024, 4096, 25600, 65536], "tcp,viaduct,unix"),
        2, "8 KiB", more=NO_WIRE, less=COPY_BOUND),
    Row("scilan-6-sockmap", "Fig. 6: against another way past TCP on one host, eBPF's sockmap",
        "more than twice any other at all sizes", Apps("netpipe", contenders="tcp,sockmap,viaduct"),
        2, "netpipe", base="sockmap", more="A sockmap still makes a system call for each send and receive, "
        "and wakes a sleeper.", less=COPY_BOUND),
    Row("scilan-6b", "Fig. 6b: transfer time of short messages", "shortest; flat with polling",
        Bench([("rtt", "time")], [64, 4, 256, 1024], "tcp,viaduct,tcp-spin,unix")),
    Row("scilan-wakeups", "3.2: wake-ups a message under bursts", "at most one", WakeUps(
        "bursts", [(f"bursts of {n}", [str(64000 // int(n)), n]) for n in ("16", "1", "4", "64")],
        ("bursts of 16", ["20", "16"]))),
]
