"""Reads the end of a certificate's validity, which gRPC does not report. Pure.

The certificate is already verified. This module reads only its `validity` field (RFC 5280, 4.1; DER is
X.690, 8.1). Python's `ssl` parses only certificates of its own connections.
"""

import ssl
from datetime import UTC, datetime

_SEQUENCE, _VERSION = 0x30, 0xA0
_UTC_TIME, _GENERALIZED_TIME = 0x17, 0x18


def not_after_s(pem: bytes) -> float:
    """Returns the Unix time at which the first certificate of a PEM text expires. Raises ValueError."""
    try:
        der = ssl.PEM_cert_to_DER_cert(pem.decode("ascii").strip())
        certificate = _content(der, 0, _SEQUENCE)
        tbs = _content(der, certificate[0], _SEQUENCE)
        at = tbs[0]
        if der[at] == _VERSION:
            at = _span(der, at)[1]
        for _ in range(3):  # serialNumber, signature, issuer
            at = _span(der, at)[1]
        not_before = _content(der, at, _SEQUENCE)[0]
        at = _span(der, not_before)[1]
        start, end = _span(der, at)
        return _time_s(der[at], der[start:end].decode("ascii"))
    except (IndexError, UnicodeDecodeError) as error:
        raise ValueError("not a certificate") from error


def _span(der: bytes, at: int) -> tuple[int, int]:
    """Returns the offsets at which the content of the element at `at` starts and ends."""
    length, start = der[at + 1], at + 2
    if length & 0x80:
        octets = length & 0x7F
        if not 1 <= octets <= 4:
            raise ValueError("not a certificate: invalid DER length")
        length = int.from_bytes(der[start : start + octets], "big")
        start += octets
    if start + length > len(der):
        raise ValueError("not a certificate: it is truncated")
    return start, start + length


def _content(der: bytes, at: int, tag: int) -> tuple[int, int]:
    if der[at] != tag:
        raise ValueError(f"not a certificate: expected tag {tag:#x}, found {der[at]:#x}")
    return _span(der, at)


def _time_s(tag: int, text: str) -> float:
    if tag == _UTC_TIME:  # two-digit year: 1950 to 2049 (RFC 5280, 4.1.2.5.1)
        text = ("20" if text < "50" else "19") + text
    elif tag != _GENERALIZED_TIME:
        raise ValueError(f"not a certificate: expected a time, found tag {tag:#x}")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
