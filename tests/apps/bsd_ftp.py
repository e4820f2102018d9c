#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""BSD's FTP client, and BSD's server through inetd: both make streams of their connections (fdopen)."""
import os
import shutil
import sys

import harness

INETD, VSFTPD, CLIENT = harness.need("inetd", "vsftpd", "tnftp")
# Debian lets only one FTP server be installed.
FTPD = shutil.which("ftpd", path=os.environ["PATH"] + ":/usr/sbin")
if os.geteuid() != 0:
    print("skipped: only root can run inetd's services")
    sys.exit(harness.SKIP)


def vsftpd(run, root):
    return [], f"{VSFTPD} vsftpd {run.vsftpd(root)}"


def ftpd(run, root):
    """Its anonymous user is `ftp`, whose home it changes its root to. Without /proc there, the ends meet
    as two users only."""
    users = run.write("passwd", f"root:x:0:0::/root:/bin/sh\nftp:x:60001:60001::{root}:/bin/sh\n")
    place = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/passwd && exec "$@"', users]
    return place, f"{FTPD} ftpd -A -l"


def transfers(run, root, server, data):
    place, service = server(run, root)
    port = harness.free_port()
    services = run.write(f"inetd-{port}.conf", f"127.0.0.1:{port} stream tcp nowait root {service}\n")
    # -E: services keep the environment, and so the library.
    run.server([*place, INETD, "-E", "-i", services], port)
    url, got, result = f"ftp://127.0.0.1:{port}/", run.path("got"), []

    def fetch(*args):
        run.client([CLIENT, "-V", "-o", got, *args], stdin=b"")
        with open(got, "rb") as f:
            return f.read()

    # The client connects for the data, or the server does.
    for how in ([], ["-A"]):
        if fetch(*how, url + "large") != data:
            raise harness.Failure("what came is not the file")
        result.append(harness.sha(fetch(*how, url + "lines;type=a")))
        result.append(fetch(*how, url + "empty"))
        run.client([CLIENT, "-V", *how, "-u", url + "up", run.path("files/large")], stdin=b"")
        with open(os.path.join(root, "up"), "rb") as f:
            result.append(f.read() == data)
        os.unlink(os.path.join(root, "up"))
        names = run.client([CLIENT, "-V", "-n", *how, "127.0.0.1", str(port)],
                           stdin=b"user ftp guest@\nnlist\nquit\n")
        result.append(sorted(names.split()))
    if run.mode == "both":
        carried(run)
    return result


def carried(run):
    """Two large files came by the direct path, and one went. ftpd makes its own connections as root, and
    meets nobody by these as another user: so only those of the client count."""
    clients = [line for line in run.report() if line["program"] == "tnftp"][-10:-5]
    got = [line["rx_direct_bytes"] for line in clients]
    sent = [line["tx_direct_bytes"] for line in clients]
    if sum(n > 1 << 20 for n in got) < 2 or sum(n > 1 << 20 for n in sent) < 1:
        raise harness.Failure(f"the direct path was not used: {got} bytes came by it, and {sent} went")


def scenario(run):
    root = run.path("files")
    os.mkdir(root)
    os.chmod(root, 0o777)
    # More than the kernel takes of one before the ends have met.
    data = os.urandom(1 << 20) * 24 + b"the end"
    lines = b"".join(b"line %d\n" % i for i in range(1500000))
    for name, content in (("large", data), ("lines", lines), ("empty", b"")):
        run.write("files/" + name, content)
    return [transfers(run, root, server, data) for server in (vsftpd, *([ftpd] if FTPD else []))]


if not FTPD:
    print("ftpd is missing: BSD's client alone is tested")
harness.main(scenario)
