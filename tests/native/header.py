#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""viaduct.h is clean C99 and C++17, declares what the library exports, and documents each name.

usage: header.py SOURCE-ROOT EXPORTS.MAP LIBRARY
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "build"))
from exports import listed  # noqa: E402

STRICT = ["-Wall", "-Wextra", "-Werror", "-pedantic"]


def compilers():
    """Every way to read the header that this machine has."""
    ways = [["cc", "-std=c99"], ["cc", "-std=c11"], ["c++", "-std=c++11", "-x", "c++"],
            ["c++", "-std=c++17", "-x", "c++"], ["clang", "-std=c99"],
            ["clang++", "-std=c++17", "-x", "c++"]]
    return [way for way in ways if shutil.which(way[0])]


def main():
    root, exports, library = map(pathlib.Path, sys.argv[1:])
    text = (root / "include/viaduct/viaduct.h").read_text()
    source = root / "tests/native/header.c"
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        for way in compilers():
            # The linker is asked by the compiler's own name of the library.
            command = [*way, *STRICT, "-Wno-cast-function-type", f"-I{root}/include",
                       str(source), "-x", "none", str(library), "-o", f"{folder}/program"]
            if subprocess.run(command, check=False).returncode:
                wrong.append(f"{' '.join(way)} does not take the header")
                continue
            ran = subprocess.run([f"{folder}/program"], check=False,
                                 env={"LD_LIBRARY_PATH": str(library.parent)})
            if ran.returncode:
                wrong.append(f"{' '.join(way)}: the program ends with {ran.returncode}")
    names = {n for n in listed(exports) if n.startswith("vd_")}
    declared = set(re.findall(r"^(?:[a-z_ ]+[ *])(vd_\w+)\(", text, re.M))
    used = set(re.findall(r"FN\((vd_\w+)\)", source.read_text()))
    wrong += [f"{n}: not in all of header, exports.map and header.c"
              for n in sorted((names | declared | used) - (names & declared & used))]
    if len(names) > 33:
        wrong.append(f"{len(names)} functions are more than one remembers")
    print("\n".join(wrong) or f"{len(names)} functions, {len(compilers())} compilers")
    return 1 if wrong or len(compilers()) < 2 else 0


if __name__ == "__main__":
    sys.exit(main())
