# SPDX-License-Identifier: Apache-2.0
"""Figures in the units that people read."""
from .names import place_words

NBSP = "\u00a0"  # a figure and its unit stay on one line

# Parts of a microsecond compare better with microseconds than nanoseconds do.
SCALES = {
    "time": ((1, 1, "s"), (1e-3, 1e3, "ms"), (1e-7, 1e6, "µs"), (0, 1e9, "ns")),
    "bytes/s": ((1e9, 1e-9, "GB/s"), (1e6, 1e-6, "MB/s"), (1e3, 1e-3, "kB/s"), (0, 1, "B/s")),
    "rate": ((1e6, 1e-6, "M/s"), (1e3, 1e-3, "k/s"), (0, 1, "/s")),
    "ratio": ((0, 1, "×"),),
}
SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (0, "B"))


def grouped(value):
    return f"{value:,.0f}"[:20]


def three(value):
    """Three digits, and no exponent where it can be helped."""
    if value >= 999.5:
        return grouped(value)
    if value < 0.0995:
        return f"{value:.2g}"
    return f"{value:.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f}"


def show(unit, value):
    if unit == "size":
        least, name = next((s for s in SIZES if value >= s[0]), SIZES[-1])
        return f"{value / (least or 1):.4g}{NBSP}{name}"
    if unit == "count":
        return grouped(value)
    scales = SCALES[unit]
    _, factor, name = next((s for s in scales if value >= s[0] * 0.9995), scales[-1])
    return f"{three(value * factor)}{NBSP}{name}"


def row_unit(row):
    if row.kind == "time":
        return "time"
    return "bytes/s" if row.kind == "bytes" and row.size_bytes >= 1024 else "rate"


def row_value(row, rate):
    unit = row_unit(row)
    if unit == "time":
        return 1 / rate if rate > 0 else 0.0
    return rate * row.bytes_per_op if unit == "bytes/s" else rate


def show_rate(row, rate):
    """A result of the row, from its operations a second."""
    return show(row_unit(row), row_value(row, rate)) if rate > 0 else "failed"


def show_conns(row):
    if not row.conns > 1:
        return ""
    some = f" ({show('count', row.active)} active)" if 0 < row.active < row.conns else ""
    return f", {show('count', row.conns)} connections{some}"


def cell(row, place=True, busy=True):
    """"4 KiB, 100 connections, busy": what tells the rows of a pattern apart."""
    text = show("size", row.size_bytes) + show_conns(row)
    if row.think_us > 0:
        text += f", {show('time', row.think_us * 1e-6)} of thought"
    if row.rate_per_s > 0:
        text += f", {show('rate', row.rate_per_s)}"
    if row.place and place:
        text += f", {place_words(row.place)}"
    return text + (f", {row.load}" if row.busy > 0 and busy else "")
