"""Reads one LLDP frame as it was received (IEEE 802.1AB-2016, clause 8).

Any device on the link can send a frame. This module first checks the bounds of a frame itself, byte by byte.
It then passes only the needed TLVs, with valid lengths, to scapy in strict mode. It runs in a separate
process, which confines the memory and licence (GPLv2) of scapy and the effects of a hostile frame.
"""

import ipaddress
from collections import Counter
from typing import Any, Final

from scapy.config import conf
from scapy.contrib import lldp

from hyperscout_formats.facts.facts import LldpNeighbour
from hyperscout_formats.text.clean_text import cleaned
from hyperscout_formats.text.errors import FormatError
from hyperscout_formats.text.lldp_text import (
    CHASSIS_WORDS,
    MAX_ADDRESSES,
    PORT_WORDS,
    UNHANDLED,
    first_distinct,
    text_of_bytes,
)

MAX_FRAME: Final = 9216
"""Bytes: the largest jumbo frame that switches send."""

ETHER_TYPE: Final = b"\x88\xcc"
VLAN_TAG: Final = b"\x81\x00"

END, CHASSIS_ID, PORT_ID, TTL, PORT_DESCRIPTION, SYSTEM_NAME, SYSTEM_DESCRIPTION, CAPABILITIES, ADDRESS = (
    range(9)
)
NAMES: Final = (
    "end",
    "chassis id",
    "port id",
    "time to live",
    "port description",
    "system name",
    "system description",
    "system capabilities",
    "management address",
)
MANDATORY: Final = [CHASSIS_ID, PORT_ID, TTL]

# Length of a TLV's value in bytes: minimum and maximum (clause 8.5).
LENGTHS: Final = {
    END: (0, 0),
    CHASSIS_ID: (2, 256),
    PORT_ID: (2, 256),
    TTL: (2, 2),
    PORT_DESCRIPTION: (0, 255),
    SYSTEM_NAME: (0, 255),
    SYSTEM_DESCRIPTION: (0, 255),
    CAPABILITIES: (4, 4),
    ADDRESS: (9, 167),
}

# Field name in scapy, word of lldpctl.
CAPABILITY_WORDS: Final = (
    ("other", "Other"),
    ("repeater", "Repeater"),
    ("mac_bridge", "Bridge"),
    ("wlan_access_point", "Wlan"),
    ("router", "Router"),
    ("telephone", "Tel"),
    ("docsis_cable_device", "Docsis"),
    ("station_only", "Station"),
)

IPV4, IPV6 = 1, 2  # IANA address family numbers
MAC_BYTES: Final = 6
ADDRESS_BYTES: Final = {IPV4: 4, IPV6: 16}


def dissect(frame: bytes, source: str = "LLDP frame") -> LldpNeighbour:
    """Return the neighbour that sent this Ethernet frame.

    `ttl_s` 0 means that the neighbour shuts down LLDP on the port (clause 9.2.7). Raises FormatError for
    anything that is not a complete, well-formed LLDP frame.
    """
    if len(frame) > MAX_FRAME:
        raise FormatError(source, 0, f"{len(frame)} bytes; expected at most {MAX_FRAME} bytes")
    layers = _layers(_needed(_data_unit(frame, source), source), source)
    chassis, port = layers[CHASSIS_ID][0], layers[PORT_ID][0]
    chassis_word, port_word = CHASSIS_WORDS[chassis.subtype], PORT_WORDS[port.subtype]
    capabilities = layers.get(CAPABILITIES, [None])[0]
    return LldpNeighbour(
        chassis_id_subtype=chassis_word,
        chassis_id=_identifier(chassis, chassis_word, source),
        port_id_subtype=port_word,
        port_id=_identifier(port, port_word, source),
        ttl_s=layers[TTL][0].ttl,
        port_description=_text(layers, PORT_DESCRIPTION, "description"),
        system_name=_text(layers, SYSTEM_NAME, "system_name"),
        system_description=_text(layers, SYSTEM_DESCRIPTION, "description"),
        management_addresses=first_distinct(
            [
                str(ipaddress.ip_address(address.management_address))
                for address in layers.get(ADDRESS, [])
                if address.management_address_subtype in ADDRESS_BYTES
            ]
        ),
        capabilities=tuple(
            sorted(
                word
                for field, word in CAPABILITY_WORDS
                if capabilities is not None
                and getattr(capabilities, f"{field}_available")
                and getattr(capabilities, f"{field}_enabled")
            )
        ),
    )


def _data_unit(frame: bytes, source: str) -> bytes:
    """Return the bytes after the Ethernet header and an optional priority tag."""
    header = 12
    if frame[header : header + 2] == VLAN_TAG:
        header += 4
    if frame[header : header + 2] != ETHER_TYPE:
        raise FormatError(
            source, 0, f"not LLDP: the EtherType is {frame[header : header + 2].hex() or 'missing'}"
        )
    return frame[header + 2 :]


