# SPDX-License-Identifier: Apache-2.0
"""The figures and tables of Shah and others."""
from .engine import Rpc
from .guests import Calls, Hosts
from .row import Row
from .samba import Samba
from .ways import Apps, Bench
from .why import COPY_BOUND, NO_WIRE, PROGRAM, RXE, SPINS

ROWS = [
    Row("shah-3", "Fig. 3: round trip by size", "2 to 3 times as fast as TCP",
        Bench([("rtt", "time")], [64, 4, 1024, 8192]), 2.5, "64 B",
        more=NO_WIRE, less=COPY_BOUND),
    Row("shah-4", "Fig. 4: round trips over several connections",
        "grows with the threads for small messages. Ours are connections that one thread serves; shah-11 "
        "has threads", Bench([("rtt-epoll", "rate")], [64], "tcp,viaduct,unix", ["--conns", "4,8"])),
    Row("shah-4-hosts", "Fig. 3 and 4: round trips over several connections, between two hosts",
        "2 to 3 times as fast as TCP; grows with the threads for small messages", Hosts(
            [("rtt-epoll", "rate")], [64], "tcp,viaduct", ["--conns", "4"]), 2.5, "64 B", less=RXE),
    Row("shah-5", "Fig. 5: bandwidth one way", "3 to 4 times TCP for large messages",
        Bench([("stream", "bytes")], [50000, 1024, 8192]), 3.5, "50000 B",
        more=NO_WIRE, less=COPY_BOUND),
    Row("shah-6", "Fig. 6: bandwidth both ways", "3 to 4 times TCP for large messages",
        Bench([("bidir", "bytes")], [50000, 1024, 8192]), 3.5, "50000 B",
        more=NO_WIRE, less=COPY_BOUND),
    Row("shah-6-hosts", "Fig. 6: bandwidth both ways, between two hosts",
        "3 to 4 times TCP for large messages",
        Hosts([("bidir", "bytes")], [50000, 1024]), 3.5, "50000 B", less=RXE),
    Row("shah-7", "Fig. 7: processor time a byte", "far less than TCP; no figures in the text",
        Bench([("stream", "cpu")], [50000, 1024, 8192], "tcp,viaduct,unix")),
    Row("shah-7-hosts", "Fig. 5 and 7: bandwidth one way, and processor time a byte, between two hosts",
        "3 to 4 times TCP; processor time far less than TCP; no figures in the text",
        Hosts([("stream", "bytes"), ("stream", "cpu")], [50000, 1024]), 3.5, "50000 B", less=RXE),
    Row("shah-t1", "Table 1: 4 bytes there and back, 50,000 bytes one way",
        "219.1 against 74.9 us, 211 against 697.3 Mb/s; native 52.4 us, 753.2 Mb/s",
        Bench([("rtt", "time"), ("stream", "bytes")], [4, 50000]), 219.1 / 74.9, "4 B, rtt",
        more=NO_WIRE, less=COPY_BOUND),
    Row("shah-9", "Fig. 9, Table 2: remote procedure calls by size and transport",
        "4 bytes: local 62.7, VI 111.2, TCP 297.1 us; 8,000 bytes: 314.8, 448.1, 1039.7 us",
        Rpc("sizes", ["4B", "64B", "1KiB", "4KiB", "16KiB"]), 297.1 / 111.21, "4B",
        more=NO_WIRE, less=PROGRAM),
    Row("shah-9-hosts", "Fig. 9, Table 2: remote procedure calls, between two hosts",
        "4 bytes: VI 111.2, TCP 297.1 us; 8,000 bytes: 448.1, 1039.7 us",
        Calls(), 297.1 / 111.21, "null", less=RXE),
    Row("shah-10-rmi", "Fig. 10: DCOM; here Java RMI", "2 to 3 times as fast as TCP",
        Apps("rmi"), 2.5, "rmi", more=NO_WIRE, less=PROGRAM),
    Row("shah-10-grpc", "Fig. 10: DCOM; here gRPC from Python", "2 to 3 times as fast as TCP",
        Apps("grpc"), 2.5, "grpc", more=NO_WIRE, less=PROGRAM),
    Row("shah-10-omniorb", "Fig. 10: DCOM; here omniORB", "2 to 3 times as fast as TCP",
        Apps("omniorb"), 2.5, "omniorb", more=NO_WIRE, less=PROGRAM),
    Row("shah-10-samba", "Fig. 10: DCOM; here DCE/RPC of Samba, by pipes", "2 to 3 times as fast as TCP",
        Samba(), 2.5, "samba", more=NO_WIRE, less=PROGRAM),
    Row("shah-11", "Fig. 11: remote procedure calls by threads", "grows with the threads",
        Rpc("threads", ["1", "2", "4", "8"])),
    Row("shah-12", "Fig. 12: processor time of a remote procedure call",
        "far less than TCP; no figures in the text",
        Rpc("processor", ["4B", "1KiB", "4KiB", "64KiB"]), less=SPINS),
]
