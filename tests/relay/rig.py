# SPDX-License-Identifier: Apache-2.0
"""Two hosts as two network namespaces, a daemon on each, and processes that speak to it.

Needs root. Sockets belong to the namespace that the thread is in when it makes them, and
to the user that it is then: so one process plays everybody.
"""
import contextlib
import ctypes
import encodings.idna  # noqa: F401  Another user may not be able to read it.
import errno
import fcntl
import os
import pathlib
import resource
import signal
import socket
import struct
import subprocess
import tempfile
import time

NEWNET = 0x40000000
DAEMON_UID = 65533
PORT = 7430
PUBLISH, WITHDRAW, ASK, ANSWER, DONE, ASKED, PROBE, PROBED, MEET, MET, TRANSLATE, TRANSLATED = range(1, 13)
OK, MALFORMED, VERSION, NETNS, ADDRESS, OWNER, RULE, RATE, FULL, UNREACHABLE, KEY, NOBODY, \
    GONE, SILENT, REFUSED, FOREIGN, RIGHTS, UNSEEN = range(18)
# Why a daemon is not reached, or has no key in common.
NO_CAUSE, CONNECT, CLOSED, NO_PROOF, STRANGER, OTHER_VERSION, REFUSES_VERSION, REFUSES_KEY, \
    WRONG_KEY, BROKEN, LOST = range(11)
HEAD = struct.Struct("=BBBBI18s18sII")
SECONDS = 30  # until a test that waits has failed
libc = ctypes.CDLL(None, use_errno=True)


def call(name, *arguments):
    if getattr(libc, name)(*arguments):
        raise OSError(ctypes.get_errno(), name)


