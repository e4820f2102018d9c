#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every interposed symbol is called by a conformance case.

What the cases' objects expect from elsewhere is what they really call, or put into a table
of calls: neither a prototype nor a word in a string counts. An alias counts for itself only.
usage: covered.py EXPORTS.MAP OBJECTS...
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from exports import listed  # noqa: E402
from selfcalls import undefined  # noqa: E402

# Names that no program can call, each with the reason.
CANNOT = {}


def main():
    interposed = listed(sys.argv[1])
    called = {symbol.split("@")[0] for path in sys.argv[2:] for _, symbol in undefined(path)}
    wrong = [f"{symbol}: no conformance case calls it"
             for symbol in sorted(interposed - called - set(CANNOT))]
    wrong += [f"{symbol}: said to be beyond any case, but {why}" for symbol in sorted(CANNOT)
              for why in (["not interposed"] if symbol not in interposed else
                          ["a case calls it"] if symbol in called else [])]
    print("\n".join(wrong) or f"each of {len(interposed)} names has a case")
    return 1 if wrong or not interposed or not called else 0


if __name__ == "__main__":
    sys.exit(main())
