# SPDX-License-Identifier: Apache-2.0
"""One experiment of a paper: what it found, and how ours is measured."""
import collections
import dataclasses
import statistics

# How much of a row is run: pairs, seconds of one measurement, and whether only its smallest form.
Level = collections.namedtuple("Level", "name pairs seconds smallest")
WHOLE = Level("whole", 5, 0.5, False)
QUICK = Level("quick", 3, 0.1, False)
SMALLEST = Level("smallest", 1, 0.02, True)

PAPERS = {
    "sovia": "SOVIA: a user-level sockets layer over the Virtual Interface Architecture",
    "vmmc2": "VMMC-2: virtual-memory-mapped communication",
    "shah": "Shah and others: sockets and RPC over the Virtual Interface Architecture",
    "wsdlite": "WSDLite: a lightweight alternative to Windows Sockets Direct Path",
    "scilan": "SCILAN: sockets over a shared-memory interconnect",
}


class Cannot(Exception):
    """The row cannot be run here; the text says why."""


class Failed(Exception):
    """It could, and went wrong; the text says how."""


@dataclasses.dataclass
class Row:
    """`times` is the paper's gain over TCP, which is compared with that of `way` over `base` in the
    first cell whose case begins with `case`. `more` and `less` say why ours is other than that."""
    name: str
    what: str
    result: str
    measure: object
    times: float = 0
    case: str = ""
    way: str = "viaduct"
    base: str = "tcp"
    more: str = ""
    less: str = ""

    @property
    def paper(self):
        return self.name.split("-")[0]

    @property
    def between(self):
        """It is measured between two guests."""
        return getattr(self.measure, "between", False)


def cell(case, unit, lower, values, errors=()):
    """The figures of one case: a list for each way, entry i of pair i, None where it failed."""
    return {"case": case, "unit": unit, "lower_is_better": lower, "values": values,
            "errors": list(errors)}


def median(values):
    good = [v for v in values or () if v]
    return statistics.median(good) if good else None


def ratios(of, way, base):
    """How many times as good `way` is as `base`, pair by pair."""
    pairs = [(a, b) for a, b in zip(of["values"].get(way, []), of["values"].get(base, []))
             if a and b]
    return [b / a if of["lower_is_better"] else a / b for a, b in pairs]


def size_words(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"
