"""Converts values of a switch's MIBs to the texts of LLDP, for all vendor and recording formats.

All functions are pure. A host that receives LLDP and a switch that is queried over SNMP must give the same
text for the same device, so the rules are those of `lldp_text`.
"""

import ipaddress
import re
from collections.abc import Mapping
from typing import Final

from hyperscout_formats.snmp.rows import TEXT, Row
from hyperscout_formats.text.lldp_text import CHASSIS_WORDS, PORT_WORDS, UNHANDLED, text_of_bytes

MAX_TEXT: Final = 255
"""Characters. LLDP has no longer texts (IEEE 802.1AB-2016, 8.5)."""

# LLDP-MIB's bits in order of their numbers (lldpRemSysCapEnabled), as lldpctl's words.
_CAPABILITIES: Final = ("Other", "Repeater", "Bridge", "Wlan", "Router", "Tel", "Docsis", "Station")
# Labels of LldpChassisIdSubtype and LldpPortIdSubtype in lower case, as a walk with a loaded MIB prints them.
_CHASSIS_LABELS: Final = {
    b"chassiscomponent": 1,
    b"interfacealias": 2,
    b"portcomponent": 3,
    b"macaddress": 4,
    b"networkaddress": 5,
    b"interfacename": 6,
    b"local": 7,
}
_PORT_LABELS: Final = {
    b"interfacealias": 1,
    b"portcomponent": 2,
    b"macaddress": 3,
    b"networkaddress": 4,
    b"interfacename": 5,
    b"agentcircuitid": 6,
    b"local": 7,
}
_MAC_BYTES: Final = 6
_MAC_TEXT: Final = re.compile(
    rb"\s*([0-9a-f]{1,2}(?:([: -])[0-9a-f]{1,2})(?:\2[0-9a-f]{1,2}){4})\s*", re.IGNORECASE
)
_MAC_RUN: Final = re.compile(rb"\s*([0-9a-f]{4})[.:-]?([0-9a-f]{4})[.:-]?([0-9a-f]{4})\s*", re.IGNORECASE)
_NO_MACS: Final = frozenset({"00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff"})
_NO_TEXT: Final = "Not Advertised"  # Dell's text for a value that the neighbour does not announce
_BYTES: Final = {1: 4, 2: 16}  # length of an address, by IANA address family number
_PAIRS: Final = re.compile(rb"(?:[0-9A-Fa-f]{2}(?=\s|$)\s*)+")


def port_word(subtype: Row | None) -> str:
    """Return lldpctl's word for the subtype of a port id, "" = unknown."""
    return PORT_WORDS.get(_subtype(subtype, _PORT_LABELS), "")


def chassis_id(subtype: Row | None, row: Row) -> tuple[str, str, str]:
    """Return lldpctl's word, the text, and a doubt about it ("" = none), which reads on after "id"."""
    return _identifier(CHASSIS_WORDS.get(_subtype(subtype, _CHASSIS_LABELS)), row)


def port_id(subtype: Row | None, row: Row) -> tuple[str, str, str]:
    """Return the same as `chassis_id`, for a port id."""
    return _identifier(PORT_WORDS.get(_subtype(subtype, _PORT_LABELS)), row)


def text(row: Row | None) -> str:
    """Return the text. "" = no text, or it was removed before the walk was shared ("<private>")."""
    if row is None:
        return ""
    found = (text_of_bytes(row.value) if isinstance(row.value, bytes) else _written(row.value))[:MAX_TEXT]
    return "" if (found.startswith("<") and found.endswith(">")) or found == _NO_TEXT else found


def number(row: Row | None) -> int:
    """Return the number, 0 = none."""
    return row.value if row is not None and isinstance(row.value, int) else 0


def is_up(row: Row | None) -> bool:
    """Return whether ifOperStatus is up. A missing value counts as up."""
    return row is None or row.value == 1 or (isinstance(row.value, bytes) and row.value.startswith(b"up"))


def mac(row: Row | None) -> str:
    """Return the MAC address in lower-case hex with colons. "" = no address, all zeros or broadcast."""
    found = _any_mac(row) if row else ""
    return "" if found in _NO_MACS else found


