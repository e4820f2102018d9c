# SPDX-License-Identifier: Apache-2.0
"""Reasons and sentences that several rows share."""

# Why ours gains more, or less, than the paper's did.
NO_WIRE = ("On one host there is no wire and no device: a message is a copy and one store, while "
           "TCP still makes two system calls and wakes a sleeper.")
COPY_BOUND = ("Both are bound by copies through the processors' caches here, not by a wire; TCP's "
              "loopback copies twice as well, so there is less to gain from large messages.")
PROGRAM = ("What the two ends compute is the larger part of each step, and it is the same "
           "either way.")
SPINS = ("A waiting end spins for a moment before it sleeps, which costs processor time that a "
         "sleeper in the kernel does not spend.")

# Why a row is not run.
GUESTS = ("between two hosts only: this command does not start guests; bench/hosts.py measures "
          "sockets between two of them over a software device")
SWITCHES = ("the core has no switches that take one mechanism out, so mechanisms cannot be added "
            "one by one")
