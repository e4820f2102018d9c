# SPDX-License-Identifier: Apache-2.0
"""WSDLite's figures and tables."""
from .engine import Threads
from .guests import Hosts, Puts
from .pairs import Own
from .row import Row
from .ways import Apps, Bench, Not
from .why import COPY_BOUND, NO_WIRE, PROGRAM, RXE

RTT = [8192, 64, 1024, 32768]

ROWS = [
    Row("wsdlite-3", "Fig. 3: where remote writes overtake copies, on one host",
        "from 11.9 KB on", Bench([("copy", "bytes")], [16384, 4096, 65536, 1 << 20],
                                 "ring,vm-write,vm-read"),
        1, "16 KiB", "vm-write", "ring",
        more="One copy by the kernel replaces two.",
        less="The other copy is a system call (process_vm_writev) here, and costs more than a copy "
             "through a cache that both processors share."),
    Row("wsdlite-3-hosts", "Fig. 3: where remote writes overtake copies, between hosts",
        "from 11.9 KB on", Puts([
            (f"there and back, {n} B", (("copied", "put"), ("by the device", "put by the device")))
            for n in (65536, 4096, 16384, 8192)]), 1, "there and back, 16384 B", "by the device", "copied",
        less=RXE),
    Row("wsdlite-4", "Fig. 4: round trip by size",
        "WSDLite within 19.2 % of native, TCP far behind; 67.9 % below WSDP",
        Bench([("rtt", "time")], [64, 8, 1024, 8192, 32768])),
    Row("wsdlite-5", "Fig. 5: bandwidth of the same test",
        "TCP 30 to 35, WSDLite 72, native 80 MB/s", Bench([("rtt", "bytes")], [32768, *RTT[:3]]),
        72 / 32.5, "32 KiB", more=NO_WIRE, less=COPY_BOUND),
    Row("wsdlite-6", "Fig. 6: use of the processors", "WSDLite as TCP at small sizes",
        Bench([("rtt", "busy")], RTT, "tcp,viaduct,unix")),
    Row("wsdlite-7", "Fig. 7: megabytes for a second of processor time",
        "WSDLite as native, TCP flat from 8 KB on",
        Bench([("rtt", "efficiency")], RTT, "tcp,viaduct,unix")),
    Row("wsdlite-5-hosts", "Fig. 4, 5 and 7: round trip, its bandwidth, and megabytes for a second of processor "
        "time, between two hosts", "TCP 30 to 35, WSDLite 72, native 80 MB/s",
        Hosts([("rtt", "bytes"), ("rtt", "time"), ("rtt", "efficiency")], [32768, 1024]),
        72 / 32.5, "32 KiB", less=RXE),
    Row("wsdlite-smp", "5.3: one processor against several", "4.5 % better with four",
        Bench([("rtt", "time")], [64, 8192], "tcp,viaduct,unix", ["--placement", "one"])),
    Row("wsdlite-8-fft", "Fig. 8: FFT and LU; here those of HPCC over Open MPI's TCP",
        "within 2 % of native; LU less", Apps("hpcc"), less=PROGRAM),
    Row("wsdlite-8-barnes", "Fig. 8: Barnes-Hut", "within 2 % of native; ours has four processes",
        Own("barnes", [(f"{n} bodies, {steps} steps", [n, steps])
                       for n, steps in (("512", "400"), ("4096", "100"))],
            ("64 bodies, 200 steps", ["64", "200"])), less=PROGRAM),
    Row("wsdlite-8-ilink", "Fig. 8: Ilink", "within 2 % of native", Not(
        "its program and the families that it reads are not in Debian")),
    Row("wsdlite-9", "Fig. 9: use of the processors by LU, over time",
        "high with WSDLite, uneven with WSDP", Not(
            "there is no rival with threads of its own to set it against; Viaduct has none")),
    Row("wsdlite-t1", "Table 1: threads", "TCP 2, WSDLite 3, WSDP 7, native 2", Threads(),
        2 / 3, "threads", more="Viaduct has no thread of its own in a preloaded program."),
]