def _needed(unit: bytes, source: str) -> list[bytes]:
    """Return the TLVs that are read. Each is complete and has a length that its type allows."""
    needed: list[bytes] = []
    counts: Counter[int] = Counter()
    number = at = 0
    while at < len(unit):
        kind = unit[at] >> 1
        size = (unit[at] & 1) << 8 | unit[at + 1] if at + 1 < len(unit) else 0
        value = unit[at + 2 : at + 2 + size]
        if at + 2 + size > len(unit):
            raise FormatError(source, 0, f"TLV {number + 1} of type {kind} is truncated")
        if kind < len(NAMES):
            _check(kind, value, source)
        if kind == END:
            break
        if number < len(MANDATORY) and kind != MANDATORY[number]:
            raise FormatError(source, 0, f"TLV {number + 1} is of type {kind}, not the {NAMES[number + 1]}")
        if kind < ADDRESS and counts[kind]:
            raise FormatError(source, 0, f"a second {NAMES[kind]}")
        if kind < ADDRESS or (kind == ADDRESS and counts[kind] < MAX_ADDRESSES):
            needed.append(unit[at : at + 2 + size])  # unknown and organisation-specific TLVs are skipped
        counts[kind] += 1
        number += 1
        at += 2 + size
    if number < len(MANDATORY):
        raise FormatError(source, 0, f"the {NAMES[number + 1]} is missing")
    return needed


def _check(kind: int, value: bytes, source: str) -> None:
    """Check the lengths that scapy does not check."""
    least, most = LENGTHS[kind]
    if not least <= len(value) <= most:
        raise FormatError(source, 0, f"{NAMES[kind]}: {len(value)} bytes, expected {least} to {most}")
    if kind in {CHASSIS_ID, PORT_ID}:
        word = (CHASSIS_WORDS if kind == CHASSIS_ID else PORT_WORDS).get(value[0])
        if word is None:
            raise FormatError(source, 0, f"a {NAMES[kind]} of the reserved subtype {value[0]}")
        if word == "mac" and len(value) != 1 + MAC_BYTES:
            raise FormatError(source, 0, f"a {NAMES[kind]} that is a MAC address of {len(value) - 1} bytes")
        if word == "ip" and len(value) - 2 != ADDRESS_BYTES.get(value[1], len(value) - 2):
            raise FormatError(source, 0, f"a {NAMES[kind]} of family {value[1]} with {len(value) - 2} bytes")
    if kind == ADDRESS:
        # Clause 8.5.9: length of subtype and address together, interface numbering (1 + 4 bytes), length of
        # the object id, object id.
        size = value[0]
        tail = 1 + size + 5
        if not 2 <= size <= 32 or len(value) <= tail or len(value) < tail + 1 + value[tail]:
            raise FormatError(source, 0, "a management address that does not fit in its TLV")
        if size - 1 != ADDRESS_BYTES.get(value[1], size - 1):
            raise FormatError(source, 0, f"a management address of family {value[1]} with {size - 1} bytes")


def _layers(needed: list[bytes], source: str) -> dict[int, list[Any]]:
    """Return scapy's layers of the TLVs, by type."""
    conf.contribs["LLDP"].strict_mode_enable()
    conf.debug_dissector = True  # without this, scapy silently turns errors into raw bytes
    try:
        layer = lldp.LLDPDU(b"".join(needed) + b"\0\0").payload
        found: dict[int, list[Any]] = {}
        while isinstance(layer, lldp.LLDPDU):
            found.setdefault(layer.getfieldval("_type"), []).append(layer)
            layer = layer.payload
    except Exception as error:  # scapy raises its own errors, struct.error, ValueError, IndexError
        raise FormatError(source, 0, f"malformed: {cleaned(str(error))[:200]}") from error
    if layer:
        raise FormatError(source, 0, "malformed: bytes outside all TLVs")
    return found


def _identifier(layer: Any, word: str, source: str) -> str:
    raw = bytes(layer)[3 : 2 + layer.getfieldval("_length")]
    if word == "mac":
        return raw.hex(":")
    if word == "ip" and raw[0] in ADDRESS_BYTES:
        return str(ipaddress.ip_address(raw[1:]))
    if word in {"ip", UNHANDLED}:
        return raw.hex(" ")
    text = text_of_bytes(raw)
    if not text:
        raise FormatError(source, 0, f"an empty {NAMES[layer.getfieldval('_type')]}")
    return text


def _text(layers: dict[int, list[Any]], kind: int, field: str) -> str:
    return text_of_bytes(bytes(getattr(layers[kind][0], field))) if kind in layers else ""
