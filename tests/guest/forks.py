#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A connection on which messages go there and back, and whose server forks a child that uses it.

usage: forks.py listen|connect ADDRESS PORT FOLDER

FOLDER/fork has the connector ask for a child, FOLDER/child for MESSAGES of it, FOLDER/reap for its
end; there is FOLDER/NAME-done afterwards, until somebody removes both. FOLDER/go ends it.
"""
import os
import socket
import sys
import time

MESSAGES, BYTES = 50, 700
TURN_S = 0.01
STEPS = "fork", "child", "reap"


def take(sock):
    got = b""
    while len(got) < BYTES and (piece := sock.recv(BYTES - len(got))):
        got += piece
    return got


def message(words):
    return words.encode().ljust(BYTES, b".")


def child(sock, told, back):
    """Uses the connection in its parent's place, when that says so, for MESSAGES."""
    while os.read(told, 1):
        for n in range(MESSAGES):
            sock.sendall(message(f"child {n}"))
            if (got := take(sock)) != message(f"heard {n}"):
                sys.exit(f"the child gets {got[:20]}")
        sock.sendall(message("child is done"))
        os.write(back, b"x")


def listen(listener):
    sock = listener.accept()[0]
    pid = tell = heard = 0
    while got := take(sock):
        if got == message("fork"):
            told, tell = os.pipe()
            heard, back = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(tell)
                child(sock, told, back)
                os._exit(0)
            os.close(told)
            os.close(back)
        elif got == message("child"):
            os.write(tell, b"x")
            if not os.read(heard, 1):
                sys.exit("the child has ended")
            continue
        elif got == message("reap"):
            os.close(tell)
            os.close(heard)
            if status := os.waitpid(pid, 0)[1]:
                sys.exit(f"the child ends with {status}")
        sock.sendall(got)


def folder(name):
    return f"{sys.argv[4]}/{name}"


def turn(sock, words):
    sock.sendall(message(words))
    if (got := take(sock)) != message(words):
        sys.exit(f"{words} comes back as {got[:20]}")


def connect(sock):
    number = 0
    while not os.path.exists(folder("go")):
        time.sleep(TURN_S)
        # In this order: both are removed, the first one first.
        step = next((step for step in STEPS if not os.path.exists(folder(f"{step}-done"))
                     and os.path.exists(folder(step))), None)
        if step == "child":
            sock.sendall(message(step))
            for n in range(MESSAGES):
                if (got := take(sock)) != message(f"child {n}"):
                    sys.exit(f"message {n} of the child is {got[:20]}")
                sock.sendall(message(f"heard {n}"))
            if (got := take(sock)) != message("child is done"):
                sys.exit(f"the child's last is {got[:20]}")
        else:
            turn(sock, step or f"turn {number}")
            number += 1
        if step:
            open(folder(f"{step}-done"), "x").close()


def main():
    role, address, port = sys.argv[1:4]
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    if role == "listen":
        listen(socket.create_server((address, int(port)), family=family))
    else:
        with socket.socket(family) as sock:
            sock.connect((address, int(port)))
            connect(sock)
        print("all came back")


main()
