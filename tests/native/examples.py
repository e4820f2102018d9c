#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/native.md are programs: each is compiled, run with itself, and says what
the page says. usage: examples.py SOURCE-ROOT LIBRARY
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from ports import free_port  # noqa: E402

# What the page does not show: the end that serves.
SERVED = {"camera.c": "picture 1: brightness 100\n",
          "sensor.c": "".join(f"reading {i}: {20 + i / 2:.1f}\n" for i in range(8))}
# In any order of its lines.
GATHERED = {"collector.c": [f"sensor {i}: {21.5 + i:.1f}" for i in range(3)]}


def examples(page):
    """(name, source, what the page says that the client prints)."""
    for match in re.finditer(r"```c\n(/\* (\w+\.c) \*/\n.*?)```\n(?:\n```\n\$ [^\n]*\n(.*?)```)?",
                             page, re.S):
        yield match[2], match[1], match[3]


def build(root, library, folder, name, source):
    (folder / name).write_text(source)
    program = folder / name.removesuffix(".c")
    subprocess.run(["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", f"-I{root}/include",
                    str(folder / name), "-x", "none", str(library), "-o", str(program)],
                   check=True)
    return str(program)


def run(program, env):
    """What both ends print. The client is asked again until the server listens."""
    port = str(free_port())
    server = subprocess.Popen([program, "serve", port], env=env, text=True,
                              stdout=subprocess.PIPE)
    client = None
    while client is None or (client.returncode and server.poll() is None):
        time.sleep(0.01)
        client = subprocess.run([program, "127.0.0.1", port], env=env, text=True, check=False,
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=100)
    return client.stdout, server.communicate(timeout=100)[0], client.returncode | server.wait()


def main():
    root, library = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    wrong, count = [], 0
    for name, source, says in examples((root / "docs/native.md").read_text()):
        count += 1
        with tempfile.TemporaryDirectory() as folder:
            program = build(root, library, pathlib.Path(folder), name, source)
            for mode in ("off", "on"):
                env = dict(os.environ, LD_LIBRARY_PATH=str(library.parent), VIADUCT=mode)
                if mode == "on":
                    del env["VIADUCT"]
                client, server, status = run(program, env)
                if status:
                    wrong.append(f"{name}, Viaduct {mode}: status {status}")
                if says is not None and client != says:
                    wrong.append(f"{name}, Viaduct {mode}: prints {client!r}, not {says!r}")
                if name in SERVED and server != SERVED[name]:
                    wrong.append(f"{name}, Viaduct {mode}: serves {server!r}")
                if name in GATHERED and sorted(server.splitlines()) != GATHERED[name]:
                    wrong.append(f"{name}, Viaduct {mode}: gathers {server!r}")
    print("\n".join(wrong) or f"{count} examples do what the page says")
    return 1 if wrong or count < 6 else 0


if __name__ == "__main__":
    sys.exit(main())
