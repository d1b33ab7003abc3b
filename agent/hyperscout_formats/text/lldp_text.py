"""How identifiers and texts of LLDP are written: a neighbour reads the same from a frame and from lldpctl.

A host with lldpd and a host with our own listener may hang on one switch, and both must give it one
identity. The rules are those of lldpctl (seen with lldpd 1.0.16), and for bytes that no terminal should get,
our own.
"""

from collections.abc import Mapping
from typing import Final

# IEEE 802.1AB-2016, tables 8-2 and 8-3; the words of lldpctl. The values of those that it does not handle it
# writes as bytes. Subtypes that are not here are reserved, and lldpd drops such frames.
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
"""Management addresses that are kept of one neighbour."""


def text_of_bytes(raw: bytes) -> str:
    """A text as it was sent, up to the first NUL; a byte that is not UTF-8 becomes U+FFFD."""
    sent = raw.split(b"\0", 1)[0]
    if sent.isascii():
        return cleaned(sent.decode("ascii"))
    decoded = sent.decode("utf-8", "surrogateescape")
    return cleaned("".join("\ufffd" if "\udc80" <= c <= "\udcff" else c for c in decoded))


def cleaned(text: str) -> str:
    """Control characters, and whatever else cannot be shown, become blanks."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def first_distinct(texts: list[str]) -> tuple[str, ...]:
    """In order, each once, at most `MAX_ADDRESSES`."""
    return tuple(list(dict.fromkeys(texts))[:MAX_ADDRESSES])
