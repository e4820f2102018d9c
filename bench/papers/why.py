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
RXE = ("Between the guests the processor does the RDMA device's work packet by packet (rxe), and emulates "
       "that processor besides; the papers' devices worked by themselves.")
