# SPDX-License-Identifier: Apache-2.0
"""The cells of `viaduct bench --matrix` that are below TCP."""
import dataclasses
import statistics

from .load import Spread, items, number, word
from .names import pattern_words, place_words
from .units import show

HEADS = ("what", "size", "connections", "processors", "load", "spin", "times TCP", "pairs",
         "pairs below", "")
PAIRS_MAX = 1000


@dataclasses.dataclass
class Cell:
    row: object
    placement: str
    spin: str
    direct: bool
    ratio: Spread
    pairs: int
    below: int  # pairs whose ratio is below 1


def cells(figures):
    """Those with a ratio, the slowest first, and the number of the others."""
    found, unmeasured = [], 0
    for row in figures.rows:
        if row.results[0].over != "tcp" or not row.compares:
            continue
        for r in row.results[1:]:
            if r.over not in ("viaduct", "viaduct-nospin"):
                continue
            ratios = [q for q in map(number, items(r.json, "ratio_samples")[:PAIRS_MAX]) if q > 0]
            if not ratios:
                unmeasured += 1
                continue
            found.append(Cell(row, word(row.json, "placement") or word(figures.run, "placement"),
                              word(r.json, "spin"), r.direct_bytes > 0,
                              Spread(statistics.median(ratios), min(ratios), max(ratios)),
                              len(ratios), sum(q < 1 for q in ratios)))
    return sorted(found, key=lambda c: c.ratio.median), unmeasured


def sentence(found, unmeasured):
    """"3 of 240 cells below TCP, 1 of them in every pair" """
    below = sum(c.ratio.median < 1 for c in found)
    text = f"{below} of {len(found)} cells below TCP"
    if below:
        text += f", {sum(c.ratio.max < 1 for c in found)} of them in every pair"
    return text + (f"; {unmeasured} could not be measured" if unmeasured else "")


def line(c):
    certain = "every pair" if c.ratio.max < 1 else "" if c.direct else "stayed on TCP"
    return {"what": pattern_words(c.row.pattern), "size": show("size", c.row.size_bytes),
            "conns": f"{c.row.conns:.0f}", "place": place_words(c.placement), "load": c.row.load,
            "spin": c.spin, "ratio": show("ratio", c.ratio.median),
            "pairs": f"{show('ratio', c.ratio.min)} to {show('ratio', c.ratio.max)}",
            "below": f"{c.below} of {c.pairs}", "note": certain}


def below_tcp(figures):
    if not figures.matrix:
        return None
    found, unmeasured = cells(figures)
    return {"sentence": sentence(found, unmeasured) + ".", "heads": HEADS,
            "lines": [line(c) for c in found if c.ratio.median < 1]}
