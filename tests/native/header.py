#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""viaduct.h is clean C99 and C++17, declares what the library exports, and documents each name; and
viaduct(3) is to be had by each function's name.

usage: header.py SOURCE-ROOT BUILD-ROOT EXPORTS.MAP LIBRARY
"""
import json
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


def declarations(text):
    """The functions by name, each as one line."""
    code = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    found = re.findall(r"^((?:[a-z_]\w*[ *]+)+(vd_\w+)\([^;{]*\));", code, re.M)
    return {name: " ".join(whole.split()) for whole, name in found}


def wrong_pages(root, build, names, declared):
    """The manual page declares and names each function, and its name is installed as a page."""
    page = (root / "man/viaduct.3").read_text()
    named = re.search(r"\.SH NAME\n(.*?) \\-", page, re.S).group(1).replace("\n", " ").split(", ")
    shown = declarations(re.sub(r'^\.B "(.*)"$', r"\1", page, flags=re.M))
    yield from (f"viaduct.3: {n}: not as the header has it" for n in sorted(names)
                if shown.get(n) != declared[n])
    yield from (f"viaduct.3: {n}: not in both NAME and the header"
                for n in sorted(set(named) ^ names ^ {"viaduct"}))
    table = json.loads((build / "meson-info/intro-installed.json").read_text())
    pages = {pathlib.Path(to).name: pathlib.Path(at) for at, to in table.items()
             if to.endswith(".3")}
    if not pages:
        return  # built without the manual
    yield from (f"man3/{n}: not one page for each function"
                for n in sorted(set(pages) ^ {f"{n}.3" for n in names | {"viaduct"}}))
    yield from (f"man3/{n}: does not lead to viaduct.3" for n, at in sorted(pages.items())
                if n != "viaduct.3" and ".so man3/viaduct.3" not in at.read_text().splitlines())


def main():
    root, build, exports, library = map(pathlib.Path, sys.argv[1:])
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
    declared_as = declarations(text)
    wrong += wrong_pages(root, build, names & set(declared_as), declared_as)
    if len(names) > 34:
        wrong.append(f"{len(names)} functions are more than one remembers")
    print("\n".join(wrong) or f"{len(names)} functions, {len(compilers())} compilers")
    return 1 if wrong or len(compilers()) < 2 else 0


if __name__ == "__main__":
    sys.exit(main())
