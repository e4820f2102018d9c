#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processes on two hosts meet through their daemons: two_hosts.py VIADUCTD."""
import os
import sys
import unittest

from rig import (ADDRESS, ANSWER, ASK, ASKED, GONE, KEY, NETNS, NOBODY, OK, OWNER, PUBLISH,
                 REFUSED, RULE, SILENT, UNREACHABLE, WITHDRAW, Daemon, Host, Process, cable,
                 connection, ends, folder)

KEYS = ["one = " + "11" * 32]
PROGRAM = ""


class TwoHosts(unittest.TestCase):
    """a has 10.9.0.1 and fd09::1, b has .2 and ::2; each a second address, 192.168.9.x."""
    def setUp(self):
        self.folder = folder()
        self.addCleanup(self.folder.cleanup)
        self.a, self.b = Host(), Host()
        self.addCleanup(self.a.close)
        self.addCleanup(self.b.close)
        cable(self.a, self.b, ["10.9.0.1/24", "fd09::1/64", "192.168.9.1/24"],
              ["10.9.0.2/24", "fd09::2/64", "192.168.9.2/24"])

    def daemon(self, host, name, keys=KEYS, lines=()):
        daemon = Daemon(PROGRAM, host, f"{self.folder.name}/{name}", keys, lines)
        self.addCleanup(daemon.close)
        return daemon

    def daemons(self, **options):
        self.da = self.daemon(self.a, "a", **options)
        self.db = self.daemon(self.b, "b", **options)

    def process(self, daemon, **options):
        process = Process(daemon, **options)
        self.addCleanup(process.close)
        return process

    def pair(self, address="10.9.0.2", source=None, **users):
        client, server = connection(self.a, self.b, address, source, **users)
        self.addCleanup(client.close)
        self.addCleanup(server.close)
        return client, server

    def meet(self, asker, holder, asker_ends, holder_ends, hello=b"of the asker"):
        """The asker's answer, where the holder says yes."""
        self.assertEqual(holder.done(PUBLISH, tuple=holder_ends, hello=b"published").status,
                         OK)
        id = asker.say(ASK, tuple=asker_ends, hello=hello)
        asked = holder.hear(ASKED)
        self.assertEqual((asked.tuple, asked.hello), (holder_ends, hello))
        holder.say(ANSWER, id=asked.id, hello=b"of the holder")
        done = asker.hear(5)
        self.assertEqual((done.id, done.status, done.hello), (id, OK, b"of the holder"))
        return asked, done

    def test_meet(self):
        self.daemons()
        for address in ("10.9.0.2", "fd09::2"):
            client, server = self.pair(address)
            p, q = self.process(self.da), self.process(self.db)
            self.meet(p, q, ends(client), ends(server))
            # And the other way round, the other process asking.
            self.meet(q, p, ends(server), ends(client), hello=bytes(1024))


def main():
    global PROGRAM
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    if os.geteuid() != 0:
        print("needs root, for network namespaces")
        return 77
    unittest.main(verbosity=2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
