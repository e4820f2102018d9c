# SPDX-License-Identifier: Apache-2.0
"""The tables of the page: the machine, and every figure."""
from .load import is_number, letters, number, part, word
from .names import contender_words, pattern_words
from .units import cell, show, show_rate

HEADS = ("what", "over", "median", "slowest pair", "fastest pair", "times the first", "pairs",
         "50 %", "99 %", "99.9 %", "CPU of both ends", "direct", "line")

# Fields of the JSON in words; a number is of this unit, once it is multiplied.
FIELDS = {
    "cpu": ("processor",),
    "cpus": ("processors",),
    "memory_bytes": ("memory", "size", 1),
    "idle_driver": ("idle processors: driver",),
    "idle_governor": ("idle processors: governor",),
    "guest_halt_poll_ns": ("idle processors: polling before sleep, ns",),
    "frequency_governor": ("frequency governor",),
    "system_congestion": ("congestion control of the system",),
    "load": ("load at the start",),
    "clocksource": ("clock",),
    "line_ns": ("round trip through one cache line", "time", 1e-9),
    "ring_rtt_64_ns": ("round trip of 64 B", "time", 1e-9),
    "ring_64_per_s": ("messages of 64 B", "rate", 1),
    "ring_16k_bytes_per_s": ("in messages of 16 KiB", "bytes/s", 1),
    "pairs": ("pairs of measurements",),
    "time_s": ("length of a measurement", "time", 1),
    "busy": ("busy loops beside",),
    "congestion": ("congestion control of TCP",),
    "active": ("active connections (0: all)",),
    "peers": ("other systems",),
    "matrix": ("the whole matrix",),
    "recheck": ("pairs more where one is below TCP",),
    "rate_per_s": ("round trips a second (0: one after another)",),
    "think_us": ("thinking time", "time", 1e-6),
}


def value_words(value):
    if isinstance(value, str):
        return letters(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if is_number(value):
        return f"{number(value):.10g}"
    if isinstance(value, list):
        return ", ".join(map(value_words, value))
    if isinstance(value, dict):
        return ", ".join(f"{letters(name)} {value_words(v)}" for name, v in value.items())
    return ""


def peers(value):
    """Other systems, of which a program measures: is it there?"""
    lines = []
    for peer in value if isinstance(value, list) else []:
        peer = peer if isinstance(peer, dict) else {}
        found = peer.get("found") is True
        lines.append(f"{contender_words(word(peer, 'over'))}: " + (
            word(peer, "program") if found
            else f"not installed (Debian: {word(peer, 'package')})"))
    return "; ".join(lines)


def fields(of):
    lines = []
    for name, value in of.items():
        words, *unit = FIELDS.get(name, (letters(name),))
        if unit and number(value) > 0:
            text = show(unit[0], number(value) * unit[1])
        elif name == "peers":
            text = peers(value)
        else:
            text = value_words(value)
        lines.append((words, text))
    return lines


def machine(figures):
    tables = (("The machine", figures.machine), ("The run", figures.run),
              ("Its limit: a raw ring, without sockets", part(figures.json, "floor")))
    return [(heading, fields(of)) for heading, of in tables if of]


def direct(row, r):
    both = r.direct_bytes + r.tcp_bytes
    if not r.under_viaduct:
        return ""
    if r.direct_bytes > 0 and both > 0:
        return f"{100 * r.direct_bytes / both:.1f} %"
    return "NONE" if row.wants_direct else "none"


def percentile(of):
    return show("time", of.median * 1e-9) if of.median > 0 else ""


def result(row, r):
    ratio = r.ratio if r is not row.results[0] else None
    shown = ratio and ratio.median > 0
    return {"over": contender_words(r.over), "median": show_rate(row, r.rate.median),
            "min": show_rate(row, r.rate.min), "max": show_rate(row, r.rate.max),
            "ratio": show("ratio", ratio.median) if shown else "",
            "pairs": f"{show('ratio', ratio.min)} to {show('ratio', ratio.max)}" if shown else "",
            "p50": percentile(r.p50), "p99": percentile(r.p99), "p999": percentile(r.p999),
            "cpu": show("time", r.cpu_ns_per_op * 1e-9) if r.cpu_ns_per_op > 0 else "",
            "direct": direct(row, r)}


def rows(figures):
    return [{"what": pattern_words(row.pattern), "cell": cell(row),
             "line": f"{row.line_ns:.0f} ns" if row.line_ns > 0 else "",
             "results": [result(row, r) for r in row.results]} for row in figures.rows]
