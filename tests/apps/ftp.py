#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""FTP through inetd: vsftpd on descriptors 0 to 2, data connections of its own, and curl."""
import os
import sys

import harness

INETD, VSFTPD, CURL = harness.need("inetd", "vsftpd", "curl")
if os.geteuid() != 0:
    print("skipped: only root can run inetd's services")
    sys.exit(harness.SKIP)


def scenario(run):
    port = harness.free_port()
    root = run.path("files")
    os.mkdir(root)
    data = os.urandom(1 << 20) * 5 + b"the end"
    for name, content in (("large", data), ("small", b"1 line\n"), ("empty", b"")):
        run.write("files/" + name, content)
    services = run.write("inetd.conf", f"127.0.0.1:{port} stream tcp nowait root "
                                       f"{VSFTPD} vsftpd {run.vsftpd(root)}\n")
    # -E: services keep the environment, and so the library.
    run.server([INETD, "-E", "-i", services], port)
    url = f"ftp://127.0.0.1:{port}/"
    result = []
    # The client connects for the data, or the server does.
    for how, mode in enumerate(([], ["--disable-epsv"], ["-P", "127.0.0.1"],
                                ["-P", "127.0.0.1", "--disable-eprt"])):
        def curl(*args, how=mode):
            return run.client([CURL, "-sS", "-m", "60", *how, *args])

        result.append(sorted(curl("-l", url).split()))
        got = curl(url + "large", url + "small", url + "empty")
        if got != data + b"1 line\n":
            raise harness.Failure(f"{len(got)} bytes came, and not those of the files")
        result.append(harness.sha(curl("-r", "1000000-2999999", url + "large")
                                  ) == harness.sha(data[1000000:3000000]))
        curl("-T", run.path("files/large"), f"{url}up-{how}")
        with open(os.path.join(root, f"up-{how}"), "rb") as f:
            result.append(f.read() == data)
    return result


harness.main(scenario)
