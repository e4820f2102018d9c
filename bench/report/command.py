# SPDX-License-Identifier: Apache-2.0
"""The command that measures it all again."""
from .load import figure, word


def sizes(figures):
    for size in sorted({row.size_bytes for row in figures.rows if row.size_bytes > 0}):
        for unit, name in ((1 << 20, "M"), (1 << 10, "K")):
            if size % unit == 0:
                yield f"{size / unit:.0f}{name}"
                break
        else:
            yield f"{size:.0f}"


def conns(figures):
    counts = sorted({row.conns for row in figures.rows if row.conns > 1})
    if counts:
        yield "--conns " + ",".join(f"{n:.0f}" for n in counts)
    elif figures.matrix:  # which has some by itself
        yield "--conns 1"
    active = max((row.active for row in figures.rows if row.active < row.conns), default=0)
    if active > 0:
        yield f"--active {active:.0f}"


def is_crowd(figures, row):
    """Measured beside, without being asked for, where neither load nor placement is given."""
    return figures.matrix and row.place == "free" and "free" not in word(figures.run, "placement")


def loads(figures):
    """From the fewest busy loops to the most."""
    seen = {}
    for row in figures.rows:
        seen.setdefault(row.busy, row.load)
    return ",".join(f"{busy:.0f}" if load.startswith("busy-") else load
                    for busy, load in sorted(seen.items()) if busy >= 0)


def load(figures, crowd):
    rows = figures.rows
    differ = any(r.busy != rows[0].busy or r.load.startswith("busy-") for r in rows)
    if not crowd and (figures.matrix or differ):
        yield "--load " + loads(figures)
    named = [r.busy for r in rows if r.load == "busy" and not is_crowd(figures, r)]
    if named:
        yield f"--busy {named[-1]:.0f}"
    if rows[0].rate_per_s > 0:
        yield f"--rate {rows[0].rate_per_s:.0f}"
    think_us = max(r.think_us for r in rows)
    if think_us > 0:
        yield f"--think {think_us:.0f}"


def matrix(figures):
    """What it would not measure again by itself."""
    on = any(r.find("viaduct") for r in figures.rows)
    if not on or not any(r.find("viaduct-nospin") for r in figures.rows):
        yield f"--spin {'on' if on else 'off'}"
    yield f"--recheck {figure(figures.run, 'recheck'):.0f}"


def command(figures):
    run, crowd = figures.run, any(is_crowd(figures, r) for r in figures.rows)
    words = ["viaduct bench --report DIR"]
    if figures.matrix:
        words.append("--matrix")
    words.append("--patterns " + ",".join(dict.fromkeys(r.pattern for r in figures.rows)))
    given = ",".join(sizes(figures))
    if given:
        words.append("--sizes " + given)
    words += [*conns(figures), *load(figures, crowd)]
    if figures.matrix:
        words += matrix(figures)
    if figure(run, "pairs") > 0:
        words.append(f"--pairs {figure(run, 'pairs'):.0f}")
    if figure(run, "time_s") > 0:
        words.append(f"--time {figure(run, 'time_s'):g}")
    if word(run, "placement") and not crowd:
        words.append(f"--placement {word(run, 'placement')}")
    if word(run, "congestion"):
        words.append(f"--congestion {word(run, 'congestion')}")
    return " ".join(words)
