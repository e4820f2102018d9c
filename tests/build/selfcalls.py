#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No code of the library calls a function that it interposes, except through REAL().

Such a call would come back into the hook, under locks that the hook takes.
usage: selfcalls.py EXPORTS.MAP ARCHIVE-OR-LIBRARY-OBJECTS...
"""
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from exports import listed  # noqa: E402


def undefined(path):
    """Yields (object, symbol) of what the objects in path expect from elsewhere."""
    out = subprocess.run(["nm", "-A", "--undefined-only", path], check=True,
                         stdout=subprocess.PIPE, text=True).stdout
    for line in out.splitlines():
        where, symbol = re.match(r"(.*?):?\s+[UwV]\s+(\S+)$", line).groups()
        yield where.split(":")[-1], symbol


def main():
    interposed = listed(sys.argv[1])
    found = sorted({f"{where} calls {symbol}" for path in sys.argv[2:]
                    for where, symbol in undefined(path) if symbol in interposed})
    print("\n".join(found) or "no call of ours comes back to us")
    return 1 if found or not interposed else 0


if __name__ == "__main__":
    sys.exit(main())
