#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program in Go: all that its network libraries do, with the same output. It is linked as CGO_ENABLED
says: dynamically with 1, statically with 0."""
import ctypes
import json
import os
import subprocess
import sys

import harness

PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN = 65, 1
_, GCC = harness.need("go", "gcc")
CGO = os.environ["CGO_ENABLED"] == "1"
if CGO:
    harness.need_followed_go()
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "conform.go")


def deny_changes():
    """Before Linux 6.3 nothing happens."""
    ctypes.CDLL(None).prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0)


def build(run):
    program = run.path("conform")
    harness.go_build(run, SOURCE, program, CGO)
    with open(program, "rb") as f:
        assert (b"/ld-linux-x86-64.so.2" in f.read(4096)) == CGO, program
    return program


def explained(run, program):
    """What is said of it beforehand agrees with what happens."""
    said = subprocess.run([run.viaduct, "explain", "--json", "--", program], stdout=subprocess.PIPE,
                          check=False).stdout
    names = {point["name"] for point in json.loads(said)["points"]}
    if "go" not in names:
        raise harness.Failure(f"it is not said to be carried: {said}")


def as_a_child(run, program):
    """Executed by a program that is carried, it is carried as well."""
    out = run.client(["/bin/sh", "-c", f"{program} sizes; exit $?"])
    if run.mode == "both" and not any(line["program"] == "conform" and line["upgraded"]
                                      for line in run.report()):
        raise harness.Failure("as a child of a shell it was on TCP")
    return out


# As a newer C library has them: by its own posix_spawn, which no library in front sees.
PIDFD_SPAWN = r"""
#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>
#define DEFINE(name, other) \
int name(int *fd, const char *path, const void *actions, const void *attr, char *const argv[], char *const envp[]) \
{ \
	int (*spawn)() = dlsym(dlopen("libc.so.6", RTLD_LAZY), other); \
	pid_t pid; \
	int r = spawn(&pid, path, actions, attr, argv, envp); \
	if (r == 0) \
		*fd = (int)syscall(SYS_pidfd_open, pid, 0); \
	return r; \
}
DEFINE(pidfd_spawn, "posix_spawn")
DEFINE(pidfd_spawnp, "posix_spawnp")
"""
BY_PIDFD = """
import ctypes, os, sys
fd, program = ctypes.c_int(), sys.argv[2].encode()
def strings(*each):
    return (ctypes.c_char_p * (len(each) + 1))(*each, None)
if getattr(ctypes.CDLL(None), sys.argv[1])(ctypes.byref(fd), program, None, None, strings(program, b"sizes"),
                                           strings(*(k + b"=" + v for k, v in os.environb.items()))):
    sys.exit("it cannot be started")
sys.exit(os.waitid(os.P_PIDFD, fd.value, os.WEXITED).si_status)
"""


def by_pidfd(run, program):
    """The calls of newer C libraries that start a child."""
    library = run.path("pidfd.so")
    subprocess.run([GCC, "-shared", "-fPIC", "-w", "-o", library, "-x", "c", "-"], input=PIDFD_SPAWN.encode(), check=True)
    out = b""
    for name, path in (("pidfd_spawn", program), ("pidfd_spawnp", os.path.basename(program))):
        if run.mode == "both":
            before = sum(line["program"] == "conform" and line["upgraded"] > 0 for line in run.report())
        out += run.client([sys.executable, "-S", "-c", BY_PIDFD, name, path],
                          env={**os.environ, "LD_PRELOAD": library, "PATH": run.dir + ":" + os.environ["PATH"]})
        if run.mode == "both" and sum(line["program"] == "conform" and line["upgraded"] > 0
                                      for line in run.report()) == before:
            raise harness.Failure(f"as a child by {name} it was on TCP")
    return out


# Both ends of a connection, in one process of another language.
TALKS = """
import hashlib, socket, threading
listener = socket.create_server(("127.0.0.1", 0))
def echo():
    c = listener.accept()[0]
    while got := c.recv(65536):
        c.sendall(got)
threading.Thread(target=echo).start()
seen = hashlib.sha256()
with socket.create_connection(listener.getsockname()) as c:
    for i in range(200):
        c.sendall(bytes([i]) * (i + 1))
        seen.update(c.recv(i + 1, socket.MSG_WAITALL))
print(seen.hexdigest())
"""


def as_a_parent(run, program):
    """What it executes is carried, by itself and through a shell: a program in Go, and one of the C library."""
    out = b""
    for name, command in (("conform", [program, "sizes"]), ("python3", ["/usr/bin/python3", "-c", TALKS])):
        before = len(run.report()) if run.mode == "both" else 0
        out += run.client([program, "starts", *command])
        if run.mode == "both":
            carried = [line for line in run.report()[before:] if line["program"] == name and line["rx_direct_bytes"]]
            if len(carried) != 2:
                raise harness.Failure(f"a child that is {name} was on TCP: {run.report()[before:]}")
    return out


def scenario(run):
    program = build(run)
    explained(run, program)
    child = as_a_child(run, program) + by_pidfd(run, program) + as_a_parent(run, program)
    # Where the kernel lets nobody change code, it runs all the same.
    locked = run.client([program, "ends", "self"], preexec_fn=deny_changes)
    return child + locked + run.client([program])


harness.main(scenario, modes=("plain", "both"), alone=True)
