"""LLDP frames byte by byte (IEEE 802.1AB-2016, clause 8): also those that no good sender would send."""

import struct

GROUP = bytes.fromhex("0180c200000e")
SENDER = bytes.fromhex("020000000009")
END = b"\0\0"


def tlv(kind: int, value: bytes) -> bytes:
    return struct.pack("!H", kind << 9 | len(value)) + value


def chassis(subtype: int, value: bytes) -> bytes:
    return tlv(1, bytes([subtype]) + value)


def port(subtype: int, value: bytes) -> bytes:
    return tlv(2, bytes([subtype]) + value)


def ttl(seconds: int) -> bytes:
    return tlv(3, struct.pack("!H", seconds))


def capabilities(available: int, enabled: int) -> bytes:
    return tlv(7, struct.pack("!HH", available, enabled))


def address(family: int, value: bytes, object_id: bytes = b"") -> bytes:
    head = bytes([len(value) + 1, family]) + value
    return tlv(8, head + b"\x02" + struct.pack("!IB", 3, len(object_id)) + object_id)


def unit(*tlvs: bytes, end: bytes = END) -> bytes:
    """An Ethernet frame of these TLVs alone."""
    return GROUP + SENDER + b"\x88\xcc" + b"".join(tlvs) + end


MANDATORY = (chassis(4, SENDER), port(5, b"swp7"), ttl(120))


def frame(*tlvs: bytes) -> bytes:
    """A frame from chassis 02:00:00:00:00:09, port swp7, with more TLVs."""
    return unit(*MANDATORY, *tlvs)
