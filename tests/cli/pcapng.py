# SPDX-License-Identifier: Apache-2.0
"""Reads the pcapng files that `viaduct trace` writes, and checks everything that it reads."""
import collections
import ipaddress
import struct

Packet = collections.namedtuple(
    "Packet", "time way source target seq ack flags data length comment")
FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16


class Wrong(Exception):
    pass


def need(condition, what):
    if not condition:
        raise Wrong(what)


def options(data):
    found, at = {}, 0
    while at < len(data):
        code, size = struct.unpack_from("<HH", data, at)
        at += 4
        if code == 0:
            need(size == 0 and at == len(data), "the end of options")
            return found
        need(at + size <= len(data), "an option is longer than its block")
        found[code] = data[at:at + size]
        need(not any(data[at + size:at + size + -size % 4]), "padding")
        at += size + -size % 4
    need(not data, "options without an end")
    return found


def blocks(data, growing=False):
    """growing: what is behind the last whole block is still to come."""
    at = 0
    while at < len(data):
        if growing and (at + 8 > len(data) or
                        at + struct.unpack_from("<II", data, at)[1] > len(data)):
            return
        need(at + 12 <= len(data), f"half a block at {at}")
        kind, size = struct.unpack_from("<II", data, at)
        need(size % 4 == 0 and size >= 12 and at + size <= len(data), f"size of block at {at}")
        need(struct.unpack_from("<I", data, at + size - 4)[0] == size, "both sizes")
        yield kind, data[at + 8:at + size - 4]
        at += size


def summed(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return total


def addresses(packet):
    """(source, target, TCP segment, bytes that the header promises)"""
    if packet[0] >> 4 == 4:
        need(summed(packet[:20]) == 0xffff, "the checksum of IPv4")
        need(packet[9] == 6, "the protocol")
        size = struct.unpack_from(">H", packet, 2)[0]
        return packet[12:16], packet[16:20], packet[20:], size - 20
    need(packet[0] >> 4 == 6 and packet[6] == 6, "the version and protocol of IP")
    size = struct.unpack_from(">H", packet, 4)[0]
    return packet[8:24], packet[24:40], packet[40:], size


def packet_of(body):
    _, high, low, kept, size = struct.unpack_from("<IIIII", body)
    found = options(body[20 + kept + -kept % 4:])
    data = body[20:20 + kept]
    source, target, segment, promised = addresses(data)
    if kept == size:
        need(promised == len(segment), "the length of IP")
        pseudo = source + target + struct.pack(">HH", 6, len(segment))
        need(summed(pseudo + segment) == 0xffff, "the checksum of TCP")
    if len(segment) < 20:
        return None
    ports = struct.unpack_from(">HH", segment)
    seq, ack, offset, flags = struct.unpack_from(">IIBB", segment, 4)
    need(offset == 0x50, "the header's length")
    return Packet(high << 32 | low, struct.unpack("<I", found[2])[0] & 3,
                  (str(ipaddress.ip_address(source)), ports[0]),
                  (str(ipaddress.ip_address(target)), ports[1]),
                  seq, ack, flags, segment[20:], promised - 20,
                  found.get(1, b"").decode())


def payload(data):
    """How many stream bytes a file that grows holds so far."""
    packets = (packet_of(body) for kind, body in blocks(data, True) if kind == 6)
    return sum(p.length for p in packets)


class File:
    """packets; first and last, options of the interface and of the end; ended"""

    def __init__(self, data):
        self.packets, self.end = [], None
        every = list(blocks(data))
        need(every[0][0] == 0x0a0d0d0a, "the section")
        need(struct.unpack_from("<IHHq", every[0][1]) == (0x1a2b3c4d, 1, 0, -1), "its head")
        self.section = options(every[0][1][16:])
        need(every[1][0] == 1, "the interface")
        self.linktype, _, self.snaplen = struct.unpack_from("<HHI", every[1][1])
        need(self.linktype == 101, "the link type")
        self.interface = options(every[1][1][8:])
        need(self.interface[9] == b"\x09", "nanoseconds")
        for kind, body in every[2:]:
            need(self.end is None, "something behind the end")
            if kind == 6:
                self.packets.append(packet_of(body))
            else:
                need(kind == 5, f"a block of type {kind}")
                self.end = options(body[12:])

    def directions(self):
        """{(source, target): {offset in the stream: bytes}}, and what each offset adds up to."""
        found = collections.defaultdict(list)
        ahead = {}
        for p in self.packets:
            way = (p.source, p.target)
            last = ahead.get(way, p.seq)
            # The nearest number with these 32 bits.
            at = last + ((p.seq - last + (1 << 31)) % (1 << 32)) - (1 << 31)
            ahead[way] = at
            if p.data:
                found[way].append((at - 1, p.data))
        return found