def sh(*command):
    subprocess.run([str(c) for c in command], check=True, stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def user(uid):
    os.setegid(uid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


class Host:
    """A network namespace, kept by its descriptor; `with host:` is being there."""
    def __init__(self):
        self.home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        call("unshare", NEWNET)
        self.fd = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            sh("ip", "link", "set", "lo", "up")
        finally:
            call("setns", self.home, NEWNET)

    def __enter__(self):
        call("setns", self.fd, NEWNET)
        return self

    def __exit__(self, *_):
        call("setns", self.home, NEWNET)

    def close(self):
        os.close(self.fd)
        os.close(self.home)


def cable(a, b, addresses_a, addresses_b):
    with a:
        sh("ip", "link", "add", "v0", "type", "veth", "peer", "name", "v0", "netns",
           f"/proc/{os.getpid()}/fd/{b.fd}")
    for host, addresses in ((a, addresses_a), (b, addresses_b)):
        with host:
            for address in addresses:
                flags = ["nodad"] if ":" in address else []
                sh("ip", "addr", "add", address, "dev", "v0", *flags)
            sh("ip", "link", "set", "v0", "up")


def wait_for(what, condition, seconds=SECONDS):
    end = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"in vain waited for: {what}")
        time.sleep(0.01)
    return value


class Program(ctypes.Structure):
    _fields_ = [("count", ctypes.c_ushort), ("code", ctypes.c_char_p)]


def without_passrights():
    """From now on setsockopt(SO_PASSRIGHTS) says what a kernel before 6.16 says."""
    load, equal, give = 0x20, 0x15, 0x06
    code = b"".join(struct.pack("=HBBI", *line) for line in (
        (load, 0, 0, 0), (equal, 0, 3, 54),     # setsockopt?
        (load, 0, 0, 32), (equal, 0, 1, 83),    # SO_PASSRIGHTS?
        (give, 0, 0, 0x50000 | errno.ENOPROTOOPT),
        (give, 0, 0, 0x7fff0000)))
    filter_calls(code)


def without_capset():
    """From now on capset is refused, as by a service's SystemCallFilter=."""
    load, equal, give = 0x20, 0x15, 0x06
    filter_calls(b"".join(struct.pack("=HBBI", *line) for line in (
        (load, 0, 0, 0), (equal, 0, 1, 126), (give, 0, 0, 0x50000 | errno.EPERM), (give, 0, 0, 0x7fff0000))))


def filter_calls(code):
    call("prctl", 38, 1, 0, 0, 0)
    call("prctl", 22, 2, ctypes.byref(Program(len(code) // 8, code)), 0, 0)


class Daemon:
    """viaductd on a host: started, watched by its log, ended by kill or politely. As a user without rights, or by
    `rights` with those that setpriv names, or with `rights` "root" as root."""
    def __init__(self, program, host, folder, keys, lines=(), rights=None):
        self.program, self.host, self.rights = program, host, rights
        self.folder = pathlib.Path(folder)
        self.folder.mkdir()
        self.uid = 0 if rights == "root" else DAEMON_UID
        os.chown(self.folder, self.uid, self.uid)
        self.socket = self.folder / "s"
        self.log = self.folder / "log"
        self.log.touch()
        self.process = None
        self.set_keys(keys)
        self.set_lines(lines)
        self.start()

    def set_keys(self, lines):
        key = self.folder / "key"
        key.unlink(missing_ok=True)
        key.write_text("\n".join(lines) + "\n")
        key.chmod(0o600)
        os.chown(key, self.uid, self.uid)

    def set_lines(self, lines):
        conf = self.folder / "conf"
        conf.write_text("\n".join((f"socket = {self.socket}",
                                   f"key-file = {self.folder}/key",
                                   "log = debug:stderr", *lines)) + "\n")

    def start(self, old_kernel=False, given=(), files=None, filtered=False, **environment):
        def become():
            if files:
                resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
            call("setns", self.host.fd, NEWNET)
            if old_kernel:
                without_passrights()
            if filtered:
                without_capset()
            if not self.rights:
                os.setresgid(*[DAEMON_UID] * 3)
                os.setresuid(*[DAEMON_UID] * 3)
            call("prctl", 1, signal.SIGKILL, 0, 0, 0)

        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 100) for fd in given]
        shell = " ".join(f"exec {3 + i}<&{fd};" for i, fd in enumerate(high)) + \
            f" LISTEN_PID=$$ LISTEN_FDS={len(high)} exec \"$@\""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready, \
                open(self.log, "ab") as log:
            name = str(self.folder / "ready")
            pathlib.Path(name).unlink(missing_ok=True)
            ready.bind(name)
            os.chmod(name, 0o777)
            self.process = subprocess.Popen(
                ["bash", "-c", shell, "bash", *self.become(), self.program, "--foreground", "--config",
                 self.folder / "conf"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=become,
                pass_fds=high, env={"ASAN_OPTIONS": "detect_leaks=0", **os.environ, "NOTIFY_SOCKET": name,
                     **environment})
            for fd in high:
                os.close(fd)
            self.wait_ready(ready)

    def become(self):
        if self.rights in (None, "root"):
            return []
        return ["setpriv", "--no-new-privs", f"--reuid={DAEMON_UID}", f"--regid={DAEMON_UID}", "--clear-groups",
                f"--inh-caps={self.rights}", f"--ambient-caps={self.rights}", f"--bounding-set=-all,{self.rights}"]

    def wait_ready(self, ready):
        ready.setblocking(False)

        def said():
            try:
                return ready.recv(100) == b"READY=1"
            except BlockingIOError:
                if self.process.poll() is not None:
                    raise AssertionError(f"not ready:\n{self.text()}") from None
                return False
        wait_for("the daemon", said)

    def kill(self, how=signal.SIGKILL):
        self.process.send_signal(how)
        return self.process.wait(SECONDS)

    def text(self):
        return self.log.read_text()

    def wait_log(self, words):
        wait_for(f"'{words}' in:\n{self.text()}", lambda: words in self.text())

    def waits(self):
        """How often it has waited: for whatever, and it does so once where there is nothing to do."""
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0])

    def state(self):
        text = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text()
        return text.rpartition(")")[2].split()[0]

    @contextlib.contextmanager
    def stopped(self):
        """What is said meanwhile lies there when it goes on."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            wait_for("a daemon that stops", lambda: self.state() == "T")
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def close(self):
        status = 0
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            status = self.kill(signal.SIGTERM)
        elif self.process.returncode not in (0, -signal.SIGKILL):
            status = self.process.returncode
        if status:
            raise AssertionError(f"viaductd: status {status}:\n{self.text()}")


def end_of(sockaddr):
    """18 bytes: the address, IPv4 as ::ffff:a.b.c.d, and the port."""
    address, port = sockaddr[:2]
    if ":" in address:
        raw = socket.inet_pton(socket.AF_INET6, address)
    else:
        raw = bytes(10) + b"\xff\xff" + socket.inet_pton(socket.AF_INET, address)
    return raw + struct.pack(">H", port)


def ends(connection):
    return end_of(connection.getsockname()), end_of(connection.getpeername())


def message(type, id=0, tuple=(bytes(18), bytes(18)), hello=b"", status=OK, version=1, zero=0,
            uid=0, wait=0):
    return HEAD.pack(version, type, status, zero, id, *tuple, uid, wait) + hello


class Said:
    def __init__(self, data):
        (self.version, self.type, self.status, _, self.id, local, peer, self.uid,
         self.wait) = HEAD.unpack_from(data)
        self.tuple, self.hello = (local, peer), data[HEAD.size:]


class Process:
    """A process that has connected to its daemon."""
    def __init__(self, daemon, host=None, uid=0, name=None):
        self.last = 0
        with host or daemon.host, user(uid):
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.socket.settimeout(SECONDS)
            self.socket.connect(str(daemon.folder / name if name else daemon.socket))

    def say(self, type, **fields):
        self.last += 1
        self.socket.send(message(type, fields.pop("id", self.last), **fields))
        return self.last

    def hear(self, type):
        data = self.socket.recv(4096)
        if not data:
            raise EOFError
        said = Said(data)
        if said.type != type:
            raise AssertionError(f"type {said.type}, status {said.status}, not type {type}")
        return said

    def done(self, type, **fields):
        """Says it and returns the answer to it."""
        id = self.say(type, **fields)
        said = self.hear(DONE)
        if said.id != id:
            raise AssertionError(f"id {said.id}, not {id}")
        return said

    def probe(self, local, peer):
        """Addresses; returns the status, the cause, the errno and all of the answer."""
        id = self.say(PROBE, tuple=(end_of((local, 0)), end_of((peer, 0))))
        said = self.hear(PROBED)
        if said.id != id:
            raise AssertionError(f"id {said.id}, not {id}")
        return (said.status, *struct.unpack("=II", said.hello)), said

    def is_hung_up_on(self):
        """Reads until then. That something of it was not read is said as an error, once."""
        while True:
            with contextlib.suppress(ConnectionResetError):
                if not self.socket.recv(4096):
                    return

    def close(self):
        self.socket.close()


def connection(client_host, server_host, address, source=None, client_uid=0, server_uid=0,
               ports=(0, 0)):
    """Both ends of a TCP connection to the address of the server's host; ports: the client's first."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with server_host, user(server_uid):
        listener = socket.create_server((address, ports[1]), family=family)
    with client_host, user(client_uid):
        client = socket.create_connection(listener.getsockname()[:2], SECONDS,
                                          (source, ports[0]) if source else None)
    with server_host, user(server_uid):
        server = listener.accept()[0]
    listener.close()
    return client, server


def slow(host, address):
    """A TCP socket that lingers, with bytes that nobody takes, and its peer's end; both have little memory."""
    with host, socket.socket() as listener, contextlib.ExitStack() as stack:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        listener.bind((address, 0))
        listener.listen()
        client = stack.enter_context(socket.socket())
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        client.connect(listener.getsockname())
        peer, _ = listener.accept()
        stack.pop_all()
    client.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while client.send(bytes(1 << 16)):
            pass
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 300))
    return client, peer


def waits_for(daemon, host, address, line, said, early=150, late=150):
    """How often the daemon waits while it ends so many lines, each of which has sent it `said` and the last
    descriptor of a socket that lingers. line(): another line. The late ones come together with what they send."""
    lines = [line() for _ in range(early)]
    wait_for("a daemon that sleeps", lambda: daemon.state() == "S")
    daemon.process.send_signal(signal.SIGSTOP)
    lines += [line() for _ in range(late)]
    peers, before = [], daemon.waits()
    for each in lines:
        client, peer = slow(host, address)
        socket.send_fds(each.socket, [said], [client.fileno()])
        client.close()
        peers.append(peer)
    daemon.process.send_signal(signal.SIGCONT)
    for each in lines:
        each.is_hung_up_on()
    waits = daemon.waits() - before
    for peer in peers:
        peer.close()
    return waits


def folder():
    """A short name, since an AF_UNIX socket lies in it."""
    made = tempfile.TemporaryDirectory(prefix="vd", dir="/tmp")
    os.chmod(made.name, 0o755)
    return made
