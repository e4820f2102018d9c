#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The native library between two hosts with an RDMA device: long puts that the device writes to the
memory of the peer's program, and long gets that it reads there, every byte checked, with and without
a preloaded library; and the examples of docs/native.md.

usage: puts.py [OPTION]... VIADUCT CACHE
"""
import json
import pathlib
import sys
import tempfile

import bed as beds
import guest
import kernel
from bed import listening

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "native"))
import examples as page  # noqa: E402

REDIRECT, ROUNDS, PORT = 4096, 12, 7010
FAR_LEAST = 3  # of a round


def alone(name):
    """As a program that asks for the library, and runs without `viaduct run`."""
    return (f"env VIADUCT_REDIRECT={REDIRECT} VIADUCT_REPORT=/run/far/report-{name} "
            f"VIADUCT_LOG=debug:/run/far/log-{name}")


def native(side, name):
    """What its processes have counted."""
    return [line["native"] for line in side.reports(name)]


def puts(bed, rounds=ROUNDS):
    for way in ("alone", "preloaded"):
        bed.fresh()
        bed.redirect = REDIRECT
        under = alone("puts") if way == "alone" else bed.under("puts")
        bed.a.serve(f"LD_LIBRARY_PATH=/viaduct {under} /tests/puts own {PORT}", listening(PORT))
        said = bed.b.must(f"LD_LIBRARY_PATH=/viaduct {under} /tests/puts write {bed.server} {PORT} {rounds}")
        bed.a.served()
        counts = native(bed.b, "puts")[0]
        print(f"  {way}: {said.strip()}; of {counts['puts']} puts {counts['far_puts']} by the device, "
              f"of {counts['gets']} gets {counts['far_gets']}")
        if bed.rdma and min(counts["far_puts"], counts["far_gets"]) < FAR_LEAST * rounds:
            bed.fail(f"too few: {json.dumps(counts)}")


def killed(bed):
    """One end is killed while the writer fires: the other hears of it, and the owner's memory is still."""
    for victim, other in ((bed.a, bed.b), (bed.b, bed.a)):
        bed.fresh()
        bed.a.serve(f"LD_LIBRARY_PATH=/viaduct {alone('puts')} /tests/puts own {PORT}", listening(PORT))
        bed.b.serve(f"LD_LIBRARY_PATH=/viaduct {alone('puts')} /tests/puts write {bed.server} {PORT} 100000", "true")
        bed.look(PORT)
        victim.must("sleep 2; kill -KILL $(pidof puts)")
        victim.run("until [ -e /run/ended ]; do sleep 0.2; done")
        status, said = other.run("""until [ -e /run/ended ]; do sleep 0.2; done
            cat /run/said /run/ended""")
        print(f"  {victim.name} is killed; {other.name}: {' '.join(said.split())}")
        if status or "after its end" in said or ("reset" not in said and other is bed.b):
            bed.fail(f"{other.name} says: {said}")


def wrong(bed, name, said, served, says):
    """In words; None when the example has said what the page says, and by RDMA."""
    if says is not None and said != says:
        return f"prints {said!r}, not {says!r}"
    if name in page.SERVED and served != page.SERVED[name]:
        return f"serves {served!r}"
    if name in page.GATHERED and sorted(served.splitlines()) != page.GATHERED[name]:
        return f"gathers {served!r}"
    for side in (bed.a, bed.b) if bed.rdma else ():
        if not side.report("example")["tx_direct_bytes"]:
            return f"{side.name} has sent nothing by RDMA"
    return None


def examples(bed):
    """Each is on RDMA before it begins."""
    under = f"env LD_LIBRARY_PATH=/viaduct {'LD_PRELOAD=/tests/await.so' if bed.rdma else ''} " \
            "VIADUCT_REPORT=/run/far/report-example"
    for name, says in bed.options.examples.items():
        bed.fresh()
        program = f"/tests/example-{name.removesuffix('.c')}"
        bed.a.serve(f"{under} {program} serve {PORT}", listening(PORT))
        said = bed.b.must(f"{under} {program} {bed.server} {PORT} 2>/run/far/log-example", beds.LIMIT_S)
        if (what := wrong(bed, name, said, bed.a.served(), says)):
            bed.fail(f"{name} {what}")
        print(f"  {name}: {' '.join(said.split())}")


def add_examples(content, options, folder):
    """Built here, as whoever reads the page would."""
    options.examples = {}
    root = HERE.parent.parent
    library = beds.built(options, "libviaduct.so.0")
    for name, source, says in page.examples((root / "docs/native.md").read_text()):
        program = page.build(root, library, pathlib.Path(folder), name, source)
        content.file(f"/tests/example-{name.removesuffix('.c')}", program)
        options.examples[name] = says


def add(content, options):
    """What the cases need in the image, but the examples."""
    content.binary(beds.built(options, "tests/guest/guest-puts"), "/tests/puts")
    content.file("/viaduct/libviaduct.so.0", beds.built(options, "libviaduct.so.0"))
    content.file("/tests/await.so", beds.built(options, "tests/guest/libawait-path.so"))


CASES = {"puts": puts, "killed": killed, "examples": examples}


def test(*arguments):
    made = beds.parser("puts.py")
    made.add_argument("--only", action="append", choices=CASES, help="this part alone")
    options = beds.parse(made, arguments)
    debian = kernel.kernel(options.cache)
    content = beds.make_image(debian, options)
    with tempfile.TemporaryDirectory() as folder:
        add(content, options)
        add_examples(content, options, folder)
        with beds.hosts(debian, content, options) as bed:
            beds.cases(bed, {name: CASES[name] for name in options.only or CASES})


if __name__ == "__main__":
    guest.main(test)
