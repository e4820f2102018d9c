# SPDX-License-Identifier: Apache-2.0
"""The page: one HTML file that holds everything, needs no script, and can be printed."""
import os

import jinja2
from markupsafe import Markup

from . import caveats, command, matrix, programs, table, words
from .picture import STYLE

SECTIONS = (
    ("ratio", "whole", "Cell by cell",
     "Each cell is one pattern at one message size: how many times as fast it is with Viaduct as "
     "with kernel TCP, in the same run."),
    ("latency", "grid", "Latency",
     "One message forth and back over one connection. Both axes are logarithmic."),
    ("throughput", "grid", "Throughput",
     "Messages of one size after another. Both axes are logarithmic."),
    ("conns", "grid", "Many connections", "Round trips over all connections together."),
    ("cpu", "grid", "Processor time",
     "What the two ends burn, in the kernel and outside: a gain in speed that is bought with "
     "spinning shows here."),
    ("busy", "stack", "Quiet against busy",
     "The same with other work on the two processors. Pale bars are the busy ones."),
    ("other", "stack", "The rest", "What was measured at one size only."),
)


def shown(picture):
    """The picture as markup; a wide one comes in two shapes, of which one is to be seen."""
    narrow = getattr(picture, "narrow", None)
    return {"svg": Markup(picture.svg(False)),
            "narrow": Markup(narrow.svg(False)) if narrow else None}


def sections(pictures):
    for name, class_, heading, lead in SECTIONS:
        found = [shown(p) for p in pictures if p.section == name]
        if found:
            yield {"class": class_, "heading": heading, "lead": lead, "pictures": found}


def page(figures, pictures):
    here = jinja2.FileSystemLoader(os.path.dirname(os.path.abspath(__file__)))
    jinja = jinja2.Environment(loader=here, autoescape=True, trim_blocks=True, lstrip_blocks=True,
                               undefined=jinja2.StrictUndefined)
    of = {"figures": figures, "picture_style": Markup(STYLE),
          "subtitle": words.subtitle(figures), "caveats": caveats.caveats(figures),
          "machine": table.machine(figures), "sections": list(sections(pictures))}
    if figures.programs:
        of["programs"] = programs.words(figures)
    else:
        of.update(tiles=words.tiles(figures), below=matrix.below_tcp(figures),
                  summary=words.summary(figures), command=command.command(figures),
                  heads=table.HEADS, rows=table.rows(figures))
    return jinja.get_template("page.html.j2").render(of)
