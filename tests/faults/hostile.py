#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sets a hostile peer on a program under Viaduct: it must neither crash nor hang, must end
the connection as the attack deserves, and must serve the next one."""
import argparse
import os
import socket
import subprocess
import sys
import tempfile
import threading

SKIP = 77
HANG_S = 30  # no judgement of speed: a bound on a test that would never end


class Failed(Exception):
    pass


def echo_with(conn):
    """An honest connection, byte for byte."""
    conn.settimeout(HANG_S)
    data = os.urandom(20000)
    writer = threading.Thread(target=conn.sendall, args=(data,))
    writer.start()
    got = b""
    while len(got) < len(data):
        part = conn.recv(65536)
        if not part:
            break
        got += part
    writer.join()
    conn.close()
    if got != data:
        raise Failed("the honest connection lost bytes")


def attacker(args, *arguments):
    who = {"user": args.user, "group": args.user, "extra_groups": []} if args.user else {}
    return subprocess.Popen([args.hostile, "attack", *arguments],
                            stdout=subprocess.PIPE, text=True, **who)


def victim_listens(args, attack, mode, start):
    victim = start(["victim", mode, "listen", "2"])
    port = victim.stdout.readline().strip()
    hostile = attacker(args, attack, "connect", port)
    said = hostile.communicate(timeout=HANG_S)[0].split()
    first = victim.stdout.readline().strip()
    echo_with(socket.create_connection(("127.0.0.1", int(port))))
    return victim, hostile, said, first


def victim_connects(args, attack, mode, start):
    honest = socket.create_server(("127.0.0.1", 0))
    honest.settimeout(HANG_S)
    hostile = attacker(args, attack, "listen")
    port = hostile.stdout.readline().strip()
    victim = start(["victim", mode, "connect", port, str(honest.getsockname()[1])])
    said = hostile.communicate(timeout=HANG_S)[0].split()
    first = victim.stdout.readline().strip()
    conn = honest.accept()[0]
    echo_with(conn)
    honest.close()
    return victim, hostile, said, first


def one(args, attack, end, role, mode, log):
    victims = []

    def start(arguments):
        env = dict(os.environ, VIADUCT_LOG="debug:" + log)
        victims.append(subprocess.Popen(
            [args.viaduct, "run", "--upgrade-after", "0", "--", args.hostile,
             *arguments], stdout=subprocess.PIPE, text=True, env=env))
        # A victim that hangs ends here, and is then seen to have been killed.
        killer = threading.Timer(HANG_S, victims[-1].kill)
        killer.daemon = True
        killer.start()
        return victims[-1]

    play = victim_listens if role == "listen" else victim_connects
    try:
        victim, hostile, said, first = play(args, attack, mode, start)
        second = victim.stdout.readline().strip()
        status = victim.wait(timeout=HANG_S)
    except (OSError, ValueError, subprocess.TimeoutExpired, Failed) as e:
        raise Failed(f"{e!r}; the victim ended with {victims and victims[0].poll()}")
    finally:
        for v in victims:
            if v.poll() is None:
                v.kill()
                v.wait()
    if status != 0:
        raise Failed(f"the victim ended with {status}")
    if hostile.returncode not in (0, -9):
        raise Failed(f"the attack itself failed, after {said}")
    if hostile.returncode == 0 and "lied" not in said:
        raise Failed("the attack did not take place")
    if "attached" in said and ("far" in said) != bool(args.user):
        raise Failed("the doorbells are of the wrong kind")
    if first not in (("eof", "reset") if end == "any" else (end,)):
        raise Failed(f"the victim saw {first!r}, and should have seen {end}")
    if second != "eof":
        raise Failed(f"the honest connection ended with {second!r}")


def may_become(args):
    try:
        subprocess.run([args.hostile, "list"], check=True, user=args.user,
                       stdout=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError) as e:
        print(f"needs root, and a build that other users can run: {e!r}")
        return False
    return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("viaduct")
    parser.add_argument("hostile")
    parser.add_argument("--only", help="one attack")
    parser.add_argument("--mode", action="append")
    parser.add_argument("--user", type=int, help="of the hostile peer, when not our own")
    args = parser.parse_args()
    if args.user and not may_become(args):
        return SKIP
    listed = subprocess.run([args.hostile, "list"], check=True, capture_output=True,
                            text=True).stdout.split("\n")
    failed = count = 0
    with tempfile.TemporaryDirectory() as tmp:
        for line in filter(None, listed):
            attack, end, who = line.split()
            if args.only not in (None, attack):
                continue
            if who == ("own" if args.user else "other"):
                continue
            for role in ("listen", "connect"):
                for mode in args.mode or ("block", "poll", "epoll"):
                    log = os.path.join(tmp, f"{attack}-{role}-{mode}")
                    count += 1
                    try:
                        one(args, attack, end, role, mode, log)
                    except Failed as e:
                        failed += 1
                        print(f"FAIL {attack}, victim {role}s, {mode}: {e}")
                        if os.path.exists(log):
                            with open(log, encoding="utf-8") as f:
                                print("     " + "     ".join(f.readlines()[-12:]))
    print(f"{count - failed} of {count} attacks withstood")
    return 1 if failed or not count else 0


if __name__ == "__main__":
    sys.exit(main())
