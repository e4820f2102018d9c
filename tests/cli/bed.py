# SPDX-License-Identifier: Apache-2.0
"""What tests of programs under Viaduct begin with: a folder, and an environment that knows no Viaduct."""
import os
import pathlib
import subprocess
import tempfile
import unittest


class Bed(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tmp = pathlib.Path(folder.name)
        self.tmp.chmod(0o755)  # tests run programs of other users there
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith("VIADUCT") and k != "LD_PRELOAD"}

    def without_proc(self, *words):
        """The command where /proc is not mounted; the test is skipped where it cannot be taken away."""
        bare = ["unshare", "-m", "sh", "-c", 'umount -l /proc && exec "$@"', "sh"]
        if os.geteuid() or subprocess.run([*bare, "true"], check=False,
                                          stderr=subprocess.DEVNULL).returncode:
            self.skipTest("/proc cannot be taken away here")
        return subprocess.run([*bare, *words], env=self.env, capture_output=True, check=False)
