# SPDX-License-Identifier: Apache-2.0
"""One connection, for programs that are run once at each of its ends."""
import socket


def meet(role, address, port):
    """`listen`: the first that comes; `connect`: to it."""
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    if role == "connect":
        sock.connect((address, port))
        return sock
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((address, port))
    sock.listen()
    return sock.accept()[0]
