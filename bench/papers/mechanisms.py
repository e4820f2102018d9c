# SPDX-License-Identifier: Apache-2.0
"""Rows of mechanisms one by one, by the benchmark's own build of the engine, with some taken out."""
import json
import os

from .row import Failed, cell, size_words
from .ways import built, environment, output

# Bits of src/base/mechanism.h.
WINDOW, LATE_LOOKS, GATHERING, RECEIVE_COPY = 1, 2, 4, 8
MISSING = "`ninja -C build mechanisms` builds it, where the source is"


class Mechanisms:
    """`ways` is a list of (name, what the engine lacks); bytes one way by each in turn, or there and back."""

    def __init__(self, ways, sizes, pattern="stream"):
        self.ways, self.sizes, self.pattern = ways, sizes, pattern

    def at(self, level):
        return self.sizes[:1] if level.smallest else self.sizes

    def arguments(self, size, level):
        return ["--patterns", self.pattern, "--sizes", str(size), "--over", "viaduct", "--pairs", "1",
                "--time", str(level.seconds)]

    def command_at(self, level):
        program = "build/bench/measure/viaduct-bench build/bench/mechanisms/viaduct"
        lacks = " ".join(str(bits) for _, bits in self.ways)
        return "; ".join(f"for N in {lacks}; do VIADUCT_LACKS=$N {program} "
                         f"{' '.join(self.arguments(size, level))}; done" for size in self.at(level))

    def rate(self, programs, lacks, size, level):
        text = output([*programs, *self.arguments(size, level), "--json", "-"], good=(0, 1),
                      env=environment(VIADUCT_LACKS=str(lacks)))
        row = json.loads(text)["rows"][0]
        found = row["results"][0]
        if not any(found["samples"]) or found["errors"]:
            raise Failed(f"{size_words(size)}: {'; '.join(found['errors']) or 'no figure'}")
        if not found.get("direct_bytes"):
            raise Failed(f"{size_words(size)}: nothing went direct: {found.get('reasons')}")
        if self.pattern == "rtt":
            return 1e6 / found["samples"][0]
        return found["samples"][0] * row["bytes_per_op"] / 1e6

    def run(self, viaduct, level):
        programs = [built(viaduct, os.path.join("bench", name), MISSING)
                    for name in ("measure/viaduct-bench", "mechanisms/viaduct")]
        cells = []
        for size in self.at(level):
            values = {name: [] for name, _ in self.ways}
            for _ in range(level.pairs):
                for name, lacks in self.ways:
                    values[name].append(self.rate(programs, lacks, size, level))
            is_time = self.pattern == "rtt"
            cells.append(cell(f"{size_words(size)}, {self.pattern}", "us" if is_time else "MB/s", is_time,
                              values))
        return cells
