# SPDX-License-Identifier: Apache-2.0
"""Writes the page and the plots into a folder; `viaduct report` has read the command line."""
import os
import sys
import warnings

from .load import Refused, load


class Failed(Exception):
    """The message says what could not be written."""


def say(text):
    """One line, whatever the values are that it repeats."""
    line = "".join(c if c.isprintable() else "?" for c in text)
    sys.stderr.write(f"viaduct report: {line}\n".encode("utf-8", "replace").decode())


def write(path, text):
    try:
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
    except OSError as e:
        raise Failed(f"cannot write {path}: {e.strerror}") from e


def write_pngs(folder, album, must):
    tail = "" if must else "; the SVG and the page are complete"
    for picture in album:
        path = os.path.join(folder, f"{picture.name}.png")
        try:
            picture.png(path)
        except (OSError, ValueError, MemoryError) as e:
            what = f"no PNG: cannot write {path}: {getattr(e, 'strerror', None) or e}{tail}"
            if must:
                raise Failed(what) from e
            say(what)
            return


def report(results, folder, png):
    figures = load(results)
    from .page import page
    from .plots import pictures
    album = pictures(figures)
    try:
        os.mkdir(folder)
    except FileExistsError:
        pass
    except OSError as e:
        raise Failed(f"cannot make the folder {folder}: {e.strerror}") from e
    for picture in album:
        write(os.path.join(folder, f"{picture.name}.svg"),
              '<?xml version="1.0" encoding="UTF-8"?>\n' + picture.svg(True))
    write(os.path.join(folder, "report.html"), page(figures, album))
    if png != "never":
        write_pngs(folder, album, png == "must")
    many = "" if len(album) == 1 else "s"
    print(f"{folder}/report.html: {len(album)} plot{many}; open it in a browser")


def main(results, folder, png):
    warnings.simplefilter("ignore")  # letters that no font has
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        report(results, folder, png)
    except (Refused, Failed) as e:
        say(str(e))
        return 1
    except ImportError as e:
        say(f"a package that draws the page cannot be used: {e}")
        return 1
    return 0
