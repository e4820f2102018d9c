#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""RPCSEC_GSS with Kerberos: a realm of the test's own, a service and a client in it. What they say is
the same plain, under Viaduct, and with either end under it. No rights are needed.

Messages that are protected and longer than a buffer are spoiled by libtirpc. With both ends under
Viaduct they arrive.

usage: gss.py VIADUCT GSS
"""
import contextlib
import difflib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from ports import free_port  # noqa: E402

SKIP = 77
LIMIT_S = 120
REALM = "VIADUCT.TEST"
CONFIG = """
[libdefaults]
 default_realm = {realm}
 dns_lookup_kdc = false
 dns_lookup_realm = false
 dns_canonicalize_hostname = false
 rdns = false
 udp_preference_limit = 1
[realms]
 {realm} = {{
  kdc = 127.0.0.1:{port}
 }}
[domain_realm]
 localhost = {realm}
[logging]
 kdc = FILE:{folder}/kdc.log
"""
KDC_CONFIG = """
[kdcdefaults]
 kdc_listen = 127.0.0.1:{port}
 kdc_tcp_listen = 127.0.0.1:{port}
[realms]
 {realm} = {{
  database_name = {folder}/principal
  key_stash_file = {folder}/stash
  acl_file = {folder}/acl
 }}
"""


def answers(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@contextlib.contextmanager
def realm(folder):
    """The environment of the realm's processes, while its KDC runs."""
    port = free_port()
    for name, text in (("krb5.conf", CONFIG), ("kdc.conf", KDC_CONFIG)):
        with open(os.path.join(folder, name), "w", encoding="ascii") as f:
            f.write(text.format(realm=REALM, port=port, folder=folder))
    keys = os.path.join(folder, "keytab")
    env = dict(os.environ, KRB5_CONFIG=f"{folder}/krb5.conf", KRB5_KDC_PROFILE=f"{folder}/kdc.conf",
               KRB5_KTNAME=f"FILE:{keys}", KRB5CCNAME=f"FILE:{folder}/cache",
               KRB5RCACHETYPE="none")
    # In a spoiled message libtirpc takes any word for a length: gigabytes that nobody may touch.
    env.pop("MALLOC_PERTURB_", None)

    def run(*command, **kw):
        subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL, **kw)

    run("kdb5_util", "create", "-s", "-P", "master", "-r", REALM)
    for query in ("addprinc -pw secret user", "addprinc -randkey test/localhost",
                  f"ktadd -k {keys} test/localhost"):
        run("kadmin.local", "-r", REALM, "-q", query, stderr=subprocess.DEVNULL)
    with subprocess.Popen(["krb5kdc", "-n"], env=env, stdout=subprocess.DEVNULL) as kdc:
        try:
            while not answers(port):
                if kdc.poll() is not None:
                    sys.exit(f"krb5kdc has ended with status {kdc.returncode}")
                time.sleep(0.02)
            run("kinit", "user", input=b"secret\n")
            yield env
        finally:
            kdc.terminate()


def lines_of(server, client, gss, env):
    with tempfile.TemporaryDirectory() as tmp:
        place = os.path.join(tmp, "port")
        service = subprocess.Popen([*server, gss, "serve", place], stdout=subprocess.PIPE, env=env)
        try:
            while not os.path.exists(place):
                if service.poll() is not None:
                    return service.communicate()[0].decode().splitlines()
                time.sleep(0.01)
            with open(place, encoding="ascii") as f:
                port = f.read().strip()
            caller = subprocess.run([*client, gss, "call", port], stdout=subprocess.PIPE, env=env,
                                    timeout=LIMIT_S)
            if caller.returncode != 0:
                service.kill()
            out = service.communicate(timeout=LIMIT_S)[0]
        finally:
            service.kill()
    return [*(caller.stdout + out).decode().splitlines(),
            f"statuses {caller.returncode} {service.returncode}"]


def compared(lines):
    return [x for x in lines if not x.startswith("long ")]


def compare(viaduct, gss, env, plain, server, client):
    with tempfile.NamedTemporaryFile() as report:
        run = [viaduct, "run", "--report", report.name, "--upgrade-after", "0", "--"]
        ours = lines_of(run if server else [], run if client else [], gss, env)
        counts = [json.loads(line) for line in report]
    direct = sum(x["tx_direct_bytes"] for x in counts)
    long = [x for x in ours if x.startswith("long ")]
    wrong = list(difflib.unified_diff(compared(plain), compared(ours), "plain", "viaduct", lineterm="", n=2))
    if (server and client) != (direct > 1 << 20):
        wrong.append(f"{direct} bytes went over the direct path: {[x['reasons'] for x in counts]}")
    if not long or (server and client and not all(x.endswith(": 0 1") for x in long)):
        wrong.append(f"long messages: {long}")
    return [f"server {server}, client {client}: {x}" for x in wrong]


def main():
    viaduct, gss = sys.argv[1:]
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    for program in ("kdb5_util", "kadmin.local", "krb5kdc", "kinit"):
        if not shutil.which(program):
            print(f"skipped: {program} is missing")
            return SKIP
    wrong = []
    with tempfile.TemporaryDirectory() as folder, realm(folder) as env:
        plain = lines_of([], [], gss, env)
        for line in ("none: wrong 0", "integrity: wrong 0", "privacy: wrong 0",
                     "  the call: 7 0 why 13", "  the answer has expired: 7 0 why 6", "statuses 0 0"):
            if line not in plain:
                wrong.append(f"plain, without {line}: {plain}")
        for server, client in ((True, True), (True, False), (False, True)):
            wrong += compare(viaduct, gss, env, plain, server, client)
    print("\n".join(wrong) if wrong else f"{len(plain)} lines are equal")
    return 1 if wrong else 0


sys.exit(main())
