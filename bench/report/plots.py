# SPDX-License-Identifier: Apache-2.0
"""Which pictures follow from the figures."""
import collections

from . import bars, heat, lines, programs
from .load import Spread, figure, part, spread
from .names import contender_style, contender_words, pattern_words
from .units import cell, row_unit, row_value, show, show_rate

SERIES_MAX, POINTS_MAX, GROUPS_MAX = 12, 64, 200
SPREADS = "Lines: medians; bars: the lowest and the highest of the pairs. "
BARS = "Medians; whiskers: the lowest and the highest of the pairs. "
LOGP = (
    ("half_rtt_ns", "half a round trip", 1e-9),
    ("latency_ns", "L: half a round trip less both overheads", 1e-9),
    ("send_ns", "o: overhead of a send", 1e-9),
    ("recv_ns", "o: overhead of a receive", 1e-9),
    ("gap_ns", "g: gap between messages", 1e-9),
    ("gap_ns_per_byte", "G: gap for each KiB of long messages", 1024e-9),
)

# Which rows belong into a plot, and what is drawn of each result.
Plot = collections.namedtuple("Plot", "section name title note units wants y")


def cpu_of(row, r):
    s = spread(r.json, "ops_per_cpu_s").inverse()
    return s if s.median > 0 else Spread(*[r.cpu_ns_per_op * 1e-9] * 3)


def cpu_per_kib(row, r):
    return cpu_of(row, r).times(1024 / row.bytes_per_op if row.bytes_per_op > 0 else 0)


def is_time(row):
    return row.kind == "time"


def is_bytes(row):
    return row.kind == "bytes"


def wants_cpu(row):
    """Spinning costs the processors' whole time, by definition."""
    return is_time(row) and row.pattern not in ("rtt-spin", "rtt-poll")


PLOTS = (
    Plot("latency", "latency", "{}: time by message size", SPREADS + "Lower is better.",
         ("size", "time"), is_time, lambda row, r: r.rate.inverse()),
    Plot("throughput", "throughput", "{}: bytes a second by message size",
         SPREADS + "Higher is better.", ("size", "bytes/s"), is_bytes,
         lambda row, r: r.rate.times(row.bytes_per_op)),
    Plot("conns", "connections", "{}: operations a second by connections",
         SPREADS + "Higher is better.", ("count", "rate"), lambda row: True,
         lambda row, r: r.rate),
    Plot("cpu", "cpu", "{}: processor time of a round trip",
         "Both ends together. " + SPREADS + "Lower is better.", ("size", "time"), wants_cpu,
         cpu_of),
    Plot("cpu", "cpu-message", "{}: processor time of a message",
         "Both ends together. " + SPREADS + "Lower is better.", ("size", "time"), is_bytes,
         cpu_of),
    Plot("cpu", "cpu-kib", "{}: processor time of a KiB",
         "Both ends together. " + SPREADS + "Lower is better.", ("size", "time"), is_bytes,
         cpu_per_kib),
)


def plot_key(plot, row, busy):
    """The same for the rows of one plot."""
    by = (row.size_bytes,) if plot.section == "conns" else (row.conns, row.active)
    return (row.pattern, by, busy, row.think_us)


def gather(plot, rows):
    """{over: [(x, Spread, words)]}; of what is measured twice the first one stands."""
    series = {}
    for row in rows:
        x = row.conns if plot.section == "conns" else row.size_bytes
        for r in row.results:
            y = plot.y(row, r)
            if not (y.median > 0 and x > 0):
                continue
            if r.over not in series and len(series) == SERIES_MAX:
                continue
            points = series.setdefault(r.over, {})
            if x not in points and len(points) < POINTS_MAX:
                low, high = show(plot.units[1], y.min), show(plot.units[1], y.max)
                points[x] = (x, y, f"{contender_words(r.over)}, {cell(row)}: "
                                   f"{show(plot.units[1], y.median)} ({low} to {high})")
    return {over: sorted(points.values()) for over, points in series.items()}


def draw_lines(plot, rows):
    series = gather(plot, rows)
    if max(map(len, series.values()), default=0) < 2:
        return []
    row, by_conns = rows[0], plot.section == "conns"
    if by_conns:  # what exists for one connection only, as the raw ring, is left out
        series = {over: points for over, points in series.items() if len(points) > 1}
    words, name = pattern_words(row.pattern), f"{plot.name}-{row.pattern[:24]}"
    if by_conns:
        words, name = f"{words}, {show('size', row.size_bytes)}", f"{name}-{row.size_bytes:.0f}"
    elif row.conns > 1:
        words, name = f"{words} ({row.conns:.0f} connections)", f"{name}-x{row.conns:.0f}"
    busy = row.busy > 0
    return [lines.draw(plot.section, name + (f"-{row.load}" if busy else ""),
                       plot.title.format(words)[:300],
                       ("Processors busy otherwise. " if busy else "") + plot.note, plot.units,
                       "connections" if by_conns else "message size", series)]


