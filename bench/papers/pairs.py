# SPDX-License-Identifier: Apache-2.0
"""Rows of whole programs, plain and under Viaduct in turn: those of bench/programs, nuttcp, FTP through
inetd, and a disk of nbdkit."""
import contextlib
import hashlib
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import tempfile
import time

from .row import Cannot, Failed, cell
from .ways import built, environment, need, output

SHM = "/dev/shm" if os.path.isdir("/dev/shm") else None


def free_port():
    """Below those that the kernel hands out."""
    while True:
        port = random.randrange(10000, 15000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def listens(port):
    with open("/proc/net/tcp", encoding="ascii") as f:
        return any(w[1].endswith(f":{port:04X}") and w[3] == "0A"
                   for w in map(str.split, f.readlines()[1:]))


@contextlib.contextmanager
def server(argv, port):
    """Looks at the kernel's table: to connect would use up a server that serves once."""
    with tempfile.TemporaryFile("w+") as log:
        p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                             env=environment(), start_new_session=True)
        try:
            until = time.monotonic() + 60
            while not listens(port):
                if p.poll() is not None or time.monotonic() > until:
                    log.seek(0)
                    raise Failed(f"{argv[-1]} did not listen: {log.read().strip()[-150:]}")
                time.sleep(0.02)
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(p.pid, signal.SIGTERM)
            try:
                p.wait(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(p.pid, signal.SIGKILL)
                p.wait()


def direct(report):
    """Bytes past TCP, as the programs say at their end; 0 without a word."""
    with contextlib.suppress(FileNotFoundError), open(report, encoding="utf-8") as f:
        return sum(d["tx_direct_bytes"] + d["rx_direct_bytes"] for d in map(json.loads, f))
    return 0


class Turns:
    """Ways in turn; `one(way, prefix, case)` gives a figure of one run."""

    def __init__(self, viaduct, level, folder):
        self.viaduct, self.level, self.folder = viaduct, level, folder

    def prefix(self, way):
        if way != "viaduct":
            return []
        return [self.viaduct, "run", "--report", self.report(), "--"]

    def report(self):
        return os.path.join(self.folder, "report")

    def cell(self, case, unit, lower, ways, one):
        values = {way: [] for way in ways}
        for _ in range(self.level.pairs):
            for way in ways:
                values[way].append(one(way, self.prefix(way)))
                if way == "viaduct" and not direct(self.report()):
                    raise Failed(f"{case}: nothing went direct")
        return cell(case, unit, lower, values)


@contextlib.contextmanager
def turns(viaduct, level):
    with tempfile.TemporaryDirectory(prefix="viaduct-papers-", dir=SHM) as folder:
        yield Turns(viaduct, level, folder)


class Own:
    """A program of bench/programs; `cases` is a list of (words, arguments), the first the smallest."""

    UNIT, SAYS, TIMES = "ms", "s", 1e3

    def __init__(self, name, cases, smallest):
        self.name, self.cases, self.smallest = name, cases, smallest

    def at(self, level):
        return [self.smallest] if level.smallest else self.cases

    def command_at(self, level):
        program = f"build/bench/programs/{self.name} tcp"
        return "; ".join(f"viaduct run -- {program} {' '.join(arguments)}"
                         for _, arguments in self.at(level))

    def run(self, viaduct, level):
        program = built(viaduct, f"bench/programs/{self.name}", "it is built, and not installed")
        sums = {}
        with turns(viaduct, level) as t:
            def one(way, prefix, words, arguments):
                over = "unix" if way == "unix" else "tcp"
                text = output([*prefix, program, over, *arguments])
                found = re.fullmatch(rf"([0-9.]+) {self.SAYS}, sum (\w+)\n", text)
                if not found or sums.setdefault(words, found[2]) != found[2]:
                    raise Failed(f"{words} over {way} computed something else: {text.strip()}")
                return float(found[1]) * self.TIMES
            return [t.cell(words, self.UNIT, True, ("tcp", "viaduct", "unix"),
                           lambda way, prefix, w=words, a=arguments: one(way, prefix, w, a))
                    for words, arguments in self.at(level)]


class WakeUps(Own):
    """One that counts how often it sleeps."""
    UNIT, SAYS, TIMES = "wake-ups a message", "a message", 1


class Nuttcp:
    """ttcp's successor: one way, from memory to memory."""
    SIZES = (("64 KiB", "64k"), ("4 KiB", "4k"), ("512 B", "512"))

    def at(self, level):
        return self.SIZES[:1] if level.smallest else self.SIZES

    def command_at(self, level):
        return "; ".join(f"viaduct run -- nuttcp -1; viaduct run -- nuttcp -l{size} "
                         f"-T{max(level.seconds, 1):g} 127.0.0.1" for _, size in self.at(level))

    def run(self, viaduct, level):
        need("nuttcp")
        with turns(viaduct, level) as t:
            def one(_way, prefix, size):
                control, data = free_port(), free_port()
                ports = ["-P", str(control), "-p", str(data)]
                with server([*prefix, "nuttcp", "-1", "--nofork", *ports], control):
                    text = output([*prefix, "nuttcp", *ports, f"-l{size}", "-fparse",
                                   f"-T{max(level.seconds, 1):g}", "127.0.0.1"])
                found = re.search(r"rate_Mbps=([0-9.]+)", text)
                if not found:
                    raise Failed(f"nuttcp gave no rate: {text.strip()[-150:]}")
                return float(found[1]) / 8
            return [t.cell(words, "MB/s", False, ("tcp", "viaduct"),
                           lambda way, prefix, s=size: one(way, prefix, s))
                    for words, size in self.at(level)]


class Ftp:
    """curl gets files from vsftpd under inetd; all lie on tmpfs."""
    SIZES = (19090223, 145864380)

    def at(self, level):
        return self.SIZES[:1] if level.smallest else self.SIZES

    def command_at(self, _level):
        return ("viaduct run -- inetd -E -i CONF; "
                "viaduct run -- curl -o COPY -w '%{time_pretransfer} %{time_total}' ftp://127.0.0.1:PORT/FILE")

    def run(self, viaduct, level):
        need("inetd (openbsd-inetd)", "vsftpd", "curl")
        if os.geteuid() != 0:
            raise Cannot("only root can run inetd's services")
        with turns(viaduct, level) as t:
            return [self.file(t, size) for size in self.at(level)]

    def file(self, t, size):
        root = os.path.join(t.folder, "files")
        os.makedirs(root, exist_ok=True)
        data = random.Random(size).randbytes(size)
        path, copy = os.path.join(root, f"file-{size}"), os.path.join(t.folder, "copy")
        with open(path, "wb") as f:
            f.write(data)
        want = hashlib.sha256(data).digest()
        del data
        conf = pathlib.Path(t.folder, "vsftpd.conf")
        conf.write_text(pathlib.Path(__file__).with_name("vsftpd.conf").read_text().format(root=root))

        def one(_way, prefix):
            port, services = free_port(), os.path.join(t.folder, "inetd.conf")
            inetd, vsftpd, curl = need("inetd", "vsftpd", "curl")
            with open(services, "w", encoding="ascii") as f:
                f.write(f"127.0.0.1:{port} stream tcp nowait root {vsftpd} vsftpd {conf}\n")
            with contextlib.suppress(FileNotFoundError):
                os.unlink(copy)
            with server([*prefix, inetd, "-E", "-i", services], port):
                # As the paper's client counts: without its own start, and the talk before the file.
                told = output([*prefix, curl, "-sS", "-o", copy, "-w", "%{time_pretransfer} %{time_total}",
                               f"ftp://127.0.0.1:{port}/file-{size}"]).split()
                took = float(told[1]) - float(told[0])
            with open(copy, "rb") as f:
                if hashlib.sha256(f.read()).digest() != want:
                    raise Failed("the copy is not the file")
            return size / took / 1e6
        return t.cell(f"{size:,} bytes", "MB/s", False, ("tcp", "viaduct"), one)


class Disk:
    """A disk in memory that nbdkit serves, and fio reads and writes it over TCP."""
    CASES = (("random reads of 4 KiB, one at a time", "randread", "4k", "1"),
             ("random reads of 4 KiB, 16 at a time", "randread", "4k", "16"),
             ("writes of 64 KiB, 4 at a time", "write", "64k", "4"))

    def at(self, level):
        return self.CASES[:1] if level.smallest else self.CASES

    def fio(self, case, level, uri):
        _, rw, size, depth = case
        return ["fio", "--name=disk", "--ioengine=nbd", f"--uri={uri}", f"--rw={rw}",
                f"--bs={size}", f"--iodepth={depth}", "--time_based", "--output-format=json",
                f"--runtime={max(1, round(level.seconds * 2))}", "--size=64m"]

    def command_at(self, level):
        return "viaduct run -- nbdkit -f -p PORT memory 64M; " + "; ".join(
            " ".join(["viaduct", "run", "--", *self.fio(case, level, "nbd://127.0.0.1:PORT")])
            for case in self.at(level))

    def run(self, viaduct, level):
        need("nbdkit", "fio")
        if "nbd" not in output(["fio", "--enghelp"]).split():
            raise Cannot("this fio has no engine `nbd`")
        with turns(viaduct, level) as t:
            def one(_way, prefix, case):
                port = free_port()
                with server([*prefix, "nbdkit", "-f", "-p", str(port), "-i", "127.0.0.1", "memory",
                             "64M"], port):
                    text = output([*prefix, *self.fio(case, level, f"nbd://127.0.0.1:{port}")],
                                  cwd=t.folder)
                job = json.loads(text[text.index("{"):])["jobs"][0]
                return job["write" if case[1] == "write" else "read"]["iops"]
            return [t.cell(case[0], "requests/s", False, ("tcp", "viaduct"),
                           lambda way, prefix, c=case: one(way, prefix, c))
                    for case in self.at(level)]
