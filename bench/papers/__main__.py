# SPDX-License-Identifier: Apache-2.0
"""What `viaduct papers` executes: `python3 FOLDER VIADUCT [OPTION]...`."""
import argparse
import importlib
import os
import signal
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
SYSTEM = "/usr/bin/python3"  # with the distribution's packages, which another one may lack
PACKAGES = (("matplotlib", "python3-matplotlib"), ("jinja2", "python3-jinja2"))
HELP = """usage: viaduct papers [OPTION...]

Runs the experiments of the five papers behind Viaduct on this machine, and
between two guests of QEMU, and writes one page: the paper's figures, ours
beside, and why they differ.

  --quick        short measurements: ten quiet minutes (all: two hours)
  --smallest     one repetition of each row's smallest form: that it works
  --only LIST    of sovia, vmmc2, shah, wsdlite, scilan (or rows by their names;
                 hosts: all rows between two guests)
  -o, --out DIR  the folder to write (default viaduct-papers)
  --resume       goes on with what is in the folder; what was measured stays
  --list         lists the rows, and measures nothing
  --help         print this

DIR/papers.html is the page, DIR/papers.jsonl has a line of JSON for each row.
Exit status: 0; 1 when a row failed or nothing could be written; 2 for a wrong
command line. A row that cannot be run here says why. See viaduct-papers(1).
"""


class Parser(argparse.ArgumentParser):
    def error(self, message):
        wrong(message)


def wrong(message):
    line = "".join(c if c.isprintable() else "?" for c in message)
    print(f"viaduct papers: {line}\nusage: see `viaduct papers --help`", file=sys.stderr)
    sys.exit(2)


def failed(message):
    print(f"viaduct papers: {message}", file=sys.stderr)
    return 1


def parse(args):
    p = Parser(add_help=False, allow_abbrev=False)
    p.add_argument("--help", "-h", action="store_true")
    for name in ("--quick", "--smallest", "--resume", "--list"):
        p.add_argument(name, action="store_true")
    p.add_argument("--only")
    p.add_argument("--out", "-o", default="viaduct-papers")
    options = p.parse_args(args)
    if options.quick and options.smallest:
        wrong("--quick and --smallest are two lengths: give one")
    if not options.out:
        wrong("--out takes the name of a folder: ``")
    return options


def missing():
    for module, package in PACKAGES:
        try:
            importlib.import_module(module)
        except ImportError:
            yield module, package


def chosen(rows, papers, only):
    """Those of the list; all without one."""
    wanted = [w for w in (only or "").split(",") if w]
    if only is not None and not wanted:
        wrong("--only: names no paper and no row; see `viaduct papers --list`")
    for w in wanted:
        if w != "hosts" and w not in papers and w not in [r.name for r in rows]:
            wrong(f"--only: there is no paper and no row `{w}`; see `viaduct papers --list`")
    return [r for r in rows if not wanted or r.name in wanted or r.paper in wanted or
            (r.between and "hosts" in wanted)]


def measure(rows, viaduct, options, level):
    run, page = (importlib.import_module(f"papers.{m}") for m in ("run", "page"))
    path = os.path.join(options.out, run.NAME)
    if os.path.exists(path) and not options.resume:
        return failed(f"{path} is there: --resume goes on with it, or name another folder")
    try:
        os.makedirs(options.out, exist_ok=True)
        results = run.Results(options.out, options.resume, level)
        good = False
        try:
            good = run.run(rows, results, viaduct, level)
        finally:  # also of a run that was ended: the page has what is there
            page.write(options.out, results)
        print(f"{options.out}/papers.html: open it in a browser")
        return 0 if good else 1
    except (OSError, ValueError) as e:
        return failed(f"{options.out}: {getattr(e, 'strerror', None) or e}")


def main(args):
    viaduct, options = args[0], parse(args[1:])
    if options.help:
        print(HELP, end="")
        return 0
    os.environ.pop("MPLBACKEND", None)  # no window is opened
    lacking = [] if options.list else list(missing())
    if lacking:
        if os.path.realpath(sys.executable) != os.path.realpath(SYSTEM) and os.access(SYSTEM,
                                                                                      os.X_OK):
            os.execv(SYSTEM, [SYSTEM, "-B", FOLDER, *args])
        return failed(f"the page is drawn in Python, which lacks "
                      f"{' and '.join(m for m, _ in lacking)} (Debian: apt-get install "
                      f"{' '.join(p for _, p in lacking)})")
    sys.path.insert(0, os.path.dirname(FOLDER))
    table, row = importlib.import_module("papers.table"), importlib.import_module("papers.row")
    rows = chosen(table.ROWS, row.PAPERS, options.only)
    if options.list:
        for r in rows:
            print(f"{r.name:<22} {r.what}")
        return 0
    level = row.QUICK if options.quick else row.SMALLEST if options.smallest else row.WHOLE
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return measure(rows, viaduct, options, level)
    except KeyboardInterrupt:
        return 130


def whole(args):
    """main(), and whether all that it has printed is written."""
    status = None
    try:
        status = main(args)
        sys.stdout.flush()
    except BrokenPipeError:
        os._exit(status or 1)
    except OSError as e:
        failed(f"standard output cannot be written: {e.strerror}")
        os._exit(status or 1)  # not tried once more
    return status


if __name__ == "__main__":
    sys.exit(whole(sys.argv[1:]))
