# SPDX-License-Identifier: Apache-2.0
"""How much of a test runs: all of it with TESTS=long, as in make check-long, and else the small form of
make check."""
import os
import unittest

LONG = os.environ.get("TESTS") == "long"


def length(small, whole):
    """The one or the other."""
    return whole if LONG else small


def long(test):
    """A test, or a class of them, of which something else is left in make check."""
    return unittest.skipUnless(LONG, "runs with TESTS=long")(test)
