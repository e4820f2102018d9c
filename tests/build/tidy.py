#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reports what the house style forbids: see the messages below for the rules.

usage: tidy.py ROOT [KNOWN]. KNOWN is a file with digests of sources that clang-format has found in
order, which takes most of the time: it is asked of the others, and then they are known, too.
"""
import hashlib
import pathlib
import re
import shutil
import subprocess
import sys

FUNCTION_LINES = 70
FILE_LINES = 600
FORMATTER = "14."  # other releases of clang-format disagree about details
ASKED_AT_ONCE = 100

# Path or path:function, and why it may be longer.
LONG_ON_PURPOSE = {}

# Calls at which libc may end the thread. On its own account Viaduct makes them past libc
# (base/kernel.h); through it only where it waits in the program's place, guarded.
CANCELLABLE = re.compile(r"REAL\((accept4?|close|connect|epoll_p?wait2?|open(at)?(64)?|p?poll|"
                         r"p?(read|write)v?2?(64)?|p?select|(recv|send)(from|to|m?msg)?)\)")
WAITS = {"src/base/await.c", "src/base/kernel.h", "src/conn/left.c", "src/conn/rx_rest.c",
         "src/conn/tx_rest.c", "src/conn/wait.c",
         "src/readiness/epoll_nest.c", "src/readiness/poll_call.c", "src/readiness/select.c"}

SPDX = "SPDX-License-Identifier: Apache-2.0"


def functions(lines):
    """Yields (name, first line, length) of the functions: their braces are in column 0."""
    start = None
    for number, line in enumerate(lines, 1):
        if line.startswith("{"):
            start = number
        elif line.startswith("}") and start:
            head = " ".join(lines[max(0, start - 6) : start - 1])
            names = re.findall(r"([A-Za-z_]\w*)\s*\(", head)
            yield (names[-1] if names else "?"), start, number - start - 1
            start = None


def code(text):
    """The text with comments and strings blanked out."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', blank, text, flags=re.S)


def check_c(path, name, text):
    lines = text.splitlines()
    if len(lines) > FILE_LINES and name not in LONG_ON_PURPOSE:
        yield f"{name}: {len(lines)} lines, more than {FILE_LINES}: split it"
    for function, line, length in functions(lines):
        if length > FUNCTION_LINES and f"{name}:{function}" not in LONG_ON_PURPOSE:
            yield f"{name}:{line}: {function} has {length} lines: split it"
    if not (len(lines) > 1 and SPDX in lines[0] and lines[1].startswith("/* ")):
        yield f"{name}:1: begin with the SPDX line and one sentence of purpose"
    if not name.startswith("src/"):
        return
    for number, line in enumerate(code(text).splitlines(), 1):
        if re.search(r"\bvolatile\b", line) and not re.search(r"\basm\w*\s+volatile", line):
            yield f"{name}:{number}: volatile: use _Atomic with an explicit order"
        if CANCELLABLE.search(line) and name not in WAITS and \
                not name.startswith(("src/preload/", "src/tool/")):
            yield f"{name}:{number}: a cancellation point: use base/kernel.h"


def check_script(name, text):
    if SPDX not in "\n".join(text.splitlines()[:2]):
        yield f"{name}:1: begin with the SPDX line"


def check_format(root, paths, known):
    tool = shutil.which("clang-format")
    if not tool:
        return
    version = subprocess.run([tool, "--version"], stdout=subprocess.PIPE, text=True).stdout
    if f"version {FORMATTER}" not in version:
        return
    rules = version.encode() + (root / ".clang-format").read_bytes()
    digest = {path: hashlib.sha256(rules + path.read_bytes()).hexdigest() for path in paths}
    before = set(known.read_text().split()) if known and known.exists() else set()
    asked = [path for path in paths if digest[path] not in before]
    right = before & set(digest.values())
    while asked:
        some, asked = asked[:ASKED_AT_ONCE], asked[ASKED_AT_ONCE:]
        out = subprocess.run([tool, "--dry-run", "--ferror-limit=1"] + [str(p) for p in some],
                             cwd=root, stderr=subprocess.PIPE, text=True).stderr
        wrong = [line.split(": warning")[0] for line in out.splitlines()
                 if "[-Wclang-format-violations]" in line]
        for place in wrong:
            yield place.replace(str(root) + "/", "") + ": run clang-format -i"
        right |= {digest[path] for path in some
                  if not any(place.startswith(f"{path}:") for place in wrong)}
        if known:
            known.write_text("\n".join(sorted(right)))


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    known = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
    found, sources = [], []
    for folder in ("src", "tests", "bench", "scripts", "models"):
        for path in sorted((root / folder).rglob("*")):
            name = str(path.relative_to(root))
            if path.suffix in (".c", ".h"):
                sources.append(path)
                found += check_c(path, name, path.read_text())
            elif path.suffix in (".py", ".sh") or path.name == "meson.build":
                found += check_script(name, path.read_text())
    found += check_format(root, sources, known)
    print("\n".join(found) or f"{len(sources)} sources are tidy")
    return 1 if found or not sources else 0


if __name__ == "__main__":
    sys.exit(main())
