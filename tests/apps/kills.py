#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One end is killed at any moment, again and again. The other one gets what TCP gives: the right bytes, all that
were sent before, the end, and it never hangs. In a file each victim keeps what it has sent and received.

usage: KILLS=NUMBER SEED=NUMBER kills.py VIADUCT SURVIVOR VICTIM [MODE...], each one of go, cgo, node
"""
import os
import pathlib
import queue
import random
import struct
import subprocess
import sys
import threading
import time

import harness

HERE = pathlib.Path(__file__).resolve().parent
KILLS = int(os.environ.get("KILLS", "30"))
CONNECTIONS = 6
PERIOD_S = 0.001
# Victims are killed when they have moved so many bytes: of each magnitude, from none on.
MAGNITUDES = 24
WORDS = struct.Struct("<3Q")
PROBE = 9999999


def command(run, kind):
    """What starts such a program."""
    if kind == "node":
        return [os.environ.get("NODE") or harness.need("node"), str(HERE / "kills.js")]
    program = run.path("kills-" + kind)
    if not os.path.exists(program):
        harness.need("go", "gcc")
        harness.go_build(run, HERE / "kills.go", program, kind == "cgo")
    return [program]


class Player:
    """A program that plays connections; what it says comes by a thread."""
    def __init__(self, run, side, argv):
        with open(run.path(f"{side}.log"), "ab") as log:
            self.process = subprocess.Popen(run.wrap(side, argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=log, text=True, start_new_session=True)
        run.started.append(self.process)
        self.run = run
        self.lines = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()
        self.port = self.heard("port")[0]

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line.split())
        self.lines.put(["over"])

    def tell(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def next(self, limit_s=harness.LIMIT_S):
        try:
            return self.lines.get(timeout=limit_s)
        except queue.Empty:
            raise harness.Failure("it says nothing any more\n" + self.run.logs()) from None

    def heard(self, word):
        line = self.next()
        if line[0] != word:
            raise harness.Failure(f"{line} in place of {word}\n" + self.run.logs())
        return line[1:]

    def end(self):
        self.process.stdin.close()
        if self.process.wait(harness.LIMIT_S):
            raise harness.Failure(f"it ended with {self.process.returncode}\n" + self.run.logs())


class Storm:
    def __init__(self, run, survivor, victim):
        self.run = run
        self.random = random.Random(f"{survivor} {victim} {os.environ.get('SEED', '1')}")
        self.victim_argv = [*command(run, victim), run.write("record", b"")]
        self.survivor = Player(run, "server", command(run, survivor))
        self.played = {}  # by id: the mode, and whether the survivor has dialled
        self.ended = {}

    def record(self, ident):
        """What the victim has noted: sent, received, whether bytes were wrong."""
        with open(self.run.path("record"), "rb") as f:
            f.seek(ident * WORDS.size)
            return WORDS.unpack(f.read(WORDS.size).ljust(WORDS.size, b"\0"))

    def listen(self, until, what):
        """Takes what the survivor says until that holds."""
        end = time.monotonic() + harness.LIMIT_S
        while not until():
            if time.monotonic() > end:
                left = {i: (self.played[i], self.record(i)) for i in self.played if i not in self.ended}
                raise harness.Failure(f"waited in vain for {what}; not ended: {left}\n" + self.run.logs())
            try:
                line = self.survivor.next(0.05)
            except harness.Failure:
                continue
            if line[0] == "over":
                raise harness.Failure("the survivor has ended\n" + self.run.logs())
            if line[0] == "ended":
                self.judge(int(line[1]), line[2], *map(int, line[3:]))
            elif line[0] == "open":
                self.open = int(line[1])

    def judge(self, ident, how, attempted, sent, received, wrong):
        mode, dialled = self.played[ident]
        victim_sent, victim_received, victim_wrong = self.record(ident)
        seen = f"{ident} {mode} {'out' if dialled else 'in'}: {how}, survivor {sent} of {attempted}, {received}; " \
               f"victim {victim_sent}, {victim_received}"
        only_reads = mode in "wr" and (mode == "w") != dialled
        ends = {"eof"} if only_reads else {"eof", "reset"}
        # Until it has sent what is its part, it may leave the header or a turn unread.
        if not victim_sent:
            ends |= {"reset", "refused"} if dialled else {"reset"}
        if wrong or victim_wrong or how not in ends or ident in self.ended:
            raise harness.Failure(f"wrong: {seen}")
        if only_reads and received < victim_sent:
            raise harness.Failure(f"bytes are lost: {seen}")
        if attempted < victim_received or sent > attempted:
            raise harness.Failure(f"bytes that nobody has sent: {seen}")
        self.ended[ident] = how

    def kill(self, number):
        victim = Player(self.run, "client", self.victim_argv)
        ids = range(number * CONNECTIONS, (number + 1) * CONNECTIONS)
        for ident in ids:
            mode, dialled = self.random.choice("wreb"), self.random.random() < 0.5
            self.played[ident] = mode, dialled
            who, port = (self.survivor, victim.port) if dialled else (victim, self.survivor.port)
            who.tell("dial", port, mode, ident)
        target = int(2 ** (self.random.random() * MAGNITUDES)) - 1
        end = time.monotonic() + harness.LIMIT_S
        while sum(sum(self.record(i)[:2]) for i in ids) < target:
            if time.monotonic() > end or victim.process.poll() is not None:
                raise harness.Failure(f"nothing moves: {[(i, self.played[i], self.record(i)) for i in ids]}\n"
                                      + self.run.logs())
            time.sleep(PERIOD_S)
        victim.process.kill()
        victim.process.wait()
        victim.process.stdin.close()
        self.run.started.remove(victim.process)
        # Those that the survivor has heard of: it has dialled them, or their bytes have come.
        self.listen(lambda: all(i in self.ended for i in ids if self.played[i][1] or self.record(i)[0] > 0),
                    "the ends of the connections")

    def over(self):
        """Whoever was accepted late has ended, too."""
        probe = Player(self.run, "probe", self.victim_argv)
        self.played[PROBE] = "w", False
        probe.tell("dial", self.survivor.port, "w", PROBE)
        end = time.monotonic() + harness.LIMIT_S
        while not self.record(PROBE)[0] and time.monotonic() < end:
            time.sleep(PERIOD_S)
        probe.process.kill()
        probe.process.wait()
        self.run.started.remove(probe.process)
        self.listen(lambda: PROBE in self.ended, "the last connection")
        self.open = None

        def none_open():
            self.survivor.tell("open")
            return self.open == 0

        self.listen(none_open, "none to be open")
        self.survivor.end()
        self.run.started.remove(self.survivor.process)


def scenario(run):
    storm = Storm(run, SURVIVOR, VICTIM)
    kills = KILLS if run.mode == "both" else (KILLS + 3) // 4
    for number in range(kills):
        storm.kill(number)
    storm.over()
    # From 0 on: with a threshold, connections that are killed teach the others to stay on TCP.
    if run.mode == "both" and run.after == "0" and sum(line["upgraded"] for line in run.report()) < kills / 4:
        raise harness.Failure(f"few were upgraded: {run.report()}")
    print(f"{kills} kills, {len(storm.ended)} connections:",
          {how: list(storm.ended.values()).count(how) for how in sorted(set(storm.ended.values()))})
    return True


SURVIVOR, VICTIM = sys.argv[2:4]
del sys.argv[2:4]
if "cgo" in (SURVIVOR, VICTIM):
    harness.need_followed_go()
harness.main(scenario, modes=("plain", "both"))
