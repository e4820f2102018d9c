#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The integrity test in one guest whose loopback loses, reorders, repeats and delays: on TCP,
and under Viaduct with connections that go up and down between TCP and the direct path.

usage: lossy.py VIADUCT INTEGRITY CACHE [ARGUMENT OF INTEGRITY]...
"""
import pathlib
import re

import guest
import image
import kernel

RUN = pathlib.Path(__file__).resolve().parents[1] / "integrity/run.py"
LOSS = "limit 10000 delay 2ms 1ms loss 1% duplicate 1% reorder 10%"
# run.py gives the program a network of its own, so it is there that this sets up its loopback.
# Packets under 128 bytes are none of netem's: nobody repeats a reset that is lost, and a peer
# that waits for bytes would wait for ever. For that, all that does not fit is answered, too.
PROGRAM = f"""#!/bin/sh
set -e
echo 0 >/proc/sys/net/ipv4/tcp_invalid_ratelimit
tc qdisc add dev lo root handle 1: prio bands 2 priomap 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1
tc qdisc add dev lo parent 1:2 netem {LOSS}
tc filter add dev lo parent 1: protocol ip u32 match u16 0 0xff80 at 2 flowid 1:1
status=0
/tests/integrity "$@" || status=$?
tc -s qdisc show dev lo
exit $status
"""
DEFAULT = ["--rounds", "15", "--seed", "7", "--conns", "8", "--bytes", "300000", "--kill",
           "--signals"]


def told(output):
    """netem's own counts of what it has done."""
    counts = re.findall(r"qdisc netem .* parent (1:.)[^:].*\n Sent \d+ bytes (\d+) pkt "
                        r"\(dropped (\d+)", output)
    for band, packets, dropped in counts:
        if band == "1:2" and int(dropped) > 0:
            return f"netem has dropped {dropped} packets of {packets}"
    raise guest.Failure(f"netem has dropped nothing: {output}")


def test(viaduct, integrity, cache, *arguments):
    arguments = " ".join(arguments or DEFAULT) + " --wait 120"
    debian = kernel.kernel(cache)
    content = image.Image(debian)
    content.python("json", "subprocess", "tempfile")
    content.viaduct(viaduct)
    content.binary(integrity, "/tests/integrity")
    content.data("/tests/program", PROGRAM.encode(), 0o755)
    content.file("/tests/run.py", RUN)
    with guest.boot(debian, content, processors=2, memory_mb=1024) as one:
        output = one.must(f"unshare -n sh -c 'ip link set lo up; "
                          f"exec /tests/program {arguments}'")
        print(output + f"kernel {debian.version}, on TCP: {told(output)}")
        output = one.must("python3 -S /tests/run.py /viaduct/viaduct /tests/program "
                          f"--switch {arguments}")
        print(output + f"kernel {debian.version}, under Viaduct: {told(output)}")


if __name__ == "__main__":
    guest.main(test)
