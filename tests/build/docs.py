#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The manual names every option, variable and reason there is; what documents link to is there."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

# From one image of a process to the next: not for users to set.
PRIVATE = {"VIADUCT_CARRY", "VIADUCT_KEPT", "VIADUCT_START_PROGRAM"}


def plain(roff):
    """The words of a manual page."""
    text = re.sub(r"^\.(IP|PP|TP|SS|SH|I|B|BR|RB|IR|RI)\b *", "", roff, flags=re.M)
    for escape, means in ((r"\%", ""), (r"\&", ""), (r"\-", "-"), (r"\(ga", "`"),
                          (r"\(cq", "'"), (r"\(aq", "'"), (r"\(dq", '"')):
        text = text.replace(escape, means)
    return " ".join(text.split())


def missing_reasons(root):
    """What viaduct-reasons(7) lacks: each reason's sentence and remedy as the programs say
    them, and a line of the log or of the report where there can be one."""
    header = (root / "src/base/reason.h").read_text().replace("\\\n", "")
    page = (root / "man/viaduct-reasons.7").read_text()
    parts = {plain(name): plain(rest) for name, rest in
             re.findall(r"^\.TP\n\.B (\S+)\n(.*?)(?=^\.TP|^\.SS|^\.SH)", page, re.M | re.S)}
    reasons = re.findall(r'X\(\d+, \w+,\s*"([^"]+)",\s*"([^"]+)",\s*"([^"]+)"\)', header)
    for name, text, remedy in reasons:
        part = parts.pop(name, None)
        if part is None:
            yield name
            continue
        if not part.startswith(f"{text[0].upper()}{text[1:]}."):
            yield f"{name}: its sentence"
        if f"Remedy: {remedy}." not in part:
            yield f"{name}: its remedy"
        if " Log: " in part and f"{name} ({text})" not in part.split(" Log: ")[1]:
            yield f"{name}: its line of the log"
    yield from (f"{name}: there is no such reason" for name in parts)
    if len(reasons) < 30:
        yield "the reasons of src/base/reason.h cannot be read"


def missing_pages(root):
    """Each command has its page and its place in the overview; each page is installed, and
    groff, where it is there, has nothing to say about it."""
    table = (root / "src/tool/main.c").read_text()
    overview = (root / "man/viaduct.1").read_text()
    installed = (root / "meson.build").read_text()
    for name in re.findall(r'\{"([a-z]+)", cmd_', table):
        if not (root / f"man/viaduct-{name}.1").exists():
            yield f"man: viaduct-{name}.1"
        if f"\n.B {name}\n" not in overview:
            yield f"man/viaduct.1: {name}"
    for page in sorted((root / "man").iterdir()):
        if f"'man/{page.name}'" not in installed:
            yield f"meson.build: man/{page.name}"
        if "\n.SH EXAMPLES\n" not in page.read_text():
            yield f"man/{page.name}: EXAMPLES"
        if shutil.which("groff"):
            said = subprocess.run(["groff", "-t", "-man", "-Tutf8", "-ww", "-z", page],
                                  stderr=subprocess.PIPE, text=True, check=False).stderr
            yield from (f"groff's mind: {line}" for line in said.splitlines())


def missing_relay(root):
    """viaductd(8) has each option and each setting."""
    page = (root / "man/viaductd.8").read_text().replace("\\-", "-")
    options = re.findall(r'\{"([a-z-]+)", (?:no|required)_argument',
                         (root / "src/daemon/main.c").read_text())
    settings = re.findall(r'\[SET_\w+\] =\s*\{"([a-z-]+)",',
                          (root / "src/daemon/settings.c").read_text())
    yield from (f"--{o}" for o in options if f"--{o}" not in page)
    yield from (s for s in settings if not re.search(rf"^\.BI? {s}\b", page, re.M))
    if len(options) < 6 or len(settings) < 8:
        yield "the tables of src/daemon cannot be read"


