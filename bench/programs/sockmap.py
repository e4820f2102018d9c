# SPDX-License-Identifier: Apache-2.0
"""The contender eBPF sockmap: a cgroup whose TCP sockets send to each other past TCP."""
import contextlib
import os
import pathlib
import shutil
import subprocess

SOURCE = pathlib.Path(__file__).with_name("sockmap.c")


def cgroup_root():
    """Where cgroup v2 is mounted."""
    with open("/proc/self/mounts") as f:
        for line in f:
            words = line.split()
            if words[2] == "cgroup2":
                return pathlib.Path(words[1])
    return None


class Sockmap:
    """The loader, which holds everything: at its end nothing stays attached."""

    def __init__(self):
        self.loader = None
        self.cgroup = None
        self.why_not = "not asked for"

    @property
    def ready(self):
        return self.loader is not None

    def start(self, folder):
        """Otherwise why_not says why."""
        if os.geteuid():
            self.why_not = "needs root"
            return
        compiler, root = shutil.which("cc"), cgroup_root()
        if not compiler or not root:
            self.why_not = "needs a C compiler" if root else "needs cgroup v2"
            return
        program = pathlib.Path(folder, "sockmap")
        made = subprocess.run([compiler, "-O2", "-o", program, SOURCE], check=False,
                              stderr=subprocess.PIPE, text=True)
        if made.returncode:
            self.why_not = f"its loader does not compile: {made.stderr.strip()[:200]}"
            return
        self.cgroup = root / f"viaduct-apps.{os.getpid()}"
        loader = subprocess.Popen([program, self.cgroup], stdin=subprocess.PIPE, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if loader.stdout.readline() != "ready\n":
            self.why_not = (loader.communicate()[1].strip().splitlines() or ["?"])[-1]
            return
        self.loader = loader

    def prefix(self):
        """Enters the cgroup, then becomes the command that follows."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', f"{self.cgroup}/cgroup.procs"]

    def redirected_bytes(self):
        self.loader.stdin.write("\n")
        self.loader.stdin.flush()
        return int(self.loader.stdout.readline())

    @contextlib.contextmanager
    def running(self, folder, wanted):
        """The servers in the cgroup must have ended before it is left."""
        if wanted:
            self.start(folder)
        try:
            yield self
        finally:
            if self.loader:
                self.loader.communicate()
                self.loader = None
