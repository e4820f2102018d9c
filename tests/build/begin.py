#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The command lines of `demo` and `check`: what is no argument of theirs installs and builds nothing.

usage: begin.py SOURCE-ROOT
"""
import os
import shutil
import subprocess
import sys
import tempfile

TOO_MANY = {"demo": ["build", "more"], "check": ["build"]}


def wrong(tree, name):
    """What is wrong with one of the two, or None."""
    parent, folder = os.path.split(tree)
    for where, command, arguments, status in (
            (tree, f"./{name}", ["--help"], 0), (parent, f"{folder}/{name}", ["--help"], 0),
            (tree, f"./{name}", ["--nonsense"], 2), (tree, f"./{name}", TOO_MANY[name], 2)):
        run = subprocess.run([command, *arguments], cwd=where, capture_output=True, text=True,
                             check=False)
        said = run.stdout if status == 0 else run.stderr
        expected = f"usage: ./{name}" if status == 0 else f"See: {command} --help\n"
        if run.returncode != status or expected not in said or run.stdout and run.stderr:
            return f"{name} {arguments}: {run.returncode}\n{run.stdout}{run.stderr}"
        if sorted(os.listdir(tree)) != ["check", "demo", "scripts"]:
            return f"{name} {arguments} made {os.listdir(tree)}"
    return None


def main():
    root = sys.argv[1]
    with tempfile.TemporaryDirectory() as tree:
        os.mkdir(f"{tree}/scripts")
        for name in TOO_MANY:
            shutil.copy(f"{root}/{name}", tree)
        shutil.copy(f"{root}/scripts/begin.sh", f"{tree}/scripts")
        for name in TOO_MANY:
            what = wrong(tree, name)
            if what:
                print(what)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
