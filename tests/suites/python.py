#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
CPython's own tests, plain and under Viaduct, must have the same outcomes, test by test.

usage: python.py VIADUCT [--plain N] [--under N] [--after N,N] [--jobs N]
                 [--early N] [MODULE...|all]

Each module runs plain, and under Viaduct with each threshold. A test with an outcome that
it did not have plain is run plain some times more, by itself and in its module: one that
has this outcome there too is flaky, and is named; any other is a failure. With --early, all
runs look at connections before the tests do (see unittests.py), so that most are upgraded
before their first byte; it goes with --after 0, and 16 looks are enough.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

SKIP = 77
PYTHON = "/usr/bin/python3"  # Debian's, which has the package of tests
RUNNER = pathlib.Path(__file__).resolve().with_name("unittests.py")
TEST_LIMIT_S = 120
MODULE_LIMIT_S = 900
# How often a doubtful test is run plain by itself, and then in its module.
DOUBT_RUNS = 8
DOUBT_MODULES = 2

QUICK = ["test_ssl", "test_socketserver", "test_ftplib", "test_httplib", "test_httpservers",
         "test_smtplib", "test_poplib", "test_epoll", "test_select",
         "test_asyncio.test_streams", "test_asyncio.test_server",
         "test_asyncio.test_sock_lowlevel", "test_asyncio.test_sendfile"]
ALL = ["test_socket", "test_asyncio", "test_selectors", "test_select", "test_poll",
       "test_epoll", "test_socketserver", "test_ftplib", "test_httplib",
       "test_httpservers", "test_ssl", "test_smtplib", "test_imaplib", "test_poplib",
       "test_xmlrpc", "test_multiprocessing_fork", "test_multiprocessing_forkserver",
       "test_multiprocessing_spawn", "test_signal", "test_subprocess",
       "test_concurrent_futures"]


class Outcomes:
    """What the tests of one run came to, and what Viaduct counted meanwhile."""

    def __init__(self):
        self.outcome = {}
        self.text = {}
        self.counts = collections.Counter()
        self.reasons = collections.Counter()

    def read(self, results):
        """Takes over a runner's lines; true when it came to its end."""
        started, ended = None, False
        for line in results.read_text(encoding="utf-8").splitlines():
            line = json.loads(line)
            if "start" in line:
                started = line["start"]
                self.outcome.setdefault(started, "no outcome")
            elif "id" in line:
                self.outcome[line["id"]] = line["outcome"]
                self.text[line["id"]] = line["text"]
            ended = ended or "end" in line
        return ended

    def read_report(self, report):
        for line in report.read_text(encoding="utf-8").splitlines():
            line = json.loads(line)
            for key in ("connections", "upgraded", "downgraded", "tx_direct_bytes",
                        "rx_direct_bytes"):
                self.counts[key] += line[key]
            self.reasons.update(line["reasons"])

    def summary(self):
        tally = collections.Counter(self.outcome.values())
        text = ", ".join(f"{n} {outcome}" for outcome, n in sorted(tally.items()))
        if self.counts:
            text += (f"; {self.counts['upgraded']} of {self.counts['connections']} ends "
                     f"upgraded, {self.counts['tx_direct_bytes']} bytes direct")
            text += "".join(f", {n} {name}" for name, n in sorted(self.reasons.items()))
        return text


def end_group(proc):
    """What the runner left behind ends with it."""
    try:
        os.killpg(proc.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def run(early, module, wrap, folder, tests=()):
    """Runs a module's tests once, in as many processes as it takes."""
    done = Outcomes()
    results, report = folder / "results", folder / "report"
    for path in (results, report):
        path.write_text("")
    log = open(folder / "log", "wb")
    while True:
        before = results.stat().st_size
        argv = [*wrap(report), PYTHON, RUNNER, results, str(TEST_LIMIT_S), str(early),
                module, *tests]
        proc = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                start_new_session=True)
        try:
            proc.wait(timeout=MODULE_LIMIT_S)
        except subprocess.TimeoutExpired:
            pass
        end_group(proc)
        proc.wait()
        if done.read(results):
            break
        if results.stat().st_size == before:
            done.outcome[module] = "did not run"
            break
    # A limit that fired or a fault left its traceback there.
    lost = [test for test, outcome in done.outcome.items() if outcome.startswith(("no", "did"))]
    for test in lost:
        done.text[test] = (folder / "log").read_text(errors="replace")[-3000:]
    done.read_report(report)
    return done


