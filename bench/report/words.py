# SPDX-License-Identifier: Apache-2.0
"""The summary in sentences: where Viaduct is slower, where nothing changes, where it wins."""
import collections

from markupsafe import Markup

from . import levels
from .load import items, part, word
from .names import contender_words, pattern_words
from .units import cell, show, show_rate

LISTED = 16
FLOOR_BELIEVED = 1.5  # nothing that uses a ring is so much quicker than one

Cell = collections.namedtuple("Cell", "row result")  # one row under Viaduct, against TCP
VIADUCTS = ("viaduct", "viaduct-nospin", "via-client", "via-server")
OTHERS = ("tcp-spin", "unix", "ucx", "fi", "floor")
# Cells that everybody asks for; size 0: the largest there is.
TILES = (("rtt", 64), ("rtt-spin", 64), ("stream", 64), ("stream", 0), ("crr", 64))


def ratio(value):
    return show("ratio", value)


def verdict(c):
    return levels.verdict(c.result.ratio.median)


def collect(figures):
    """The slowest first."""
    cells = [Cell(row, row.find(over)) for row in figures.rows if row.compares
             for over in VIADUCTS if row.find(over) and row.find(over).ratio.median > 0]
    return sorted(cells, key=lambda c: c.result.ratio.median)


def both(c):
    """"36 µs on TCP, 0.19 µs on Viaduct" """
    first = c.row.results[0]
    return (f"{show_rate(c.row, first.rate.median)} on {contender_words(first.over)}, "
            f"{show_rate(c.row, c.result.rate.median)} "
            f"{'on' if c.result.over == 'viaduct' else 'with'} Viaduct")


def one_end(c):
    return "" if c.result.over == "viaduct" else f", {contender_words(c.result.over)}"


def sentence(c):
    q = c.result.ratio
    return Markup("<b>{}, {}{}</b>: {}, <b>{}</b> <span class=\"soft\">(pairs: {} to {}{})</span>"
                  ).format(pattern_words(c.row.pattern), cell(c.row), one_end(c), both(c),
                           ratio(q.median), ratio(q.min), ratio(q.max),
                           ", they disagree" if q.disagrees else "")


def listed(cells, wanted):
    found = [c for c in cells if verdict(c) == wanted]
    lines = [sentence(c) for c in found[:LISTED]]
    if len(found) > LISTED:
        lines.append(f"and {len(found) - LISTED} more: see the table of ratios below")
    return lines


def faster(cells):
    """The faster cells of a pattern in one line."""
    groups = {}
    for c in cells:
        if verdict(c) > 0:
            groups.setdefault((c.row.pattern, c.result.over), []).append(c)
    lines = []
    for group in groups.values():
        weak, best = group[0], group[-1]
        lines.append(sentence(best) if best is weak else Markup(
            "<b>{}{}</b>: from <b>{}</b> at {} ({}) to <b>{}</b> at {} ({})").format(
                pattern_words(best.row.pattern), one_end(best),
                ratio(weak.result.ratio.median), cell(weak.row), both(weak),
                ratio(best.result.ratio.median), cell(best.row), both(best)))
    return lines


def against(figures, over):
    """Viaduct against another contender than the first, by the medians of their rates."""
    found, busy = [], 0
    for row in figures.rows:
        v, o = row.find("viaduct"), row.find(over)
        if not (v and o and v.rate.median > 0 and o.rate.median > 0):
            continue
        q = v.rate.median / o.rate.median
        if over == "floor" and q > FLOOR_BELIEVED:
            busy += 1
        else:
            found.append((q, row))
    if busy:
        yield Markup("<b>The machine was too busy</b> for a comparison with the raw ring in "
                     "{} row{}: the ring, which is the machine's own limit, was slower there "
                     "than what uses one.").format(busy, "s" if busy > 1 else "")
    if not found:
        return
    low, row = min(found, key=lambda f: f[0])
    yield Markup("<b>Against {}</b>: faster in {} of {}, from <b>{}</b> ({}, {}) to <b>{}</b> its "
                 "speed.{}").format(
                     contender_words(over), sum(q > 1 for q, _ in found), len(found), ratio(low),
                     pattern_words(row.pattern), cell(row), ratio(max(q for q, _ in found)),
                     " The raw ring, without sockets, is the machine's own limit."
                     if over == "floor" else "")


def lead(cells):
    count = collections.Counter(map(verdict, cells))
    text = Markup("Of {} comparisons with TCP, Viaduct is faster in <b>{}</b>, as fast (within "
                  "5 %) in <b>{}</b>, and slower in <b>{}</b>.").format(
                      len(cells), count[1], count[0], count[-1])
    open_ = sum(c.result.ratio.disagrees for c in cells)
    if open_:
        text += f" In {open_} of them the pairs disagree about which is faster."
    return text


def findings(figures):
    return [word(f, "sentence") for f in items(figures.json, "findings") if isinstance(f, dict)]


def summary(figures):
    """The sentence in front, and lists with their headings."""
    cells = collect(figures)
    first = None
    if cells:
        first = lead(cells)
    elif not findings(figures):
        first = ("Nothing was measured both on TCP and under Viaduct, so there is nothing to "
                 "compare.")
    others = [line for over in OTHERS for line in against(figures, over)]
    lists = (("Slower", listed(cells, -1)), ("As fast", listed(cells, 0)),
             ("Faster", faster(cells)), ("Against others", others),
             ("What the experiments say", findings(figures)))
    return {"lead": first, "lists": [(head, lines) for head, lines in lists if lines]}


def find_tile(figures, pattern, size):
    found = None
    for row in figures.rows:
        r = row.find("viaduct")
        if (row.pattern != pattern or row.conns > 1 or row.busy > 0 or row.place == "one"
                or not r or not r.ratio.median > 0):
            continue
        if row.size_bytes == size if size else not found or row.size_bytes > found.size_bytes:
            found = row
    return found


def tiles(figures):
    made = []
    for row in dict.fromkeys(find_tile(figures, *tile) for tile in TILES):
        if row:
            c = Cell(row, row.find("viaduct"))
            made.append({"what": f"{pattern_words(row.pattern)}, {cell(row)}",
                         "class": ("same", "better", "worse")[verdict(c)],
                         "ratio": ratio(c.result.ratio.median), "both": both(c)})
    return made


def subtitle(figures):
    """"on Linux 6.18, AMD EPYC, 2 processors; 2026-01-31T12:00:00Z; Viaduct 0.1.0" """
    m, cpus = figures.machine, number_of_cpus(figures)
    parts = ((" on Linux ", word(m, "kernel")), (", ", word(m, "cpu")),
             (", ", f"{cpus:.0f} processor{'s' if cpus > 1 else ''}" if cpus > 0 else ""),
             ("; ", word(figures.json, "started")), ("; Viaduct ", word(figures.json, "viaduct")))
    return "".join(before + text for before, text in parts if text)


def number_of_cpus(figures):
    value = part(figures.json, "machine").get("cpus")
    return value if isinstance(value, (int, float)) and 0 < value < 1e9 else 0
