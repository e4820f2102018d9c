#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random calls from a seed, plain and under Viaduct: what client and service write down is equal.

usage: stress.py VIADUCT STRESS [--seed N] [--count N] [--seconds N] [--calls N]
       [--module FILE]

Seeds from N on, so many, or for so long. The seed also says in which loop the service is, how many
threads call, with which settings, and now and then that only one end is under Viaduct. Nothing may
come on the standard error: a sanitizer's report fails the test. With sanitizers are STRESS and the
module, which FILE names then: the preloaded library cannot be before theirs.
"""
import argparse
import difflib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

LOOPS = ("run", "run", "poll", "select")
SETTINGS = ([], ["--ring-max", "16K"], ["--spin", "0"], ["--upgrade-after", "40"],
            ["--profile", "frugal", "--upgrade-after", "0"], ["--profile", "throughput"])
SANITIZED = {"ASAN_OPTIONS": "verify_asan_link_order=0",
             "TSAN_OPTIONS": "die_after_fork=0:suppressions=" + os.path.join(
                 os.path.dirname(os.path.abspath(__file__)), "threads.supp"),
             "UBSAN_OPTIONS": "print_stacktrace=1"}
LIMIT_S = 3000
# Why a connection may be on TCP by what a seed itself does. With `--upgrade-after 40` a seed with one
# thread may have no other ones. Who looks for a peer that has stayed there so before they met finds none.
BY_SEED = {"too-short", "sigio", "passed"}
NOT_FOUND = {"plain-peer"}


def run(stress, loop, arguments, before_serve, before_call):
    """What the two have written down, and what came on their standard errors."""
    env = {**SANITIZED, **os.environ}
    with tempfile.TemporaryDirectory() as tmp, tempfile.TemporaryFile() as said:
        place, lines = os.path.join(tmp, "port"), ["the service has not begun"]
        server = subprocess.Popen([*before_serve, stress, "serve", place, loop], env=env,
                                  stdout=subprocess.PIPE, stderr=said)
        try:
            while not os.path.exists(place):
                if server.poll() is not None:
                    break
                time.sleep(0.01)
            else:
                with open(place, encoding="ascii") as f:
                    port = f.read().strip()
                client = subprocess.run([*before_call, stress, "call", port, *arguments], env=env,
                                        stdout=subprocess.PIPE, stderr=said, timeout=LIMIT_S)
                lines = client.stdout.decode().splitlines()
                lines.append(f"client: status {client.returncode}")
                if client.returncode:
                    server.kill()
                lines += server.communicate(timeout=LIMIT_S)[0].decode().splitlines()
                lines.append(f"service: status {server.returncode}")
        finally:
            server.kill()
            server.wait()
        said.seek(0)
        errors = said.read().decode(errors="replace").splitlines()
    return lines, errors


def one(viaduct, stress, seed, calls):
    """What is wrong, and how many bytes went over the direct path."""
    chance = random.Random(seed)
    loop = chance.choice(LOOPS)
    arguments = [str(seed), str(chance.choice((1, 2, 3, 4, 6))), str(calls)]
    ends = chance.choice(("both",) * 8 + ("client", "service"))
    settings = chance.choice(SETTINGS)
    plain, said = run(stress, loop, arguments, [], [])
    wrong = [f"plain: {x}" for x in said]
    with tempfile.NamedTemporaryFile() as report:
        under = [viaduct, "run", "--report", report.name, "--upgrade-after", "0", *settings, "--"]
        ours, said = run(stress, loop, arguments, under if ends != "client" else [],
                         under if ends != "service" else [])
        counts = [json.loads(line) for line in report]
    wrong += said
    wrong += difflib.unified_diff(plain, ours, "plain", "viaduct", lineterm="", n=3)
    direct = sum(x["tx_direct_bytes"] for x in counts)
    reasons = {name for x in counts for name in x["reasons"]}
    found = reasons - NOT_FOUND if reasons & {"sigio", "passed"} else reasons
    if ends == "both" and not direct and not ("40" in settings and found <= BY_SEED):
        wrong.append(f"no byte went over the direct path; reasons: {reasons}")
    print(f"seed {seed}: {ends} in {loop}, {' '.join(arguments[1:])}, {' '.join(settings)}: "
          f"{len(plain)} lines, {direct} bytes direct, "
          f"{sum(x['upgraded'] for x in counts)} upgraded, "
          f"{sum(x['downgraded'] for x in counts)} back", flush=True)
    return wrong, direct


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("viaduct")
    parser.add_argument("stress")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--seconds", type=int)
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--module")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        if args.module:
            args.viaduct = with_module(args.viaduct, args.module, tmp)
        return go_through(args)


def with_module(viaduct, module, folder):
    """The command finds the libraries beside itself."""
    shutil.copy(os.path.join(os.path.dirname(viaduct), "libviaduct-preload.so"), folder)
    shutil.copy(module, os.path.join(folder, "libviaduct-rpc.so"))
    return shutil.copy(viaduct, folder)


def go_through(args):
    end = time.monotonic() + args.seconds if args.seconds else None
    seed, all_direct = args.seed, 0
    while time.monotonic() < end if end else seed < args.seed + args.count:
        wrong, direct = one(args.viaduct, args.stress, seed, args.calls)
        all_direct += direct
        if wrong:
            print("\n".join(wrong[:200]))
            print(f"seed {seed} fails")
            return 1
        seed += 1
    if not all_direct:
        print("no byte of any seed went over the direct path")
    return 0 if all_direct else 1


sys.exit(main())
