#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that are built with sanitizers, whose libraries interpose much of what Viaduct does,
start under `viaduct run` as without it, are upgraded, and settings hold for them.

usage: sanitized.py VIADUCT SOURCE
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

SKIP = 77
# gcc's are shared libraries unless it is told otherwise, clang's are not.
WAYS = [("gcc", "-fsanitize=address"), ("gcc", "-fsanitize=address", "-static-libasan"),
        ("gcc", "-fsanitize=thread"), ("gcc", "-fsanitize=thread", "-static-libtsan"),
        ("gcc", "-fsanitize=undefined"), ("gcc", "-fsanitize=leak"),
        ("clang", "-fsanitize=address"), ("clang", "-fsanitize=thread"),
        ("clang", "-fsanitize=undefined"), ("clang", "-fsanitize=leak")]


def run(command, where):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=where,
                          timeout=120)
    return done.returncode, done.stdout


def check(viaduct, program, tmp):
    plain = run([program], tmp)
    if plain[0]:
        return "does not run here"
    report = tmp / "report"
    report.unlink(missing_ok=True)
    ours = run([viaduct, "run", "--report", report, "--upgrade-after", "0", "--", program], tmp)
    assert ours == plain, f"{plain} on TCP, {ours} under Viaduct"
    lines = [json.loads(line) for line in report.read_text(encoding="utf-8").splitlines()]
    assert [line["upgraded"] for line in lines] == [2], lines
    assert all(line["tx_direct_bytes"] > line["tx_tcp_bytes"] for line in lines), lines
    off = run([viaduct, "run", "--report", report, "--off", "--", program], tmp)
    assert off == plain, f"{plain} on TCP, {off} with --off"
    lines = [json.loads(line) for line in report.read_text(encoding="utf-8").splitlines()]
    assert sum(line["upgraded"] for line in lines) == 2, f"with --off: {lines}"
    return "ok"


def main():
    viaduct, source = (pathlib.Path(arg).resolve() for arg in sys.argv[1:])
    results = []
    for cc, *options in WAYS:
        if not shutil.which(cc):
            continue
        with tempfile.TemporaryDirectory() as folder:
            tmp = pathlib.Path(folder)
            program = tmp / "program"
            built, _ = run([cc, "-O1", *options, "-pthread", source, "-o", program], tmp)
            results.append("cannot be built" if built else check(viaduct, program, tmp))
        print(cc, *options, results[-1])
    return 0 if "ok" in results else SKIP


if __name__ == "__main__":
    sys.exit(main())
