#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Samba's DCE/RPC: rpcclient over TCP, whose connections samba-dcerpcd accepts and hands to a process
for each service; and through pipes of smbd. Needs root, and a network namespace of its own."""
import glob
import os
import pathlib
import subprocess
import sys

import harness

SMBD, CLIENT, UNSHARE, IP = harness.need("smbd", "rpcclient", "unshare", "ip")
DCERPCD = glob.glob("/usr/libexec/samba/samba-dcerpcd") + \
    glob.glob("/usr/lib/*/samba/samba-dcerpcd")
CONFIG = pathlib.Path(__file__).resolve().parents[2] / "bench/papers/smb.conf"
# Of each service that a guest may ask, and of some that refuse him.
COMMANDS = ("srvinfo", "netshareenumall", "netsharegetinfo share", "netsharegetinfo nobody",
            "lsaquery", "lookupnames root", "enumdomusers", "querydominfo",
            "winreg_enumkey HKLM", "epmmap", "dsroledominfo", "wkssvc_wkstagetinfo",
            "enumprinters", "; ".join(["netshareenumall"] * 60))
COMMANDS_OF_PIPES = ("srvinfo", "netshareenumall", "lsaquery", "wkssvc_wkstagetinfo",
                     "; ".join(["netshareenumall"] * 60))


def without_chance(text, folder):
    lines = text.replace(folder, "FOLDER").replace(folder.replace("/", "\\"), "FOLDER")
    return [x.rstrip() for x in lines.splitlines() if not x.startswith("Sequence No")]


def scenario(run):
    os.mkdir(run.path("ncalrpc"), 0o755)
    config = run.write("smb.conf", CONFIG.read_text().format(run.dir))
    daemon = ["-F", "-s", config, "--no-process-group", "--debug-stdout"]
    run.server([SMBD, *daemon], 445)
    run.server([DCERPCD[0], "--libexec-rpcds", *daemon], 135)
    result = []
    for binding, commands in (("ncacn_ip_tcp", COMMANDS), ("ncacn_np", COMMANDS_OF_PIPES)):
        for command in commands:
            out = run.client([CLIENT, "-s", config, "-U%", "-N", f"{binding}:127.0.0.1",
                              "-c", command], check=False)
            result.append((binding, command[:20], without_chance(out.decode(), run.dir)))
    return result


if not DCERPCD or os.geteuid() != 0:
    print("skipped: needs samba-dcerpcd (Samba 4.16), and root")
    sys.exit(harness.SKIP)
if "INSIDE" not in os.environ:
    sys.exit(subprocess.run([UNSHARE, "-n", "sh", "-c", f'{IP} link set lo up && exec "$@"', "sh",
                             sys.executable, *sys.argv],
                            env=dict(os.environ, INSIDE="1")).returncode)
# Samba's processes for its services are killed at the end, and then write no report.
harness.main(scenario, alone=True)
