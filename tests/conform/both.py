#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs conformance cases on kernel TCP and under Viaduct; the results must be equal. Of lines that
end with " edge" one more is allowed: see tests/support/relation.py.

usage: both.py [--static] [--fds N] [--without FILE]... [--two-users TWO_USERS.so | --behind BETWEEN.so]
               [--mode MODE] VIADUCT CASES [NAME | FILE.c]...

With --static the cases are linked statically. With --without the cases whose names begin the lines
of the file are left out.

With --fds both run with at most so many descriptors, with --behind both run with a module that
is preloaded after Viaduct.

A mode changes how the connections are carried, in all cases alike:
  late            the upgrade comes after what warms them up, in the middle of the case
  tcp             no connection is ever upgraded
  one-way         the acceptors' direction stays on TCP (viaduct_test_one_way)
  poll-sets       poll and select keep their sets, small ones too (viaduct_test_poll_sets)
  SWITCHING.so    every few calls the connection is switched down, and comes up again
Only cases that ask for the direct path; the counters must show that it happened.
"""
import difflib
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import relation  # noqa: E402

SKIP = 77


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          stdin=subprocess.DEVNULL)
    lines = done.stdout.decode(errors="replace").splitlines()
    # Lines of two processes may come in any order among each other.
    speakers = ("peer ", "child ")
    lines.sort(key=lambda line: next((s for s in speakers if line.startswith(s)), ""))
    return done.returncode, lines


def read_report(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


# What a case may do before the upgrade. Late: more than pair_warm of cases.c does at each end.
AFTER = {"late": "124", "tcp": "1000000000"}


def check_mode(mode, report, sets):
    def total(key):
        return sum(line[key] for line in report)

    if mode == "tcp":
        return not total("upgraded") and total("tx_tcp_bytes") > 0
    if not total("upgraded") or not total("tx_direct_bytes"):
        return False
    if mode.endswith(".so"):
        return total("downgraded") > 0
    if mode == "poll-sets":
        return sum(sets) > 0
    return total("tx_tcp_bytes") > 0


def check_path(expect, report):
    def total(key):
        return sum(line[key] for line in report)

    if expect == "any":
        return None
    if not report:
        return "no report was written"
    if expect == "tcp":
        if total("upgraded"):
            return "a connection was upgraded that should not have been"
        if not any(line["reasons"] for line in report):
            return "no reason is named"
        return None
    if not total("upgraded"):
        reasons = [line["reasons"] for line in report if line["connections"]]
        return f"no connection was upgraded: {reasons}"
    if expect == "ready":
        return None
    if not total("tx_direct_bytes") or not total("rx_direct_bytes"):
        return "no byte went over the direct path"
    if expect == "back" and total("tx_direct_bytes") < 4 * total("tx_tcp_bytes"):
        return "the direct path was not taken again"
    if expect == "stays" and total("downgraded"):
        return "a connection went back to TCP"
    return None


def one(viaduct, cases, name, expect, users, mode, shown):
    # Joins what `viaduct run` preloads, and what the shell itself was given, if anything.
    case = ["sh", "-c", 'LD_PRELOAD="$LD_PRELOAD $0" exec "$@"', users] if users else []
    case += [cases, name]
    plain_status, plain = run(case)
    if plain_status == SKIP:
        print(f"{name}: {plain[-1]}")
        return SKIP
    if plain_status != 0 or "end" not in plain:
        print(f"{name}: fails on kernel TCP, status {plain_status}")
        print("\n".join(plain))
        return 1
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "report")
        if users:
            os.chmod(tmp, 0o711)
            with open(path, "w", encoding="utf-8"):
                os.chmod(path, 0o666)
        if mode and mode.endswith(".so"):
            case = ["sh", "-c", 'LD_PRELOAD="$0 $LD_PRELOAD" exec "$@"', mode, *case]
        if mode == "poll-sets":
            case = ["env", "CONFORM_POLL_SETS=" + os.path.join(tmp, "sets"), *case]
        if mode == "one-way":
            case = ["env", "CONFORM_ONE_WAY=1", *case]
        status, ours = run([viaduct, "run", "--report", path, "--upgrade-after",
                            AFTER.get(mode, "0"), "--", *case])
        report = read_report(path)
        sets = read_report(os.path.join(tmp, "sets"))
    wrong = check_path("any" if mode else expect, report)
    if mode:
        shown.append(check_mode(mode, report, sets))
    if status != plain_status:
        wrong = f"status {status} instead of {plain_status}"
    if relation.same(plain, ours) and wrong is None:
        print(f"{name}: ok")
        return 0
    print(f"{name}: FAILED{': ' + wrong if wrong else ''}")
    for line in difflib.unified_diff(plain, ours, "kernel", "viaduct", lineterm="", n=2):
        print("  " + line)
    for line in report:
        print("  report:", json.dumps(line))
    return 1


def main():
    arguments, users, mode, shown = sys.argv[1:], None, None, []
    if arguments[0] == "--static":
        import machine  # not in the guests of tests/guest
        machine.skip_where(machine.lacks_for_static())
        os.environ["VIADUCT_STATIC"] = "follow"
        arguments = arguments[1:]
    if arguments[0] == "--fds":
        import resource  # the guests of tests/guest have a Python without it
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(arguments[1]),) * 2)
        arguments = arguments[2:]
    left_out = set()
    while arguments[0] == "--without":
        with open(arguments[1], encoding="utf-8") as f:
            left_out |= {line.split()[0] for line in f if line.strip() and line[0] != "#"}
        arguments = arguments[2:]
    if arguments[0] == "--two-users":
        users = arguments[1]
        arguments = arguments[2:]
        if os.geteuid() != 0:
            print("needs root")
            return SKIP
    if arguments[0] == "--behind":
        users = arguments[1]
        arguments = arguments[2:]
    if arguments[0] == "--mode":
        mode = arguments[1]
        if mode.endswith(".so"):
            mode = os.path.abspath(mode)
        arguments = arguments[2:]
    viaduct, cases, *names = arguments
    listed = subprocess.run([cases, "--list"], stdout=subprocess.PIPE, check=True)
    known = [line.split() for line in listed.stdout.decode().splitlines()]
    # A switch may repeat an edge, which programs that read until EAGAIN do not mind, and
    # two connections of which one has gone to TCP have no order between them.
    if mode:
        known = [(name, expect, source) for name, expect, source in known
                 if expect == "direct" and "edge" not in name and "order" not in name]
    results = [one(viaduct, cases, name, expect, users, mode, shown)
               for name, expect, source in sorted(known)
               if (not names or name in names or source in names) and name not in left_out]
    if not results:
        sys.exit("there is no such case")
    if any(r == 1 for r in results):
        return 1
    if mode:
        print(f"{mode}: shown by the counters in {sum(shown)} of {len(shown)} cases")
        if 4 * sum(shown) < len(shown):
            return 1
    return SKIP if results and all(r == SKIP for r in results) else 0


sys.exit(main())
