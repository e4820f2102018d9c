# SPDX-License-Identifier: Apache-2.0
"""VMMC-2's figures and tables."""
from .engine import Cache, Native
from .pairs import Disk, Nuttcp, Own
from .row import Row
from .ways import Bench, Not
from .why import COPY_BOUND, GUESTS, NO_WIRE, PROGRAM

ROWS = [
    Row("vmmc2-3", "Fig. 3: LogP parameters, by sockets",
        "half a round trip 13.4 us, o below 4 us; by sockets 20 us, and TCP ten times as long",
        Bench([("logp", "logp")], [64], "tcp,viaduct,unix"), 10, "64 B, logp: half",
        more=NO_WIRE, less="TCP needs no interrupts of a device here: it wakes the peer directly."),
    Row("vmmc2-4", "Fig. 3 and 4: puts by the native interface",
        "one way 90 to 93 MB/s at the hardware's limit; 13.4 us; kernel TCP 15.7 MB/s (Fig. 7)",
        Native(), 92.6 / 15.7, "puts of 64 KB", more=NO_WIRE, less=COPY_BOUND),
    Row("vmmc2-t1", "Table 1: address translation",
        "hit 1.5 us, miss 50 us in the library (1 page), and 25.7 us more to pin", Cache(),
        50 / 1.5, "1 page", "hit", "miss",
        more="The miss of a library that keeps its table in memory is dearer than its hit by more.",
        less="Both are the library's work alone: the in-process interconnect pins no pages."),
    Row("vmmc2-t2", "Table 2: with and without the reliable link",
        "13.4 against 11.1 us; bandwidth 2 to 10 % less", Not(
            "links use reliable queue pairs (RC) alone: without, a lost packet would be lost "
            "bytes, and no code for unreliable ones (UC) is built")),
    Row("vmmc2-5", "Fig. 5: transfer redirection, and the adaptive send delay",
        "128 KB: 78.8 MB/s with redirection, 34 without; pays from 108 bytes; 94 % redirected",
        Not(GUESTS)),
    Row("vmmc2-6", "Fig. 6: small messages by sockets",
        "20 us one way; TCP ten times as long", Bench([("rtt", "time")], [64, 4, 1024, 4096]),
        10, "64 B", more=NO_WIRE,
        less="TCP needs no interrupts of a device here: it wakes the peer directly."),
    Row("vmmc2-7", "Fig. 7: ttcp", "TCP 15.7 MB/s; 38 MB/s, with redirection 84 MB/s",
        Nuttcp(), 84 / 15.7, "64 KiB", more=NO_WIRE, less=COPY_BOUND),
    Row("vmmc2-8", "Fig. 8: tftp, blocks of a file in turn",
        "19 MB/s, where writing the file is limited to 25 MB/s", Own("blocks", [
            (f"20 MB in blocks of {size}", ["20000000", size])
            for size in ("4096", "512", "65536")], ("2 MB in blocks of 4096", ["2000000", "4096"]))),
    Row("vmmc2-t3", "Table 3: PARFUM, a master and three workers",
        "tasks of 1: TCP 1302.68 s, VMMC-2 26.11 s; of 1000: 9.44 and 8.97 s",
        Own("farm", [(f"tasks of {n} pixels", ["65536", n])
                     for n in ("1", "5", "10", "50", "100", "250", "1000")],
            ("tasks of 1 pixels", ["4000", "1"])), 1302.68 / 26.11, "tasks of 1 ",
        less="The master and three workers share two processors here, so a reply waits until its "
             "worker has one; the paper's had a host each."),
    Row("vmmc2-pulsar", "Pulsar: a storage server", "200 % better", Disk(), 3, "random reads of 4 KiB, one",
        more=NO_WIRE, less=PROGRAM),
]
