# SPDX-License-Identifier: Apache-2.0
"""Runs a real program plain, under Viaduct at both ends, and at one end only."""
import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import machine  # noqa: E402
from ports import free_port, free_ports  # noqa: E402, F401  pylint: disable=unused-import

SKIP = 77
MODES = ("plain", "both", "server", "client")
# A program that takes longer hangs.
LIMIT_S = 100


class Failure(Exception):
    pass


def need(*programs):
    """Skips the test when a program is missing; returns their paths."""
    found = []
    for program in programs:
        path = shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin")
        if not path:
            print(f"skipped: {program} is missing")
            sys.exit(SKIP)
        found.append(path)
    return found if len(found) > 1 else found[0]


def need_followed_go():
    """Skips the test where the machine lacks what a dynamically linked program in Go needs to be followed."""
    machine.skip_where(machine.lacks_for_go())


def listening(port):
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError), open(name, encoding="ascii") as f:
            for line in f.readlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rsplit(":", 1)[1], 16) == port:
                    return True
    return False


def sha(data):
    return hashlib.sha256(data).hexdigest()[:16]


def go_build(run, source, program, cgo):
    """Links a program in Go. What is compiled of Go's libraries is kept in the build folder: one test compiles
    them, and others that begin beside it wait for that."""
    cache = os.environ.get("GO_CACHE", run.path("cache"))
    os.makedirs(cache, exist_ok=True)
    env = {**os.environ, "GOCACHE": cache, "HOME": run.dir, "GO111MODULE": "off", "GOFLAGS": "-buildvcs=false",
           "CGO_ENABLED": "1" if cgo else "0"}
    with open(cache + ".lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(["go", "build", "-o", program, source], check=True, env=env)


class Run:
    """One run of a server and its clients; `mode` says which of them Viaduct runs."""

    def __init__(self, viaduct, mode):
        self.viaduct = viaduct
        self.mode = mode
        self.dir = tempfile.mkdtemp(prefix="viaduct-app-")
        os.chmod(self.dir, 0o777)
        self.report_path = os.path.join(self.dir, "report")
        # Programs of any user append to it.
        with open(self.report_path, "w", encoding="utf-8"):
            os.chmod(self.report_path, 0o666)
        self.started = []
        self.after = os.environ.get("APPS_UPGRADE_AFTER", "0")

    def wrap(self, side, argv, user=None):
        """The command line of one end, run by `user`."""
        if self.mode in ("both", side):
            argv = [self.viaduct, "run", "--report", self.report_path,
                    "--upgrade-after", self.after, "--", *argv]
        if user:
            argv = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--",
                    *argv]
        return argv

    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, name, content):
        with open(self.path(name), "wb") as f:
            f.write(content if isinstance(content, bytes) else content.encode())
        os.chmod(self.path(name), 0o644)
        return self.path(name)

    def vsftpd(self, root):
        """The file of settings of a server for this folder."""
        conf = pathlib.Path(__file__).resolve().parents[2] / "bench/papers/vsftpd.conf"
        return self.write("vsftpd.conf", conf.read_text().format(root=root))

    def server(self, argv, port, user=None, **kw):
        log = open(self.path(f"server-{len(self.started)}.log"), "wb")
        kw.setdefault("stdin", subprocess.DEVNULL)
        proc = subprocess.Popen(self.wrap("server", argv, user), stdout=log, stderr=log,
                                start_new_session=True, **kw)
        log.close()
        self.started.append(proc)
        self.wait_for(lambda: listening(port), proc, f"{argv[0]} to listen on {port}")
        return proc

    def wait_for(self, condition, proc, what):
        end = time.monotonic() + LIMIT_S
        while not condition():
            if proc.poll() is not None:
                raise Failure(f"{proc.args[0]} ended with status {proc.returncode}\n"
                              + self.logs())
            if time.monotonic() > end:
                raise Failure(f"waited in vain for {what}\n" + self.logs())
            time.sleep(0.02)

    def client(self, argv, stdin=None, user=None, check=True, **kw):
        """Runs a client to its end and returns its standard output."""
        try:
            done = subprocess.run(self.wrap("client", argv, user), input=stdin,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  timeout=LIMIT_S, **kw)
        except subprocess.TimeoutExpired as e:
            raise Failure(f"{' '.join(argv)[:200]} hangs; so far: "
                          f"{(e.stdout or b'')[-2000:]!r} {(e.stderr or b'')[-2000:]!r}\n"
                          + self.logs()) from e
        if check and done.returncode != 0:
            raise Failure(f"{' '.join(argv)[:200]} ended with status {done.returncode}: "
                          f"{done.stdout[-2000:]!r} {done.stderr[-2000:]!r}\n" + self.logs())
        return done.stdout

    def stop(self, proc, sig=signal.SIGTERM):
        """Ends a server so that it can write its report."""
        if proc.poll() is None:
            proc.send_signal(sig)
        try:
            return proc.wait(timeout=30)
        except subprocess.TimeoutExpired as e:
            raise Failure(f"{proc.args[0]} does not end at signal {sig}") from e

    def logs(self):
        text = ""
        for name in sorted(os.listdir(self.dir)):
            if name.endswith(".log"):
                with open(self.path(name), "rb") as f:
                    text += f"--- {name}\n{f.read()[-3000:].decode(errors='replace')}\n"
        return text

    def report(self, killed=False):
        """The lines; with processes killed meanwhile, a part of a line may be among them."""
        lines = []
        with open(self.report_path, encoding="utf-8") as f:
            for line in f:
                try:
                    lines.append(json.loads(line))
                except json.JSONDecodeError:
                    if not killed:
                        raise
        return lines

    def close(self):
        for proc in self.started:
            if proc.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(proc.pid, signal.SIGKILL)
                proc.wait()
        if not os.environ.get("APPS_KEEP"):
            shutil.rmtree(self.dir, ignore_errors=True)


