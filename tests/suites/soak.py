#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Eight programs at work at once, with clients and servers killed and reloaded meanwhile: first
plain, then with both ends under Viaduct.

usage: soak.py VIADUCT [--seconds N] [--plain N] [--seed N] [PROGRAM...]

Wrong bytes and hangs are failures, and so are an error that did not happen plain, memory or
descriptors of a server that grow from round to round, and a program whose bytes never went
over the direct path. Each round ends with all clients gone: then the servers are measured.
Which client meets the kill of a server's process or connections, and how, is chance: that is
no such error.
"""
import argparse
import collections
import glob
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "apps"))
import harness  # noqa: E402
import soak_jobs  # noqa: E402

ROUND_S = 30
# A server that was killed may take this long to serve again.
RECOVER_S = 60
# Ends the name of an error that met such a kill.
KILLED = ", after a kill"


def children(pid):
    """The process and all that descend from it."""
    parents = {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            text = pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        parents[int(path.split("/")[2])] = int(text.rsplit(")", 1)[1].split()[1])
    found = {pid}
    while more := {p for p, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def usage(pid):
    """KiB of memory that only these processes have, and their descriptors but for files:
    how many of its data a server has open is its own affair."""
    memory = descriptors = 0
    for process in children(pid):
        try:
            rollup = pathlib.Path(f"/proc/{process}/smaps_rollup").read_text(encoding="utf-8")
            links = [os.readlink(f"/proc/{process}/fd/{fd}")
                     for fd in os.listdir(f"/proc/{process}/fd")]
            descriptors += sum(not link.startswith("/") or link.startswith("/memfd:")
                               for link in links)
        except OSError:
            continue
        for line in rollup.splitlines():
            if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
                memory += int(line.split()[1])
    return memory, descriptors


class Soak:
    """One phase: the servers, a thread of clients for each, and one that disturbs it."""

    def __init__(self, viaduct, mode, names, seed):
        self.run = harness.Run(viaduct, mode)
        self.jobs = [soak_jobs.JOBS[name](self.run, random.Random(f"{seed} {name}"))
                     for name in names]
        self.errors = collections.Counter()
        self.failures = []
        self.done = collections.Counter()
        self.samples = collections.defaultdict(list)
        self.lock = threading.Lock()
        self.stop = threading.Event()

    def attempt(self, job, what):
        kills = job.kills
        try:
            what()
            if what == job.work:
                job.recovered = kills
            with self.lock:
                self.done[job.name] += 1
        except soak_jobs.Trouble as e:
            met = KILLED if job.kills != job.recovered else ""
            with self.lock:
                self.errors[f"{job.name}: {e}{met}"] += 1
            time.sleep(0.05)  # a server that is starting again
        except harness.Failure as e:
            with self.lock:
                self.failures.append(f"{job.name}: {e}")
            self.stop.set()

    def busy(self, job, what, gap):
        while not self.stop.is_set():
            if gap:
                self.stop.wait(job.random.uniform(0, gap))
            self.attempt(job, what)

    def round(self, seconds):
        self.stop.clear()
        threads = [threading.Thread(target=self.busy, args=args)
                   for job in self.jobs
                   for args in ((job, job.work, 0), (job, job.disturb, 4))]
        for thread in threads:
            thread.start()
        self.stop.wait(seconds)
        self.stop.set()
        for thread in threads:
            thread.join()
        for job in self.jobs:
            self.settle(job)

    def settle(self, job):
        """Undisturbed, it serves without an error; then it is measured."""
        end = time.monotonic() + RECOVER_S
        while not self.failures:
            try:
                job.work()
                break
            except soak_jobs.Trouble as e:
                if time.monotonic() > end:
                    self.failures.append(f"{job.name}: does not recover: {e}")
                time.sleep(0.2)
            except harness.Failure as e:
                self.failures.append(f"{job.name}: {e}")
        job.quiet()
        self.samples[job.name].append(usage(job.server.pid))

    def go(self, seconds):
        end = time.monotonic() + seconds
        try:
            for job in self.jobs:
                job.start()
            while not self.failures and time.monotonic() < end:
                self.round(min(ROUND_S, max(5, end - time.monotonic())))
            for job in self.jobs:
                self.run.stop(job.server, job.stop_signal)
        except harness.Failure as e:
            self.failures.append(str(e))
        if self.failures:
            self.failures.append(self.run.logs())
        report = self.run.report(killed=True)
        self.run.close()
        return report


def growth(samples, index):
    """Medians of the first and the last third, without the first round."""
    values = [sample[index] for sample in samples[1:]] or [samples[0][index]]
    third = max(1, len(values) // 3)
    return statistics.median(values[:third]), statistics.median(values[-third:])


def kind(error):
    """Which status a killed server leaves its client with is a matter of moments."""
    return error.split(" status ")[0]


def judge(soak, known):
    failures = list(soak.failures)
    failures += [f"error that did not happen plain: {error}" for error in soak.errors
                 if not error.endswith(KILLED) and kind(error) not in map(kind, known)]
    for name, samples in soak.samples.items():
        first, last = growth(samples, 0)
        if last > first * 1.25 + 8192:
            failures.append(f"{name}: memory grew from {first} to {last} KiB")
        first, last = growth(samples, 1)
        if last > first + 2:
            failures.append(f"{name}: descriptors grew from {first} to {last}")
    return failures


def show(mode, soak):
    for job in soak.jobs:
        samples = soak.samples[job.name] or [(0, 0)]
        memory, descriptors = growth(samples, 0), growth(samples, 1)
        print(f"{mode}: {job.name}: {soak.done[job.name]} done, memory {memory[0]:.0f} to "
              f"{memory[1]:.0f} KiB, descriptors {descriptors[0]:.0f} to {descriptors[1]:.0f}")
    for error, count in sorted(soak.errors.items()):
        print(f"{mode}: {count} times {error}")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("viaduct")
    parser.add_argument("programs", nargs="*", default=[])
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--plain", type=float, default=300)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_intermixed_args()
    names = args.programs or sorted(soak_jobs.JOBS)
    viaduct = os.path.abspath(args.viaduct)

    plain = Soak(viaduct, "plain", names, args.seed)
    plain.go(args.plain)
    show("plain", plain)
    if plain.failures:
        sys.exit("fails plain:\n" + "\n".join(plain.failures))

    ours = Soak(viaduct, "both", names, args.seed)
    report = ours.go(args.seconds)
    show("viaduct", ours)
    failures = judge(ours, set(plain.errors))
    direct = collections.Counter()
    for line in report:
        direct[line["program"]] += line["tx_direct_bytes"] + line["rx_direct_bytes"]
    print("direct bytes:", json.dumps(direct))
    failures += [f"{job.name}: no byte went over the direct path" for job in ours.jobs
                 if not any(direct[program] for program in job.programs)]
    for failure in failures:
        print("FAILED:", failure)
    return 1 if failures else 0


signal.signal(signal.SIGPIPE, signal.SIG_DFL)
sys.exit(main())
