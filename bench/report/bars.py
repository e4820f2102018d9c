# SPDX-License-Identifier: Apache-2.0
"""Bars in groups. Each group has a scale of its own, from 0, since its unit is its own."""
from matplotlib.patches import Rectangle

from .picture import EDGE, HUES, INK, Picture, shortened, text_width

WIDTH, GROUP, BAR, BETWEEN, NAMES_MOST = 400, 24, 19, 8, 150


def whisker(ax, low, high, y):
    for x, y_ in (((low, high), (y, y)), ((low, low), (y - 3, y + 3)),
                  ((high, high), (y - 3, y + 3))):
        ax.plot(x, y_, color=INK, linewidth=1.2, alpha=0.65, solid_capstyle="butt")


def draw_bar(picture, ax, bar, y, names, scale):
    name, text, style, light, value = bar
    left, middle = EDGE + names, y + BAR / 2 - 2
    picture.text(left - 6, middle + 4, shortened(name, names - 6, 10.5), "right", size=10.5)
    ax.add_patch(Rectangle((left, y), max(value.median * scale, 1), BAR - 5, linewidth=0,
                           facecolor=HUES[style], alpha=0.45 if light else 1))
    if (value.max - value.min) * scale > 2:
        whisker(ax, left + value.min * scale, left + value.max * scale, middle)
    picture.text(WIDTH - EDGE, middle + 4, text, "right", color=INK, weight="bold", size=10.5)


def draw(section, name, title, note, groups):
    """groups: [(name, [(name, text, style, light, Spread)])]"""
    bars = [bar for _, group in groups for bar in group]
    names = min(NAMES_MOST, 10 + max(text_width(bar[0], 10.5) for bar in bars))
    figures = 14 + max(text_width(bar[1], 11.5) for bar in bars)
    room = max(WIDTH - 2 * EDGE - names - figures, 20)
    picture = Picture(section, name, title, note, WIDTH,
                      14 + len(groups) * (GROUP + BETWEEN) + len(bars) * BAR)
    ax, y = picture.canvas(), picture.top + 8
    for head, group in groups:
        picture.text(EDGE, y + 14, shortened(head, WIDTH - 2 * EDGE, 11.5), color=INK,
                     weight="bold")
        y += GROUP
        most = max([bar[4].max for bar in group], default=0) or 1
        for bar in group:
            draw_bar(picture, ax, bar, y, names, room / most)
            y += BAR
        y += BETWEEN
    return picture
