#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A peer that changes the ring of a connection while the other end decodes records out of it.

usage: flipped.py VIADUCT FLIPPED service|client [--seed N] [--rounds N] [--honest FILE]
       [--module FILE]

First who is attacked: a service by hostile clients, or a client by a hostile service. It must not
crash, must not wait for ever, must find nothing changed that it has looked at, and must serve, or
call, an honest peer afterwards. The counters must show the direct path, calls that have been
damaged, and others that have not. FILE of --honest is the program with sanitizers for the end that is attacked,
with the module of --module; the preloaded library cannot be before theirs.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

HANG_S = 240  # no judgement of speed: a bound on a test that would never end
SANITIZED = {"ASAN_OPTIONS": "verify_asan_link_order=0", "UBSAN_OPTIONS": "print_stacktrace=1"}


class Attack:
    def __init__(self, args, tmp):
        self.args, self.tmp, self.wrong, self.running = args, tmp, [], []
        self.report = os.path.join(tmp, "report")
        self.viaduct, self.honest = args.viaduct, args.flipped
        if args.honest:
            self.honest = args.honest
            shutil.copy(os.path.join(os.path.dirname(args.viaduct), "libviaduct-preload.so"), tmp)
            shutil.copy(args.module, os.path.join(tmp, "libviaduct-rpc.so"))
            self.viaduct = shutil.copy(args.viaduct, tmp)

    def start(self, is_honest, *words):
        viaduct, program = self.viaduct, self.honest
        report = ["--report", self.report]
        if not is_honest:
            viaduct, program, report = self.args.viaduct, self.args.flipped, []
        process = subprocess.Popen([viaduct, "run", "--upgrade-after", "0", *report, "--", program,
                                    *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env={**SANITIZED, **os.environ}, text=True)
        self.running.append(process)
        return process

    def port_of(self, file, process):
        while not os.path.exists(file):
            if process.poll() is not None:
                sys.exit(f"the service has ended with status {process.returncode}")
            time.sleep(0.01)
        with open(file, encoding="ascii") as f:
            return f.read().strip()

    def serve(self, is_honest, *words):
        file = os.path.join(self.tmp, f"port{len(self.running)}")
        words = ("serve", file) if is_honest else ("hostile-serve", file, *words)
        process = self.start(is_honest, *words)
        return process, self.port_of(file, process)

    def end(self, process, who):
        """Its counts, once it has ended by itself."""
        out, errors = process.communicate(timeout=HANG_S)
        lines = out.splitlines()
        self.wrong += [f"{who}: {x}" for x in errors.splitlines() + lines[:-1]]
        if process.returncode or not lines:
            self.wrong.append(f"{who}: status {process.returncode}")
            return {}
        print(f"{who}: {lines[-1]}")
        words = lines[-1].split()
        return dict(zip(words[::2], map(int, words[1::2])))

    def service(self):
        """What the hostile end, and the one that it attacks, have counted."""
        server, port = self.serve(True)
        hostile = self.end(self.start(False, "hostile-call", port, str(self.args.seed),
                                      str(self.args.rounds)), "hostile client")
        self.end(self.start(True, "quit", port), "honest client")
        return hostile, self.end(server, "service")

    def client(self):
        hostile, port = self.serve(False, str(self.args.seed))
        client = self.end(self.start(True, "call", port, str(self.args.rounds)), "client")
        hostile.kill()
        server, port = self.serve(True)
        self.end(self.start(True, "quit", port), "honest client")
        self.end(server, "honest service")
        return client, client

    def judge(self, hostile, attacked):
        with open(self.report, encoding="utf-8") as f:
            counts = [json.loads(line) for line in f]
        # The honest connection afterwards is one of them.
        if sum(x["upgraded"] for x in counts) < self.args.rounds // 2:
            self.wrong.append("hardly any connection was upgraded")
        if not sum(x["rx_direct_bytes"] for x in counts):
            self.wrong.append("no byte came over the direct path")
        for key in ("good", "damaged"):
            if not hostile.get(key):
                self.wrong.append(f"no call was {key}")
        for key in ("looked", "again", "decoded"):
            if not attacked.get(key):
                self.wrong.append(f"nothing was {key}")
        if attacked.get("changed"):
            self.wrong.append(f"{attacked['changed']} times something changed between two looks")

    def go(self):
        try:
            self.judge(*getattr(self, self.args.who)())
        except subprocess.TimeoutExpired as e:
            self.wrong.append(f"waits for ever: {e.cmd}")
        finally:
            for process in self.running:
                process.kill()
                process.wait()
        print("\n".join(self.wrong[:200]))
        return 1 if self.wrong else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("viaduct")
    parser.add_argument("flipped")
    parser.add_argument("who", choices=["service", "client"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--honest")
    parser.add_argument("--module")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        return Attack(args, tmp).go()


sys.exit(main())
