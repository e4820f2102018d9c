# SPDX-License-Identifier: Apache-2.0
"""The test case with two hosts, a and b, that the tests of this folder begin with."""
import os
import subprocess
import sys
import unittest

from rig import (ANSWER, ASK, ASKED, DONE, OK, PUBLISH, Daemon, Host, Process, cable, connection,
                 ends, folder)

KEYS = ["one = " + "11" * 32]
PROGRAMS = []  # of the command line


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
        daemon = Daemon(PROGRAMS[0], host, f"{self.folder.name}/{name}", keys, lines)
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

    def published(self, process, tuple, hello=b"published"):
        self.assertEqual(process.done(PUBLISH, tuple=tuple, hello=hello).status, OK)

    def status(self, process, tuple, type=ASK):
        return process.done(type, tuple=tuple).status

    def asked(self, asker, holder, asker_ends, holder_ends, hello=b"of the asker"):
        """A question on its way: what the holder has heard. It must have published."""
        id = asker.say(ASK, tuple=asker_ends, hello=hello)
        asked = holder.hear(ASKED)
        self.assertEqual((asked.tuple, asked.hello), (holder_ends, hello))
        return id, asked

    def meet(self, asker, holder, asker_ends, holder_ends, hello=b"of the asker"):
        """The asker's answer, where the holder says yes."""
        self.published(holder, holder_ends)
        id, asked = self.asked(asker, holder, asker_ends, holder_ends, hello)
        holder.say(ANSWER, id=asked.id, hello=b"of the holder")
        done = asker.hear(DONE)
        self.assertEqual((done.id, done.status, done.hello), (id, OK, b"of the holder"))
        return asked, done


def main(programs):
    """That many of the arguments are programs, the others names of tests."""
    PROGRAMS.extend(os.path.abspath(a) for a in sys.argv[1:1 + programs])
    del sys.argv[1:1 + programs]
    try:
        Host().close()
    except (OSError, subprocess.CalledProcessError) as why:
        print(f"needs root and ip(8), for network namespaces: {why}")
        sys.exit(77)
    unittest.main(verbosity=2)
