# SPDX-License-Identifier: Apache-2.0
"""What `viaduct report` executes: `python3 FOLDER RESULTS FOLDER can|must|never`.

Without arguments it says only whether the packages are there that it needs.
"""
import importlib.util
import logging
import os
import sys

SYSTEM = "/usr/bin/python3"  # with the distribution's packages, which another one may lack
PACKAGES = (("matplotlib", "python3-matplotlib"), ("jinja2", "python3-jinja2"))


def missing():
    """Looked for only: to import them takes a second, and bad input is said without it."""
    for module, package in PACKAGES:
        try:
            found = importlib.util.find_spec(module)
        except ImportError:
            found = None
        if not found:
            yield module, package


def main(args):
    os.environ.pop("MPLBACKEND", None)  # no window is opened
    logging.getLogger("matplotlib").setLevel(logging.CRITICAL)
    lacking = list(missing())
    if lacking:
        if os.path.realpath(sys.executable) != os.path.realpath(SYSTEM) and os.access(SYSTEM,
                                                                                      os.X_OK):
            os.execv(SYSTEM, [SYSTEM, "-B", os.path.dirname(os.path.abspath(__file__)), *args])
        print("viaduct report: the page is drawn in Python, which lacks "
              f"{' and '.join(m for m, _ in lacking)} (Debian: apt-get install "
              f"{' '.join(p for _, p in lacking)})", file=sys.stderr)
        return 1
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    report = importlib.import_module("report.main")
    return report.main(*args) if args else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
