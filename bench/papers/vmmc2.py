# SPDX-License-Identifier: Apache-2.0
"""VMMC-2's figures and tables."""
from .engine import Cache, Native
from .guests import FarCache, Hosts, Overheads, Puts, Redirected, Reliable
from .pairs import Disk, Nuttcp, Own
from .row import Row
from .ways import Bench
from .why import COPY_BOUND, NO_WIRE, PROGRAM, RXE

ROWS = [
    Row("vmmc2-3", "Fig. 3: LogP parameters, by sockets",
        "half a round trip 13.4 us, o below 4 us; by sockets 20 us, and TCP ten times as long",
        Bench([("logp", "logp")], [64], "tcp,viaduct,unix"), 10, "64 B, logp: half",
        more=NO_WIRE, less="TCP needs no interrupts of a device here: it wakes the peer directly."),
    Row("vmmc2-3-hosts", "Fig. 3: LogP parameters, by sockets between two hosts",
        "half a round trip 13.4 us, o below 4 us; by sockets 20 us, and TCP ten times as long",
        Hosts([("logp", "logp")], [64]), 10, "64 B, logp: half", less=RXE),
    Row("vmmc2-3-puts-hosts", "Fig. 3: o and g of puts by the native interface, between two hosts",
        "o below 4 us. Raw verbs, by sends and receives, stand beside the sockets (vmmc2-3-hosts)", Overheads()),
    Row("vmmc2-4", "Fig. 3 and 4: native puts, and their o and g",
        "one way 90 to 93 MB/s at the hardware's limit; 13.4 us; kernel TCP 15.7 MB/s (Fig. 7)",
        Native(), 92.6 / 15.7, "puts of 64 KB", more=NO_WIRE, less=COPY_BOUND),
    Row("vmmc2-4-hosts", "Fig. 3 and 4: puts by the native interface, between two hosts",
        "13.4 us; one way 90 to 93 MB/s at the hardware's limit",
        Puts([("there and back, 64 B", (("verbs", "ibv_rc_pingpong -e"), ("viaduct", "put"),
                                        ("verbs, spinning", "ibv_rc_pingpong"),
                                        ("viaduct, spinning", "put, polls"))),
              ("one way, 65536 B", (("verbs", "ib_write_bw"), ("viaduct", "put"),
                                    ("viaduct, by the device", "put by the device"))),
              ("there and back, 8 B", (("verbs", "ibv_rc_pingpong -e"), ("viaduct", "put"))),
              ("one way, 1048576 B", (("verbs", "ib_write_bw"), ("viaduct", "put"),
                                      ("viaduct, by the device", "put by the device")))]),
        1, "there and back, 64 B", base="verbs", less=RXE),
    Row("vmmc2-t1", "Table 1: address translation",
        "hit 1.5 us, miss 50 us in the library (1 page), and 25.7 us more to pin", Cache(),
        50 / 1.5, "1 page", "hit", "miss",
        more="The miss of a library that keeps its table in memory is dearer than its hit by more.",
        less="Both are the library's work alone: the in-process interconnect pins no pages."),
    Row("vmmc2-t1-hosts", "Table 1: address translation, with a device",
        "hit 1.5 us, miss 50 us in the library (1 page), and 25.7 us more to pin", FarCache(),
        50 / 1.5, "1 page", "hit", "miss",
        more="A miss registers the pages with the device by system calls, which a guest emulates; a "
             "hit makes none."),
    Row("vmmc2-t2-hosts", "Table 2: with and without the reliable link",
        "13.4 against 11.1 us; bandwidth 2 to 10 % less. Viaduct's links are reliable (RC) alone, so "
        "raw verbs show it; bandwidth is left out, since UC does not tell what was lost",
        Reliable(), 13.4 / 11.1, "8 B", "uc", "rc", less="Neither kind of queue pair has its "
        "protocol in the processor of a network adapter here: both are the kernel's work."),
    Row("vmmc2-5-hosts", "Fig. 5: transfer redirection against copies, by size, and the share redirected",
        "128 KB: 78.8 MB/s with redirection, 34 without; pays from 108 bytes; 94 % redirected. A sender "
        "of ours never delays a message for an offer to come, so there is no such row",
        Redirected(), 78.8 / 34, "128 KiB", "redirected", "copied", less=RXE + " A copy costs next "
        "to nothing beside that, and an offer is registered for one call."),
    Row("vmmc2-6", "Fig. 6: small messages by sockets",
        "20 us one way; TCP ten times as long", Bench([("rtt", "time")], [64, 4, 1024, 4096]),
        10, "64 B", more=NO_WIRE,
        less="TCP needs no interrupts of a device here: it wakes the peer directly."),
    Row("vmmc2-7", "Fig. 7: ttcp", "TCP 15.7 MB/s; 38 MB/s, with redirection 84 MB/s",
        Nuttcp(), 84 / 15.7, "64 KiB", more=NO_WIRE, less=COPY_BOUND),
    Row("vmmc2-8", "Fig. 8: tftp, blocks of a file in turn",
        "19 MB/s, where writing the file is limited to 25 MB/s. By sockets; puts that wait for nothing are "
        "vmmc2-4's", Own("blocks", [
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
