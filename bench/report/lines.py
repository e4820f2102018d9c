# SPDX-License-Identifier: Apache-2.0
"""Lines over two logarithmic axes, with spread bars, each named at its right end."""
import math

from matplotlib.transforms import ScaledTranslation

from .names import contender_style, contender_words
from .picture import AXIS, FINE, GRID, HUES, INK, MARKS, PAPER, SOFT, Picture, shortened
from .picture import text_width
from .units import show

WIDTH, HEIGHT, BOTTOM, STEP = 400, 260, 42, 14


def limits(low, high, room):
    low, high = math.log(low), math.log(high)
    if high - low < 1:  # one value, or nearly: a decent range around it
        low, high = low - 0.5, high + 0.5
    room *= high - low
    return low - room, high + room


def tick_words(unit, value):
    """"10 µs", not "10.0 µs"."""
    number, space, name = show(unit, value).partition("\u00a0")
    if "." in number and "e" not in number:
        number = number.rstrip("0").rstrip(".")
    return number + space + name


def y_ticks(unit, low, high):
    """Decades, with their words; in between 2 and 5, which are named where there is room."""
    ln10 = math.log(10)
    decades, named, fine = (high - low) / ln10, [], []
    first, last = math.floor(low / ln10), math.ceil(high / ln10)
    step = math.ceil(decades / 8) if decades > 8 else 1
    for e in range(first, last + 1):
        (named if e % step == 0 else fine).append(10.0 ** e)
        if decades < 5:
            (named if decades < 2.2 else fine).extend((2 * 10.0 ** e, 5 * 10.0 ** e))
    inside = lambda values: [v for v in values if low <= math.log(v) <= high]
    return [(v, tick_words(unit, v)) for v in inside(named)], inside(fine)


def x_axis(picture, ax, unit, values, place):
    """One tick for each value that was measured, with a name where there is room."""
    bottom, until = picture.height - BOTTOM, 0
    for value in values:
        x, text = place(value), show(unit, value)
        half = text_width(text) / 2
        ax.axvline(value, ymax=0.015, color=AXIS, linewidth=1)
        if x - half >= until and x + half < picture.width:
            picture.text(x, bottom + 16, text, "center")
            until = x + half + 4


def apart(ends, bottom):
    """Pushes the names apart, down first, and then up again from the lower edge."""
    ends = sorted(ends, key=lambda end: end[0])
    y = [end[0] for end in ends]
    for i in range(1, len(y)):
        y[i] = max(y[i], y[i - 1] + STEP)
    for i in reversed(range(len(y))):
        y[i] = min(y[i], bottom)
        bottom = y[i] - STEP
    return [(at, end[1]) for at, end in zip(y, ends)]


def line(picture, ax, over, points, aside):
    """points: [(x, Spread, words)], x rising."""
    style = contender_style(over)
    color, move = HUES[style], ax.transData + ScaledTranslation(
        aside / 72, 0, picture.figure.dpi_scale_trans)
    look = {"color": color, "transform": move, "clip_on": False}
    ax.plot([p[0] for p in points], [p[1].median for p in points], linewidth=2,
            linestyle=(0, (2.5, 2)) if over in ("floor", "tcp-spin") else "-", **look)
    for x, y, _ in points:
        if y.max > y.min:
            ax.plot([x, x], [y.min, y.max], linewidth=1.4, alpha=0.55, marker="_",
                    markersize=6, **look)
    for x, y, words in points:
        ax.plot([x], [y.median], marker=MARKS[style], markersize=7.5, markeredgecolor=PAPER,
                markeredgewidth=1, gid=picture.hover(words), **look)


def draw(section, name, title, note, units, x_label, series):
    """series: {over: [(x, Spread, words)]}, x rising."""
    names = {over: shortened(contender_words(over), 106) for over in series}
    right = WIDTH - max(map(text_width, names.values())) - 22
    picture = Picture(section, name, title, note, WIDTH, HEIGHT)
    xs = sorted({p[0] for points in series.values() for p in points})
    spreads = [p[1] for points in series.values() for p in points]
    x_low, x_high = limits(xs[0], xs[-1], 0.04)
    y_low, y_high = limits(min(s.min for s in spreads), max(s.max for s in spreads), 0.05)
    top, bottom = picture.top + 12, picture.height - BOTTOM
    named, fine = y_ticks(units[1], y_low, y_high)
    left = 14 + max([text_width(words) for _, words in named], default=40)
    ax = picture.axes(left, top, right, bottom)
    ax.set(xscale="log", yscale="log", xlim=(math.exp(x_low), math.exp(x_high)),
           ylim=(math.exp(y_low), math.exp(y_high)))
    ax.tick_params(which="both", length=0, labelbottom=False, labelleft=False)
    ax.spines[["left", "right", "top"]].set_visible(False)
    ax.spines["bottom"].set_color(AXIS)
    y_at = lambda v: bottom - (math.log(v) - y_low) / (y_high - y_low) * (bottom - top)
    x_at = lambda v: left + (math.log(v) - x_low) / (x_high - x_low) * (right - left)
    for value in fine:
        ax.axhline(value, color=FINE, linewidth=1, zorder=0)
    for value, words in named:
        ax.axhline(value, color=GRID, linewidth=1, zorder=0)
        picture.text(left - 6, y_at(value) + 4, words, "right")
    x_axis(picture, ax, units[0], xs, x_at)
    picture.text(right, picture.height - 10, x_label, "right", size=10, color=SOFT)
    for i, (over, points) in reversed(list(enumerate(series.items()))):  # the first ones on top
        line(picture, ax, over, points, 2.5 * (i - (len(series) - 1) / 2))
    marks = picture.canvas()
    for y, over in apart([(y_at(points[-1][1].median), over) for over, points in series.items()],
                         bottom):
        style = contender_style(over)
        marks.plot([right + 8], [y], marker=MARKS[style], markersize=7, color=HUES[style],
                   markeredgecolor=PAPER, markeredgewidth=1)
        picture.text(right + 16, y + 4, names[over], color=INK, weight="bold", size=10.5)
    return picture
