#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tests of Go's own network libraries: plain, and followed with each connection upgraded at its first operation.
Linked either way they have the same outcomes, but for tests that look for the system calls sendfile and splice.

usage: go.py VIADUCT [PACKAGE...]; with GOROOT, of that Go.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import machine  # noqa: E402 pylint: disable=wrong-import-position

SKIP = 77
PACKAGES = ["net", "net/http", "net/http/httputil", "net/rpc", "net/smtp", "crypto/tls"]
OUTCOME = re.compile(r"^ *--- (\w+): (\S+)", re.MULTILINE)
# Since Go 1.22 TestSplice asks whether the kernel has moved the bytes; that they are the right ones is asked as well.
SEES_THE_CALL = re.compile(r"TestLinuxSendfile(Child)?|TestSplice(/tcp-to-(tcp|unix)(/.*)?)?")
OF_SPLICE = re.compile(r"^ *splice_linux_test\.go:\d+: (?!expected handled = true).*", re.MULTILINE)


def build(go, package, cgo, folder, program):
    env = {**os.environ, "GOCACHE": str(folder / "cache"), "HOME": str(folder), "GO111MODULE": "off",
           "CGO_ENABLED": cgo}
    subprocess.run([go, "test", "-c", "-o", str(program), package], env=env, check=True)


def run(words, source):
    """The outcomes by name, and what it said."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("VIADUCT")}
    done = subprocess.run([*words, "-test.short", "-test.v"], cwd=source, env=env, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    outcomes = {}
    for outcome, name in OUTCOME.findall(done.stdout):
        if not SEES_THE_CALL.fullmatch(name):
            outcomes.setdefault(name, []).append(outcome)
    return {name: sorted(all_of) for name, all_of in outcomes.items()}, done.stdout


def compare(follow, program, source, names=()):
    """How many there are, which differ, and what the one that is followed said."""
    words = [str(program), *(["-test.run", f"^({'|'.join(names)})$"] if names else [])]
    plain, _ = run(words, source)
    seen, text = run([*follow, *words], source)
    differ = sorted(name for name in {*plain, *seen} if plain.get(name) != seen.get(name))
    for name in differ:
        print(f"  {name}: plain {plain.get(name)}, followed {seen.get(name)}")
    return len(plain), differ + OF_SPLICE.findall(text), text


def both(viaduct, program, source, folder):
    """True when they are the same, and some connections were direct. Some of these tests fail where the machine is
    slow, followed or not: those that differ have a second try by themselves."""
    report = folder / "report"
    report.unlink(missing_ok=True)
    follow = [viaduct, "run", "--upgrade-after", "0", "--report", str(report), "--"]
    count, differ, text = compare(follow, program, source)
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    upgraded = sum(line["upgraded"] for line in lines)
    if differ and not OF_SPLICE.search(text):
        _, differ, text = compare(follow, program, source, {name.split("/")[0] for name in differ})
    print(f"{program.name}: {count} tests, {upgraded} connections upgraded, {len(differ)} differ", flush=True)
    if differ or not count or not upgraded:
        print(text[-4000:])
        return False
    return True


def main():
    viaduct, packages = os.path.abspath(sys.argv[1]), sys.argv[2:] or PACKAGES
    root = os.environ.get("GOROOT")
    go = os.path.join(root, "bin/go") if root else shutil.which("go")
    if not go or not shutil.which("gcc"):
        print("skipped: has no Go, or no gcc")
        sys.exit(SKIP)
    root = root or subprocess.run([go, "env", "GOROOT"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    good = True
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for cgo in "1", "0":
            if cgo == "1" and machine.lacks_for_go():
                print(f"dynamically linked ones are left out: {machine.lacks_for_go()}")
                continue
            for package in packages:
                source = pathlib.Path(root, "src", package)
                if not any(source.glob("*_test.go")):
                    print(f"skipped: has no tests of {package}")
                    sys.exit(SKIP)
                program = folder / f"{package.replace('/', '-')}-{'cgo' if cgo == '1' else 'static'}"
                build(go, package, cgo, folder, program)
                good &= both(viaduct, program, source, folder)
    sys.exit(0 if good else 1)


main()
