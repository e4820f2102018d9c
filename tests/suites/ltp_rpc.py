#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The RPC tests of the Linux Test Project, which are libtirpc's: each with its verdict plain, and under
Viaduct. For use by hand, since the project is no package.

usage: ltp_rpc.py VIADUCT SHIM LTP root|user

SHIM: tests/rpc/shim.c, built. LTP: a source folder of the project.
"""
import collections
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "rpc"))
import space  # noqa: E402
from space import HOST  # noqa: E402

NUMBER = "536875000"  # as the project's own script has it
LIMIT_S = 60
PACK = "testcases/network/rpc/rpc-tirpc/tests_pack"
CONFIG = "#define HAVE_LIBTIRPC 1\n#define HAVE_RPC_RPC_H 1\n#define HAVE_RPC_TYPES_H 1\n"


def build(ltp, folder):
    """Every program of the pack, by its source's name."""
    pack = ltp / PACK
    (folder / "config.h").write_text(CONFIG)
    lib = [str(x) for x in (pack / "lib").glob("*.c")]
    missing = []
    for source in sorted(pack.rglob("*.c")):
        if source.parent.name == "lib":
            continue
        done = subprocess.run(["gcc", "-w", "-O1", "-pthread", "-I", folder, "-I", pack / "include",
                               "-I", pack / "lib", "-I", "/usr/include/tirpc", source, *lib,
                               "-o", folder / source.stem, "-ltirpc"], stderr=subprocess.DEVNULL)
        if done.returncode:
            missing.append(source.stem)
    print(f"built but for: {' '.join(missing) or 'none'}")


def tests(ltp):
    """Name, service or None, client, further arguments."""
    for name in ("net.rpc_tests", "net.tirpc_tests"):
        for line in (ltp / "runtest" / name).read_text().splitlines():
            words = shlex.split(line)
            if len(words) < 2 or words[1] != "rpc_test.sh":
                continue
            options = dict(zip(words[2::2], words[3::2]))
            yield (words[0], options.get("-s"), options["-c"],
                   options.get("-e", "").replace(",", " ").split())


def verdict(run, folder, service, client, extra):
    server = None
    if service:
        server = subprocess.Popen([*run, folder / service, NUMBER], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)
        space.wait_for(lambda: NUMBER in "".join(space.say("rpcinfo", "-p", HOST)), server)
    try:
        done = subprocess.run([*run, folder / client, HOST, NUMBER, *extra], timeout=LIMIT_S,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        # The last line is the verdict; others have addresses and times.
        lines = done.stdout.decode(errors="replace").split()
        return done.returncode, lines[-1] if lines else ""
    except subprocess.TimeoutExpired:
        return "hangs", ""
    finally:
        if server:
            server.kill()
            server.wait()
            cleaner = "tirpc_cleaner" if service.startswith("tirpc") else "rpc_cleaner"
            subprocess.run([folder / cleaner, NUMBER], stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, timeout=LIMIT_S)


def main():
    viaduct, shim, ltp, who = sys.argv[1:]
    space.enter(who, shim)
    with tempfile.TemporaryDirectory() as tmp:
        folder = pathlib.Path(tmp)
        build(pathlib.Path(ltp), folder)
        report = folder / "report"
        run = [viaduct, "run", "--report", report, "--upgrade-after", "0", "--"]
        binder = space.binder(run)
        differ, counts, began = [], collections.Counter(), time.monotonic()
        for name, service, client, extra in tests(pathlib.Path(ltp)):
            if not all((folder / x).exists() for x in (client, service or client)):
                counts["not built"] += 1
                continue
            plain = verdict([], folder, service, client, extra)
            ours = verdict(run, folder, service, client, extra)
            counts["pass" if plain[0] == 0 else "fail"] += 1
            if plain != ours:
                differ.append(f"{name}: plain {plain}, Viaduct {ours}")
                print(differ[-1], flush=True)
        space.stop(binder)
        lines = [json.loads(x) for x in report.read_text().splitlines()]
    counts["reasons"] = sorted({y for x in lines for y in x["reasons"]})
    total = {key: sum(x[key] for x in lines)
             for key in ("connections", "upgraded", "tx_direct_bytes")}
    print(f"plain: {dict(counts)}; under Viaduct {len(differ)} differ; {total}; "
          f"{time.monotonic() - began:.0f} s")
    # Most clients make one call: few connections last until their ends have met.
    return 1 if differ or not total["upgraded"] else 0


if __name__ == "__main__":
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    sys.exit(main())
