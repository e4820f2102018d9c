# SPDX-License-Identifier: Apache-2.0
"""What a reader must know before believing the figures."""
import re

from markupsafe import Markup

from .load import items, letters, number, part, word
from .names import contender_words, pattern_words
from .units import cell
from .words import number_of_cpus

LISTED = 8


def failures(figures):
    found = [(row, r, e) for row in figures.rows for r in row.results
             for e in items(r.json, "errors")]
    for row, r, error in found[:LISTED]:
        yield Markup("<b>A measurement failed.</b> {}, {}, {}: {}").format(
            pattern_words(row.pattern), cell(row), contender_words(r.over),
            letters(error) if isinstance(error, str) else "")
    if len(found) > LISTED:
        yield f"{len(found) - LISTED} more measurements failed."


def on_tcp(figures):
    for row in figures.rows:
        r = row.find("viaduct")
        if (not r or not r.under_viaduct or r.direct_bytes > 0 or not r.rate.median > 0
                or not row.wants_direct):
            continue
        reasons = ", ".join(f"{letters(name)} ({number(count):.0f})"
                            for name, count in part(r.json, "reasons").items())
        yield Markup("<b>Nothing went direct.</b> {}, {}: Viaduct's figure is one of TCP. "
                     "Reasons: {}").format(pattern_words(row.pattern), cell(row),
                                           reasons or "none is given")


def noise(figures):
    """Half of the figures have a best pair that is so many times the worst."""
    wide = sorted(r.rate.max / r.rate.min for row in figures.rows for r in row.results
                  if r.rate.median > 0)
    if wide and wide[len(wide) // 2] >= 1.5:
        yield Markup("<b>The figures are noisy.</b> In half of the measurements the best pair was "
                     "at least {:.1f} times as fast as the worst. Other work ran on the machine, "
                     "or the measurements were short: repeat it on a quiet machine, with more and "
                     "longer pairs.").format(wide[len(wide) // 2])


def placement(figures):
    lines = [row.line_ns for row in figures.rows if row.line_ns > 0]
    if lines and max(lines) > 2 * min(lines):
        yield Markup("<b>The processors moved.</b> A round trip through one cache line took from "
                     "{:.0f} to {:.0f} ns in different rows: compare only rows whose column "
                     "<i>line</i> agrees.").format(min(lines), max(lines))


def load(figures):
    begins = re.match(r"\s*(\d+(?:\.\d*)?)", word(figures.machine, "load"), re.ASCII)
    value, cpus = number(float(begins[1])) if begins else 0, number_of_cpus(figures)
    if cpus > 0 and value > 0.5 * cpus:
        yield Markup("<b>The machine was not idle</b> when this began: its load was {:.1f}, with "
                     "{:.0f} processor{}.").format(value, cpus, "s" if cpus > 1 else "")


def caveats(figures):
    return [line for judge in (failures, on_tcp, noise, placement, load)
            for line in judge(figures)]
