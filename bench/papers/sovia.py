# SPDX-License-Identifier: Apache-2.0
"""SOVIA's figures and tables."""
from .engine import Rpc
from .guests import Hosts
from .mechanisms import GATHERING, LATE_LOOKS, WINDOW, Mechanisms
from .pairs import Ftp, Own
from .row import Row
from .ways import Bench
from .why import COPY_BOUND, NO_WIRE, RXE

ROWS = [
    Row("sovia-6a", "Fig. 6a: latency by size",
        "4 bytes one way: TCP 55 us, SOVIA 10.5 us, native 8.5 us",
        Bench([("rtt", "time")], [4, 64, 1024, 4096, 16384]), 55 / 10.5, "4 B",
        more=NO_WIRE, less=COPY_BOUND),
    Row("sovia-6a-hosts", "Fig. 6a: latency by size, between two hosts",
        "4 bytes one way: TCP 55 us, SOVIA 10.5 us, native 8.5 us",
        Hosts([("rtt", "time")], [4, 4096, 64, 16384]), 55 / 10.5, "4 B", less=RXE),
    Row("sovia-6a-thread", "Fig. 6a: a handler thread against a single thread",
        "a handler thread adds more than 15 us",
        Own("handler", [("4 B there and back, one thread", ["50000", "4", "single"]),
                        ("4 B there and back, a handler thread", ["50000", "4", "thread"]),
                        ("4 KiB there and back, one thread", ["50000", "4096", "single"]),
                        ("4 KiB there and back, a handler thread", ["50000", "4096", "thread"])],
            ("4 B there and back, a handler thread", ["1000", "4", "thread"]))),
    Row("sovia-6a-combining", "Fig. 6a: the price of combining", "combining costs small messages some latency. "
        "Our receiver lets messages in a row gather; where each waits for its answer there are none",
        Mechanisms([("without combining", GATHERING), ("viaduct", 0)], [4, 1024], "rtt"),
        base="without combining"),
    Row("sovia-6b", "Fig. 6b: bandwidth by size",
        "32 KB: TCP 450 Mb/s, SOVIA 814 Mb/s, native 815 Mb/s",
        Bench([("stream", "bytes")], [32768, 64, 256, 2048, 16384]), 814 / 450, "32 KiB",
        more=NO_WIRE, less=COPY_BOUND),
    Row("sovia-6b-hosts", "Fig. 6b: bandwidth by size, between two hosts",
        "32 KB: TCP 450 Mb/s, SOVIA 814 Mb/s, native 815 Mb/s",
        Hosts([("stream", "bytes")], [32768, 64, 2048]), 814 / 450, "32 KiB", less=RXE),
    Row("sovia-6b-mechanisms", "Fig. 6b: flow control, delayed acknowledgements, combining",
        "each adds to the bandwidth; combining below 2 KB",
        Mechanisms([("one message at a time", WINDOW | LATE_LOOKS | GATHERING),
                    ("and flow control", LATE_LOOKS | GATHERING),
                    ("and delayed acknowledgements", GATHERING), ("viaduct", 0)],
                   [32768, 64, 2048]), base="one message at a time"),
    Row("sovia-t1", "Table 1: files by FTP",
        "19,090,223 bytes: 262 Mb/s by TCP, 573 Mb/s by SOVIA; 145,864,380 bytes: 254 and 532",
        Ftp(), 573 / 262, "19,090,223 bytes",
        more=NO_WIRE, less="curl is the client, of vsftpd under inetd, and tells the time of the transfer; the file is copied "
        "through the same caches either way."),
    Row("sovia-7", "Fig. 7: remote procedure calls by size of the argument",
        "an empty call: TCP 149 us, SOVIA 35 us",
        Rpc("sizes", ["null", "4B", "64B", "256B", "1KiB", "4KiB"]), 149 / 35, "null",
        more=NO_WIRE + " The calls also go straight to the rings, not through sockets.",
        less=NO_WIRE),
]
