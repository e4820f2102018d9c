# SPDX-License-Identifier: Apache-2.0
"""How rows are measured by `viaduct bench` and bench/apps.py. Each way to measure has `command_at`, which
repeats the row, and `run`, which gives its cells."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

from .row import Cannot, Failed, cell, size_words

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT_S = 1800  # of one program; a hang is a failure, not a figure


def environment(**more):
    """Of a program that is to be plain until `viaduct run` starts it."""
    env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and k[:8] != "VIADUCT_"}
    env.pop("VIADUCT", None)
    return {**env, "VIADUCT_CONFIG": "", **more}


def output(argv, good=(0,), **more):
    """What a program prints. `more` goes to subprocess."""
    more.setdefault("env", environment())
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, errors="replace",
                              timeout=LIMIT_S, check=False, **more)
    except subprocess.TimeoutExpired as e:
        raise Failed(f"{os.path.basename(argv[0])} did not end within {LIMIT_S} s") from e
    except OSError as e:
        raise Cannot(f"{argv[0]}: {e.strerror}") from e
    if done.returncode not in good:
        last = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
        raise Failed(f"{os.path.basename(argv[0])} ended with {done.returncode}: {last[:200]}")
    return done.stdout


def need(*programs):
    """PROGRAM or PROGRAM (package) each; what is missing is named."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    lacks = [p for p in programs if not shutil.which(p.split()[0], path=path)]
    if lacks:
        raise Cannot(f"not installed: {', '.join(lacks)}")
    return [shutil.which(p.split()[0], path=path) for p in programs]


def built(viaduct, name, why):
    """A program of the build folder, which is not installed."""
    path = os.path.join(os.path.dirname(viaduct), name)
    if not os.access(path, os.X_OK):
        raise Cannot(f"{name} is not beside the command: {why}")
    return path


class Not:
    """A row that nothing measures yet."""
    def __init__(self, why):
        self.why = why

    def command_at(self, _level):
        return ""

    def run(self, _viaduct, _level):
        raise Cannot(self.why)


def spent(row, r, of):
    """`of` processor time of both ends and operations a second, pair by pair."""
    ends = zip(r.get("client_cpu_samples", []), r.get("server_cpu_samples", []), r["samples"])
    return [of(c + s, ops) if c + s > 0 and ops > 0 else None for c, s, ops in ends]


def each(of):
    return lambda row, r: [of(row, s) if s > 0 else None for s in r["samples"]]


# unit, whether less is better, and the figures of a result pair by pair
METRICS = {
    "time": ("us", True, each(lambda row, s: 1e6 / s)),
    "bytes": ("MB/s", False, each(lambda row, s: s * row["bytes_per_op"] / 1e6)),
    "rate": ("/s", False, each(lambda row, s: s)),
    "cpu": ("ns of processor time a byte", True,
            lambda row, r: spent(row, r, lambda ns, _: ns / row["bytes_per_op"])),
    "busy": ("% of two processors", True,
             lambda row, r: spent(row, r, lambda ns, ops: ns * ops / 2e7)),
    "efficiency": ("MB for a second of processor time", False,
                   lambda row, r: spent(row, r, lambda ns, _: row["bytes_per_op"] * 1e3 / ns)),
}
LOGP = (("half_rtt_ns", "half a round trip"), ("latency_ns", "L"), ("send_ns", "o, send"),
        ("recv_ns", "o, receive"), ("gap_ns", "g"))


class Bench:
    """`viaduct bench` with these patterns and sizes; `parts` is a list of (pattern, metric)."""

    def __init__(self, parts, sizes, over="tcp,viaduct,unix,floor", more=()):
        self.parts, self.sizes, self.over, self.more = parts, sizes, over, list(more)

    def some(self, level):
        return self.sizes[:1] if level.smallest else self.sizes

    def arguments(self, level):
        more, over = list(self.more), self.over
        if level.smallest:
            more = [re.sub(r"^([^,]+),.*", r"\1", m) for m in more]
        return ["bench", "--patterns", ",".join(dict.fromkeys(p for p, _ in self.parts)),
                "--sizes", ",".join(map(str, self.some(level))), "--over", over,
                "--pairs", str(level.pairs), "--time", str(level.seconds), *more]

    def command_at(self, level):
        return " ".join(["viaduct", *self.arguments(level)])

    def measured(self, viaduct, level):
        return output([viaduct, *self.arguments(level), "--json", "-"], good=(0, 1))

    def run(self, viaduct, level):
        try:
            found = json.loads(self.measured(viaduct, level))
        except ValueError as e:
            raise Failed(f"viaduct bench wrote no JSON: {e}") from e
        cells = [c for row in found["rows"] for pattern, metric in self.parts
                 if row["pattern"] == pattern for c in self.cells(row, metric)]
        if not cells:
            raise Failed("viaduct bench gave no row")
        return cells

    def cells(self, row, metric):
        case = f"{size_words(int(row['size_bytes']))}, {row['pattern']}"
        case += f", {row['conns']:.0f} connections" if row["conns"] > 1 else ""
        case += f", {row['placement']}" if row.get("placement") == "one" else ""
        errors = [f"{r['over']}: {e}" for r in row["results"] for e in r["errors"]]
        for r in row["results"]:
            if r["over"] == "viaduct" and any(r["samples"]) and not r.get("direct_bytes"):
                errors.append(f"viaduct: nothing went direct: {r.get('reasons')}")
        if metric == "logp":
            for field, words in LOGP:
                yield cell(f"{case}: {words}", "us", True, {
                    r["over"]: [r["logp"][field]["median"] / 1e3]
                    for r in row["results"] if "logp" in r}, errors)
                errors = []
            return
        unit, lower, of = METRICS[metric]
        # The raw ring and ways to copy have no processor times.
        values = {r["over"]: of(row, r) for r in row["results"]}
        yield cell(case, unit, lower, {w: v for w, v in values.items() if any(v)}, errors)


class Apps:
    """One program of bench/apps.py; `cases` is a part of the names of the cases wanted."""

    def __init__(self, app, cases="", contenders="tcp,unix,viaduct"):
        self.app, self.cases, self.contenders = app, cases, contenders

    def arguments(self, level):
        seconds = max(level.seconds * 2, 0.1)
        cases = ["--cases", self.cases] if self.cases else []
        return ["--only", self.app, *cases, "--contenders", self.contenders, "--pairs",
                str(level.pairs), "--seconds", f"{seconds:g}"]

    def command_at(self, level):
        return " ".join(["bench/apps.sh", *self.arguments(level)])

    def run(self, viaduct, level):
        script = os.path.join(os.path.dirname(HERE), "apps.py")
        if not os.path.exists(script):
            raise Cannot("bench/apps.py is not beside the command")
        with tempfile.NamedTemporaryFile("r", prefix="viaduct-papers-") as file:
            said = output([sys.executable, "-B", script, *self.arguments(level), "--viaduct",
                           viaduct, "--json", file.name], good=(0, 1))
            rows = [json.loads(line) for line in file]
        if not rows:
            left = re.search(r"left out: (.*?)(?: \(|$)", said, re.M)
            if left:
                raise Cannot(left.group(1))
            raise Failed((said.strip().splitlines() or ["it said nothing"])[-1][:200])
        for r in rows:
            if "sockmap" in r["missing"] and "sockmap" in self.contenders:
                raise Cannot(f"sockmap: {r['missing']['sockmap']}")
        return [cell(f"{r['app']} {r['case']}", r["unit"], r["lower_is_better"], r["values"],
                     r["errors"]) for r in rows]
