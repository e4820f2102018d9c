#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Open MPI over its TCP transport: messages of all sizes, collectives, two groups."""
import os
import shlex
import subprocess

import harness

MPIRUN, MPICC = harness.need("mpirun.openmpi", "mpicc.openmpi")
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "openmpi.c")


def scenario(run):
    program = run.path("program")
    subprocess.run([MPICC, "-O2", "-o", program, SOURCE], check=True)
    options = ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo",
               "--mca", "pml", "ob1", "--map-by", ":OVERSUBSCRIBE", "--allow-run-as-root"]
    env = dict(os.environ, TMPDIR=run.dir)
    result = []
    for others in (1, 3):
        # Rank 0 is the server, the others are its clients. Open MPI 5.0.7 crashes where they are two programs.
        server, client = (shlex.join(run.wrap(side, [program])) for side in ("server", "client"))
        argv = [MPIRUN, *options, "-np", str(1 + others), "sh", "-c",
                f'[ "$OMPI_COMM_WORLD_RANK" != 0 ] || exec {server}; exec {client}']
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, env=env, timeout=harness.LIMIT_S)
        if done.returncode:
            raise harness.Failure(f"mpirun: {done.returncode}: {done.stderr.decode()}")
        result.append(done.stdout)
    return result


# The clients also talk to each other.
harness.main(scenario, alone=True)
