# SPDX-License-Identifier: Apache-2.0
"""The table of bench/apps.py: a line for each case, a column for each contender."""
import json
import statistics
import sys

from programs.rig import CONTENDERS


def short(value):
    """Four digits, with k or M."""
    for limit, unit in ((1e6, "M"), (1e4, "k")):
        if value >= limit:
            return f"{value / {'M': 1e6, 'k': 1e3}[unit]:.4g}{unit}"
    return f"{value:.4g}"


def median(row, way):
    values = [v for v in row["values"].get(way, []) if v]
    return statistics.median(values) if values else None


def ratios(row, base):
    """Viaduct against `base`, pair by pair; above 1 is faster."""
    pairs = [(a, b) for a, b in zip(row["values"].get("viaduct", []),
                                    row["values"].get(base, [])) if a and b]
    return [b / a if row["lower_is_better"] else a / b for a, b in pairs]


def best_other(row):
    """The contender, Viaduct apart, with the best median."""
    found = {way: m for way in CONTENDERS[:-1] if (m := median(row, way))}
    if not found:
        return None
    return (min if row["lower_is_better"] else max)(found, key=found.get)


def summary(row):
    """The figures of a row that the table and its JSON show."""
    best = best_other(row)
    found = {"medians": {way: median(row, way) for way in row["values"]}, "best": best}
    for name, base in (("times_tcp", "tcp"), ("times_best", best)):
        r = ratios(row, base)
        found[name] = {"median": statistics.median(r), "min": min(r),
                       "max": max(r)} if r else None
    return found


def behind(rows):
    """Where Viaduct is slower, and than whom."""
    found = []
    for row in rows:
        for base in CONTENDERS[:-1]:
            r = ratios(row, base)
            if r and statistics.median(r) < 1:
                found.append(f"{row['app']} {row['case']}: "
                             f"{statistics.median(r):.3g} times {base}")
    return found


def share_text(direct):
    if direct is None:
        return ""
    total = direct["direct_bytes"] + direct["tcp_bytes"]
    if not direct["direct_bytes"]:
        return f"NONE {direct['reasons']}"
    return f"{100 * direct['direct_bytes'] / total:.1f} %"


class Table:
    """Prints the rows as they come, and keeps what is to be said below them."""

    def __init__(self, json_path=None):
        self.json_path = json_path
        self.rows = []
        self.notes = []

    def show_progress(self, text):
        if sys.stderr.isatty():
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    def head(self):
        print(f"{'program':<10} {'case':<17} {'unit':<6}", end="")
        for way in CONTENDERS:
            print(f" {way:>9}", end="")
        print(f"  {'x tcp':<20} {'x best other':<14} direct")

    def note(self, text):
        """Returns its number; the same text has one number."""
        if text not in self.notes:
            self.notes.append(text)
        return self.notes.index(text) + 1

    def cell(self, row, way, found):
        if way in row["missing"]:
            return f"-[{self.note(way + ': ' + row['missing'][way])}]"
        value = found["medians"].get(way)
        return short(value) if value else "-"

    def add(self, row):
        found = summary(row)
        self.rows.append({**row, **found})
        self.show_progress("")
        print(f"{row['app']:<10} {row['case']:<17} {row['unit']:<6}", end="")
        for way in CONTENDERS:
            print(f" {self.cell(row, way, found):>9}", end="")
        tcp = best = ""
        if r := found["times_tcp"]:
            tcp = f"{r['median']:.3g} ({r['min']:.3g}..{r['max']:.3g})"
        if r := found["times_best"]:
            best = f"{r['median']:.3g} {found['best']}"
        print(f"  {tcp:<20} {best:<14} {share_text(row['direct'])}")
        for error in row["errors"]:
            print(f"  ! {error}")
        sys.stdout.flush()
        if self.json_path:
            with open(self.json_path, "a") as f:
                json.dump(self.rows[-1], f)
                f.write("\n")

    def foot(self):
        for number, text in enumerate(self.notes, 1):
            print(f"[{number}] {text}")
        if any(row["values"].get("viaduct") for row in self.rows):
            print("behind: " + ("; ".join(behind(self.rows)) or "nowhere"))
