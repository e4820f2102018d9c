#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Runs one unittest module and appends each test's outcome to a file, as lines of JSON:
unittests.py FILE LIMIT_S EARLY MODULE [TEST-ID...]. A test with a start and no outcome hung, or
took the process with it; run once more on the same file, it goes on with the other tests.
EARLY, if not 0, is how often each end of a connection is looked at once it is accepted, in
turns, where this process has both: so that tests which exchange a few bytes are upgraded
before the first of them.
"""
import codecs
import ctypes
import faulthandler
import json
import os
import socket
import sys
import tempfile
import unittest
import weakref


def flat(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flat(test)
        else:
            yield test


class Result(unittest.TestResult):
    def __init__(self, path, limit_s):
        super().__init__()
        self.path = path
        self.limit_s = limit_s
        self.pid = os.getpid()
        self.bad = {}

    def seen(self):
        """The tests that the file already has."""
        if not os.path.exists(self.path):
            return set()
        with open(self.path, encoding="utf-8") as f:
            return {json.loads(line).get("start") for line in f}

    def write(self, **line):
        # A forked child that comes back into the runner speaks for no test.
        if os.getpid() == self.pid:
            with open(self.path, "a", encoding="utf-8") as f:
                f.write(json.dumps(line) + "\n")

    def startTest(self, test):
        super().startTest(test)
        self.bad.pop(test.id(), None)
        self.write(start=test.id())
        faulthandler.dump_traceback_later(self.limit_s, exit=True)

    def note(self, test, outcome, text=""):
        # The worst of a test's outcomes: a skipped subtest hides no failed one.
        before = self.bad.get(test.id(), ("", ""))
        order = ["", "skipped", "expected failure", "unexpected success", "failed", "error"]
        if order.index(outcome) >= order.index(before[0]):
            self.bad[test.id()] = (outcome, before[1] + text)

    def addError(self, test, err):
        super().addError(test, err)
        self.note(test, "error", self._exc_info_to_string(err, test))
        if not isinstance(test, unittest.TestCase):  # setUpClass, setUpModule
            self.stopTest(test)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.note(test, "failed", self._exc_info_to_string(err, test))

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.note(test, "failed", str(subtest) + "\n" +
                      self._exc_info_to_string(err, test))

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.note(test, "skipped", reason)
        if not isinstance(test, unittest.TestCase):
            self.stopTest(test)

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        self.note(test, "expected failure")

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.note(test, "unexpected success")

    def stopTest(self, test):
        super().stopTest(test)
        faulthandler.cancel_dump_traceback_later()
        outcome, text = self.bad.get(test.id(), ("ok", ""))
        self.write(id=test.id(), outcome=outcome, text=text)


class Early:
    """
    Looks at both ends of each connection, in turns, once it is connected and accepted:
    whichever of connect and accept returns last finds the other end.
    """

    def __init__(self, looks):
        self.looks = looks
        self.callers = weakref.WeakSet()
        self.accepted = {}  # the caller's address to the number of the accepted end
        self.recv = ctypes.CDLL(None).recv
        self.byte = ctypes.create_string_buffer(1)
        kernel = socket.socket.__mro__[1]
        early = self

        def connect(sock, address):
            early.callers.add(sock)
            kernel.connect(sock, address)
            early.connected(sock)

        def connect_ex(sock, address):
            early.callers.add(sock)
            result = kernel.connect_ex(sock, address)
            early.connected(sock)
            return result

        def accept(sock):
            fd, address = kernel._accept(sock)
            if isinstance(address, tuple):
                early.accepted[address] = fd
                early.look(fd, early.caller(address))
            return fd, address

        socket.socket.connect = connect
        socket.socket.connect_ex = connect_ex
        socket.socket._accept = accept

    @staticmethod
    def name(sock):
        try:
            return sock.getsockname() if sock.type == socket.SOCK_STREAM else None
        except OSError:
            return None

    def caller(self, address):
        for sock in list(self.callers):
            if self.name(sock) == address:
                return sock.fileno()
        return -1

    def connected(self, sock):
        name = self.name(sock)
        if isinstance(name, tuple) and name in self.accepted:
            self.look(self.accepted.pop(name), sock.fileno())

    def look(self, accepted, other):
        # A number that is another socket's by now is looked at in vain.
        for _ in range(self.looks if other >= 0 else 0):
            for end in (other, accepted):
                self.recv(end, self.byte, 1, socket.MSG_PEEK | socket.MSG_DONTWAIT)


def decode_in_one(handler):
    """
    test_ftplib's server decodes what each recv brings by itself, so a character of two bytes in
    two of them becomes two: 23 of 15,000 times on kernel TCP, 20 under Viaduct.
    """
    def handle_read(self):
        if "decoder" not in self.__dict__:
            self.decoder = codecs.getincrementaldecoder(self.encoding)("replace")
        self.baseclass.last_received_data += self.decoder.decode(self.recv(1024))

    handler.handle_read = handle_read


def main():
    path, limit_s, looks, module, *wanted = sys.argv[1:]
    from test import support  # the package of CPython's tests

    # Nothing beyond this machine; socketserver's tests call their loopback a network.
    support.use_resources = ["cpu", "walltime", "subprocess"]
    if module == "test.test_socketserver":
        support.use_resources.append("network")
    faulthandler.enable()
    if int(looks):
        Early(int(looks))
    # Tests leave files where they run.
    with tempfile.TemporaryDirectory(prefix="suite-") as folder:
        os.chdir(folder)
        suite = unittest.defaultTestLoader.loadTestsFromName(module)
        if module == "test.test_ftplib":
            decode_in_one(sys.modules[module].DummyDTPHandler)
        result = Result(path, float(limit_s))
        seen, wanted = result.seen(), set(wanted)
        suite = unittest.TestSuite(
            t for t in flat(suite)
            if t.id() not in seen and (not wanted or t.id() in wanted)
            # On a virtual machine these wait for a host that never calls.
            and "VSOCK" not in t.id())
        suite.run(result)
        result.write(end=True)
        support.reap_children()
        os.chdir("/")


if __name__ == "__main__":
    main()
