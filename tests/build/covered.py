#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every interposed symbol is called by a conformance case.

What the cases' objects expect from elsewhere is what they really call, or put into a table
of calls: neither a prototype nor a word in a string counts. An alias counts for itself only.
usage: covered.py EXPORTS.MAP OBJECTS... [--without PREFIX]
--without: no case can be built for names that begin so.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from exports import listed  # noqa: E402
from selfcalls import undefined  # noqa: E402

# Names that no program can call, each with the reason.
NEW = "newer than the liburing of Debian 12"
NEW_LIBC = "newer than the glibc of Debian 12"
CANNOT = {"viaduct_door": "what the native library uses; tests/native",
          "io_uring_submit_and_wait_min_timeout": NEW,
          "io_uring_submit_and_wait_reg": NEW, "io_uring_wait_cqes_min_timeout": NEW,
          **{f"__isoc23_{name}": NEW_LIBC for name in ("fwscanf", "vfwscanf", "vwscanf", "wscanf")}}


def main():
    arguments, without = sys.argv[1:], None
    if "--without" in arguments:
        at = arguments.index("--without")
        without = arguments[at + 1]
        del arguments[at:at + 2]
    interposed = {symbol for symbol in listed(arguments[0])
                  if not without or not symbol.startswith(without)}
    called = {symbol.split("@")[0] for path in arguments[1:] for _, symbol in undefined(path)}
    wrong = [f"{symbol}: no conformance case calls it"
             for symbol in sorted(interposed - called - set(CANNOT))]
    wrong += [f"{symbol}: said to be beyond any case, but {why}" for symbol in sorted(CANNOT)
              if not without or not symbol.startswith(without)
              for why in (["not interposed"] if symbol not in interposed else
                          ["a case calls it"] if symbol in called else [])]
    print("\n".join(wrong) or f"each of {len(interposed)} names has a case")
    return 1 if wrong or not interposed or not called else 0


if __name__ == "__main__":
    sys.exit(main())
