#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""omniORB: calls, exceptions, objects of the client's that the service calls, on connections of their
own and back over the client's; and its naming service."""
import os
import subprocess
import tempfile

import harness

COMPILER, OMNIIDL, NAMES, NAMECLT = harness.need("g++", "omniidl", "omniNames", "nameclt")
HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rpc")
# Longer ones than omniORB allows otherwise.
SIZE = ["-ORBgiopMaxMsgSize", "20000000"]
BOTH_WAYS = {"serve": ["-ORBacceptBiDirectionalGIOP", "1",
                       "-ORBserverTransportRule", "* tcp,bidir"],
             "call": ["-ORBofferBiDirectionalGIOP", "1",
                      "-ORBclientTransportRule", "* bidir,tcp"]}


def calls(run, options):
    port = harness.free_port()
    server = run.server([PROGRAM, "serve", "-ORBendPoint", f"giop:tcp:127.0.0.1:{port}",
                         *SIZE, *options.get("serve", [])], port)
    run.wait_for(lambda: "ready" in run.logs(), server, "the object")
    out = run.client([PROGRAM, "call", f"corbaloc:iiop:127.0.0.1:{port}/calls",
                      "-ORBendPoint", "giop:tcp:127.0.0.1:", *SIZE, *options.get("call", [])])
    server.wait(timeout=harness.LIMIT_S)  # the client has ended it
    return out.decode().splitlines()


def names(run):
    port = harness.free_port()
    run.server([NAMES, "-start", str(port), "-logdir", run.dir,
                "-ORBendPoint", f"giop:tcp:127.0.0.1:{port}"], port)
    where = ["-ORBInitRef", f"NameService=corbaloc:iiop:127.0.0.1:{port}/NameService"]
    result = []
    for words in (["bind_new_context", "folder"], ["list"], ["bind_new_context", "folder/below"],
                  ["list", "folder"], ["unbind", "folder/below"], ["list", "folder"]):
        out = run.client([NAMECLT, *where, *words], check=False)
        result.append(b"an object" if out.startswith(b"IOR:") else out)
    return result


def scenario(run):
    return calls(run, {}), calls(run, BOTH_WAYS), names(run)


if not os.path.exists("/usr/include/omniORB4/CORBA.h"):
    print("skipped: libomniorb4-dev is missing")
    raise SystemExit(harness.SKIP)
with tempfile.TemporaryDirectory() as place:
    PROGRAM = os.path.join(place, "omni_calls")
    subprocess.run([OMNIIDL, "-bcxx", f"-C{place}", f"{HERE}/calls.idl"], check=True)
    subprocess.run([COMPILER, "-std=c++11", "-D__LINUX__", "-I", place, "-o", PROGRAM,
                    f"{HERE}/omni_calls.cc", f"{place}/callsSK.cc", "-lomniORB4",
                    "-lomnithread", "-lpthread"], check=True)
    harness.main(scenario)
