# SPDX-License-Identifier: Apache-2.0
"""The ratios against TCP as a table in colours: blue is faster, orange is slower.

A wide table has the names of its lines beside them; a narrow one, for a telephone, above them.
"""
import re

from matplotlib.patches import Rectangle

from .levels import LEVELS, level_of
from .names import contender_words, pattern_words, place_words
from .picture import EDGE, INK, INVERSE, PAPER, Picture, shortened, text_width
from .units import cell, show, show_conns, show_rate

CELL, ROW, NAME, COLUMNS_MAX = 70, 30, 22, 48
NARROW = 350  # of the page on a telephone
TITLE = "Viaduct against TCP: how many times as fast"
NOTE = ("Medians of the ratios of the pairs; below 1 Viaduct is slower; ~ the pairs disagree")


def heat_result(row, over):
    r = row.find(over)
    return r if r and r.ratio.median > 0 and row.compares else None


def hover_words(row, r):
    q = r.ratio
    return (f"{pattern_words(row.pattern)}, {cell(row)}: "
            f"{show_rate(row, row.results[0].rate.median)} with TCP, "
            f"{show_rate(row, r.rate.median)} with Viaduct; {show('ratio', q.median)} in the "
            f"median ({show('ratio', q.min)} to {show('ratio', q.max)})")


def draw_cell(picture, ax, row, r, x, y, width):
    level = level_of(r.ratio.median)
    ax.add_patch(Rectangle((x, y), width, ROW, facecolor=level.fill, edgecolor=PAPER,
                           linewidth=2, gid=picture.hover(hover_words(row, r))))
    text = re.match("[0-9.,]*", show("ratio", r.ratio.median))[0]
    picture.text(x + width / 2, y + ROW / 2 + 4, text + (" ~" if r.ratio.disagrees else ""),
                 "center", color=INVERSE if level.inverse else INK)


def legend(width):
    """[(x, line, level)], and the number of lines."""
    made, x, line = [], EDGE, 0
    for level in LEVELS:
        room = 28 + text_width(level.words)
        if x + room > width - EDGE + 10:
            x, line = EDGE, line + 1
        made.append((x, line, level))
        x += room
    return made, line + 1


def draw(name, heads, lines, narrow):
    """heads: [[text, ...]] a column; lines: {name: {column: (row, result)}}"""
    names = 0 if narrow else max(160, *(min(text_width(n), 420) + 16 for n in lines))
    width_of = min(54, max(40, (NARROW - 2 * EDGE) // len(heads))) if narrow else CELL
    head, step = 15 * max(map(len, heads)), ROW + (NAME if narrow else 0)
    width = max(2 * EDGE + names + len(heads) * width_of, NARROW if narrow else 620)
    levels, legend_lines = legend(width)
    picture = Picture("ratio", name, TITLE, NOTE, width,
                      20 + head + len(lines) * step + 20 * legend_lines + 16)
    ax, left, y = picture.canvas(), EDGE + names, picture.top + 8
    for c, texts in enumerate(heads):
        for n, text in enumerate(texts):
            picture.text(left + (c + 0.5) * width_of, y + 15 * (n + 1), text, "center",
                         size=9 if narrow else 11,
                         **({"color": INK, "weight": "bold"} if len(texts) > 1 and not n else {}))
    y += head + 8
    for line, cells in lines.items():
        if narrow:
            picture.text(EDGE, y + 16, shortened(line, width - 2 * EDGE), color=INK)
            y += NAME
        else:
            picture.text(left - 8, y + ROW / 2 + 4, shortened(line, names - 8), "right")
        for c, (row, r) in cells.items():
            draw_cell(picture, ax, row, r, left + c * width_of, y, width_of)
        y += ROW
    for x, line, level in levels:
        ax.add_patch(Rectangle((x, y + 14 + 20 * line), 13, 13, facecolor=level.fill, linewidth=0))
        picture.text(x + 18, y + 24 + 20 * line, level.words)
    return picture


def both(name, heads, lines):
    if not lines or not heads:
        return []
    wide = draw(name, heads, lines, False)
    wide.narrow = draw(name, heads, lines, True)
    return [wide]


def by_size(figures):
    """The rows that differ in nothing but their size make a line."""
    found = [(row, over) for row in figures.rows
             for over in ("viaduct", "via-client", "via-server") if heat_result(row, over)]
    sizes = sorted({row.size_bytes for row, _ in found})[:COLUMNS_MAX]
    lines = {}
    for row, over in found:
        words = (pattern_words(row.pattern) + show_conns(row)
                 + (f", {row.load}" if row.busy > 0 else "")
                 + ("" if over == "viaduct" else f", {contender_words(over)}"))
        key = (words, row.think_us, row.active, row.busy)
        if row.size_bytes in sizes:
            lines.setdefault(key, {})[sizes.index(row.size_bytes)] = row, heat_result(row, over)
    return both("ratio", [[show("size", s)] for s in sizes], Named(lines))


def matrix(figures):
    """Two processors before one, quiet before busy, spinning before not."""
    found = [(row, over) for row in figures.rows for over in ("viaduct", "viaduct-nospin")
             if heat_result(row, over)]
    columns = {(row.place, row.busy, over): row.load for row, over in found}
    order = sorted(sorted(columns, key=lambda c: (c[1], c[2])), key=lambda c: c[0],
                   reverse=True)[:COLUMNS_MAX]
    heads = [[place_words(place), columns[place, busy, over],
              "spin on" if over == "viaduct" else "spin off"] for place, busy, over in order]
    lines = {}
    for row, over in found:
        key = (f"{pattern_words(row.pattern)}, {cell(row, place=False, busy=False)}", row.active)
        column = (row.place, row.busy, over)
        if column in order:
            lines.setdefault(key, {})[order.index(column)] = row, heat_result(row, over)
    return both("matrix", heads, Named(lines))


class Named:
    """Lines by their names, of which two may be the same."""

    def __init__(self, lines):
        self.lines = lines

    def __len__(self):
        return len(self.lines)

    def __iter__(self):
        return (key[0] for key in self.lines)

    def items(self):
        return ((key[0], cells) for key, cells in self.lines.items())
