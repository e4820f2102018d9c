# SPDX-License-Identifier: Apache-2.0
"""The figures and tables of Shah and others."""
from .engine import Rpc
from .row import Row
from .ways import Apps, Bench, Not
from .why import COPY_BOUND, NO_WIRE, PROGRAM, SPINS

ROWS = [
    Row("shah-3", "Fig. 3: round trip by size", "2 to 3 times as fast as TCP",
        Bench([("rtt", "time")], [64, 4, 1024, 8192]), 2.5, "64 B",
        more=NO_WIRE, less=COPY_BOUND),
    Row("shah-4", "Fig. 4: round trips over several connections",
        "grows with the threads for small messages", Bench(
            [("rtt-epoll", "rate")], [64], "tcp,viaduct,unix", ["--conns", "4,8"])),
    Row("shah-5", "Fig. 5: bandwidth one way", "3 to 4 times TCP for large messages",
        Bench([("stream", "bytes")], [50000, 1024, 8192]), 3.5, "50000 B",
        more=NO_WIRE, less=COPY_BOUND),
    Row("shah-6", "Fig. 6: bandwidth both ways", "3 to 4 times TCP for large messages",
        Bench([("bidir", "bytes")], [50000, 1024, 8192]), 3.5, "50000 B",
        more=NO_WIRE, less=COPY_BOUND),
    Row("shah-7", "Fig. 7: processor time a byte", "far less than TCP; no figures in the text",
        Bench([("stream", "cpu")], [50000, 1024, 8192], "tcp,viaduct,unix")),
    Row("shah-t1", "Table 1: 4 bytes there and back, 50,000 bytes one way",
        "219.1 against 74.9 us, 211 against 697.3 Mb/s; native 52.4 us, 753.2 Mb/s",
        Bench([("rtt", "time"), ("stream", "bytes")], [4, 50000]), 219.1 / 74.9, "4 B, rtt",
        more=NO_WIRE, less=COPY_BOUND),
    Row("shah-9", "Fig. 9, Table 2: remote procedure calls by size and transport",
        "4 bytes: local 62.7, VI 111.2, TCP 297.1 us; 8,000 bytes: 314.8, 448.1, 1039.7 us",
        Rpc("sizes", ["4B", "64B", "1KiB", "4KiB", "16KiB"]), 297.1 / 111.21, "4B",
        more=NO_WIRE, less=PROGRAM),
    Row("shah-10-rmi", "Fig. 10: DCOM; here Java RMI", "2 to 3 times as fast as TCP",
        Apps("rmi"), 2.5, "rmi", more=NO_WIRE, less=PROGRAM),
    Row("shah-10-grpc", "Fig. 10: DCOM; here gRPC from Python", "2 to 3 times as fast as TCP",
        Apps("grpc"), 2.5, "grpc", more=NO_WIRE, less=PROGRAM),
    Row("shah-10-omniorb", "Fig. 10: DCOM; here omniORB", "2 to 3 times as fast as TCP",
        Not("tests/apps/omniorb.py shows that it runs; no program measures it yet")),
    Row("shah-10-samba", "Fig. 10: DCOM; here DCE/RPC of Samba", "2 to 3 times as fast as TCP",
        Not("tests/apps/samba.py shows that it runs; no program measures it yet")),
    Row("shah-11", "Fig. 11: remote procedure calls by threads", "grows with the threads",
        Rpc("threads", ["1", "2", "4", "8"])),
    Row("shah-12", "Fig. 12: processor time of a remote procedure call",
        "far less than TCP; no figures in the text",
        Rpc("processor", ["4B", "1KiB", "4KiB", "64KiB"]), less=SPINS),
]
