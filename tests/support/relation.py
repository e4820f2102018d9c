# SPDX-License-Identifier: Apache-2.0
"""When two transcripts are the same by docs/contract.md: one of kernel TCP, one under Viaduct.

A line that ends with " edge" tells an event of an edge-triggered registration, which stands before the
colon. Ours may have such a line once more, or with more events than the kernel's. All other lines
must be equal. An edge that is told again and again is no repeat: between two of the kernel's lines
about a registration there may be MOST more.
"""
MOST = 4


def events_of(line):
    return set(line.split(": ")[1].split()[0].replace(",", "|").split("|"))


def registration_of(line):
    """Without the number of the operation that told it, or the round."""
    return line.split(":")[0].split(" ", 1)[-1].strip()


def same(plain, ours, most=MOST):
    at, more = 0, {}
    for line in ours:
        here = plain[at] if at < len(plain) else None
        if not line.endswith(" edge"):
            if line != here:
                return False
            at += 1
            continue
        about = registration_of(line)
        if here and here.split(":")[0] == line.split(":")[0] and here.endswith(" edge"):
            if not events_of(here) <= events_of(line):
                return False
            at += 1
            more[about] = 0
        else:
            more[about] = more.get(about, 0) + 1
            if more[about] > most:
                return False
    return at == len(plain)
