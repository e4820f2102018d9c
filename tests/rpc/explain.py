#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `viaduct explain` says of a program that needs libtirpc, and of a process that has it.

usage: explain.py VIADUCT LIBRARY SERVE CALL
"""
import json
import os
import subprocess
import sys
import tempfile
import time


def points(viaduct, *what, **more):
    out = subprocess.run([viaduct, "explain", "--json", *what], stdout=subprocess.PIPE, **more)
    answer = json.loads(out.stdout)
    return {(p["name"], p["state"]) for p in answer["points"]}


def of_process(viaduct, run, serve, call, env):
    with tempfile.TemporaryDirectory() as tmp:
        place = os.path.join(tmp, "port")
        service = subprocess.Popen([*run, serve, place, "run"], env=env,
                                   stdout=subprocess.DEVNULL)
        while not os.path.exists(place):
            time.sleep(0.01)
        said = points(viaduct, str(service.pid))
        with open(place, encoding="ascii") as f:
            subprocess.run([call, f.read().strip(), "quit"], check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        service.wait()
    return said


def main():
    viaduct, library, serve, call = map(os.path.abspath, sys.argv[1:])
    plain = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    found = [
        ("a program", ("rpc", "yes"), points(viaduct, "--", serve, env=plain)),
        ("a process", ("rpc", "yes"), of_process(viaduct, [viaduct, "run", "--"], serve, call,
                                                 plain)),
        ("a process without the module", ("rpc", "note"),
         of_process(viaduct, [], serve, call, {**plain, "LD_PRELOAD": library})),
    ]
    wrong = [f"{what}: {said}" for what, point, said in found
             if point not in said or ("preload", "note") in said]
    said = points(viaduct, "--", "true", env=plain)
    if any(name == "rpc" for name, _ in said):
        wrong.append(f"true: {said}")
    print("\n".join(wrong) or "all is said")
    return 1 if wrong else 0


sys.exit(main())
