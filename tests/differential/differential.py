#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random operations from seeds, on kernel TCP and under Viaduct: what they print must be equal.

usage: differential.py [OPTION...] VIADUCT DIFFERENTIAL

A seed whose lines differ is cut down to few operations that still differ, and these are printed
side by side. A seed whose lines differ between two runs on kernel TCP is an error of the test
program, and fails too. The counters must show that the direct path was used.

By hand, one seed, down to what matters:
  tests/differential/differential.py --seed 17 --seeds 1 build/viaduct \\
      build/tests/differential/differential
"""
import argparse
import concurrent.futures
import difflib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import machine  # noqa: E402
import relation  # noqa: E402

BATCH = 20


def parse():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n")[2][7:])
    parser.add_argument("--seed", type=int, default=1, help="the first")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--ops", type=int, default=300, help="operations of a seed")
    parser.add_argument("--after", default="0,default", help="VIADUCT_UPGRADE_AFTER, several")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=int, default=60, help="seconds after which a seed hangs")
    parser.add_argument("--keep-going", type=int, default=3, help="differences before it ends")
    parser.add_argument("--plain", action="store_true", help="kernel TCP twice: tests the test")
    parser.add_argument("--strict", action="store_true", help="no edge more")
    parser.add_argument("--static", action="store_true", help="the program is linked statically")
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("viaduct")
    parser.add_argument("program")
    return parser.parse_args()


def runs_of(text):
    """The lines of each seed."""
    runs, lines = {}, []
    for line in text.splitlines():
        if line.startswith("seed ") and line[5:].isdigit():
            lines = runs[int(line[5:])] = []
        else:
            lines.append(line)
    return runs


def differs(plain, ours, strict):
    return plain != ours if strict else not relation.same(plain, ours)


class Test:
    def __init__(self, options):
        self.options = options
        self.lock = threading.Lock()
        self.counts = {}
        self.unsettled = 0

    def run(self, after, seed, seeds, only=None):
        """Runs the program; `after` is None for kernel TCP. Returns the lines of each seed."""
        o = self.options
        command = [o.program, "--seed", str(seed), "--seeds", str(seeds), "--ops", str(o.ops),
                   "--seconds", str(o.limit)]
        if only is not None:
            command += ["--only", ",".join(map(str, only)) or str(o.ops)]
        with tempfile.TemporaryDirectory() as tmp:
            report = os.path.join(tmp, "report")
            if after is not None:
                given = [] if after == "default" else ["--upgrade-after", after]
                given += ["--static", "follow"] if o.static else []
                command = [o.viaduct, "run", "--report", report, *given, "--", *command]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  stdin=subprocess.DEVNULL, check=False)
            if done.returncode != 0:
                sys.exit(f"status {done.returncode}: {done.stderr.decode(errors='replace')}")
            errors = done.stderr.decode(errors="replace").splitlines()
            if only is None:
                self.count(after, report, errors)
        return runs_of(done.stdout.decode(errors="replace"))

    def count(self, after, report, errors):
        with self.lock:
            self.unsettled += len(errors)
            for line in errors[:3]:
                print(f"{after or 'plain'}: {line}", flush=True)
            if not os.path.exists(report):
                return
            with open(report, encoding="utf-8") as f:
                for line in f:
                    entry = json.loads(line)
                    for key in ("upgraded", "downgraded", "tx_direct_bytes", "rx_direct_bytes"):
                        counts = self.counts.setdefault(after, {})
                        counts[key] = counts.get(key, 0) + entry[key]

    def one(self, after, seed, only=None):
        return self.run(after, seed, 1, only)[seed]

    def differs(self, after, seed, only):
        return differs(self.one(None, seed, only), self.one(after, seed, only), self.options.strict)

    def shrink(self, after, seed):
        """The operations that still differ when any of them is left out; None: not always."""
        left = list(range(self.options.ops))
        if not self.differs(after, seed, left):
            return None
        # Nothing after the first difference matters.
        parts = 2
        while len(left) > 1:
            size = max(1, -(-len(left) // parts))
            for start in range(0, len(left), size):
                fewer = left[:start] + left[start + size:]
                if fewer and self.differs(after, seed, fewer):
                    left, parts = fewer, max(2, parts - 1)
                    break
            else:
                if size == 1:
                    break
                parts = min(len(left), 2 * parts)
        return left

    def show(self, after, seed, plain, ours):
        again = self.one(None, seed)
        with self.lock:
            if again != plain:
                print(f"seed {seed}: differs between two runs on kernel TCP; the other ends with {again[-2:]}", flush=True)
                self.print_diff(plain, again, "kernel", "kernel again")
                return
        only = None if self.options.no_shrink else self.shrink(after, seed)
        if only is not None:
            plain, ours = self.one(None, seed, only), self.one(after, seed, only)
        with self.lock:
            print(f"seed {seed}, upgraded after {after}: DIFFERS"
                  + (f", --only {','.join(map(str, only))}" if only else ""))
            self.print_diff(plain, ours, "kernel", "viaduct", 100 if only else 6)

    @staticmethod
    def print_diff(a, b, a_name, b_name, context=3):
        lines = list(difflib.unified_diff(a, b, a_name, b_name, lineterm="", n=context))
        for line in lines[:60]:
            print("  " + line)
        sys.stdout.flush()


def batch(test, first, count):
    """Returns what differs: (after, seed, plain, ours)."""
    found = []
    plain = test.run(None, first, count)
    for after in [None] if test.options.plain else test.options.after.split(","):
        ours = test.run(after, first, count)
        found += [(after, seed, lines, ours.get(seed, ["nothing"]))
                  for seed, lines in plain.items() if differs(lines, ours.get(seed, []), test.options.strict or after is None)]
    wrong = [seed for seed, lines in plain.items() if not any(line.endswith(" end end") for line in lines)]
    return found + [("wrong", seed, plain[seed], []) for seed in wrong]


def main():
    options = parse()
    if options.static:
        machine.skip_where(machine.lacks_for_static())
    test = Test(options)
    differences, ran = 0, 0
    seeds = range(options.seed, options.seed + options.seeds, BATCH)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        jobs = [pool.submit(batch, test, first, min(BATCH, options.seed + options.seeds - first))
                for first in seeds]
        for job in concurrent.futures.as_completed(jobs):
            ran += BATCH
            for after, seed, plain, ours in job.result():
                differences += 1
                if after == "wrong":
                    print(f"seed {seed}: does not end on kernel TCP: {plain[-3:]}", flush=True)
                elif after is None:
                    print(f"seed {seed}: differs between two runs on kernel TCP", flush=True)
                    test.print_diff(plain, ours, "kernel", "kernel again")
                elif differences <= options.keep_going:
                    test.show(after, seed, plain, ours)
                else:
                    print(f"seed {seed}, upgraded after {after}: differs, too", flush=True)
            if differences > 3 * options.keep_going:
                pool.shutdown(cancel_futures=True)
                break
    print(f"{min(ran, options.seeds)} seeds of {options.ops} operations: {differences} differ, "
          f"{test.unsettled} times something did not come")
    for after, counts in test.counts.items():
        print(f"upgraded after {after}: " + ", ".join(f"{k} {v}" for k, v in counts.items()))
        # Few seeds may have earned no upgrade.
        if options.seeds >= BATCH and not counts["tx_direct_bytes"] * counts["rx_direct_bytes"]:
            sys.exit("no byte went over the direct path")
    if not options.plain and len(test.counts) != len(options.after.split(",")):
        sys.exit("no report was written")
    sys.exit(1 if differences else 0)


main()