def check_report(mode, report, gains, alone):
    # A process that is killed writes no report: either direction will do.
    def total(key):
        return sum(line[key] for line in report)

    reasons = sorted({name for line in report for name in line["reasons"]})
    if not report:
        raise Failure("no report was written")
    if mode == "both" and gains:
        if total("upgraded") < gains:
            raise Failure(f"{total('upgraded')} ends upgraded, not {int(gains)}; reasons: {reasons}")
        if not total("tx_direct_bytes") + total("rx_direct_bytes"):
            raise Failure(f"no byte went over the direct path; reasons: {reasons}")
    elif not reasons:
        raise Failure("connections stayed on TCP, and no reason is named")
    if mode in ("server", "client") and total("tx_direct_bytes") and not alone:
        raise Failure("bytes went over a direct path to a plain peer")
    return (f"{total('upgraded')} of {total('connections')} ends upgraded, "
            f"{total('rx_direct_bytes')} bytes direct, {total('rx_tcp_bytes')} over TCP"
            + (f", reasons: {', '.join(reasons)}" if reasons else ""))


def main(scenario, gains=True, modes=MODES, alone=False, lacks=None):
    """
    scenario(run) returns what must be the same in every mode. gains: bytes go over the
    direct path where both ends can, on so many ends at least; alone: the server also talks to itself.
    lacks: by mode, what this machine has not, without which the mode is left out.
    """
    viaduct = os.path.abspath(sys.argv[1])  # programs start in folders of their own
    modes = sys.argv[2:] or modes
    results, status = {}, 0
    left_out = [mode for mode in modes if (lacks or {}).get(mode)]
    for mode in left_out:
        print(f"{mode}: skipped: {lacks[mode]}")
    modes = [mode for mode in modes if mode not in left_out]
    if left_out and set(modes) <= {"plain"}:
        sys.exit(SKIP)
    for mode in modes:
        run = Run(viaduct, mode)
        try:
            results[mode] = scenario(run)
            for proc in run.started:
                run.stop(proc)
            text = "" if mode == "plain" else check_report(mode, run.report(), gains, alone)
            if results[mode] != results[modes[0]]:
                raise Failure(f"{results[mode]}\nbut {modes[0]}: {results[modes[0]]}")
            print(f"{mode}: ok {text}", flush=True)
        except Failure as e:
            print(f"{mode}: FAILED: {e}", flush=True)
            for line in run.report() if mode != "plain" else []:
                print("  report:", json.dumps(line))
            status = 1
            if mode == "plain":
                break
        finally:
            run.close()
    sys.exit(status)
