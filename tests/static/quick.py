#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The quick way of a statically linked program's calls keeps what src/conn/quick.h says.

All code that static_call can come to before static_keep, in the library as it is linked, uses no thread-local variable by
FS, and no vector register but XMM0 to 7 in crit_copy_plain and crit_copy_short. It makes no call that is not seen here. It has no
instruction that goes by the direction flag, which is the program's there. Nothing on this way, static_entry included, waits
until all before it is done: then the processor could not begin the next receive while the peer's memory is on its way.

usage: quick.py LIBRARY
"""
import re
import subprocess
import sys

ENTRY = ["static_entry", "static_entry_takes", "static_entry_has_frame"]
BEGIN = "static_call"
COPIES = ["crit_copy_plain", "crit_copy_short"]
# The second one is what static_call calls behind the first one, at its end.
BEHIND = ["static_keep", "static_call_on"]
FUNCTION = re.compile(r"^[0-9a-f]+ <(.+)>:$")
BRANCH = re.compile(r"^(?:call|j[a-z]+)\s+[0-9a-f]+ <([^>+]+)(?:\+0x[0-9a-f]+)?>")
VECTOR = re.compile(r"%([xyz]?mm\d+|k[0-7]|st)\b")
FORBIDDEN = re.compile(r"(int|call\s+\*|jmp\s+\*|fx|f[a-z]*\s|x?rstor|xsave|v?ldmxcsr|vzero|emms|rep|lods|outs|std|cld)"
                       r"|.*%es:\(")
WAITS = re.compile(r"(pushf|popf|xgetbv|cpuid|[lms]fence|serialize)")


def functions(library):
    """By name, the instructions of each."""
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", library], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    found, at = {}, []
    for line in text.splitlines():
        head = FUNCTION.match(line)
        if head:
            at = found.setdefault(head.group(1), [])
        elif ":\t" in line:
            at.append(re.sub(r"^((addr32|notrack|bnd) )+", "", line.split(":\t", 1)[1].strip()))
    return found


def faults(name, code):
    """Yields what an instruction may not be."""
    for one in code:
        registers = set(VECTOR.findall(one))
        if name in COPIES:
            registers -= {f"xmm{i}" for i in range(8)}
        if "%fs:" in one or registers or FORBIDDEN.match(one) or WAITS.match(one):
            yield f"{name}: {one}"


def entry_faults(code):
    """Up to where the quick way goes back to the program."""
    whole = [one for name in ENTRY for one in code.get(name, [])]
    backs = [i for i, one in enumerate(whole) if re.match(r"jmp\s+\*", one)]
    if not backs:
        return ["static_entry: not in the library"]
    return [f"static_entry: {one}" for one in whole[:backs[0]] if WAITS.match(one)]


def main():
    code = functions(sys.argv[1])
    seen, left, bad = set(), [BEGIN], entry_faults(code)
    while left:
        name = left.pop()
        if name in seen or name.split(".")[0] in BEHIND:
            continue
        seen.add(name)
        if not code.get(name):
            bad.append(f"{name}: not in the library")
            continue
        bad += faults(name, code[name])
        left += [m.group(1) for m in map(BRANCH.match, code[name]) if m]
    print("\n".join(bad) or f"{len(seen)} functions: " + " ".join(sorted(seen)))
    return 1 if bad or not seen.issuperset(COPIES) else 0


if __name__ == "__main__":
    sys.exit(main())
