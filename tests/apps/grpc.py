#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gRPC: calls, streams of both directions, errors, deadlines, in Python and in C++.

usage: grpc.py VIADUCT python|c++ [MODE]
"""
import os
import subprocess
import sys
import tempfile

import harness

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rpc")
PYTHON = "/usr/bin/python3"


def skip(why):
    print(f"skipped: {why}")
    sys.exit(harness.SKIP)


def built(folder):
    """The program in C++. Its packages are too large for deps.sh."""
    protoc, plugin, compiler = harness.need("protoc", "grpc_cpp_plugin", "g++")
    for header, package in (("grpcpp/grpcpp.h", "libgrpc++-dev"),
                            ("google/protobuf/port_def.inc", "libprotobuf-dev")):
        if not os.path.exists(f"/usr/include/{header}"):
            skip(f"{package} is missing")
    program = os.path.join(folder, "grpc_calls")
    subprocess.run([protoc, f"--cpp_out={folder}", f"--grpc_out={folder}", f"-I{HERE}",
                    f"--plugin=protoc-gen-grpc={plugin}", f"{HERE}/calls.proto"], check=True)
    sources = [f"{HERE}/grpc_calls.cc", f"{folder}/calls.pb.cc", f"{folder}/calls.grpc.pb.cc"]
    subprocess.run([compiler, "-std=c++17", "-I", folder, "-o", program, *sources,
                    "-lgrpc++", "-lgrpc", "-lgpr", "-lprotobuf", "-labsl_synchronization",
                    "-lpthread"], check=True)
    return [program]


def scenario(run):
    """The server sets TCP_USER_TIMEOUT, as gRPC's do."""
    port = harness.free_port()
    run.server([*PROGRAM, "serve", str(port)], port)
    return run.client([*PROGRAM, "call", str(port)]).decode().splitlines()


language = sys.argv.pop(2)
with tempfile.TemporaryDirectory() as place:
    if language == "c++":
        PROGRAM = built(place)
    else:
        PROGRAM = [PYTHON, f"{HERE}/grpc_calls.py"]
        if subprocess.run([PYTHON, "-c", "import grpc"], cwd="/",
                          stderr=subprocess.DEVNULL).returncode:
            skip("python3-grpcio is missing")
    harness.main(scenario)
