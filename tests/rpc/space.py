# SPDX-License-Identifier: Apache-2.0
"""A network namespace with an rpcbind of its own, as root or as an ordinary user."""
import os
import shutil
import subprocess
import sys
import tempfile
import time

SKIP = 77
HOST = "127.0.0.1"
# Also for a user who may not read root's folders.
PYTHON = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable
USER = 65534  # who has no rights, when root asks for an ordinary user
PROGRAMS = ("rpcbind", "rpcinfo", "unshare", "ip", "setpriv")
os.environ["PATH"] += ":/usr/sbin:/sbin"


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIP)


def enter(who, shim, *programs):
    """Goes on in namespaces of its own, with /run of its own; the process that calls ends here. `who`:
    root, or user: one without rights, who is root in a namespace of users. rpcbind changes to a user of
    its own, and clears its groups, which only root may: `shim` lets it go on without."""
    if "INSIDE" in os.environ:
        return
    for program in (*PROGRAMS, *programs):
        if not shutil.which(program):
            skip(f"{program} is missing")
    as_root = os.geteuid() == 0
    if who == "root" and not as_root:
        skip("needs root")
    before = []
    if who == "user" and as_root:
        before = ["setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups", "--"]
    into = [*before, "unshare", "-n", "-m"]
    number = 65500
    if who == "user":
        into.append("-r")
        number = 0
        if subprocess.run([*into, "true"], stderr=subprocess.DEVNULL).returncode:
            skip("an ordinary user may have no namespaces here")
    with tempfile.TemporaryDirectory() as tmp:
        os.chmod(tmp, 0o755)
        users = os.path.join(tmp, "passwd")
        with open("/etc/passwd", encoding="utf-8") as old, open(users, "w", encoding="utf-8") as f:
            gid = 65534 if number else 0
            f.write(f"_rpc:x:{number}:{gid}::/run/rpcbind:/bin/false\n" + old.read())
        os.chmod(users, 0o644)
        library = os.path.join(tmp, "shim.so")
        shutil.copy(shim, library)
        os.chmod(library, 0o755)
        script = ("ip link set lo up && mount -t tmpfs none /run && mkdir -m 777 /run/rpcbind && "
                  'mount --bind "$0" /etc/passwd && exec "$@"')
        env = dict(os.environ, INSIDE=library, TMPDIR="/run")
        sys.exit(subprocess.run([*into, "sh", "-c", script, users, PYTHON, *sys.argv],
                                env=env).returncode)


def say(*command, **kw):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120,
                          **kw)
    return done.stdout.decode().splitlines()


def wait_for(ready, process):
    while not ready():
        if process.poll() is not None:
            sys.exit(f"{process.args} has ended with status {process.returncode}")
        time.sleep(0.05)


def stop(process):
    process.terminate()
    return process.wait()


def binder(run):
    """rpcbind under `run`, once it answers."""
    env = dict(os.environ, LD_PRELOAD=os.environ["INSIDE"])
    process = subprocess.Popen([*run, shutil.which("rpcbind"), "-f"], env=env)
    wait_for(lambda: "100000" in "".join(say("rpcinfo", "-p", HOST)), process)
    return process
