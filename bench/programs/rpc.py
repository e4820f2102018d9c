# SPDX-License-Identifier: Apache-2.0
"""Remote calls: Java RMI, gRPC and omniORB, one that says hello, over and over."""
import functools
import pathlib
import subprocess
import sys

from programs.rig import client, find_number, measure, servers

HERE = pathlib.Path(__file__).parent
CALLS = r"calls/s:\s+([0-9.E]+)"


def app_rmi(bench):
    """Java RMI"""
    no_unix = "Java RMI has no AF_UNIX"
    classes = bench.new_folder()
    client(bench, "tcp", ["javac", "-d", str(classes), str(HERE / "Hello.java")], "",
           cpu=None)
    java = ["java", "-XX:+UseSerialGC", "-Djava.net.preferIPv4Stack=true",
            "-Djava.rmi.server.hostname=127.0.0.1", "-cp", str(classes), "Hello"]

    def command_for(_way, port):
        return [*java, "serve", str(port)]

    with servers(bench, bench.ways(no_unix), command_for) as where:
        def once(way, report):
            return find_number(CALLS, client(bench, way, [
                *java, "call", str(where[way]), str(bench.seconds)], report))
        measure(bench, "rmi", "hello", "call/s", once, no_unix=no_unix)


@functools.cache
def grpc_python():
    """A Python that has gRPC: Debian's package is for Debian's Python."""
    for python in (sys.executable, "/usr/bin/python3"):
        if not subprocess.run([python, "-c", "import grpc"], check=False,
                              stderr=subprocess.DEVNULL).returncode:
            return python
    return None


def app_grpc(bench):
    """gRPC from Python: what both ends compute is most of it"""
    hello = [grpc_python(), str(HERE / "grpc_hello.py")]

    def target(way, where):
        return f"unix:{where}" if way == "unix" else f"127.0.0.1:{where}"

    def command_for(way, where):
        return [*hello, "serve", target(way, where)]

    with servers(bench, bench.ways(), command_for) as where:
        def once(way, report):
            return find_number(CALLS, client(bench, way, [
                *hello, "call", target(way, where[way]), str(bench.seconds)], report))
        measure(bench, "grpc", "hello", "call/s", once)


def app_omniorb(bench):
    """omniORB's CORBA"""
    no_unix = "corbaloc, by which the client finds the object, is for TCP"
    place = bench.new_folder()
    program = place / "omni_hello"
    client(bench, "tcp", ["omniidl", "-bcxx", f"-C{place}", str(HERE / "hello.idl")], "", cpu=None)
    client(bench, "tcp", ["g++", "-O2", "-std=c++11", "-D__LINUX__", "-I", str(place), "-o",
                          str(program), str(HERE / "omni_hello.cc"), str(place / "helloSK.cc"),
                          "-lomniORB4", "-lomnithread", "-lpthread"], "", cpu=None)

    def command_for(_way, port):
        return [str(program), "serve", "-ORBendPoint", f"giop:tcp:127.0.0.1:{port}"]

    with servers(bench, bench.ways(no_unix), command_for) as where:
        def once(way, report):
            return find_number(CALLS, client(bench, way, [
                str(program), "call", f"corbaloc:iiop:127.0.0.1:{where[way]}/greeter",
                str(bench.seconds), "-ORBendPoint", "giop:tcp:127.0.0.1:"], report))
        measure(bench, "omniorb", "hello", "call/s", once, no_unix=no_unix)