def plain(_report):
    return []


def under(viaduct, after):
    return lambda report: [viaduct, "run", "--report", report, "--upgrade-after", after, "--"]


def doubt(args, module, test, outcome, folder):
    """The outcomes of a test that is run plain until it has this outcome too."""
    tally = collections.Counter()
    for tests in [[test]] * DOUBT_RUNS + [[]] * DOUBT_MODULES:
        tally[run(args.early, module, plain, folder, tests).outcome.get(test, "absent")] += 1
        if outcome in tally:
            break
    return tally


def compare(args, module, name, done, known, folder, say):
    """Names the tests whose outcome is none of those known; returns how many."""
    differ = 0
    for test in sorted(done.outcome.keys() | known.keys()):
        outcome = done.outcome.get(test, "absent")
        if outcome in known[test]:
            continue
        tally = doubt(args, module, test, outcome, folder)
        flaky = outcome in tally
        known[test].update(tally)
        differ += not flaky
        say(f"{'FLAKY PLAIN' if flaky else 'DIFFERENT'}: {test} {name}: {outcome}; "
            f"plain: {dict(known[test])}\n{done.text.get(test, '')}")
    return differ


def check_module(args, module, folder, say):
    """Runs a module in all ways; returns the number of differences and upgraded ends."""
    known = collections.defaultdict(collections.Counter)
    differ = upgraded = 0
    for number in range(args.plain):
        done = run(args.early, module, plain, folder)
        for test, outcome in done.outcome.items():
            known[test][outcome] += 1
        if number == 0:
            say(f"{module}: plain: {done.summary()}")
    for test, tally in known.items():
        if len(tally) > 1 or sum(tally.values()) != args.plain:
            say(f"FLAKY PLAIN: {test}: {dict(tally)}")
    for after in args.after.split(","):
        for _ in range(args.under):
            done = run(args.early, module, under(args.viaduct, after), folder)
            say(f"{module}: upgrade after {after}: {done.summary()}")
            differ += compare(args, module, f"upgrade after {after}", done, known, folder, say)
            upgraded += done.counts["upgraded"]
    if all(tally["ok"] == 0 for tally in known.values()):
        say(f"DIFFERENT: {module}: no test passes plain")
        differ += 1
    return differ, upgraded


def job(args, module):
    lines = []
    with tempfile.TemporaryDirectory(prefix="suites-") as folder:
        differ, upgraded = check_module(args, "test." + module, pathlib.Path(folder),
                                        lines.append)
    print("\n".join(lines), flush=True)
    return differ, upgraded


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("viaduct", type=os.path.abspath)
    parser.add_argument("--plain", type=int, default=1, help="plain runs")
    parser.add_argument("--under", type=int, default=1, help="runs with each threshold")
    parser.add_argument("--after", default="16,0", help="the thresholds")
    parser.add_argument("--jobs", type=int, default=2, help="modules at a time")
    parser.add_argument("--early", type=int, default=0, help="looks before the first byte")
    parser.add_argument("modules", nargs="*", help="modules, or all; default: a quick part")
    args = parser.parse_intermixed_args()
    modules = ALL if args.modules == ["all"] else args.modules or QUICK
    if subprocess.run([PYTHON, "-c", "import test.test_socket"], check=False,
                      stderr=subprocess.DEVNULL).returncode:
        print("skipped: CPython's tests (libpython3.*-testsuite) are missing")
        sys.exit(SKIP)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        done = list(pool.map(lambda module: job(args, module), modules))
    differ, upgraded = (sum(counts) for counts in zip(*done))
    print(f"{differ} differences; {upgraded} ends upgraded")
    if not upgraded:
        print("FAILED: nothing was upgraded")
    sys.exit(1 if differ or not upgraded else 0)


main()
