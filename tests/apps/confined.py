#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a service's or a container's confinement leaves of the direct path: the tables of
docs/systemd.md and docs/containers.md, tried out.

usage: confined.py LIBRARY
"""
import ctypes
import errno
import json
import os
import pathlib
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

PYTHON = "/usr/bin/python3"
LIMIT_S = 60
ROUNDS, SIZE = 300, 64  # more than the 64 operations after which a peer is called plain
NEWNS, NEWUSER, NEWIPC = 0x00020000, 0x10000000, 0x08000000
ALLOW, ERRNO, KILL = 0x7fff0000, 0x00050000, 0x80000000
UNIX, INET, INET6, NETLINK = 1, 2, 10, 16
MEMFD_CREATE, EVENTFD2 = 319, 290
OWN, OTHER = 4321, 4322  # user ids that nobody has
libc = ctypes.CDLL(None, use_errno=True)


# The two ends: plain programs.
SERVER = f"""
import socket
with socket.create_server(("0.0.0.0", 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    conn, _ = listener.accept()
    with conn:
        while data := conn.recv({SIZE}):
            conn.sendall(data)
"""
CLIENT = f"""
import socket, struct, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as conn:
    for i in range({ROUNDS}):
        message = struct.pack("<q", i) * ({SIZE} // 8)
        conn.sendall(message)
        got = b""
        while len(got) < {SIZE}:
            piece = conn.recv({SIZE} - len(got))
            if not piece:
                sys.exit("the server has gone")
            got += piece
        if got != message:
            sys.exit(f"message {{i}} came back as {{got!r}}")
"""


# ---- what is done to a process before it becomes an end ----

def call(name, *args):
    if getattr(libc, name)(*args) < 0:
        raise OSError(ctypes.get_errno(), name)


def no_new_privs():
    call("prctl", 38, 1, 0, 0, 0)


def user(uid):
    def change():
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    return change


def users(*mapped):
    """PrivateUsers=: a user namespace in which only these keep their numbers."""
    def enter():
        ready, done = os.pipe(), os.pipe()
        writer = os.fork()
        if writer == 0:
            os.read(ready[0], 1)
            try:
                for name in ("uid_map", "gid_map"):
                    pathlib.Path(f"/proc/{os.getppid()}/{name}").write_text(
                        "".join(f"{n} {n} 1\n" for n in mapped))
                os.write(done[1], b"1")
            finally:
                os._exit(0)
        call("unshare", NEWUSER)
        os.write(ready[1], b"1")
        ok = os.read(done[0], 1)
        os.waitpid(writer, 0)
        if ok != b"1":
            raise OSError(errno.EPERM, "uid_map")
        for fd in ready + done:
            os.close(fd)
    return enter


def mounts():
    """As the root folder and the volumes of a container: /dev/shm and /tmp are others."""
    call("unshare", NEWNS | NEWIPC)
    call("mount", b"none", b"/", None, 0x4000 | 0x40000, None)
    call("mount", b"none", b"/dev/shm", b"tmpfs", 0, None)


def hidden_processes():
    """ProtectProc=invisible and ProcSubset=pid."""
    call("unshare", NEWNS)
    call("mount", b"none", b"/", None, 0x4000 | 0x40000, None)
    call("mount", b"proc", b"/proc", b"proc", 0, b"hidepid=invisible,subset=pid")


def seccomp(code):
    lines = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *c) for c in code))
    program = struct.pack("HxxxxxxP", len(code), ctypes.addressof(lines))

    def install(keep=lines):
        no_new_privs()
        call("prctl", 22, 2, program, 0, 0)
    return install


def families(*allowed):
    """RestrictAddressFamilies=: socket(2) of others fails with EAFNOSUPPORT."""
    code = [(0x20, 0, 0, 0), (0x15, 0, len(allowed) + 2, 41), (0x20, 0, 0, 16)]
    for i, family in enumerate(allowed):
        code.append((0x15, len(allowed) - i, 0, family))
    return seccomp(code + [(0x06, 0, 0, ERRNO | errno.EAFNOSUPPORT), (0x06, 0, 0, ALLOW)])


def refuse(number, action):
    """SystemCallFilter=~call: what is refused kills, unless an error is configured."""
    return seccomp([(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, action),
                    (0x06, 0, 0, ALLOW)])


def no_writable_code():
    """MemoryDenyWriteExecute=: mmap with both, and mprotect to executable, fail."""
    seccomp([(0x20, 0, 0, 0), (0x15, 0, 3, 9), (0x20, 0, 0, 32), (0x54, 0, 0, 6),
             (0x15, 4, 3, 6), (0x15, 0, 2, 10), (0x20, 0, 0, 32), (0x45, 1, 0, 4),
             (0x06, 0, 0, ALLOW), (0x06, 0, 0, ERRNO | errno.EPERM)])()


def limit(which, value):
    return lambda: resource.setrlimit(which, (value, value))


def several(*steps):
    def all_of_them():
        for step in steps:
            step()
    return all_of_them


def nothing():
    pass


# In front of a program: a pid namespace with a /proc of its own, as a container has.
PROCESSES = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]


class Confined(unittest.TestCase):
    def setUp(self):
        if os.getuid() != 0:
            self.skipTest("needs root")
        if not os.path.exists(PYTHON):
            self.skipTest(f"needs {PYTHON}, which every user can run")
        if subprocess.run(["unshare", "--user", "--mount", "--ipc", "--pid", "--fork",
                           "true"]).returncode:
            self.skipTest("no namespaces can be made")
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.tmp = pathlib.Path(self.folder.name)
        self.tmp.chmod(0o777)
        # Users other than root must be able to read the library.
        self.library = self.tmp / "libviaduct-preload.so"
        self.library.write_bytes(pathlib.Path(LIBRARY).read_bytes())
        self.library.chmod(0o755)

    def start(self, confinement, name, *args):
        """An end, confined by what is run in front of it or done before it is started."""
        front, before = ([], confinement) if callable(confinement) else (confinement, None)
        report = self.tmp / name
        report.unlink(missing_ok=True)
        env = {k: v for k, v in os.environ.items() if k[:7] != "VIADUCT"}
        settings = [f"LD_PRELOAD={self.library}", "VIADUCT_UPGRADE_AFTER=0",
                    f"VIADUCT_REPORT={report}"]
        return subprocess.Popen([*front, "env", *settings, PYTHON, "-S", "-c",
                                 *args], preexec_fn=before, env=env, stdout=subprocess.PIPE,
                                cwd="/")

    def end(self, name):
        """Whether it was direct, and its reasons."""
        report = json.loads((self.tmp / name).read_text())
        return report["tx_direct_bytes"] > 0, " ".join(report["reasons"])

    def fate(self, server=nothing, client=nothing, host="127.0.0.1"):
        """What becomes of a connection: `direct`, or the reasons of server and client."""
        with self.start(server, "server", SERVER) as s:
            try:
                port = s.stdout.readline().decode().strip()
                self.assertNotEqual(port, "", "the server did not start")
                with self.start(client, "client", CLIENT, host, port) as c:
                    self.assertEqual(c.wait(LIMIT_S), 0)
                self.assertEqual(s.wait(LIMIT_S), 0)
            finally:
                s.kill()
        ends = [self.end("server"), self.end("client")]
        self.assertEqual(ends[0][0], ends[1][0], "one end is direct, the other is not")
        if ends[0][0]:
            return "direct"
        return f"{ends[0][1]}, {ends[1][1]}"


class Service(Confined):
    """docs/systemd.md"""

    def test_harmless(self):
        for confinement in (nothing, no_new_privs, no_writable_code, hidden_processes, mounts,
                            families(UNIX, INET, INET6, NETLINK), user(OWN),
                            several(users(0, OWN), user(OWN))):
            self.assertEqual(self.fate(server=confinement), "direct")
            self.assertEqual(self.fate(client=confinement), "direct")

    def redis(self, *allowed):
        """As Debian's unit confines it."""
        return several(hidden_processes, users(0, OWN), user(OWN), no_writable_code,
                       families(UNIX, INET, INET6, *allowed))

    def test_redis(self):
        self.assertEqual(self.fate(self.redis()), "kernel, plain-peer")
        self.assertEqual(self.fate(self.redis(NETLINK)), "direct")

    def test_families(self):
        self.assertEqual(self.fate(families(UNIX, INET)), "kernel, plain-peer")
        self.assertEqual(self.fate(client=families(UNIX, INET)), "plain-peer, kernel")
        self.assertEqual(self.fate(families(INET, NETLINK)), "kernel, plain-peer")

    def test_private_users(self):
        for client in (user(OWN), user(OTHER)):
            self.assertEqual(self.fate(self.redis(NETLINK), client), "namespace, plain-peer")
        # Both are root by name: the client turns the server away.
        self.assertEqual(self.fate(users(0, OWN)), "plain-peer, namespace")

    def test_other_users(self):
        self.assertEqual(self.fate(user(OWN), user(OTHER)), "direct")
        both = several(hidden_processes, user(OWN))
        self.assertEqual(self.fate(both, both), "direct")

    def test_limits(self):
        for which, value, reason in ((resource.RLIMIT_NOFILE, 10, "fd-limit"),
                                     (resource.RLIMIT_FSIZE, 1 << 20, "memory"),
                                     (resource.RLIMIT_AS, 60 << 20, "memory")):
            self.assertEqual(self.fate(limit(which, value)), f"{reason}, plain-peer")
        # Of its data Viaduct takes little where that is limited.
        self.assertEqual(self.fate(limit(resource.RLIMIT_DATA, 24 << 20)), "direct")

    def test_calls(self):
        for number in (MEMFD_CREATE, EVENTFD2):
            self.assertEqual(self.fate(refuse(number, ERRNO | errno.EPERM)),
                             "kernel, plain-peer")

    def test_calls_that_kill(self):
        with self.start(refuse(MEMFD_CREATE, KILL), "server", SERVER) as s:
            port = s.stdout.readline().decode().strip()
            with self.start(nothing, "client", CLIENT, "127.0.0.1", port) as c:
                c.wait(LIMIT_S)
            self.assertEqual(s.wait(LIMIT_S), -signal.SIGSYS)


class Container(Confined):
    """docs/containers.md"""

    def test_shared_network_and_processes(self):
        for other_user in (nothing, user(OWN)):
            self.assertEqual(self.fate(mounts, several(mounts, other_user)), "direct")

    def test_shared_network_alone(self):
        as_user = ["setpriv", f"--reuid={OWN}", f"--regid={OWN}", "--clear-groups"]
        for server, client in ((PROCESSES, nothing), (nothing, PROCESSES),
                               (PROCESSES, PROCESSES), (PROCESSES + as_user, nothing)):
            fate = self.fate(server, client)
            self.assertEqual(fate, "namespace, namespace")

    def test_shared_processes_alone(self):
        if not shutil.which("ip"):
            self.skipTest("ip is not installed")
        names = [f"viaduct-{os.getpid()}-{i}" for i in "ab"]
        for name in names:
            if subprocess.run(["ip", "netns", "add", name]).returncode:
                self.skipTest("no network namespace can be made")
            self.addCleanup(subprocess.run, ["ip", "netns", "delete", name], check=True)
        a, b = ["ip", "netns", "exec", names[0]], ["ip", "netns", "exec", names[1]]
        for command in (["ip", "-n", names[0], "link", "add", "v0", "type", "veth", "peer",
                         "name", "v0", "netns", names[1]],
                        [*a, "ip", "address", "add", "192.0.2.1/30", "dev", "v0"],
                        [*b, "ip", "address", "add", "192.0.2.2/30", "dev", "v0"],
                        [*a, "ip", "link", "set", "v0", "up"],
                        [*b, "ip", "link", "set", "v0", "up"]):
            subprocess.run(command, check=True)
        self.assertEqual(self.fate(a, b, host="192.0.2.1"), "plain-peer, plain-peer")

    def test_within_one_user_namespace(self):
        command = "ip link set lo up && echo ready && exec sleep infinity"
        with subprocess.Popen(["unshare", "--user", "--map-root-user", "--net", "--pid",
                               "--fork", "--kill-child", "--mount-proc", "sh", "-c", command],
                              stdout=subprocess.PIPE) as pod:
            try:
                if pod.stdout.readline() != b"ready\n":
                    self.skipTest("no user namespace can be made")
                children = pathlib.Path(f"/proc/{pod.pid}/task/{pod.pid}/children")
                enter = ["nsenter", "--user", "--net", "--pid", "--mount", "--target",
                         children.read_text().split()[0], "--"]
                self.assertEqual(self.fate(enter, enter), "direct")
            finally:
                pod.kill()


if __name__ == "__main__":
    LIBRARY = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[2:]])
