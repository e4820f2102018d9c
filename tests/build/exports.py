#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what libviaduct.so exports with the list in src/preload/exports.map.

One name too many interposes a function by accident; one too few (Meson's
_FILE_OFFSET_BITS=64 turns fcntl into fcntl64) leaves a way past Viaduct.
"""
import re
import subprocess
import sys


def listed(path):
    text = re.sub(r"/\*.*?\*/|#[^\n]*", "", open(path).read(), flags=re.S)
    names = re.search(r"global:(.*?)(local:|})", text, flags=re.S).group(1)
    return set(names.replace(";", " ").split())


def exported(library):
    out = subprocess.run(["nm", "-D", "--defined-only", library], check=True,
                         stdout=subprocess.PIPE, text=True).stdout
    # A versioned name keeps its @VERSION and so fails: it would not interpose.
    return {line.split()[-1] for line in out.splitlines() if line.split()[-2] != "A"}


def main():
    want, have = listed(sys.argv[1]), exported(sys.argv[2])
    if len(sys.argv) > 3:  # a library that is linked with: each name has this version
        want = {f"{name}@@{sys.argv[3]}" for name in want}
    for name in sorted(want - have):
        print(f"listed in exports.map, but not exported: {name}")
    for name in sorted(have - want):
        print(f"exported, but not listed in exports.map: {name}")
    print(f"{len(have)} names exported, {len(want)} listed")
    return 0 if want and want == have else 1


if __name__ == "__main__":
    sys.exit(main())
