#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No folder of src/, nor bench/measure, includes or links one that it may not know: docs/architecture.md,
"The parts".

usage: layering.py SOURCE-ROOT ARCHIVE...

Checked are the includes of each file, what those include in turn, and what the objects of the
archives expect from each other. Inside src/ every include of ours names its folder. Within a folder
two files that expect something from each other are a pair: there may be no more of these than there
are. And the gates of a connection are moved by two files alone.
"""
import collections
import itertools
import pathlib
import re
import subprocess
import sys

# What a folder may know beside itself.
MAY = {
    "base": "",
    "settings": "base",
    "ring": "base",
    "rdma": "base",
    "rendezvous": "base ring",
    "daemon_client": "base",
    "conn": "base settings ring rendezvous",
    "remote": "base settings ring rdma daemon_client rendezvous conn",
    "readiness": "base settings ring rendezvous conn",
    "preload": "base settings ring rendezvous conn readiness remote",
    "native": "base ring conn preload",
    "musl": "base settings ring rendezvous conn readiness remote preload",
    "rpc": "",
    "start": "",
    "daemon": "base settings rendezvous daemon_client",
    "tool": "base settings",
    "measure": "base settings tool",
}
MAY = {folder: {folder, *names.split()} for folder, names in MAY.items()}
# Single files that a folder may include, beside those: the door to the engine; what processes
# expose to who looks at them; the ways to ask viaductd and a device; and how a device
# is found, for raw verbs.
ALSO = {
    "native": {"viaduct/viaduct.h"},
    "rpc": {"preload/door.h", "base/atomic.h", "base/call_count.h", "base/copy.h", "base/reason.h",
            "base/uncontended.h"},
    "start": {"preload/door.h"},
    "measure": {"rdma/verbs_lib.h"},
    "tool": {"conn/slot.h", "conn/table.h", "conn/trace_buffer.h", "daemon_client/caller.h",
             "rdma/verbs.h", "remote/crossover.h", "remote/learnt.h"},
}
# Pairs of files that expect something from each other, by folder; in all others of the engine there is
# none. To be lowered with them.
PAIRS = {"rdma": 4, "remote": 14, "readiness": 7}
# Where pairs are not counted.
NO_ENGINE = {"tool", "measure"}
# A header that is for these files alone.
PRIVATE = {"conn/gate_move.h": {"conn/switch_rx.c", "conn/switch_tx.c"}}
# What these include is theirs: who has them need not know it.
OPAQUE = {name for names in ALSO.values() for name in names}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)


def includes(root):
    """File -> the files that it includes, both from src/ or bench/."""
    return {str(path.relative_to(root / top)): INCLUDE.findall(path.read_text())
            for top, under in (("src", "."), ("bench", "measure"))
            for path in sorted((root / top / under).rglob("*.[ch]"))}


def place(file):
    return ("bench/" if file.startswith("measure/") else "src/") + file


def reached(graph, start):
    """Yields (by whom, what) for all that is included by start, in the end."""
    seen, todo = set(), [start]
    while todo:
        at = todo.pop()
        for name in graph.get(at, ()):
            yield at, name
            if name not in seen and name not in OPAQUE:
                seen.add(name)
                todo.append(name)


def wrong_includes(root):
    graph = includes(root)
    for file in graph:
        folder = file.split("/")[0]
        for by, name in reached(graph, file):
            where = f'{place(file)} includes "{name}"' + (f", in {place(by)}" if by != file else "")
            if name in ALSO.get(folder, ()):
                continue
            if name not in graph:
                if by == file:
                    yield f"{where}: give the path from {place(file)[:-len(file)]}"
            elif name.split("/")[0] not in MAY[folder]:
                yield f"{where}: {folder} may know {' '.join(sorted(MAY[folder]))}"


def wrong_private(root):
    for file, names in includes(root).items():
        for name in names:
            if file not in PRIVATE.get(name, {file}):
                yield f'src/{file} includes "{name}": that is for {" ".join(sorted(PRIVATE[name]))}'


def source_of(object_file):
    """src_daemon_client_local.c.o -> (daemon_client, local.c); those of bench/measure are alone in their
    archive, and have no folder in their names. None: no folder of ours."""
    match = re.match(r"src_(" + "|".join(sorted(MAY, key=len, reverse=True)) + r")_(.+)\.o$",
                     object_file)
    return match and match.groups()


def symbols(archives):
    """Two tables, symbol -> (folder, file): who has it, who expects it."""
    has, expects = collections.defaultdict(set), collections.defaultdict(set)
    for archive in archives:
        out = subprocess.run(["nm", "-A", archive], check=True, stdout=subprocess.PIPE,
                             text=True).stdout
        for line in out.splitlines():
            match = re.search(r"([^/:]+\.o):[0-9a-f ]* ([A-Za-z]) (\S+)$", line)
            alone = match and archive.endswith("libviaduct-measure.a")
            source = ("measure", match.group(1)) if alone else match and source_of(match.group(1))
            if source and match.group(2) in "UwTDBRCV":
                (expects if match.group(2) in "Uw" else has)[match.group(3)].add(source)
    return has, expects


def folders(sources):
    return {folder for folder, _ in sources}


def wrong_pairs(has, expects):
    """The pairs of a folder that has more of them than it may."""
    from_to = collections.defaultdict(set)
    for symbol, users in expects.items():
        for user, owner in itertools.product(users, has[symbol]):
            if user != owner and user[0] == owner[0] and user[0] not in NO_ENGINE:
                from_to[user, owner].add(symbol)
    pairs = collections.defaultdict(list)
    for one, other in sorted(from_to):
        if one < other and (other, one) in from_to:
            pairs[one[0]].append((one, other))
    for folder, found in pairs.items():
        most = PAIRS.get(folder, 0)
        if len(found) <= most:
            continue
        yield f"{folder}: {len(found)} pairs of files, more than {most}:"
        for one, other in found:
            for a, b in (one, other), (other, one):
                yield f"  {a[1]} expects of {b[1]}: {' '.join(sorted(from_to[a, b]))}"


def wrong_links(has, expects):
    if not has["appended_open"] or len(expects) < 500:
        yield "nm: the objects of the archives cannot be read"
    has = {symbol: folders(sources) for symbol, sources in has.items()}
    for symbol, users in sorted(expects.items()):
        for folder in sorted(folders(users)):
            allowed = MAY[folder] | {name.split("/")[0] for name in ALSO.get(folder, ())}
            if has.get(symbol) and not has[symbol] & allowed:
                yield f"{folder} links {symbol} of {' '.join(has[symbol])}"


def main():
    root = pathlib.Path(sys.argv[1])
    has, expects = symbols(sys.argv[2:])
    found = [*wrong_includes(root), *wrong_private(root), *wrong_links(has, expects),
             *wrong_pairs(has, expects)]
    print("\n".join(found) or "layers are in order")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
