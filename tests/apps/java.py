#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Java: selectors, blocking and asynchronous channels, HTTP, threads that are cut off."""
import os
import subprocess

import harness

JAVA, JAVAC = harness.need("java", "javac")
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "Echo.java")


def scenario(run):
    subprocess.run([JAVAC, "-d", run.dir, SOURCE], check=True)
    port = harness.free_ports(2)
    argv = [JAVA, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", run.dir, "Echo"]
    run.server([*argv, "serve", str(port)], port)
    return run.client([*argv, "talk", str(port)])


harness.main(scenario)
