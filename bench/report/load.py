# SPDX-License-Identifier: Apache-2.0
"""Reads the JSON of `viaduct bench`; what it does not know it leaves alone."""
import dataclasses
import json
import re

# Beyond what can be measured of anything: products of a few figures stay numbers, and none but 0
# becomes 0.
FIGURE_MOST = 1e30

# What XML has no place for, and halves of a pair of UTF-16.
NO_LETTER = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


class Refused(Exception):
    """The message says what is wrong with the file."""


@dataclasses.dataclass
class Spread:
    """Of the valid values of a figure; median 0 means that there is none."""
    median: float = 0.0
    min: float = 0.0
    max: float = 0.0

    def times(self, factor):
        return Spread(self.median * factor, self.min * factor, self.max * factor)

    def inverse(self):
        return Spread(1 / self.median, 1 / self.max, 1 / self.min) if self.median > 0 else self

    @property
    def disagrees(self):
        """Of ratios: some pairs are below 1, others above."""
        return self.min < 1 < self.max


class Result:
    def __init__(self, json_, paced=False):
        self.json = json_ if isinstance(json_, dict) else {}
        self.over = word(self.json, "over")
        self.p50, self.p99, self.p999 = (spread(self.json, name)
                                         for name in ("p50_ns", "p99_ns", "p999_ns"))
        # At a fixed rate the contenders differ in how long a round trip takes.
        self.rate = (self.p50.times(1e-9).inverse() if paced
                     else spread(self.json, "ops_per_s"))
        self.ratio = spread(self.json, "ratio")
        self.cpu_ns_per_op = figure(self.json, "cpu_ns_per_op")
        self.under_viaduct = is_number(self.json.get("direct_bytes"))
        self.direct_bytes = figure(self.json, "direct_bytes")
        self.tcp_bytes = figure(self.json, "tcp_bytes")


class Row:
    def __init__(self, json_, matrix):
        self.json = json_ if isinstance(json_, dict) else {}
        self.pattern = word(self.json, "pattern")
        for name in ("size_bytes", "conns", "active", "busy", "think_us", "line_ns",
                     "rate_per_s"):
            setattr(self, name, figure(self.json, name))
        self.bytes_per_op = figure(self.json, "bytes_per_op")
        if not self.bytes_per_op > 0:
            self.bytes_per_op = self.size_bytes
        self.load = self.name_of_load()
        self.place = word(self.json, "placement") if matrix else ""
        self.kind = self.kind_of()
        self.results = [Result(r, self.rate_per_s > 0) for r in items(self.json, "results")]

    def name_of_load(self):
        """A number of loops has a name of its own where the word busy stands for another."""
        if self.busy > 0 and word(self.json, "load").startswith("busy-"):
            return f"busy-{int(min(self.busy, 9999))}"
        return "busy" if self.busy > 0 else "quiet"

    def kind_of(self):
        """time, bytes or ops: what its figures are shown as."""
        unit = word(self.json, "unit")
        if not unit and (self.pattern.startswith("rtt") or self.pattern in ("plain",
                                                                            "plain-spin")):
            unit = "round trip"
        elif not unit and ("stream" in self.pattern or self.pattern == "bidir"):
            unit = "message"
        if unit == "message":
            return "bytes"
        is_time = unit == "round trip" and (self.conns <= 1 or self.rate_per_s > 0)
        return "time" if is_time else "ops"

    def find(self, over):
        return next((r for r in self.results if r.over == over), None)

    @property
    def wants_direct(self):
        """False where nothing is to be gained and nothing need go direct."""
        return not self.pattern.startswith(("plain", "session")) and self.pattern != "crr"

    @property
    def compares(self):
        """False for LogP, whose round trips are those of another pattern, and experiments."""
        return self.pattern != "logp" and not self.pattern.startswith("setup")


class Figures:
    def __init__(self, json_, path):
        self.json = json_ if isinstance(json_, dict) else {}
        self.path = path
        self.programs = word(self.json, "kind") == "programs"
        self.machine, self.run = part(self.json, "machine"), part(self.json, "run")
        self.matrix = self.run.get("matrix") is True
        self.rows = [] if self.programs else self.load_rows()

    def load_rows(self):
        rows = []
        for json_ in items(self.json, "rows"):
            row = Row(json_, self.matrix)
            if not row.pattern or not row.results or not all(r.over for r in row.results):
                raise Refused(f"{self.path}: rows[{len(rows)}] lacks `pattern`, or `results` "
                              "with `over`: no file of `viaduct bench`, or a damaged one")
            rows.append(row)
        if not rows:
            raise Refused(f"{self.path} holds no figures (`rows` is missing or empty); "
                          "`viaduct bench --json FILE` writes them")
        return rows


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def number(value):
    """0 for what is no number, or an impossible one."""
    if not is_number(value):
        return 0.0
    try:
        value = float(value)
    except OverflowError:
        return 0.0
    return value if 1 / FIGURE_MOST <= abs(value) <= FIGURE_MOST else 0.0


def figure(of, name):
    return number(of.get(name))


def letters(text):
    """As it may stand in XML."""
    return NO_LETTER.sub("\ufffd", text)


def word(of, name):
    value = of.get(name)
    return letters(value) if isinstance(value, str) else ""


def items(of, name):
    value = of.get(name)
    return value if isinstance(value, list) else []


def part(of, name):
    value = of.get(name)
    return value if isinstance(value, dict) else {}


def spread(of, name):
    s = part(of, name)
    median, low, high = figure(s, "median"), figure(s, "min"), figure(s, "max")
    if not median > 0:
        return Spread()
    return Spread(median, low if 0 < low <= median else median, max(high, median))


def no_constant(name):
    raise ValueError(f"{name} is no number of JSON")


def load(path):
    """Raises Refused."""
    try:
        with open(path, "rb") as f:
            text = f.read().decode("utf-8")
        json_ = json.loads(text, parse_constant=no_constant)
    except OSError as e:
        raise Refused(f"cannot read {path}: {e.strerror}") from e
    except (ValueError, RecursionError) as e:
        line, what = getattr(e, "lineno", 1), getattr(e, "msg", None) or str(e)
        raise Refused(f"{path} is not JSON: line {line}: {what}; give a file that "
                      "`viaduct bench --json FILE` wrote") from e
    return Figures(json_, path)
