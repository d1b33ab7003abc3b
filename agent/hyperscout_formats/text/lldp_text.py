"""Defines the text form of LLDP identifiers, the same for frames and for lldpctl.

A host with lldpd and a host with the agent's own listener may be on the same switch, and both must give the
switch the same identity. The rules are those of lldpctl (checked with lldpd 1.0.16). For bytes that must not
reach a terminal, the rules are hyperscout's own.
"""

from collections.abc import Mapping
from typing import Final

from hyperscout_formats.text.clean_text import cleaned

# IEEE 802.1AB-2016, tables 8-2 and 8-3, with lldpctl's words. lldpctl prints the values of unhandled subtypes
# as bytes. Subtypes that are not in the tables are reserved, and lldpd drops their frames.
UNHANDLED: Final = "unhandled"
CHASSIS_WORDS: Final[Mapping[int, str]] = {
    1: UNHANDLED,  # chassis component
    2: "ifalias",
    3: UNHANDLED,  # port component
    4: "mac",
    5: "ip",
    6: "ifname",
    7: "local",
}
PORT_WORDS: Final[Mapping[int, str]] = {
    1: "ifalias",
    2: UNHANDLED,  # port component
    3: "mac",
    4: "ip",
    5: "ifname",
    6: UNHANDLED,  # agent circuit id
    7: "local",
}

MAX_ADDRESSES: Final = 32
"""Management addresses that are kept for one neighbour."""


def text_of_bytes(raw: bytes) -> str:
    """Return a text as it was sent, up to the first NUL. A byte that is not UTF-8 becomes U+FFFD."""
    sent = raw.split(b"\0", 1)[0]
    if sent.isascii():
        return cleaned(sent.decode("ascii"))
    decoded = sent.decode("utf-8", "surrogateescape")
    return cleaned("".join("\ufffd" if "\udc80" <= c <= "\udcff" else c for c in decoded))


def first_distinct(texts: list[str]) -> tuple[str, ...]:
    """Return the texts in order, each once, at most `MAX_ADDRESSES`."""
    return tuple(list(dict.fromkeys(texts))[:MAX_ADDRESSES])