def pages(root):
    """The documents that are no manual."""
    return [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").glob("*.md"))]


def missing_files(root):
    """A file of the sources that a page names in backquotes, with or without its folder, is there.
    A page may make files of its own, which its blocks name. `sys/` is the system's."""
    there = {"/" + str(path.relative_to(root)) for top in ("src", "tests", "include", "bench",
             "models", "scripts", "demo") for path in (root / top).rglob("*.*")}
    seen = 0
    for page in pages(root):
        text = page.read_text()
        blocks = "\n".join(re.findall(r"^(?:    [^\n]*|```.*?^```)$", text, re.M | re.S))
        prose = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
        for name in re.findall(r"`([\w./-]+\.(?:c|h|py|sh|map))`", prose):
            seen += 1
            found = any(path.endswith("/" + name) for path in there)
            if not found and "NAME" not in name and name not in blocks \
                    and not name.startswith("sys/"):
                yield f"{page.relative_to(root)}: the file {name}, which it names"
    if seen < 50:
        yield "the names of files in docs cannot be read"


def headings(page):
    """The names by which links lead to them."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    return {re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-")
            for line in re.findall(r"^#+ (.*)$", prose, re.M)}


def missing_links(root):
    """What the pages link to is there, with the heading. The README is one page and a half,
    it is one."""
    for page in pages(root):
        for link, heading in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text()):
            to = page.parent / link if link else page
            if not to.exists():
                yield f"{page.relative_to(root)}: the link to {link}"
            elif heading and heading not in headings(to):
                yield f"{page.relative_to(root)}: the heading of the link to {link}#{heading}"
    words = len((root / "README.md").read_text().split())
    if words > 700:
        yield f"README.md: room, since it has {words} words, and 700 are enough"


def missing_promises(root):
    """The contract is one page, and each test that it names is there. What users read before they
    start is short."""
    contract = (root / "docs/contract.md").read_text()
    words, limits = (len((root / "docs" / name).read_text().split())
                     for name in ("contract.md", "limits.md"))
    if not 300 <= words <= 500:
        yield f"docs/contract.md: a length of 300 to 500 words, it has {words}"
    if limits > 1200:
        yield f"docs/limits.md: brevity, since it has {limits} words, and 1200 are enough"
    built = "\n".join(path.read_text() for path in root.glob("tests/**/meson.build"))
    built += (root / "models/meson.build").read_text()
    rows = re.findall(r"^\| \d \| (.*?) \| (.*) \|$", contract, re.M)
    for promise, tests in rows:
        named = re.findall(r"(suite )?`([\w-]+)`", tests)
        if not named:
            yield f"docs/contract.md: a test of {promise}"
        for suite, name in named:
            group = name.rpartition("-")[2] if name.startswith("conform-") else None
            if (f"suite: '{name}'" if suite else f"'{group or name}'") not in built:
                yield f"docs/contract.md: the test {name}, which it names"
    if len(rows) != 8:
        yield "docs/contract.md: its table of eight promises"
    # SECURITY.md: promise, against whom, tests.
    rows = re.findall(r"^\| (.*\.) \| .*? \| (.*) \|$", (root / "SECURITY.md").read_text(), re.M)
    for promise, tests in rows:
        named = re.findall(r"(suite )?`([\w-]+)`", tests)
        missing = [n for suite, n in named
                   if (f"suite: '{n}'" if suite else f"'{n}'") not in built]
        if not named or missing:
            yield f"SECURITY.md: tests of `{promise}`: {', '.join(missing)}"
    if len(rows) < 10:
        yield "SECURITY.md: its table of promises"


def missing_tasks(root):
    """The unit has room for viaductd and for each child that it may have: else a few users' children
    that hang are all there can be."""
    header = (root / "src/daemon/daemon.h").read_text()
    children = sum(int(re.search(rf"\b{name} =\s*(\d+)", header)[1])
                   for name in ("RELAY_NEAR_CHILDREN", "RELAY_CLOSER_CHILDREN"))
    unit = (root / "packaging/systemd/viaductd.service").read_text()
    least = 1 + children + len(re.findall(r"= fork\(\)", "".join(
        (root / "src/daemon" / name).read_text() for name in ("translate.c", "translate_child.c"))))
    if int(re.search(r"^TasksMax=(\d+)$", unit, re.M)[1]) < least:
        yield f"packaging/systemd/viaductd.service: TasksMax={least}, for viaductd and its children"


def missing_in_package(root):
    """The package has the README, and what its pages link to, where the links lead."""
    packed = (root / "debian/viaduct.docs").read_text().split()
    there = set(packed) | {line.split("/doc/viaduct/")[-1] for line in
                           (root / "debian/viaduct.links").read_text().splitlines()}
    if not {"README.md", "docs"} <= there:
        yield "debian/viaduct.docs: README.md, docs"
    for page in pages(root):
        for link in re.findall(r"\]\(([^)#:]+)", page.read_text()):
            to = os.path.relpath(page.parent / link, root)
            if to.split("/")[0] not in there:
                yield f"debian/viaduct.docs: {to}, to which {page.relative_to(root)} links"


def main():
    root = pathlib.Path(sys.argv[1])
    manual = (root / "man/viaduct-run.1").read_text().replace("\\-", "-")
    # The table of all settings, and what the command line has beside it.
    row = re.compile(r'\{"([a-z-]+)",\s*"(VIADUCT\w*)",')
    values = (root / "src/settings/value.c").read_text()
    names = row.findall(values)
    own = row.findall((root / "src/tool/setting.c").read_text())
    options = [n for n, _ in names + own if n != "viaduct"] + ["tcp-anyway"]
    variables = {v for _, v in names + own}
    used = {name for path in (root / "src").rglob("*.c")
            for name in re.findall(r'"(VIADUCT_[A-Z_]+)"', path.read_text())}
    reasons = re.findall(r'X\(\d+, \w+,\s*(?:\\\s*)?"([a-z_-]+)"',
                         (root / "src/base/reason.h").read_text())
    # What a file may set, in the manual of the file.
    profiles = re.findall(r'\{"([a-z]+)",\s*\{\.', values)
    conf = (root / "man/viaduct.conf.5").read_text().replace("\\-", "-")
    missing = [f"man/viaduct.conf.5: {n.strip()}" for name, variable in names
               for n in (f".B {name}\n", f".BR {variable} ") if n not in conf]
    missing += [f"man/viaduct.conf.5: profile {p}" for p in profiles
                if not re.search(rf"^{p}\t", conf, re.M)]
    if len(names) < 9 or len(own) < 4 or len(profiles) < 5:
        missing.append("src/settings/value.c: its tables")
    missing += [f"man/viaduct-run.1: --{o}" for o in options if f"--{o}" not in manual]
    missing += [f"man/viaduct-run.1: {v}" for v in sorted(variables) if v not in manual]
    missing += missing_links(root)
    missing += missing_files(root)
    missing += missing_promises(root)
    missing += missing_tasks(root)
    missing += [f"man/viaduct-run.1: the reason {r}" for r in reasons
                if r != "none" and f"\n.B {r}\n" not in manual]
    missing += [f"man/viaduct-reasons.7: {m}" for m in missing_reasons(root)]
    missing += missing_pages(root)
    missing += missing_in_package(root)
    missing += [f"man/viaductd.8: {m}" for m in missing_relay(root)]
    overview = (root / "man/viaduct.1").read_text()
    missing += [f"man/viaduct.1: {v}" for v in sorted({"VIADUCT"} | (used - PRIVATE))
                if f"\n.B {v}\n" not in overview]
    missing += [f"viaduct run sets no {v}" for v in sorted(used - variables - PRIVATE)]
    print("\n".join(f"missing in {m}" if ":" in m else m for m in missing) or
          f"{len(options)} options and {len(reasons)} reasons are documented")
    return 1 if missing or len(options) < 8 or len(reasons) < 30 else 0


if __name__ == "__main__":
    sys.exit(main())
