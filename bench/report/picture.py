# SPDX-License-Identifier: Apache-2.0
"""Pictures: a canvas of matplotlib's, as SVG that follows light and dark, and as PNG.

Colours stand in the SVG as they are on paper, for viewers that know no style sheets; where it is
dark, a style sheet replaces them one by one.
"""
import copy
import functools
import io
import re
import textwrap
import xml.etree.ElementTree as ElementTree

import matplotlib
from matplotlib.figure import Figure

SVG = "http://www.w3.org/2000/svg"
ElementTree.register_namespace("", SVG)
matplotlib.rcdefaults()
matplotlib.rcParams.update({
    "svg.fonttype": "none", "svg.hashsalt": "viaduct", "font.family": ["DejaVu Sans"],
    "axes.unicode_minus": False, "path.simplify": False, "agg.path.chunksize": 0})

PAPER, INK, TEXT, SOFT = "#ffffff", "#14181f", "#3b4351", "#5b6472"
GRID, FINE, AXIS, INVERSE = "#d5dae1", "#edf0f4", "#8a93a1", "#fffffe"
# Okabe's and Ito's, darkened where they bear text, so that they can be told apart by the
# colour-blind; marks and dashes differ as well. TCP, Viaduct, AF_UNIX, TCP spinning, raw ring,
# client, server, two peers, others.
HUES = ("#c4560a", "#0067a8", "#00805c", "#96690a", "#6b7280", "#a2467f", "#5747a6", "#20262e",
        "#8a3fb0", "#7a4a2b")
MARKS = "os^Dv><*PH"
DARK = {
    PAPER: "#14181f", INK: "#f2f5f9", TEXT: "#c3cad5", SOFT: "#9aa4b2", GRID: "#363d49",
    FINE: "#242a33", AXIS: "#727c8a", INVERSE: "#0c1015",
    "#eceff3": "#2a313b", "#d3e6f5": "#1d3d57", "#9fcaea": "#1f5b8a", "#4f9bd0": "#3480b8",
    "#0b5c98": "#a9d6f7", "#fde3cf": "#4a3020", "#f7b884": "#8a4a17", "#c9540a": "#f79a52",
    **dict(zip(HUES, ("#ff9a57", "#5bb8f5", "#35c79c", "#dcb545", "#9aa4b2", "#e08fc0", "#b3a6f5",
                      "#e6e9ee", "#d09af0", "#d2a37f")))}
STYLE = "@media screen and (prefers-color-scheme:dark){" + "".join(
    f'.picture [style*="{what}: {light}"]{{{what}:{dark}!important}}'
    for light, dark in DARK.items() for what in ("fill", "stroke")) + "}"

EDGE = 12


def text_width(text, size=11):
    """An estimate: the letters of a wide sans-serif, as DejaVu Sans has them."""
    return size * sum(0.36 if c in "ijltfI.,:|' \u00a0" else 0.64 for c in text)


def wrapped(text, width, size):
    """In lines that fit; a letter is as wide as most."""
    return textwrap.wrap(text, max(8, int(width / (size * 0.6))), break_on_hyphens=False) or [""]


def shortened(text, width, size=11):
    text = " ".join(text.split("\n"))
    if text_width(text, size) <= width:
        return text
    while text and text_width(text + "…", size) > width:
        text = text[:-1]
    return text.rstrip() + "…"