def capabilities(row: Row | None) -> tuple[str, ...]:
    """Return lldpctl's words, sorted.

    The value is a BITS of one or two bytes. Some tools convert it to text ("28 00 2 4": bytes, then the
    numbers of the bits that are set), or even convert that text once more ("36 38 20 31": "68 1").
    """
    bits = row.value if row is not None and isinstance(row.value, bytes) else b""
    for _ in range(2):
        if len(bits) > 1 and (pairs := _PAIRS.match(bits)):
            bits = bytes.fromhex(pairs[0].decode("ascii"))
    first = bits[0] if bits else 0
    return tuple(sorted(word for bit, word in enumerate(_CAPABILITIES) if first & 0x80 >> bit))


def address(index: tuple[int, ...]) -> str:
    """Return the management address in an index. "" = no address at which a switch can be queried.

    The index has family, length and bytes. Some switches omit the length.
    """
    family, rest = index[0], index[1:]
    size = _BYTES.get(family)
    if size is None or max(rest, default=256) > 255:
        return ""
    if len(rest) == size + 1 and rest[0] == size:
        rest = rest[1:]
    return usable(bytes(rest)) if len(rest) == size else ""


def usable(raw: bytes) -> str:
    """Return an address of 4 or 16 bytes as text, "" = unspecified, loopback or multicast."""
    found = ipaddress.ip_address(raw)
    return "" if found.is_unspecified or found.is_loopback or found.is_multicast else str(found)


def _identifier(word: str | None, row: Row) -> tuple[str, str, str]:
    raw = row.value if isinstance(row.value, bytes) else _written(row.value).encode()
    if text(row) == "" and raw.startswith(b"<"):
        return "", "", ""  # removed from the walk
    odd = ""
    if word is None:
        odd = "has an unknown subtype"
        word = "mac" if mac(row) and not (len(raw) == _MAC_BYTES and is_printable(raw)) else "local"
    if word == "mac":
        if found := _any_mac(row):
            return word, "" if found in _NO_MACS else found, odd
        odd = "is announced as a MAC address but is not one"
    if word == "ip":
        return word, _network_address(raw), odd
    if word == UNHANDLED and row.kind != TEXT:
        return word, raw[:MAX_TEXT].hex(" "), odd
    shown = text_of_bytes(raw)[:MAX_TEXT]
    return word, shown if shown.strip() else raw.strip()[:MAX_TEXT].hex(" "), odd if raw.strip() else ""


def _any_mac(row: Row) -> str:
    if not isinstance(row.value, bytes):
        return ""
    if len(row.value) == _MAC_BYTES and row.kind != TEXT:
        return row.value.hex(":")
    if match := _MAC_TEXT.fullmatch(row.value):
        return ":".join(f"{int(part, 16):02x}" for part in re.split(rb"[: -]", match[1]))
    if match := _MAC_RUN.fullmatch(row.value):
        return bytes.fromhex(b"".join(match.groups()).decode("ascii")).hex(":")
    return ""


def _network_address(raw: bytes) -> str:
    """Return a network address as text, or its bytes in hex.

    The family comes first (IEEE 802.1AB-2016, 8.5.2.3). Some switches omit it or write the address as text.
    """
    if raw and len(raw) == 1 + _BYTES.get(raw[0], -1):
        return str(ipaddress.ip_address(raw[1:]))
    try:
        return str(ipaddress.ip_address(raw.decode("ascii").strip()))
    except ValueError:
        return str(ipaddress.ip_address(raw)) if len(raw) in _BYTES.values() else raw[:MAX_TEXT].hex(" ")


def _subtype(row: Row | None, labels: Mapping[bytes, int]) -> int:
    """Return the number of a subtype, 0 (reserved) = none."""
    if row is not None and isinstance(row.value, bytes):
        return labels.get(row.value.strip().lower(), 0)
    return number(row)


def is_printable(raw: bytes) -> bool:
    """Whether all bytes are printable ASCII."""
    return raw.isascii() and raw.decode("ascii").isprintable()


def _written(value: bytes | int | tuple[int, ...]) -> str:
    return ".".join(map(str, value)) if isinstance(value, tuple) else str(value)
