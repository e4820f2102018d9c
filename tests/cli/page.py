#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gives bench/report figures that are changed at random, which may be anybody's: it makes the page
or refuses them by name, and no words of the file's are markup.

usage: page.py BENCH [SEED [COUNT]]
"""
import copy
import json
import os
import pathlib
import random
import sys
import tempfile
import warnings
import xml.etree.ElementTree as ElementTree

from drawn import drawn_or_skipped

SYSTEM = "/usr/bin/python3"  # with the distribution's packages, which another one may lack
drawn_or_skipped()
try:
    import jinja2  # noqa: F401
    import matplotlib  # noqa: F401
except ImportError:
    if os.path.realpath(sys.executable) == os.path.realpath(SYSTEM):
        raise
    os.execv(SYSTEM, [SYSTEM, "-B", *sys.argv])

sys.path.insert(0, sys.argv[1])
from report import load, page, plots  # noqa: E402

SPREAD = {"median": 2.5, "min": 2, "max": 3}
LOGP = ("half_rtt_ns", "latency_ns", "send_ns", "recv_ns", "gap_ns", "gap_ns_per_byte")
RESULTS = [{"over": "tcp", "ops_per_s": SPREAD, "errors": ["x"]},
           {"over": "viaduct", "ops_per_s": SPREAD, "ratio": SPREAD, "cpu_ns_per_op": 500,
            "ratio_samples": [0.8, 0.9, 0.7], "direct_bytes": 7, "tcp_bytes": 1, "spin": "50us",
            "reasons": {"off": 3}, "ops_per_cpu_s": SPREAD, "logp": dict.fromkeys(LOGP, SPREAD)},
           {"over": "unix", "ops_per_s": SPREAD, "ratio": SPREAD},
           {"over": "floor", "ops_per_s": SPREAD}]


def row(pattern, size, conns=1, **more):
    return {"pattern": pattern, "size_bytes": size, "conns": conns, **more, "results": RESULTS}


DOCUMENTS = [
    {"format": 1, "schema": 1, "kind": "patterns", "viaduct": "0.1.0", "started": "2026",
     "machine": {"kernel": "6.1", "cpu": "A <cpu> & more", "cpus": 8, "load": "0.1",
                 "memory_bytes": 8 << 30},
     "floor": {"line_ns": 70, "ring_rtt_64_ns": 110, "ring_64_per_s": 6e7,
               "ring_16k_bytes_per_s": 6e10},
     "run": {"pairs": 5, "time_s": 0.5, "placement": "two", "busy": 2, "congestion": "cubic",
             "cpus": [1, 0], "peers": [{"over": "ucx", "program": "p", "package": "q",
                                        "found": False}]},
     "rows": [row("rtt", 64, line_ns=90), row("rtt", 4096),
              row("rtt", 64, busy=2, load="busy"), row("crr", 64)]},
    {"kind": "patterns",
     "rows": [row("stream", 64, 100, bytes_per_op=64, active=10), row("stream", 64, 10),
              row("think", 64, think_us=100, unit="round trip"),
              row("logp", 64, busy=6, load="busy-6"), row("setup", 64)]},
    {"run": {"matrix": True, "placement": "one"},
     "rows": [row("rtt", 64, placement="one", load="busy", busy=6),
              row("stream", 65536, 4, placement="sockets")]},
    {"kind": "programs", "sentence": "<b>3 times</b>", "server": ["a b", "c"],
     "client": ["redis-benchmark", "-q"], "pairs": 3, "ratio": SPREAD,
     "plain": {"elapsed_s": SPREAD, "client_cpu_s": SPREAD},
     "under_viaduct": {"elapsed_s": SPREAD, "server_cpu_s": SPREAD},
     "connections": 5, "upgraded": 4, "direct_bytes": 1e9, "tcp_bytes": 7},
]
NUMBERS = (0, 1, -1, 2, 63, 64, 1e9, 1e300, -1e300, 1e-300, 1e30, 1e-30, 0.999, 9999, 1e18, 4e9,
           10 ** 400)
WORDS = ("", "rtt", "rtt-epoll", "stream", "bidir", "crr", "logp", "think", "plain", "tcp",
         "viaduct", "unix", "busy-7", "<cpu>", "one", "two", "message", "round trip", "setup",
         "session", "&\"'\u00e9\u2028", "$\\frac{$", "<script>", "\ud800", "\0\n\x7f", "x" * 900,
         "{{ 1 }}", "programs")


def nodes(of):
    for key, value in (of.items() if isinstance(of, dict) else enumerate(of)):
        yield of, key
        if isinstance(value, (dict, list)):
            yield from nodes(value)


def new_value(random_, found):
    kind = random_.randrange(7)
    if kind == 0:
        return random_.choice(NUMBERS)
    if kind == 1:
        return random_.choice(WORDS)
    if kind == 2:
        return random_.choice((True, None, [], {}))
    if kind == 3:
        return "".join(chr(random_.randrange(0x500)) for _ in range(random_.randrange(60)))
    if kind == 4:
        return random_.uniform(-1, 1) * 10 ** random_.randrange(-40, 40)
    of, key = random_.choice(found)
    return copy.deepcopy(of[key])


def changed(random_):
    document = copy.deepcopy(random_.choice(DOCUMENTS))
    for _ in range(random_.randrange(8)):
        found = list(nodes(document))
        if not found:
            break
        of, key = random_.choice(found)
        value = new_value(random_, found)
        if isinstance(of, list) and random_.random() < 0.5:
            of.insert(key, value)
        else:
            of[key] = value
    text = json.dumps(document)
    if random_.random() < 0.1:
        at = random_.randrange(len(text))
        text = text[:at] + random_.choice(("", "\"", "}", "NaN", "\\")) + text[at + 1:]
    return text


def try_one(path):
    """Returns whether a page was made of it."""
    try:
        figures = load.load(path)
        album = plots.pictures(figures)
    except load.Refused:
        return False
    text = page.page(figures, album).lower()
    assert "<cpu" not in text and "<script" not in text, "words of the file are markup"
    for picture in album:
        assert "/" not in picture.name
        ElementTree.fromstring(picture.svg(True))
    return True


def main(seed=1, count=40):
    random_, made = random.Random(int(seed)), 0
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "figures.json"
        for n in range(int(count) + len(DOCUMENTS)):
            text = json.dumps(DOCUMENTS[n]) if n < len(DOCUMENTS) else changed(random_)
            path.write_text(text)
            try:
                made += try_one(str(path))
            except BaseException:
                print(f"input {n} of seed {seed}:\n{text}", file=sys.stderr)
                raise
    print(f"{made} pages of {int(count) + len(DOCUMENTS)} inputs")
    assert made >= len(DOCUMENTS)


main(*sys.argv[2:])
