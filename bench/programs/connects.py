# SPDX-License-Identifier: Apache-2.0
"""Connections made and used, between two hosts: each for one byte there and back, or one for many.

usage: connects.py serve ADDRESS PORT
       connects.py connect ADDRESS PORT SECONDS    connections a second
       connects.py turns ADDRESS PORT SECONDS      bytes there and back a second, on one
"""
import socket
import sys
import time


def serve(address, port):
    """Until a connection says so."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.listen(16)
    while True:
        connection = listener.accept()[0]
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while said := connection.recv(1):
            connection.sendall(said)
            if said == b"q":
                return
        connection.close()


def connected(address, port):
    connection = socket.socket()
    connection.connect((address, port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def turn(connection, byte=b"x"):
    connection.sendall(byte)
    if connection.recv(1) != byte:
        sys.exit("the server has not answered")


def each_new(address, port, seconds):
    count, began = 0, time.monotonic()
    while time.monotonic() < began + seconds:
        connection = connected(address, port)
        turn(connection)
        connection.close()
        count += 1
    return count / (time.monotonic() - began)


def all_on_one(address, port, seconds):
    connection = connected(address, port)
    for _ in range(100):
        turn(connection)
    count, began = 0, time.monotonic()
    while time.monotonic() < began + seconds:
        turn(connection)
        count += 1
    took = time.monotonic() - began
    connection.close()
    return count / took


def main(what, address, port, seconds="1"):
    if what == "serve":
        serve(address, int(port))
        return
    rate = {"connect": each_new, "turns": all_on_one}[what](address, int(port), float(seconds))
    turn(connected(address, int(port)), b"q")
    print(f"{rate:.1f} a second")


main(*sys.argv[1:])
