#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""clang's warnings, as errors, of each C file that a build folder compiles: without code, once for
each file and its own definitions. Files that are compiled alike are read by one process: to start it
takes longer than to read one.

usage: clang.py BUILD - prints what clang says; status 1 when that is something
"""
import collections
import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys

# gcc has names of its own for some warnings.
OURS = ["-fsyntax-only", "-Werror", "-Wno-unknown-warning-option"]
# What names an output; with its argument.
OUTPUTS = {"-o", "-MF", "-MQ"}
# One process reads no more, so that all processors have some.
TOGETHER = 24
# The same sources once more, which `ninja mechanisms` builds.
LEFT_OUT = "bench/mechanisms/"


def arguments(command):
    """Those of the compiler's that say how the file is to be read."""
    words = shlex.split(command)
    first = next(i for i, word in enumerate(words) if word.startswith("-"))
    kept, rest = [], iter(words[first:])
    for word in rest:
        if word in OUTPUTS:
            next(rest)
        elif word not in ("-MD", "-MMD", "-c"):
            kept.append(word)
    return kept


def is_needed(folder, word):
    """Each target has a folder of its own, which is seldom one of headers."""
    return not (word.startswith("-I") and word.endswith(".p")) or any(
        pathlib.Path(folder, word[2:]).glob("**/*.h"))


def chosen(build):
    """Folder, arguments and files; each file once for what is defined for it."""
    seen, found = set(), collections.defaultdict(list)
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        if not entry["file"].endswith(".c") or entry["output"].startswith(LEFT_OUT):
            continue
        folder, file = entry["directory"], entry["file"]
        words = [w for w in arguments(entry["command"]) if w != file and is_needed(folder, w)]
        key = file, frozenset(w for w in words if w.startswith(("-D", "-U")))
        if key not in seen:
            seen.add(key)
            found[folder, tuple(words)].append(file)
    return [(folder, words, files[i:i + TOGETHER])
            for (folder, words), files in found.items() for i in range(0, len(files), TOGETHER)]


def compiler(folder, words, file):
    """What clang executes itself for one file, but for its name: that takes several."""
    said = subprocess.run(["clang", "-###", *words, *OURS, file], cwd=folder, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=True).stdout
    command = shlex.split(said.splitlines()[-1])
    name = command.index("-main-file-name")
    if command[-1] != file:
        raise ValueError(f"clang -### does not end with {file}: {command}")
    return command[:name] + command[name + 2:-1]


def judge(some):
    folder, words, files = some
    done = subprocess.run([*compiler(folder, words, files[0]), *files], cwd=folder,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def main():
    groups = chosen(pathlib.Path(sys.argv[1]))
    count = sum(len(files) for _, _, files in groups)
    bad = False
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for status, said in pool.map(judge, groups):
            print(said, end="")
            bad |= status != 0
    print(f"clang: {count} files, {'some' if bad else 'none'} with warnings")
    return 1 if bad or not count else 0


if __name__ == "__main__":
    sys.exit(main())
