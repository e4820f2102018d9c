#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""OpenSSH with its own keys on a free port: commands, bytes both ways, scp, forwarding."""
import os
import subprocess
import sys

import harness

SSHD, SSH, SCP, KEYGEN = harness.need("sshd", "ssh", "scp", "ssh-keygen")
if os.geteuid() != 0:
    print("skipped: sshd needs root")
    sys.exit(harness.SKIP)

CONFIG = """
Port {port}
ListenAddress 127.0.0.1
HostKey {dir}/host
AuthorizedKeysFile {dir}/user.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
PermitUserEnvironment no
Subsystem sftp internal-sftp
"""


def scenario(run):
    port = harness.free_port()
    os.chmod(run.dir, 0o755)
    os.makedirs("/run/sshd", exist_ok=True)
    for name in ("host", "user"):
        subprocess.run([KEYGEN, "-q", "-t", "ed25519", "-N", "", "-f", run.path(name)],
                       check=True)
    config = run.write("sshd_config", CONFIG.format(port=port, dir=run.dir))
    run.server([SSHD, "-D", "-e", "-f", config], port)
    options = ["-i", run.path("user"), "-o", "StrictHostKeyChecking=no", "-o",
               "UserKnownHostsFile=/dev/null", "-o", "BatchMode=yes", "-o",
               "LogLevel=ERROR", "-F", "none"]

    def ssh(*command, stdin=None):
        return run.client([SSH, *options, "-p", str(port), "root@127.0.0.1", *command],
                          stdin=stdin)

    big = bytes(i * 19 % 247 for i in range(5_000_000))
    result = [ssh("echo hello"), harness.sha(ssh("cat", stdin=big)),
              harness.sha(ssh("sha256sum", stdin=big)),
              harness.sha(ssh("head -c 3000000 /dev/zero"))]
    source, target = run.write("source", big), run.path("target")
    run.client([SCP, *options, "-P", str(port), source, f"root@127.0.0.1:{target}"])
    with open(target, "rb") as f:
        result.append(harness.sha(f.read()))
    return result


# sshd hands its connections on by exec: they may stay on TCP, with a reason.
harness.main(scenario, gains=False)
