"""Encodes GETBULK requests and decodes responses of SNMPv2c (RFC 1901, RFC 3416; X.690 for the encoding)."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from hyperscout_formats.snmp.rows import Row
from hyperscout_formats.snmp.varbinds import content, parse
from hyperscout_formats.text.errors import FormatError

_SEQUENCE: Final = 0x30
_INTEGER: Final = 0x02
_STRING: Final = 0x04
_NULL: Final = b"\x05\x00"
_OID: Final = 0x06
_RESPONSE: Final = 0xA2
_GET_BULK: Final = 0xA5
_VERSION: Final = 1  # SNMPv2c
# RFC 3416, section 3: names of error-status.
_ERRORS: Final = (
    *("noError", "tooBig", "noSuchName", "badValue", "readOnly", "genErr", "noAccess", "wrongType"),
    *("wrongLength", "wrongEncoding", "wrongValue", "noCreation", "inconsistentValue"),
    *("resourceUnavailable", "commitFailed", "undoFailed", "authorizationError", "notWritable"),
    "inconsistentName",
)


class Response(NamedTuple):
    """A response. `error` is the name of its error-status, "" = none.

    `rows` end before the first row without a value.
    """

    community: bytes
    number: int
    error: str
    rows: list[Row]


def get_bulk(community: bytes, number: int, start: Sequence[int], repetitions: int) -> bytes:
    """Return a request for the rows that follow `start`. `number` is the request-id, 31 bits."""
    binds = _element(_SEQUENCE, _element(_SEQUENCE, _element(_OID, _oid(start)) + _NULL))
    pdu = _element(_GET_BULK, _integer(number) + _integer(0) + _integer(repetitions) + binds)
    return _element(_SEQUENCE, _integer(_VERSION) + _element(_STRING, community) + pdu)


def response(data: bytes, source: str = "SNMP") -> Response:
    """Decode a response. Raises FormatError for any other message, and for another version than v2c."""
    try:
        return _response(data, source)
    except IndexError as error:
        raise FormatError(source, 0, "the message is truncated") from error


def _response(data: bytes, source: str) -> Response:
    at, end = content(data, 0, _SEQUENCE, source)
    version, at = _number(data, at, source)
    if version != _VERSION:
        raise FormatError(source, 0, f"expected version {_VERSION}, found {version}")
    start, at = content(data, at, _STRING, source)
    community = data[start:at]
    at, pdu_end = content(data, at, _RESPONSE, source)
    number, at = _number(data, at, source)
    status, at = _number(data, at, source)
    _, at = _number(data, at, source)
    if not at <= pdu_end <= end:
        raise FormatError(source, 0, "the length of the response is wrong")
    if status:
        error = _ERRORS[status] if 0 < status < len(_ERRORS) else f"error {status}"
        return Response(community, number, error, [])
    return Response(community, number, "", parse(data[at:pdu_end], source))


def _number(data: bytes, at: int, source: str) -> tuple[int, int]:
    start, end = content(data, at, _INTEGER, source)
    if not 0 < end - start <= 5:  # 32 bits
        raise FormatError(source, 0, f"expected a number of 1 to 5 octets, found {end - start}")
    return int.from_bytes(data[start:end], "big", signed=True), end


def _element(tag: int, inner: bytes) -> bytes:
    size = len(inner)
    if size < 0x80:
        return bytes((tag, size)) + inner
    octets = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(octets))) + octets + inner


def _integer(number: int) -> bytes:
    return _element(_INTEGER, number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True))


def _oid(arcs: Sequence[int]) -> bytes:
    """Encode an OID (X.690, 8.19)."""
    found = bytearray()
    for arc in (arcs[0] * 40 + arcs[1], *arcs[2:]):
        septets = [arc & 0x7F]
        while arc := arc >> 7:
            septets.append(0x80 | arc & 0x7F)
        found += bytes(reversed(septets))
    return bytes(found)
