#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program in Go, linked dynamically: all that its network libraries do, with the same output."""
import os
import subprocess

import harness

GO = harness.need("go")
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "conform.go")


def build(run):
    program = run.path("conform")
    env = {**os.environ, "GOCACHE": run.path("cache"), "HOME": run.dir, "GO111MODULE": "off",
           "GOFLAGS": "-buildvcs=false"}
    subprocess.run([GO, "build", "-o", program, SOURCE], check=True, env=env)
    return program


def scenario(run):
    return run.client([build(run)])


os.environ["VIADUCT_GO"] = "follow"
harness.main(scenario, modes=("plain", "both"), alone=True)
