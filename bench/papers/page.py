# SPDX-License-Identifier: Apache-2.0
"""The page: the paper's figures, ours beside, and a sentence where they differ."""
import os

import jinja2
from markupsafe import Markup

from report import bars
from report.load import Spread
from report.names import contender_words
from report.picture import STYLE

from .row import PAPERS, median, ratios
from .table import ROWS

ABOUT = 1.25  # within that factor two gains count as the same
HERE = os.path.dirname(os.path.abspath(__file__))
WAYS = {"module": "Viaduct's calls", "sockets": "Viaduct's sockets", "hit": "hit", "miss": "miss"}


def way_words(way):
    return WAYS.get(way) or contender_words(way)


def three(value):
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def gain_words(row, gain):
    if (row.way, row.base) == ("viaduct", "tcp"):
        return f"{three(gain)} times TCP"
    return f"{three(gain)} times {way_words(row.base)}"


def compared(row, cells):
    """Ours in the cell that the paper's figure is about, or None."""
    for c in cells if row.case else []:
        if c["case"].startswith(row.case):
            found = ratios(c, row.way, row.base)
            return median(found)
    return None


def verdict(row, ours):
    """A sentence on how the two gains differ."""
    if not ours or not row.times:
        return ""
    if 1 / ABOUT <= ours / row.times <= ABOUT:
        return "As in the paper."
    larger = ours > row.times
    why = row.more if larger else row.less
    return f"{'Larger' if larger else 'Smaller'} than the paper's. {why}".strip()


def figures(c, row):
    base = row.base if row.base in c["values"] else next(iter(c["values"]), "")
    made = []
    for way, values in c["values"].items():
        m, r = median(values), ratios(c, way, base)
        spread = f" ({three(min(r))} to {three(max(r))})" if len(r) > 1 else ""
        made.append({"way": way_words(way), "value": three(m) if m else "failed",
                     "times": f"{three(median(r))}{spread}" if r and way != base else ""})
    return {"case": c["case"], "unit": c["unit"], "ways": made}


STATES = {"measured": "", "failed": "Failed", "cannot": "Not run here",
          "": "Not run: it was not among those asked for"}


def part(row, line):
    line = line or {"state": "", "reason": "", "cells": [], "command": "", "load": 0}
    ours = compared(row, line["cells"])
    return {"name": row.name, "what": row.what, "result": row.result,
            "paper": gain_words(row, row.times) if row.times else "",
            "ours": gain_words(row, ours) if ours else "", "verdict": verdict(row, ours),
            "state": STATES[line["state"]], "reason": line["reason"],
            "command": line["command"], "load": f"{line['load']:.1f}",
            "cells": [figures(c, row) for c in line["cells"]], "gain": ours}


def picture(papers):
    """The gain of each paper, and ours beside."""
    groups = []
    for _, parts in papers:
        for p, row in parts:
            if p["gain"] and row.times:
                groups.append((f"{row.name}: {row.what}", [
                    ("the paper", three(row.times), 2, False, Spread(*[row.times] * 3)),
                    ("ours", three(p["gain"]), 1, False, Spread(*[p["gain"]] * 3))]))
    if not groups:
        return None
    return bars.draw("other", "gains", "The paper's gain and ours",
                     "Times the system that it is compared with, mostly kernel TCP.", groups)


def render(results):
    known = {r.name for r in ROWS}
    papers = [(title, [(part(r, results.rows.get(r.name)), r) for r in ROWS if r.paper == name])
              for name, title in PAPERS.items()]
    counts = {s: sum(1 for n, line in results.rows.items() if line["state"] == s and n in known)
              for s in ("measured", "cannot", "failed")}
    here = jinja2.FileSystemLoader([HERE, os.path.join(os.path.dirname(HERE), "report")])
    jinja = jinja2.Environment(loader=here, autoescape=True, trim_blocks=True, lstrip_blocks=True,
                               undefined=jinja2.StrictUndefined)
    drawn = picture(papers)
    return jinja.get_template("papers.html.j2").render(
        papers=[(title, [p for p, _ in parts]) for title, parts in papers], counts=counts,
        rows=len(ROWS), head=results.head, picture=Markup(drawn.svg(False)) if drawn else None,
        picture_style=Markup(STYLE))


def write(folder, results):
    with open(os.path.join(folder, "papers.html"), "w", encoding="utf-8") as out:
        out.write(render(results))
