#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Faults between two hosts: a connection carries bytes both ways over RDMA while daemons are
restarted, the peer is killed, the cable is cut or a host is gone. It goes on, or ends within
bounded time as the position in the stream allows, and never with a wrong byte. Afterwards a new
connection leaves TCP again.

usage: far_faults.py [OPTION]... VIADUCT CACHE
"""
import json
import pathlib
import time

import bed as beds
import far_own
import guest
import kernel
from bed import listening

HERE = pathlib.Path(__file__).resolve().parent
PORT = 7300
FLOW = "/run/far/flow"
# All counts have grown by so much: the connection goes on.
MOVED_BYTES = 200000
MOVE_S = beds.LIMIT_S
# A link is given up after 2 s by rxe, or after 11 s by Viaduct, and TCP tells the other host:
# bounded. TCP would wait a quarter of an hour, and on a busy machine a guest takes ten times as long.
END_S = 400
CUTS, SHORT_S = 3, 0.3


class Flow:
    """A connection between the two, with tests/guest/flow.py at both ends."""

    def __init__(self, bed):
        self.bed = bed
        self.sides = bed.a, bed.b
        for side in self.sides:
            side.must(f"rm -f {FLOW}*")
        command = f"{bed.under('flow')} python3 -S /tests/flow.py %s {bed.server} {PORT} {FLOW}"
        bed.a.serve(command % "listen", listening(PORT))
        bed.b.serve(command % "connect", f"test -e {FLOW}")
        bed.look(PORT)
        for side in self.sides:
            side.must(f"touch {FLOW}.go")
        self.moves()

    def counts(self, side):
        """What is about to be sent, was sent, was received."""
        return tuple(map(int, side.must(f"od -A n -t u8 {FLOW}").split()))

    def moves(self):
        """Waits until both ends have received more."""
        before = [self.counts(side)[2] for side in self.sides]
        end = time.monotonic() + MOVE_S
        while True:
            now = [self.counts(side)[2] for side in self.sides]
            if min(b - a for a, b in zip(before, now)) >= MOVED_BYTES:
                return
            if time.monotonic() > end:
                self.bed.fail(f"in {MOVE_S} s the ends have received {before}, then {now}")
            time.sleep(0.05)

    def pause(self):
        """Nothing is under way any more: each end has what the other has sent."""
        for side in self.sides:
            side.must(f"touch {FLOW}.pause")
        end = time.monotonic() + MOVE_S
        while True:
            (_, *a), (_, *b) = (self.counts(side) for side in self.sides)
            if a == b[::-1]:
                return
            if time.monotonic() > end:
                self.bed.fail(f"A has sent and received {a}, B {b}")
            time.sleep(0.05)

    def kill(self, side):
        side.must("kill -KILL $(pidof python3); until [ -e /run/ended ]; do sleep 0.05; done")

    def stop(self):
        """An orderly end, with every byte."""
        for side in self.sides:
            side.must(f"touch {FLOW}.stop")
        for side in self.sides:
            told = self.ended(side)
            if (told["sending"], told["receiving"]) != ("shut", "end"):
                self.bed.fail(f"{side.name} has not ended in order: {told}")
        self.compare(*self.sides)
        self.compare(*self.sides[::-1])

    def ended(self, side, limit_s=beds.LIMIT_S):
        """How the end there has ended, by itself."""
        told = json.loads(side.served(limit_s))
        print(f"  {side.name}: {told}")
        if told["receiving"].startswith("wrong"):
            self.bed.fail(f"{side.name}: {told['receiving']}")
        return told

    def compare(self, sender, receiver):
        """An end of the stream comes after its last byte; an error after no more than was sent."""
        offered, sent, _ = self.counts(sender)
        received = self.counts(receiver)[2]
        print(f"  {sender.name} to {receiver.name}: {sent} bytes sent, {received} received")
        return offered, sent, received

    def survives(self, side, other):
        """The peer of this end is gone: it ends as TCP would, within bounded time."""
        began = time.monotonic()
        told = self.ended(side, END_S)
        print(f"  after {time.monotonic() - began:.1f} s")
        offered, sent, received = self.compare(other, side)
        if received > offered:
            self.bed.fail("more was received than was sent")
        if told["receiving"] == "end" and received < sent:
            self.bed.fail("the end of the stream came before its last byte")


def new_connection(bed):
    bed.fresh()
    far_own.transfer(bed)


# ---- the faults ----

def end_relay(side, how):
    side.must(f"kill -{how} $(pidof viaductd); while pidof viaductd; do sleep 0.05; done")


def relay(bed):
    """The daemons come and go: what is connected goes on, and what is new leaves TCP again."""
    flow = Flow(bed)
    for stopped, how in (([bed.a], "TERM"), ([bed.b], "KILL"), (flow.sides, "TERM"),
                         (flow.sides, "KILL")):
        for side in stopped:
            end_relay(side, how)
        flow.moves()
        for side in stopped:
            beds.start_relay(side)
        flow.moves()
    bed.look(PORT)
    flow.stop()
    new_connection(bed)
    for side in flow.sides:
        end_relay(side, "KILL")  # whose socket's name stays
    bed.rdma = False
    new_connection(bed)
    bed.rdma = True
    for side in flow.sides:
        beds.start_relay(side)
    new_connection(bed)


def killed(bed, whole=True):
    """One end is killed amid its bytes, then the other, then each when nothing is under way. Not whole:
    the one amid its bytes, the other when nothing is under way."""
    for quiet in (False, True):
        for side, other in ((bed.a, bed.b), (bed.b, bed.a)):
            if not whole and quiet != (side is bed.b):
                continue
            flow = Flow(bed)
            if quiet:
                flow.pause()
            flow.kill(side)
            flow.survives(other, side)
    new_connection(bed)


def goes_on_or_ends(flow):
    """True: it goes on. Else both ends have ended, neither as if nothing had been lost."""
    before = [flow.counts(side)[2] for side in flow.sides]
    end = time.monotonic() + END_S
    while time.monotonic() < end:
        if any(side.run("test -e /run/ended")[0] == 0 for side in flow.sides):
            for side, other in (flow.sides, flow.sides[::-1]):
                flow.survives(side, other)
            return False
        now = [flow.counts(side)[2] for side in flow.sides]
        if min(b - a for a, b in zip(before, now)) >= MOVED_BYTES:
            return True
        time.sleep(0.1)
    flow.bed.fail(f"after {END_S} s it neither goes on nor ends: {before}, {now}")


def cut_shortly(bed):
    """The cable is out for less than a link waits, at each end in turn."""
    for side in (bed.a, bed.b):
        flow = Flow(bed)
        for _ in range(CUTS):
            side.must(f"ip link set eth0 down; sleep {SHORT_S}; ip link set eth0 up")
            goes_on = goes_on_or_ends(flow)
            print(f"  {'goes on' if goes_on else 'has ended'}")
            if not goes_on:
                break
        else:
            flow.stop()
    new_connection(bed)


def cut_long(bed):
    """Longer than that, at both ends, and bytes are sent into it. None is on the cable when it is
    cut: what QEMU holds then it holds for ever, and rxe does not let go of a queue pair whose
    packets are held."""
    flow = Flow(bed)
    flow.pause()
    for side in flow.sides:
        side.must("ip link set eth0 down")
    for side in flow.sides:
        side.must(f"rm {FLOW}.pause")
    for side, other in (flow.sides, flow.sides[::-1]):
        flow.survives(side, other)
    for side in flow.sides:
        side.must("ip link set eth0 up")
    new_connection(bed)


def dropped(bed):
    """Each host is gone for the other, without a word: packets are dropped on the way."""
    flow = Flow(bed)
    for side in flow.sides:
        beds.lose(side, "loss 100%")
    for side, other in (flow.sides, flow.sides[::-1]):
        flow.survives(side, other)
    for side in flow.sides:
        beds.lose(side, bed.options.loss)
    new_connection(bed)


def gone(bed):
    """The machine itself, for good: the last of the faults. It answers nothing before that, so that
    little is on the cable: see cut_long."""
    flow = Flow(bed)
    beds.lose(bed.b, "loss 100%")
    time.sleep(SHORT_S)
    bed.b.host.process.kill()
    told = flow.ended(bed.a, END_S)
    if told["receiving"] == "end":
        bed.fail("a host that is gone has ended the stream")


CASES = {"relay": relay, "killed": killed, "cut-shortly": cut_shortly, "cut-long": cut_long,
         "dropped": dropped, "gone": gone}


def add(content):
    """What the faults need in the image."""
    content.python("json", "mmap", "os", "random", "socket", "struct", "threading")
    for name in ("ends.py", "flow.py", "transfer.py"):
        content.file(f"/tests/{name}", HERE / name)


def parse(arguments):
    parser = beds.parser("far_faults.py")
    parser.add_argument("--only", action="append", choices=CASES, help="this fault")
    return beds.parse(parser, arguments)


def test(*arguments):
    options = parse(arguments)
    debian = kernel.kernel(options.cache)
    content = beds.make_image(debian, options)
    add(content)
    with beds.hosts(debian, content, options) as bed:
        beds.cases(bed, {name: CASES[name] for name in options.only or CASES})


if __name__ == "__main__":
    guest.main(test)
