#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Java RMI: a registry, objects of many kinds, exceptions, callbacks, threads."""
import os
import subprocess
import tempfile

import harness

JAVA, JAVAC = harness.need("java", "javac")
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rpc", "Rmi.java")


def scenario(run):
    port = harness.free_port()
    argv = [JAVA, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
            "-Djava.rmi.server.hostname=127.0.0.1", "-cp", CLASSES, "Rmi"]
    server = run.server([*argv, "serve", str(port)], port)
    # The registry is there before the object.
    run.wait_for(lambda: "ready\n" in run.logs(), server, "the object")
    return run.client([*argv, "call", str(port)])


with tempfile.TemporaryDirectory() as CLASSES:
    subprocess.run([JAVAC, "-d", CLASSES, SOURCE], check=True)
    # The service calls the client's object, too: both listen and both connect.
    harness.main(scenario)
