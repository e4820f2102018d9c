# SPDX-License-Identifier: Apache-2.0
"""The protocol between two daemons as docs/relay.md has it, on libsodium itself: for peers that
do not keep to it."""
import ctypes
import ctypes.util
import os
import socket
import struct

from rig import OK, PORT, SECONDS, ends

MAGIC = b"viaductd"
HELLO, REPLY, PROOF, REFUSAL = 1, 2, 3, 4
# Not find_library, which may run a compiler.
sodium = ctypes.CDLL("libsodium.so.23")
sodium.sodium_init()


def out(size):
    return ctypes.create_string_buffer(size)


def subkey(key, number):
    sub = out(32)
    sodium.crypto_kdf_derive_from_key(sub, ctypes.c_size_t(32), ctypes.c_uint64(number),
                                      b"viarelay", key)
    return sub.raw


def mac(key, data):
    got = out(32)
    sodium.crypto_auth(got, data, ctypes.c_ulonglong(len(data)), key)
    return got.raw


def hash64(key, data):
    got = out(64)
    sodium.crypto_generichash(got, ctypes.c_size_t(64), data, ctypes.c_ulonglong(len(data)),
                              key, ctypes.c_size_t(32))
    return got.raw


def point(secret):
    got = out(32)
    sodium.crypto_scalarmult_base(got, secret)
    return got.raw


def common(secret, other):
    got = out(32)
    if sodium.crypto_scalarmult(got, secret, other):
        raise ValueError("small order")
    return got.raw


def head(type, status=0, version=1):
    return MAGIC + struct.pack(">HBB", version, type, status)


def question(id, asker, holder, hello=b"", uid=0):
    return struct.pack(">BBHII", 1, 0, len(hello), id, uid) + asker + holder + hello


def answer(id, status=OK, hello=b"", uid=0):
    return struct.pack(">BBHII", 2, status, len(hello), id, uid) + hello


class Answer:
    def __init__(self, plain):
        _, self.status, n, self.id, self.uid = struct.unpack_from(">BBHII", plain)
        self.hello = plain[12:]
        assert len(self.hello) == n


class Closed(Exception):
    """The other side has ended the link."""


class Peer:
    """One side of a link; each step may be changed by who uses it."""
    def __init__(self, sock, key=b"\x11" * 32, id=b"one", initiator=True):
        self.socket, self.initiator, self.id = sock, initiator, id.ljust(16, b"\0")
        self.keys = [None] + [subkey(key, n) for n in range(1, 5)]
        self.socket.settimeout(SECONDS)
        own, other = ends(sock)
        self.ends = own + other if initiator else other + own
        self.secret = os.urandom(32)
        self.sealed = self.opened = 0
        self.sent = []

    def read(self, count):
        data = b""
        while len(data) < count:
            try:
                more = self.socket.recv(count - len(data))
            except ConnectionResetError:
                more = b""
            if not more:
                raise Closed(data)
            data += more
        return data

    def write(self, data):
        self.sent.append(data)
        self.socket.sendall(data)

    def hello_message(self):
        start = head(HELLO) + self.id + point(self.secret)
        return start + mac(self.keys[1], self.ends + start)

    def derive(self, other):
        both = hash64(self.keys[4], common(self.secret, other) + self.ends + self.hello +
                      self.reply)
        self.seal_key, self.open_key = (both[:32], both[32:])[::1 if self.initiator else -1]

    def shake(self):
        """As the initiator. Raises Closed with what came instead of a REPLY."""
        self.hello = self.hello_message()
        self.write(self.hello)
        self.reply = self.read(76)
        if self.reply[44:] != mac(self.keys[2], self.ends + self.hello + self.reply[:44]):
            raise ValueError("the responder's MAC")
        self.derive(self.reply[12:44])
        self.write(head(PROOF) + mac(self.keys[3], self.ends + self.hello + self.reply))
        return self

    def respond(self):
        self.hello = self.read(92)
        if self.hello[60:] != mac(self.keys[1], self.ends + self.hello[:60]):
            raise ValueError("the initiator's MAC")
        start = head(REPLY) + point(self.secret)
        self.reply = start + mac(self.keys[2], self.ends + self.hello + start)
        self.derive(self.hello[28:60])
        self.write(self.reply)
        if self.read(44)[12:] != mac(self.keys[3], self.ends + self.hello + self.reply):
            raise ValueError("the initiator's proof")
        return self

    def frame(self, plain, number=None):
        if number is None:
            number = self.sealed
            self.sealed += 1
        start = struct.pack(">HHQ", len(plain) + 16, 0, number)
        body = out(len(plain) + 16)
        sodium.crypto_aead_chacha20poly1305_ietf_encrypt(
            body, None, plain, ctypes.c_ulonglong(len(plain)), start, ctypes.c_ulonglong(12),
            None, bytes(4) + struct.pack(">Q", number), self.seal_key)
        return start + body.raw

    def say(self, plain):
        self.write(self.frame(plain))

    def hear(self):
        start = self.read(12)
        length, zero, number = struct.unpack(">HHQ", start)
        assert (zero, number) == (0, self.opened)
        sealed, plain = self.read(length), out(length)
        if sodium.crypto_aead_chacha20poly1305_ietf_decrypt(
                plain, None, None, sealed, ctypes.c_ulonglong(length), start,
                ctypes.c_ulonglong(12), bytes(4) + struct.pack(">Q", number), self.open_key):
            raise ValueError("the frame")
        self.opened += 1
        return plain.raw[:length - 16]

    def ask(self, *args, **fields):
        self.say(question(*args, **fields))
        return Answer(self.hear())

    def ended(self):
        """Waits until the other side has ended the link; returns what came before."""
        try:
            while True:
                self.read(1)
        except Closed:
            return True

    def close(self):
        self.socket.close()


def connect(host, address, source=None, **options):
    with host:
        return Peer(socket.create_connection((address, PORT), SECONDS,
                                             (source, 0) if source else None), **options)