class Picture:
    """Its heading is drawn at once; below `top` it is empty. Heights are in pixels from above."""

    def __init__(self, section, name, title, note, width, height):
        self.section, self.title, self.note = section, title, note
        self.name = re.sub("[^a-z0-9-]", "-", name[:60])  # it becomes the name of a file
        self.hovers, self.width = {}, width
        heads = [wrapped(title, width - 2 * EDGE, 13), wrapped(note, width - 2 * EDGE, 9)]
        self.top = 10 + 17 * len(heads[0]) + 13 * len(heads[1])
        self.height = self.top + height
        self.figure = Figure(figsize=(width / 72, self.height / 72), dpi=72, facecolor=PAPER)
        y = 4
        for lines, size, step, look in ((heads[0], 13, 17, {"color": INK, "weight": "bold"}),
                                        (heads[1], 10, 13, {"color": SOFT})):
            for line in lines:
                y += step
                self.text(EDGE, y, line, size=size, **look)

    def text(self, x, y, text, anchor="left", size=11, color=TEXT, weight="normal"):
        self.figure.text(x / self.width, 1 - y / self.height, text, ha=anchor, va="baseline",
                         size=size, color=color, weight=weight, parse_math=False)

    def axes(self, left, top, right, bottom):
        return self.figure.add_axes([left / self.width, 1 - bottom / self.height,
                                     (right - left) / self.width, (bottom - top) / self.height],
                                    facecolor="none")

    def canvas(self):
        """Axes in pixels, over the whole picture, for what has no scale."""
        ax = self.axes(0, 0, self.width, self.height)
        ax.set(xlim=(0, self.width), ylim=(self.height, 0))
        ax.set_axis_off()
        return ax

    def hover(self, words):
        """The name for an artist that shows the words under the pointer."""
        gid = f"hover-{len(self.hovers)}"
        self.hovers[gid] = words
        return gid

    def png(self, path):
        # Twice the size: sharp on paper and on fine screens.
        self.figure.savefig(path, format="png", dpi=144, facecolor=PAPER)

    @functools.cached_property
    def markup(self):
        """As SVG, for the page and for a file: matplotlib takes most of the time."""
        out = io.BytesIO()
        self.figure.savefig(out, format="svg", facecolor=PAPER, metadata={"Date": None})
        root = clean(ElementTree.fromstring(out.getvalue()), self.hovers)
        for name in ("width", "height"):
            root.set(name, f"{getattr(self, name):.0f}")
        root.set("viewBox", f"0 0 {self.width:.0f} {self.height:.0f}")
        root.set("class", "picture")
        root.set("role", "img")
        root.set("aria-label", self.title)
        return root

    def svg(self, alone):
        root = self.markup
        if alone:
            style = ElementTree.Element(f"{{{SVG}}}style")
            style.text = STYLE
            root = copy.copy(root)
            root.insert(0, style)
        return ElementTree.tostring(root, "unicode") + "\n"


def clean(root, hovers):
    """Without what refers to anything, by which a page may hold many pictures."""
    shapes = {e.get("id"): e for e in root.iter() if e.get("id")}
    for parent in list(root.iter()):
        for at, child in enumerate(list(parent)):
            tag = child.tag.rpartition("}")[2]
            if tag in ("metadata", "defs", "style"):
                parent.remove(child)
            elif tag == "use":
                parent[list(parent).index(child)] = drawn(child, shapes)
    for element in root.iter():
        words = hovers.get(element.attrib.pop("id", None))
        element.attrib.pop("clip-path", None)
        if element.tag == f"{{{SVG}}}text" and element.get("style"):
            element.set("style", element.get("style").replace(
                "'DejaVu Sans'", "'DejaVu Sans','Liberation Sans',Arial,sans-serif"))
        if words:
            title = ElementTree.Element(f"{{{SVG}}}title")
            title.text = words
            element.insert(0, title)
    return root


def drawn(use, shapes):
    """The shape itself, in the place of a reference to it."""
    href = next(value for name, value in use.attrib.items() if name.endswith("href"))
    shape = shapes[href[1:]]
    path = ElementTree.Element(f"{{{SVG}}}path", {"d": shape.get("d").replace("\n", "")})
    path.set("transform", f"translate({use.get('x', '0')} {use.get('y', '0')})")
    path.set("style", "; ".join(filter(None, (use.get("style"), shape.get("style")))))
    path.tail = use.tail
    return path
