# SPDX-License-Identifier: Apache-2.0
"""Boots guests in QEMU, alone or two on a cable, and runs commands in them."""
import base64
import contextlib
import os
import pathlib
import re
import select
import socket
import subprocess
import sys
import tempfile
import time

from kernel import Missing, find

SKIP = 77
# What takes longer hangs. On a busy machine a guest takes a hundred times as long.
LIMIT_S = 900
CONSOLE_LINES = 15


class Failure(Exception):
    pass


class Guest:
    """One virtual machine; a context manager, which ends it."""

    def __init__(self, kernel, initrd, folder, name="A", cables=(), processors=1,
                 memory_mb=512):
        self.name = name
        self.console = pathlib.Path(folder) / f"console-{name}"
        self.said = b""
        self.running = "its start"
        self.port, port = socket.socketpair()
        command = ["setpriv", "--pdeathsig", "KILL", find("qemu-system-x86_64"),
                   "-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "max",
                   # With room for one more: for a single processor QEMU leaves the memory
                   # barriers out, and then a virtio queue may wait for ever for a notification.
                   "-smp", f"{processors},maxcpus={processors + 1}",
                   "-m", str(memory_mb), "-display", "none", "-monitor", "none",
                   "-nodefaults", "-no-reboot",
                   "-serial", f"file:{self.console}",
                   "-chardev", f"socket,id=port,fd={port.fileno()}",
                   "-device", "virtio-serial-pci", "-device", "virtserialport,chardev=port",
                   "-kernel", str(kernel.image), "-initrd", str(initrd),
                   # Without no_timer_check a guest under load may hang at its start.
                   "-append", "console=ttyS0 quiet panic=-1 no_timer_check"]
        passed = [port.fileno()]
        for i, cable in enumerate(cables):
            passed.append(cable.fileno())
            number = 1 + "AB".index(name)
            command += ["-netdev", f"stream,id=cable{i},addr.type=fd,addr.str={cable.fileno()}",
                        "-device", f"virtio-net-pci,netdev=cable{i},romfile=,"
                        f"mac=52:54:00:00:0{i}:0{number}"]
        # What QEMU itself complains about goes to the console's file, before the guest.
        with open(self.console, "wb") as console:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=console,
                                            stderr=console, pass_fds=passed)
        port.close()
        self.deadline = time.monotonic() + LIMIT_S
        self.limit_s = LIMIT_S

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.port.close()

    def fail(self, what):
        """With what the command had said, or with the console where the guest has died."""
        said = self.said.decode(errors="replace")
        console = self.console.read_text(errors="replace").splitlines()
        raise Failure(f"guest {self.name}: {self.running}: {what}\n{said}" +
                      "".join(f"console: {line}\n" for line in console[-CONSOLE_LINES:]))

    def start(self, command, limit_s=LIMIT_S):
        """Sends a command, as text for the shell; finish() gives its end."""
        self.running = command.strip().splitlines()[0][:200]
        self.limit_s = limit_s
        self.deadline = time.monotonic() + limit_s
        with contextlib.suppress(BrokenPipeError):  # finish() tells it
            self.port.sendall(base64.b64encode(command.encode()) + b"\n")

    def hear(self):
        """Waits for more of what the command says."""
        left = self.deadline - time.monotonic()
        if not select.select([self.port], [], [], max(left, 0))[0]:
            self.fail(f"not finished after {self.limit_s} s")
        try:
            more = self.port.recv(65536)
        except ConnectionResetError:
            more = b""
        if not more:
            self.fail(f"the guest has ended, status {self.process.wait()} of QEMU")
        self.said += more

    def finish(self):
        """Waits for the end of the command; returns status and output."""
        while not (end := re.search(rb"\0(\d+)\n\Z", self.said)):
            self.hear()
        output = self.said[:end.start()].decode(errors="replace")
        self.said = b""
        return int(end.group(1)), output

    def run(self, command, limit_s=LIMIT_S):
        self.start(command, limit_s)
        return self.finish()

    def must(self, command, limit_s=LIMIT_S):
        """The output of a command that has to succeed."""
        status, output = self.run(command, limit_s)
        if status != 0:
            raise Failure(f"guest {self.name}: {command}: status {status}\n{output}")
        return output

    def serve(self, command, ready, limit_s=LIMIT_S):
        """Starts a command beside the others; returns once `ready` succeeds."""
        self.must(f"""rm -f /run/ended
            {{ {command}
            echo $? >/run/status; mv /run/status /run/ended
            }} </dev/null >/run/said 2>&1 &
            until {ready} >/dev/null; do
                if [ -e /run/ended ]; then cat /run/said; exit 1; fi
                sleep 0.2
            done""", limit_s)

    def served(self, limit_s=LIMIT_S):
        """The output of what serve() has started, which has to succeed."""
        return self.must("""until [ -e /run/ended ]; do sleep 0.2; done
            cat /run/said; exit $(cat /run/ended)""", limit_s)


@contextlib.contextmanager
def boot(kernel, image, count=1, cables=1, **how):
    """One guest, or two on cables, ready for commands; in a folder that goes with them."""
    with contextlib.ExitStack() as held:
        folder = held.enter_context(tempfile.TemporaryDirectory(prefix="viaduct-guest-"))
        initrd = os.path.join(folder, "initrd")
        image.write(initrd)
        ends = [[], []]
        for _ in range(cables if count == 2 else 0):
            for end, sock in zip(ends, socket.socketpair()):
                end.append(held.enter_context(sock))
        guests = [held.enter_context(Guest(kernel, initrd, folder, name, end, **how))
                  for name, end in zip("AB"[:count], ends)]
        for sock in ends[0] + ends[1]:
            sock.close()
        for guest in guests:
            guest.finish()
        yield guests[0] if count == 1 else guests


def main(test):
    """Runs a test; what is missing skips it, in words."""
    try:
        test(*sys.argv[1:])
    except Missing as missing:
        print(f"skipped: {missing}")
        sys.exit(SKIP)
    except Failure as failure:
        print(f"FAILED: {failure}")
        sys.exit(1)
