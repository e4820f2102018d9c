# SPDX-License-Identifier: Apache-2.0
"""The protocol between two daemons as docs/relay.md has it, on libsodium itself: for peers that
do not keep to it."""
import ctypes
import ctypes.util
import socket
import struct

from rig import OK, PORT, SECONDS, ends

MAGIC = b"viaductd"
PROTOCOL = 2
HELLO, REPLY, PROOF, REFUSAL = 1, 2, 3, 4
HELLO_BYTES, REPLY_BYTES, PROOF_BYTES, TAG_BYTES = 92, 100, 68, 17
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


def keyed_hash(key, data):
    got = out(32)
    sodium.crypto_generichash(got, ctypes.c_size_t(32), data, ctypes.c_ulonglong(len(data)),
                              key, ctypes.c_size_t(32))
    return got.raw


def keypair():
    public, secret = out(32), out(32)
    sodium.crypto_kx_keypair(public, secret)
    return public.raw, secret.raw


def exchanged(initiator, own, secret, other):
    """What is sealed with, and what is opened with."""
    rx, tx = out(32), out(32)
    side = sodium.crypto_kx_client_session_keys if initiator else \
        sodium.crypto_kx_server_session_keys
    if side(rx, tx, own, secret, other):
        raise ValueError("small order")
    return tx.raw, rx.raw


def head(type, status=0, version=PROTOCOL):
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
        self.point, self.secret = keypair()
        self.start, self.seal_state, self.open_state = out(24), out(64), out(64)
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
        start = head(HELLO) + self.id + self.point
        return start + mac(self.keys[1], self.ends + start)

    def derive(self, other, seen):
        """Begins to seal; returns the key with which the other one does."""
        seal, open = (keyed_hash(self.keys[4], key + self.ends + seen)
                      for key in exchanged(self.initiator, self.point, self.secret, other))
        sodium.crypto_secretstream_xchacha20poly1305_init_push(self.seal_state, self.start, seal)
        return open

    def open(self, start, key):
        sodium.crypto_secretstream_xchacha20poly1305_init_pull(self.open_state, start, key)

    def reply_message(self):
        """The answer to self.hello."""
        start = head(REPLY) + self.point
        self.open_key = self.derive(self.hello[28:60], self.hello + start)
        start += self.start.raw
        return start + mac(self.keys[2], self.ends + self.hello + start)

    def shake(self):
        """As the initiator. Raises Closed with what came instead of a REPLY."""
        self.hello = self.hello_message()
        self.write(self.hello)
        self.reply = self.read(REPLY_BYTES)
        if self.reply[68:] != mac(self.keys[2], self.ends + self.hello + self.reply[:68]):
            raise ValueError("the responder's MAC")
        self.open(self.reply[44:68], self.derive(self.reply[12:44], self.hello + self.reply[:44]))
        start = head(PROOF) + self.start.raw
        self.write(start + mac(self.keys[3], self.ends + self.hello + self.reply + start))
        return self

    def respond(self):
        self.hello = self.read(HELLO_BYTES)
        if self.hello[60:] != mac(self.keys[1], self.ends + self.hello[:60]):
            raise ValueError("the initiator's MAC")
        self.reply = self.reply_message()
        self.write(self.reply)
        proof = self.read(PROOF_BYTES)
        if proof[36:] != mac(self.keys[3], self.ends + self.hello + self.reply + proof[:36]):
            raise ValueError("the initiator's proof")
        self.open(proof[12:36], self.open_key)
        return self

    def frame(self, plain):
        start = struct.pack(">HHQ", len(plain) + TAG_BYTES, 0, self.sealed)
        self.sealed += 1
        body = out(len(plain) + TAG_BYTES)
        sodium.crypto_secretstream_xchacha20poly1305_push(
            self.seal_state, body, None, plain, ctypes.c_ulonglong(len(plain)), start,
            ctypes.c_ulonglong(12), ctypes.c_ubyte(0))
        return start + body.raw

    def say(self, plain):
        self.write(self.frame(plain))

    def hear(self):
        start = self.read(12)
        length, zero, number = struct.unpack(">HHQ", start)
        assert (zero, number) == (0, self.opened)
        sealed, plain, tag = self.read(length), out(length), out(1)
        if sodium.crypto_secretstream_xchacha20poly1305_pull(
                self.open_state, plain, None, tag, sealed, ctypes.c_ulonglong(length), start,
                ctypes.c_ulonglong(12)) or tag.raw != b"\0":
            raise ValueError("the frame")
        self.opened += 1
        return plain.raw[:length - TAG_BYTES]

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
