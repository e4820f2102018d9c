#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No folder of src/ includes one above it: base < ring < meet < across < stream < sock < hook.

src/native is on top, and knows base and the hooks' door; src/rpc is beside it, and knows that door and the reasons; src/relay may include base and meet, src/rdma base; src/across both, too. src/cli may include base, read the memory that
processes expose, ask viaductd, and open an RDMA device. Inside src/ every include of ours names its folder.
"""
import pathlib
import re
import sys

ORDER = ["base", "ring", "meet", "across", "stream", "sock", "hook"]
ALLOWED = {name: set(ORDER[: i + 1]) for i, name in enumerate(ORDER)}
ALLOWED["native"] = {"base", "hook", "native", "stream"}
ALLOWED["rpc"] = {"rpc"}
ALLOWED["cli"] = {"base", "cli"}
ALLOWED["relay"] = {"base", "meet", "relay"}
ALLOWED["across"] |= {"rdma", "relay"}
ALLOWED["rdma"] = {"base", "rdma"}
EXPOSED = {"stream/slot.h", "stream/table.h", "stream/trace_buffer.h", "relay/caller.h",
           "rdma/verbs.h"}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)


def violations(root):
    for path in sorted((root / "src").rglob("*.[ch]")):
        folder = path.relative_to(root / "src").parts[0]
        for name in INCLUDE.findall(path.read_text()):
            where = f"{path.relative_to(root)} includes \"{name}\""
            if name == "viaduct/viaduct.h" and folder == "native":
                continue
            if not (root / "src" / name).is_file():
                yield f"{where}: give the path from src/"
            elif folder == "cli" and name in EXPOSED:
                continue
            elif folder == "rpc" and name in ("hook/door.h", "base/reason.h"):
                continue
            elif name.split("/")[0] not in ALLOWED.get(folder, set()):
                yield f"{where}: {folder} may include {sorted(ALLOWED.get(folder, []))}"


def main():
    found = list(violations(pathlib.Path(sys.argv[1])))
    print("\n".join(found) or "layers are in order")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
