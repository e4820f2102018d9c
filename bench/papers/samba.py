# SPDX-License-Identifier: Apache-2.0
"""Samba's DCE/RPC through pipes of smbd: over TCP samba-dcerpcd hands a connection to another process, and
such a one stays on TCP. Many calls of one rpcclient, less a few of another: its start is not in the time."""
import contextlib
import glob
import os
import pathlib
import signal
import subprocess
import time

from .pairs import turns
from .row import Cannot, Failed
from .ways import environment, need, output

CALL = "netshareenumall"
FEW = 20
LISTEN_S = 120


class Server:
    """smbd and samba-dcerpcd, on their usual ports in a network namespace of their own."""

    def __init__(self, held, folder, prefix):
        os.makedirs(os.path.join(folder, "ncalrpc"), mode=0o755)
        self.config = os.path.join(folder, "smb.conf")
        text = pathlib.Path(__file__).with_name("smb.conf").read_text(encoding="utf-8")
        pathlib.Path(self.config).write_text(text.format(folder), encoding="utf-8")
        self.log = held.enter_context(open(os.path.join(folder, "log"), "w+", encoding="utf-8"))
        holder = self.start(held, ["unshare", "--net", "sleep", "infinity"])
        self.space = f"/proc/{holder.pid}"
        own = os.readlink("/proc/self/ns/net")
        self.wait(holder, lambda: os.readlink(f"{self.space}/ns/net") != own, "a namespace")
        self.inside = ["nsenter", f"--net={self.space}/ns/net", "--"]
        output([*self.inside, "ip", "link", "set", "lo", "up"])
        smbd, dcerpcd = need("smbd")[0], programs()
        for program, port, more in ((smbd, 445, []), (dcerpcd, 135, ["--libexec-rpcds"])):
            server = self.start(held, [*self.inside, *prefix, program, *more, "-F", "-s", self.config,
                                       "--no-process-group", "--debug-stdout"])
            self.wait(server, lambda port=port: self.listens(port), f"{program} to listen")

    def start(self, held, argv):
        """Its own group: what it starts ends with it."""
        p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                             env=environment(), start_new_session=True)

        def end():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(p.pid, signal.SIGKILL)
            p.wait()
        held.callback(end)
        return p

    def wait(self, process, is_there, what):
        until = time.monotonic() + LISTEN_S
        while not is_there():
            if process.poll() is not None or time.monotonic() > until:
                self.log.seek(0)
                raise Failed(f"waited in vain for {what}: {self.log.read().strip()[-150:]}")
            time.sleep(0.02)

    def listens(self, port):
        with open(f"{self.space}/net/tcp", encoding="ascii") as f:
            return any(w[1].endswith(f":{port:04X}") and w[3] == "0A"
                       for w in map(str.split, f.readlines()[1:]))

    def seconds(self, prefix, calls):
        began = time.monotonic()
        said = output([*self.inside, *prefix, "rpcclient", "-s", self.config, "-U%", "-N",
                       "ncacn_np:127.0.0.1", "-c", "; ".join([CALL] * calls)])
        if said.count("netname: share") != calls:
            raise Failed(f"rpcclient was not answered {calls} times: {said.strip()[-150:]}")
        return time.monotonic() - began


def programs():
    found = glob.glob("/usr/libexec/samba/samba-dcerpcd") + glob.glob("/usr/lib/*/samba/samba-dcerpcd")
    if not found:
        raise Cannot("not installed: samba-dcerpcd (Samba 4.16)")
    return found[0]


class Samba:
    """A call by each of two servers, one for TCP, in turn."""

    def many(self, level):
        return FEW + (200 if level.smallest else 500 if level.name == "quick" else 2000)

    def command_at(self, level):
        return (f"for N in {FEW} {self.many(level)}: viaduct run -- rpcclient -U% -N "
                f"ncacn_np:127.0.0.1 -c 'N times {CALL};'")

    def run(self, viaduct, level):
        need("smbd (samba)", "rpcclient (smbclient)", "unshare", "nsenter", "ip")
        programs()
        if os.geteuid() != 0:
            raise Cannot("only root can have a network namespace, where Samba's ports are free")
        many = self.many(level)
        with turns(viaduct, level) as t, contextlib.ExitStack() as held:
            servers = {way: Server(held, os.path.join(t.folder, way), [viaduct, "run", "--"]
                                   if way == "viaduct" else []) for way in ("tcp", "viaduct")}

            def one(way, prefix):
                few, all_of_them = (servers[way].seconds(prefix, n) for n in (FEW, many))
                # Below 0 by chance, where few calls are made: then there is no figure.
                return max(all_of_them - few, 0) * 1e6 / (many - FEW) or None
            return [t.cell(f"samba {CALL}", "us a call", True, ("tcp", "viaduct"), one)]
