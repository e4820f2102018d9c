#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""D-Bus over TCP: dbus-daemon, GLib's and libdbus's clients, and a service on the bus."""
import os
import re
import subprocess
import sys

import harness

DAEMON, GDBUS, SEND, MONITOR = harness.need("dbus-daemon", "gdbus", "dbus-send", "dbus-monitor")
PYTHON = "/usr/bin/python3"
HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rpc")
HAS_GI = not subprocess.run([PYTHON, "-c", "from gi.repository import Gio"],
                            stderr=subprocess.DEVNULL).returncode
BUS = ("org.freedesktop.DBus", "/", "org.freedesktop.DBus")
CONFIG = """
<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
<listen>{}</listen>
<auth>ANONYMOUS</auth>
<allow_anonymous/>
<policy context="default">
<allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/>
</policy>
</busconfig>
"""


def tools(run, address, env):
    """The tools that come with the two libraries."""
    def gdbus(*words, **kw):
        return run.client([GDBUS, *words], env=env, **kw)

    def send(*words, check=True):
        return run.client([SEND, f"--bus={address}", "--print-reply", *words], check=check)

    to = ["--session", "--dest", BUS[0], "--object-path", BUS[1]]
    own = gdbus("call", *to, "--method", BUS[2] + ".ListNames")
    result = [re.sub(rb":1\.\d+", b":1.N", own), harness.sha(gdbus("introspect", *to)),
              len(gdbus("call", *to, "--method", BUS[2] + ".GetId"))]
    for method in ("GetNameOwner", "NameHasOwner", "Nonsense"):
        out = send("--dest=" + BUS[0], BUS[1], f"{BUS[2]}.{method}", "string:org.nobody",
                   check=False)
        result.append(re.sub(rb"(time|serial|destination)=\S+", b"", out))
    return result


def watched(run, address, env):
    """Signals of one client as another sees them, through the bus."""
    log = run.path("monitor")
    with open(log, "wb") as out:
        monitor = subprocess.Popen(
            run.wrap("client", [MONITOR, "--address", address, "type='signal',path='/seen'"]),
            stdout=out, stderr=subprocess.DEVNULL, start_new_session=True)
    run.started.append(monitor)

    def lines():
        with open(log, "rb") as f:
            return [x.strip() for x in f if x.strip().startswith(b"string \"")]

    def emit(text):
        run.client([GDBUS, "emit", "--session", "--object-path", "/seen", "--signal",
                    "org.viaduct.Seen.Now", text], env=env)

    # dbus-monitor does not say when it sees signals: the first ones are for that.
    def sees():
        emit("'begin'")
        return b'string "begin"' in lines()

    run.wait_for(sees, monitor, "the monitor to see")
    words = ["one", "two", "y" * 20_000, "end"]
    for word in words:
        emit(f"'{word}'")
    run.wait_for(lambda: b'string "end"' in lines(), monitor, "the last signal")
    seen = [x for x in lines() if x != b'string "begin"']
    run.stop(monitor)
    return [x[8:-1].decode() for x in seen if not x.startswith(b'string ":1')] == words


def service(run, address):
    """A service of its own on the bus, and calls from a third process."""
    ready = run.path("ready")
    echo = subprocess.Popen(run.wrap("server", [PYTHON, f"{HERE}/bus_echo.py", address, ready]),
                            start_new_session=True)
    run.wait_for(lambda: os.path.exists(ready), echo, "the service")
    out = run.client([PYTHON, f"{HERE}/bus_calls.py", address])
    run.stop(echo)
    return out.decode().splitlines()


def scenario(run):
    port = harness.free_port()
    address = f"tcp:host=127.0.0.1,port={port},family=ipv4"
    run.server([DAEMON, "--nofork", "--nopidfile",
                "--config-file=" + run.write("bus.conf", CONFIG.format(address))], port)
    env = dict(os.environ, DBUS_SESSION_BUS_ADDRESS=address)
    result = tools(run, address, env) + [watched(run, address, env)]
    if HAS_GI:
        result += service(run, address)
    return result


if not HAS_GI:
    print("without python3-gi there is no service of its own on the bus", file=sys.stderr)
# A service and the bus are both the server's side.
harness.main(scenario, alone=True)
