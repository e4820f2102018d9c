# SPDX-License-Identifier: Apache-2.0
"""For tests of a drawn page: they are skipped where Debian's packages for it are missing."""
import subprocess
import sys
import unittest

FINDS = """import importlib.util, sys
print(*(name for name in ("matplotlib", "jinja2") if not importlib.util.find_spec(name)))
"""
LACKING = subprocess.run(["/usr/bin/python3", "-c", FINDS], capture_output=True, text=True,
                         check=True).stdout.split()
WHY = f"Python lacks {' and '.join(LACKING)}"

drawn = unittest.skipIf(LACKING, WHY)


def drawn_or_skipped():
    """Of a test program that needs it all along."""
    if LACKING:
        print(f"skipped: {WHY}")
        sys.exit(77)
