#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Breaks the library on purpose, one promise of docs/contract.md after the other. Each fault must be found
by a test of `make check`.

usage: mutations.py --look ROOT
       mutations.py ROOT FOLDER [NAME]...

With --look only whether each place that is to be broken is in the sources, once. Otherwise the
sources of ROOT are copied to FOLDER, which is made anew, built there with each fault in turn, and the
tests beside the fault run until one fails. The promises are numbered as in docs/contract.md.
"""
import pathlib
import shutil
import subprocess
import sys
import time

# name, promise, file, the text, what takes its place, the tests of which one must fail
FAULTS = [
    ("byte-repeated", 1, "src/ring/ring.h",
     "	ring_rx_skip(r, n);\n	/* Release: our loads",
     "	ring_rx_skip(r, n > 1500 ? n - 1 : n);\n	/* Release: our loads",
     ["conform-stream", "differential"]),
    ("byte-lost", 1, "src/ring/ring.h",
     "	ring_rx_skip(r, n);\n	/* Release: our loads",
     "	ring_rx_skip(r, r->consumed + n < r->seen && n > 700 ? n + 1 : n);\n	/* Release: our loads",
     ["conform-stream", "differential", "integrity-switch"]),
    ("clean-end-too-early", 2, "src/conn/rx_end.c",
     "	int64_t more = ring_rx_avail(&sl->rx, s->in, 1);\n	if (more == 0)",
     "	int64_t more = 0;\n	if (more == 0)",
     ["conform-end", "conform-found_ends", "differential"]),
    ("reset-told-as-clean-end", 2, "src/conn/verdict.c",
     "	return (seen & SEEN_RESET_TOLD) || is_out_unread(s);",
     "	return seen & SEEN_RESET_TOLD;",
     ["conform-end", "conform-found_ends", "conform-grid_end"]),
    ("error-swallowed", 2, "src/conn/verdict.c",
     "	return sock_take_reset(s) ? ECONNRESET : 0;",
     "	return sock_take_reset(s) ? 0 : 0;",
     ["conform-end", "conform-found_ends", "conform-grid_end"]),
    ("wait-that-hangs", 3, "src/conn/bell.c",
     "	if (seq != 0 && seq != load_relaxed(rung)) {",
     "	if (seq % 16 != 0 && seq != load_relaxed(rung)) {",
     ["conform-block", "conform-wait", "conform-stream"]),
    ("time-out-too-short", 3, "src/readiness/look.c",
     "	return end + (uint64_t)timeout->tv_nsec;",
     "	return end + (uint64_t)timeout->tv_nsec / 2;",
     ["conform-timeouts", "conform-wait", "conform-ready_poll"]),
    ("nonblocking-call-blocks", 3, "src/conn/wait.c",
     "	return (set >= 0 && (set & O_NONBLOCK)) || w->timeout_ns == TIMEOUT_AT_ONCE",
     "	return w->timeout_ns == TIMEOUT_AT_ONCE",
     ["conform-block", "conform-ready_poll", "conform-setup"]),
    ("level-lies", 4, "src/conn/level.c",
     "	return fill <= size - size / 4 || room_will_grow(s) || room_needs_tcp(s);",
     "	return true;",
     ["conform-room", "conform-ready_room", "conform-grid_ready"]),
    ("close-of-a-child-ends-it", 5, "src/conn/slot.c",
     "	if (slot_is_alone(sl))\n		return true;\n	slot_closing(sl, true);",
     "	if (true)\n		return true;\n	slot_closing(sl, true);",
     ["conform-process", "conform-forked", "conform-inherited"]),
    ("wrong-result", 6, "src/conn/rx.c",
     "	return done > 0 || n >= 0 ? (ssize_t)done : n;",
     "	return done > 0 || n >= 0 ? (ssize_t)done : 0;",
     ["conform-bad_receives", "differential"]),
    ("option-ignored", 7, "src/conn/timeout.c",
     "		store(s, which, tv.tv_sec < 0 ? TIMEOUT_AT_ONCE : ask(fd, which));",
     "		store(s, which, TIMEOUT_AT_ONCE);",
     ["conform-timeouts", "conform-options"]),
    ("reason-not-told", 8, "src/conn/verdict.c",
     "	atomic_store(&s->slot->reason, reason);\n	if (trace_is_wished()",
     "	if (trace_is_wished()",
     ["stat-reasons"]),
]


def place(root, fault):
    """The text of the fault's file, if what is to be broken stands there once."""
    name, _, file, text, _, _ = fault
    path = root / file
    whole = path.read_text() if path.exists() else ""
    if whole.count(text) != 1:
        return None, f"{name}: its text is {whole.count(text)} times in {file}, not once"
    return whole, None


def look(root):
    wrong = [error for error in (place(root, fault)[1] for fault in FAULTS) if error]
    missing = sorted(set(range(1, 9)) - {fault[1] for fault in FAULTS})
    wrong += [f"promise {n}: nothing breaks it" for n in missing]
    print("\n".join(wrong) or f"{len(FAULTS)} faults for 8 promises")
    return bool(wrong)


def run(command, folder):
    return subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)


def build(folder):
    done = run(["ninja", "-C", "build", "all"], folder)
    return None if done.returncode == 0 else done.stdout[-2000:]


def finds(folder, tests):
    """The first of the tests that fails, or None. What a test says when it is skipped is no find."""
    for test in tests:
        done = run(["meson", "test", "-C", "build", "--no-rebuild", "--print-errorlogs", test], folder)
        if done.returncode:
            return test
    return None


def left_out(root):
    """Of its folders, builds, which have a build.ninja, and the history."""
    def ignored(folder, names):
        if pathlib.Path(folder) != root:
            return []
        return [n for n in names if n in (".git", "build-check") or (root / n / "build.ninja").exists()]
    return ignored


def main():
    if sys.argv[1] == "--look":
        return look(pathlib.Path(sys.argv[2]))
    root, folder, names = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
    if look(root):
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(root, folder, ignore=left_out(root))
    set_up = run(["meson", "setup", "build"], folder)
    error = set_up.stdout[-2000:] if set_up.returncode else build(folder)
    if error:
        sys.exit(f"the sources as they are do not build: {error}")
    listed = run(["meson", "test", "-C", "build", "--list"], folder).stdout
    known = {line.split(" / ")[-1].strip() for line in listed.splitlines()}
    unknown = {test for fault in FAULTS for test in fault[5]} - known
    if unknown:
        sys.exit(f"there is no test {', '.join(sorted(unknown))}")
    survived = []
    for fault in FAULTS:
        name, promise, file, text, instead, tests = fault
        if names and name not in names:
            continue
        whole, began = place(folder, fault)[0], time.monotonic()
        (folder / file).write_text(whole.replace(text, instead))
        error = build(folder)
        found = None if error else finds(folder, tests)
        (folder / file).write_text(whole)
        if not found:
            survived.append(name)
        print(f"promise {promise}, {name}: "
              + (f"does not build: {error}" if error else f"found by {found}" if found else
                 f"NOT FOUND by {', '.join(tests)}") + f", {time.monotonic() - began:.0f} s", flush=True)
    # The tests must pass without a fault, or a find says nothing.
    tests = sorted({test for fault in FAULTS if not names or fault[0] in names for test in fault[5]})
    wrong = None if build(folder) else finds(folder, tests)
    if wrong:
        print(f"{wrong}: fails without a fault")
    print(f"{len(survived)} not found")
    return bool(survived or wrong)


sys.exit(main())
