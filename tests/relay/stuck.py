# SPDX-License-Identifier: Apache-2.0
"""A process whose memory does not come: whoever reads from it waits for ever. viaductd and viaduct explain do not.

stuck.py VIADUCTD VIADUCT [TEST...]
"""
import ctypes
import errno
import os
import select
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import unittest

from hosts import PROGRAMS, TwoHosts, main
from rig import OK, SECONDS, WITHDRAW, call, ends, libc

NEWNS, PRIVATE, PAGE = 0x20000, 0x40000 | 0x4000, 4096
LOOKUP, FORGET, GETATTR, OPEN, READ, INIT, INTERRUPT = 1, 2, 3, 14, 15, 26, 36
FILE_BYTES = 16 * PAGE


def attributes(node):
    mode = 0o40755 if node == 1 else 0o100666
    return struct.pack("=6Q10I", node, FILE_BYTES, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, PAGE, 0)


def answer_of(opcode, node, minor):
    """None: it cannot do that."""
    if opcode == INIT:
        return struct.pack("=IIII", 7, minor, 0, 0) + bytes(48)
    if opcode == LOOKUP:
        return struct.pack("=4Q2I", 2, 0, 0, 0, 0, 0) + attributes(2)
    if opcode == GETATTR:
        return struct.pack("=Q2I", 0, 0, 0) + attributes(node)
    return struct.pack("=Q2I", 1, 0, 0) if opcode == OPEN else None


def serve(device):
    """One file, which can be opened, and not be read."""
    while True:
        request = os.read(device, 1 << 17)
        opcode, unique, node = struct.unpack_from("=IQQ", request, 4)
        minor = struct.unpack_from("=I", request, 44)[0] if opcode == INIT else 0
        answer = answer_of(opcode, node, minor)
        if answer is not None:
            os.write(device, struct.pack("=IiQ", 16 + len(answer), 0, unique) + answer)
        elif opcode not in (READ, FORGET, INTERRUPT):
            os.write(device, struct.pack("=IiQ", 16, -errno.ENOSYS, unique))


def file_that_does_not_come():
    device = os.open("/dev/fuse", os.O_RDWR)
    folder = tempfile.mkdtemp()
    call("unshare", NEWNS)
    call("mount", None, b"/", None, PRIVATE, None)
    call("mount", b"fuse", folder.encode(), b"fuse", 0,
         f"fd={device},rootmode=40000,user_id=0,group_id=0".encode())
    # A process of its own: with the last that has the device everybody is let go who waits.
    if os.fork() == 0:
        call("prctl", 1, signal.SIGKILL)
        serve(device)
    os.close(device)
    file = os.open(folder + "/file", os.O_RDWR)
    call("umount2", folder.encode(), 2)  # as soon as nobody has it
    os.rmdir(folder)
    return file


def map_page(file):
    libc.mmap.restype = ctypes.c_void_p
    return libc.mmap(None, ctypes.c_size_t(PAGE), 1, 2, file, ctypes.c_long(0))


class Later(threading.Thread):
    """One that is there already, and waits until it is told."""
    def __init__(self, what, *arguments):
        super().__init__(daemon=True)
        self.what, self.arguments = what, arguments
        self.wait, self.tell = os.pipe()
        self.start()

    def run(self):
        os.read(self.wait, 1)
        self.what(*self.arguments)

    def begins(self):
        os.write(self.tell, b"x")
        time.sleep(0.2)


def connect_with_memory_held(file, path):
    """The lock of this process's mappings is held: one thread reads, with it, what does not come, and one waits behind
    that to write. Whoever comes later waits, too, to read what /proc has of its memory."""
    memory = os.open("/proc/self/mem", os.O_RDONLY)
    threads = Later(os.pread, memory, 1, map_page(file)), Later(map_page, file)
    line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for each in threads:
        each.begins()
    line.connect(path)
    return line


class TestStuck(TwoHosts):
    def setUp(self):
        super().setUp()
        self.da = self.daemon(self.a, "a")
        self.client, _ = self.pair()

    def stuck(self, path):
        """A process that is, and has connected there."""
        told, tell = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                line = connect_with_memory_held(file_that_does_not_come(), path)
                os.write(tell, b"x")
                signal.pause()
                line.close()
            finally:
                os._exit(1)
        os.close(tell)
        self.addCleanup(os.waitpid, child, 0)
        self.addCleanup(os.kill, child, signal.SIGKILL)
        ready, _, _ = select.select([told], [], [], SECONDS)
        said = os.read(told, 1) if ready else b""
        os.close(told)
        if not said:
            self.skipTest("no file systems of user space")
        return child

    def test_memory_that_does_not_come(self):
        with self.a:
            self.stuck(str(self.da.socket))
        self.assertEqual(self.process(self.da).done(WITHDRAW, tuple=ends(self.client)).status, OK)

    def test_explain(self):
        child = self.stuck(str(self.da.socket))
        said = subprocess.run([PROGRAMS[1], "explain", str(child)], stdout=subprocess.PIPE, text=True,
                              timeout=SECONDS)
        self.assertIn("python", said.stdout)


def load_tests(*_):
    return unittest.defaultTestLoader.loadTestsFromTestCase(TestStuck)


if __name__ == "__main__":
    main(2)
