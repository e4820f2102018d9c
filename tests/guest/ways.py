#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One end of a connection for each address, all of one process: messages go there and back by
each of them, in turns, and then by one at a time, when a file says by which.

usage: ways.py listen|connect PORT FOLDER ADDRESS...

FOLDER/quiet ends the turns. FOLDER/go-N has the connector then send MESSAGES by the N-th; there is
FOLDER/went-N when all have come back, until somebody removes both. FOLDER/go ends it.
"""
import os
import socket
import sys
import threading
import time

MESSAGES, BYTES = 300, 3000
TURN_S = 0.01


def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def take(sock):
    got = b""
    while len(got) < BYTES and (piece := sock.recv(BYTES - len(got))):
        got += piece
    return got


def echo(listener):
    sock = listener.accept()[0]
    while got := take(sock):
        sock.sendall(got)


def turn(sock, number):
    said = number.to_bytes(4, "little") * (BYTES // 4)
    sock.sendall(said)
    if (got := take(sock)) != said:
        sys.exit(f"message {number} comes back as {len(got)} bytes that begin with {got[:8]}")


def connect(socks, folder):
    number = 0
    while not os.path.exists(f"{folder}/go"):
        time.sleep(TURN_S)
        for i, sock in enumerate(socks):
            went = f"{folder}/went-{i}"
            # In this order: both are removed, the first one first.
            if os.path.exists(went):
                pass
            elif os.path.exists(f"{folder}/go-{i}"):
                for n in range(MESSAGES):
                    turn(sock, n)
                open(went, "x").close()
            elif not os.path.exists(f"{folder}/quiet"):
                turn(sock, number)
                number += 1


def main():
    role, port, folder, *addresses = sys.argv[1:]
    if role == "listen":
        listeners = [socket.create_server((address, int(port)), family=family(address))
                     for address in addresses]
        threads = [threading.Thread(target=echo, args=(at,)) for at in listeners]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    else:
        socks = [socket.socket(family(address)) for address in addresses]
        for sock, address in zip(socks, addresses):
            sock.connect((address, int(port)))
        connect(socks, folder)
        print("all came back")


main()
