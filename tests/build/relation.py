#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The relation by which transcripts are compared tells what the contract allows from what it does not."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import relation  # noqa: E402

KERNEL = ["1 wait (5) = 0", "1 wait   7 of 3: IN edge", "2 read (7) = 10", "3 wait (5) = 1",
          "3 wait   8 of 4: IN", "4 wait   7 of 3: IN|RDHUP edge", "end"]
MORE = "2 wait   7 of 3: IN edge"


def at(index, *lines):
    return KERNEL[:index] + list(lines) + KERNEL[index:]


def instead(index, *lines):
    return KERNEL[:index] + list(lines) + KERNEL[index + 1:]


CASES = [
    ("equal", KERNEL, True),
    ("an edge once more", at(3, MORE), True),
    ("one at the end", at(6, MORE), True),
    ("one before the first", at(0, MORE), True),
    ("more events of an edge", instead(1, "1 wait   7 of 3: IN|OUT edge"), True),
    ("an edge lost", instead(1), False),
    ("the last edge lost", instead(5), False),
    ("fewer events of an edge", instead(5, "4 wait   7 of 3: RDHUP edge"), False),
    ("an edge of another registration instead", instead(1, "1 wait   9 of 3: IN edge"), False),
    ("an edge too late", instead(1)[:2] + [KERNEL[1]] + KERNEL[3:], False),
    ("an edge without end", at(3, *[MORE] * (relation.MOST + 1)), False),
    ("a level once more", at(5, "4 wait   8 of 4: IN"), False),
    ("a level lost", instead(4), False),
    ("fewer bytes", instead(2, "2 read (7) = 9"), False),
    ("a line more", at(7, "more"), False),
    ("the end is missing", KERNEL[:-1], False),
    ("nothing", [], False),
]

wrong = [name for name, ours, allowed in CASES if relation.same(KERNEL, ours) != allowed]
print("\n".join(f"{name}: judged wrongly" for name in wrong) or f"{len(CASES)} cases")
sys.exit(bool(wrong))
