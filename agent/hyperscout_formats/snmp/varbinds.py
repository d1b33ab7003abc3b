"""Decodes variable bindings (RFC 3416, section 3; X.690 for the encoding) into rows.

A response has about thirty bindings, and a crawl half a million. Each takes a few microseconds here.
"""

from collections.abc import Iterator
from typing import Final

from hyperscout_formats.snmp.rows import (
    ADDRESS,
    COUNTER,
    COUNTER64,
    GAUGE,
    INTEGER,
    MAX_OID_PARTS,
    OID,
    OPAQUE,
    STRING,
    TICKS,
    Row,
)
from hyperscout_formats.text.errors import FormatError

_SEQUENCE: Final = 0x30
_OID: Final = 0x06
_MAX_ARC: Final = 0xFFFF_FFFF
# RFC 2578, 7.1 and RFC 3416, 3: tags of values.
_NUMBERS: Final = {0x02: INTEGER, 0x41: COUNTER, 0x42: GAUGE, 0x43: TICKS, 0x46: COUNTER64}
_TEXTS: Final = {0x04: STRING, 0x40: ADDRESS, 0x44: OPAQUE}
# noSuchObject, noSuchInstance, endOfMibView, and NULL: the variable has no value.
_NOTHING: Final = frozenset({0x80, 0x81, 0x82, 0x05})


def parse(data: bytes, source: str = "SNMP") -> list[Row]:
    """Return rows in order, up to the first without a value, where the visible part ends.

    Raises FormatError.
    """
    try:
        return list(_rows(data, source))
    except IndexError as error:
        raise FormatError(source, 0, "the variable bindings are truncated") from error


def _rows(data: bytes, source: str) -> Iterator[Row]:
    at, end = content(data, 0, _SEQUENCE, source)
    if end != len(data):
        raise FormatError(source, 0, "the length of the variable bindings is wrong")
    while at < end:
        at, bind_end = content(data, at, _SEQUENCE, source)
        name, value_at = content(data, at, _OID, source)
        oid = _arcs(data[name:value_at], source)
        tag = data[value_at]
        start, at = content(data, value_at, tag, source)
        if at != bind_end or bind_end > end:
            raise FormatError(source, 0, "the length of a variable binding is wrong")
        if tag in _TEXTS:
            yield Row(oid, _TEXTS[tag], data[start:at])
        elif tag in _NUMBERS:
            if not 0 < at - start <= 9:  # 64 bits and a sign
                raise FormatError(source, 0, f"expected a number of 1 to 9 octets, found {at - start}")
            number = int.from_bytes(data[start:at], "big", signed=True)
            if tag != 0x02 and number < 0:  # common: the leading zero octet of an unsigned value is missing
                number = int.from_bytes(data[start:at], "big")
            yield Row(oid, _NUMBERS[tag], number)
        elif tag == _OID:
            yield Row(oid, OID, _arcs(data[start:at], source))
        elif tag in _NOTHING:
            return
        else:
            raise FormatError(source, 0, f"a value of a type that SNMP does not define (tag {tag:#x})")


def content(data: bytes, at: int, tag: int, source: str) -> tuple[int, int]:
    """Return where the content of the element at `at` begins and ends. Raises FormatError."""
    if data[at] != tag:
        raise FormatError(source, 0, f"expected tag {tag:#x}, found {data[at]:#x}")
    size = data[at + 1]
    at += 2
    if size & 0x80:
        octets = size & 0x7F
        if not 0 < octets <= 4:
            raise FormatError(source, 0, f"expected a length of 1 to 4 octets, found {octets}")
        size = int.from_bytes(data[at : at + octets], "big")
        at += octets
    if at + size > len(data):
        raise FormatError(source, 0, "an element is truncated")
    return at, at + size


def _arcs(octets: bytes, source: str) -> tuple[int, ...]:
    """Decode an OID (X.690, 8.19)."""
    if not octets or octets[-1] & 0x80 or len(octets) > 5 * MAX_OID_PARTS:
        raise FormatError(source, 0, "an invalid OID")
    arcs: list[int] = []
    arc = 0
    for octet in octets:
        if octet & 0x80:
            arc = (arc | octet & 0x7F) << 7
        else:
            arcs.append(arc | octet)
            arc = 0
    first = min(arcs[0] // 40, 2)
    arcs[:1] = (first, arcs[0] - 40 * first)
    if len(arcs) > MAX_OID_PARTS or max(arcs) > _MAX_ARC:
        raise FormatError(source, 0, "an OID that is too long")
    return tuple(arcs)
