#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The command lines of `demo` and `check`: what is no argument of theirs installs and builds nothing, and
a folder that cannot be written to is named.

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


def closed(tree, name):
    """What is wrong where another user owns the build folder; or None."""
    folder = f"{tree}/{'build-check' if name == 'check' else 'build'}"
    os.mkdir(folder, 0o555)
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] \
        if os.geteuid() == 0 else []
    run = subprocess.run([*user, f"./{name}"], cwd=tree, capture_output=True, text=True, check=False)
    os.rmdir(folder)
    lines = run.stderr.splitlines()
    if run.returncode != 1 or run.stdout or len(lines) != 2 or "may not write to" not in lines[0] \
            or any(not line.startswith(f"{name}: ") for line in lines):
        return f"{name}, with a folder of another user: {run.returncode}\n{run.stdout}{run.stderr}"
    return None


def main():
    root = sys.argv[1]
    with tempfile.TemporaryDirectory() as tree:
        os.chmod(tree, 0o755)
        os.mkdir(f"{tree}/scripts")
        for name in TOO_MANY:
            shutil.copy(f"{root}/{name}", tree)
        shutil.copy(f"{root}/scripts/begin.sh", f"{tree}/scripts")
        for name in TOO_MANY:
            what = wrong(tree, name) or closed(tree, name)
            if what:
                print(what)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