def all_lines(figures):
    made = []
    for plot in PLOTS:
        quiet = {plot_key(plot, row, row.busy) for row in figures.rows if not row.busy > 0}
        groups = {}
        for row in figures.rows:
            # A busy row is left out where its quiet sister is drawn.
            if plot.wants(row) and not (row.busy > 0 and plot_key(plot, row, 0.0) in quiet):
                groups.setdefault(plot_key(plot, row, row.busy), []).append(row)
        for rows in groups.values():
            made += draw_lines(plot, rows)
    return made


def has_line(figures, row):
    """A line through several rows shows this one."""
    for r in figures.rows:
        if (r.pattern, r.think_us, r.busy) != (row.pattern, row.think_us, row.busy):
            continue
        if r.conns != row.conns and r.size_bytes == row.size_bytes:
            return True
        if (r.size_bytes != row.size_bytes and r.conns == row.conns and row.kind != "ops"
                and r.kind == row.kind):
            return True
    return False


def sister_key(row):
    return (row.pattern, row.kind, row.size_bytes, row.conns, row.active, row.think_us)


def bar(row, r, state=""):
    value = Spread(row_value(row, r.rate.median), row_value(row, r.rate.min),
                   row_value(row, r.rate.max))
    if row_unit(row) == "time":
        value = Spread(value.median, value.max, value.min)
    return (contender_words(r.over) + (f", {state}" if state else ""),
            show_rate(row, r.rate.median), contender_style(r.over),
            bool(state) and row.busy > 0, value)


def states(quiet, busy):
    made = []
    for q in quiet.results:
        b = busy.find(q.over)
        if q.rate.median > 0 and b and b.rate.median > 0 and q.over != "floor":
            made += [bar(quiet, q, "quiet"), bar(busy, b, busy.load)]
    return cell(quiet), made


def logp(row):
    groups = []
    for field, words, scale in LOGP:
        made = []
        for r in row.results:
            of = part(r.json, "logp")
            s = spread(of, field).times(scale)
            # Less both overheads it may be below 0: the two ends work at once.
            overlap = figure(part(of, field), "median") < 0
            if s.median > 0 or overlap:
                made.append((contender_words(r.over),
                             "none: overlap" if overlap else show("time", s.median),
                             contender_style(r.over), False, s))
        groups.append((words, made))
    if not any(made for _, made in groups):
        return []
    busy = f"-{row.load}" if row.busy > 0 else ""
    return [bars.draw("other", f"logp-{row.size_bytes:.0f}{busy}",
                      f"LogP: where the time of a {show('size', row.size_bytes)} message goes",
                      "Shorter is better.", groups)]


def draw_groups(row, section, groups):
    if not any(made for _, made in groups):
        return []
    compared = section == "busy"
    name = ("busy-" if compared else "bars-") + row.pattern[:40]
    return [bars.draw(section, name + ("-busy" if row.busy > 0 and not compared else ""),
                      (pattern_words(row.pattern)
                       + (": quiet against busy" if compared else ""))[:300],
                      BARS + ("Shorter" if row.kind == "time" else "Longer") + " is better.",
                      groups[:GROUPS_MAX])]


def all_bars(figures):
    """What has one size only, quiet and busy, LogP."""
    quiet, made, groups = {}, [], {}
    for row in figures.rows:
        if not row.busy > 0:
            quiet.setdefault(sister_key(row), row)
    for row in figures.rows:
        sister = quiet.get(sister_key(row)) if row.busy > 0 else None
        if row.pattern == "logp":
            groups[id(row)] = (row, "logp", [])
        elif sister:
            groups.setdefault((row.pattern, row.kind, "busy"), (row, "busy", []))[2].append(
                states(sister, row))
        elif not has_line(figures, row):
            groups.setdefault((row.pattern, row.kind), (row, "other", []))[2].append(
                (cell(row), [bar(row, r) for r in row.results if r.rate.median > 0]))
    for row, section, found in groups.values():
        made += logp(row) if section == "logp" else draw_groups(row, section, found)
    return made


def number_names(pictures):
    """Two pictures of one name: the later one gets a number."""
    seen = set()
    for picture in pictures:
        base, number = picture.name, 1
        while picture.name in seen:
            number += 1
            picture.name = f"{base}-{number}"
        seen.add(picture.name)
    return pictures


def pictures(figures):
    if figures.programs:
        return [bars.draw("other", "programs", "Plain and under Viaduct",
                          BARS + "Shorter is better.", programs.groups(figures))]
    if figures.matrix:
        return heat.matrix(figures)
    return number_names(heat.by_size(figures) + all_lines(figures) + all_bars(figures))
