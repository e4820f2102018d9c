# SPDX-License-Identifier: Apache-2.0
"""Ratios in steps: how much slower or faster."""
import collections

Level = collections.namedtuple("Level", "below fill words inverse level")

# Each holds the ratios up to `below`; inverse: its text is in the colour of the paper.
LEVELS = (
    Level(0.5, "#c9540a", "< 0.5", True, -3),
    Level(0.8, "#f7b884", "to 0.8", False, -2),
    Level(0.95, "#fde3cf", "to 0.95", False, -1),
    Level(1.05, "#eceff3", "as fast", False, 0),
    Level(2, "#d3e6f5", "to 2 ×", False, 1),
    Level(5, "#9fcaea", "to 5 ×", False, 2),
    Level(20, "#4f9bd0", "to 20 ×", False, 3),
    Level(float("inf"), "#0b5c98", "more", True, 4),
)


def level_of(ratio):
    return next(level for level in LEVELS if ratio < level.below)


def verdict(ratio):
    """-1 slower, 0 as fast, 1 faster."""
    level = level_of(ratio).level
    return (level > 0) - (level < 0)
