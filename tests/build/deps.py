#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/deps.sh where one package does not exist, and scripts/tally.py where a build has failed.

usage: deps.py SOURCE-ROOT
"""
import json
import os
import subprocess
import sys
import tempfile

# Stand before the machine's own in PATH. Nothing is installed, and nothing is written.
COMMANDS = {
    "id": "echo 1000",
    "python3": '[ ! -e "$ASKED" ] || echo 9.99',
    "dpkg-query": "exit 1",
    "apt-get": "exit 1",
    "apt-cache": """
shift
for package; do
    [ $package = libpython9.99-testsuite ] || [ $package = libpython-testsuite ] ||
        printf '%s:\\n  Installed: (none)\\n  Candidate: 1.0-1\\n' $package
done""",
    "sudo": """
case "$*" in *apt-get*) echo "$@" >>"$ASKED" ;; *tee*) cat >/dev/null ;; esac""",
}


def deps(root, folder):
    """What is wrong with the packages that are asked for, before and after Python is there; or None."""
    for name, body in COMMANDS.items():
        with open(f"{folder}/{name}", "w", encoding="utf-8") as script:
            script.write(f"#!/bin/sh\n{body}\n")
            os.fchmod(script.fileno(), 0o755)
    asked = f"{folder}/asked"
    path = f"{folder}:{os.environ['PATH']}"
    for version in "", "9.99":
        run = subprocess.run([f"{root}/scripts/deps.sh", "check"], capture_output=True, text=True,
                             check=False, env={**os.environ, "ASKED": asked, "PATH": path})
        with open(asked, encoding="utf-8") as file:
            installs = file.read().splitlines()[-1].split()
        none = f"libpython{version}-testsuite"
        if (run.returncode != 1 or "busybox-static" not in installs or none in installs
                or f"for 'check': {none}\n" not in run.stderr):
            return f"deps.sh ended with {run.returncode}: {installs}\n{run.stdout}{run.stderr}"
    return None


def tally(root, folder):
    """What is wrong with the last line; or None."""
    with open(f"{folder}/sanitized.json", "w", encoding="utf-8") as log:
        log.write(json.dumps({"name": "a", "result": "OK"}) + "\n")
    with open(f"{folder}/steps", "w", encoding="utf-8") as steps:
        steps.write("failed build with gcc\nok build with sanitized\n")
    run = subprocess.run([sys.executable, f"{root}/scripts/tally.py", folder],
                         capture_output=True, text=True, check=False)
    last = run.stdout.splitlines()[-1]
    if run.returncode != 1 or last != ("2 passed, 1 failed, 0 skipped; the build with gcc failed, "
                                       "and its tests did not run"):
        return f"tally.py ended with {run.returncode}: {last}"
    return None


def main():
    for test in deps, tally:
        with tempfile.TemporaryDirectory() as folder:
            wrong = test(sys.argv[1], folder)
        if wrong:
            print(wrong)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
