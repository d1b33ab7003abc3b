"""Reads one line of `ibnetdiscover` text tolerantly.

Vectorised code reads the columns of `ibnetdiscover`. It knows only the exact shape that the tool prints
today. All other lines (older spacing, grouped output, unusual descriptions, damage) come to this module,
which uses a regular expression for each line.

Shapes, from the tool's man page ibnetdiscover(8) and from its output:
    Switch  36 "S-<guid>"           # "<description>" enhanced port 0 lid 9 lmc 0
    Ca      2 "H-<guid>"            # "<description>"
    [4]     "H-<guid>"[1](<port guid>)      # "<description>" lid 72 4xDDR
    [1](<port guid>)        "S-<guid>"[29]  # lid 81 lmc 0 "<description>" lid 9 4xDDR
GUIDs are hexadecimal. `-f` adds ` s=1 w=2 v=4` at the end. `-g` adds `[ext 5]` after a port,
`# Chassis 1 ...` after ids, and headings. `-s` prints its progress in lines that begin with `DR path`.
"""

import re
from dataclasses import dataclass
from typing import Final

from hyperscout_formats.text.clean_text import cleaned

UNKNOWN, SWITCH, CA, ROUTER = 0, 1, 2, 3

MAX_LINE: Final = 4096
"""Bytes. A description has at most 64 bytes, so lines of the tool are much shorter."""

# Nominal Gbit/s of one lane, as Linux prints it in .../ports/1/rate.
LANE_GBPS: Final = {
    b"SDR": 2.5,
    b"DDR": 5.0,
    b"QDR": 10.0,
    b"FDR10": 10.0,
    b"FDR": 14.0,
    b"EDR": 25.0,
    b"HDR": 50.0,
    b"NDR": 100.0,
    b"XDR": 200.0,
}
WIDTHS: Final = (4, 1, 2, 8, 12)

_KIND_OF_PREFIX: Final = {b"S": SWITCH, b"H": CA, b"R": ROUTER, b"?": UNKNOWN}
_KIND_OF_WORD: Final = {b"Switch": SWITCH, b"Ca": CA, b"Rt": ROUTER}

_HEADER = re.compile(
    rb'\s*(Switch|Ca|Rt)\s+(\d{1,3})\s+"([SHR])-([0-9a-fA-F]{1,16})"(?:\s*#\s*"(?P<description>.*)"[^"]*)?\s*'
)
# Quantifiers are possessive (`*+`): otherwise a line of blanks takes quadratic time.
_RECORD = re.compile(
    rb"\s*+\[(\d{1,3})\](?:\[ext \d{1,10}\])?\s*+(?:\((?P<port_guid>[0-9a-fA-F]{1,16})\))?\s*+"
    rb'"(?P<kind>[SHR?])-(?P<guid>[0-9a-fA-F]{1,16})"\s*+\[(?P<peer_port>\d{1,3})\](?:\[ext \d{1,10}\])?\s*+'
    rb"(?:\([0-9a-fA-F]{1,16}\))?\s*+(?:#(?P<comment>.*))?"
)
# If the text in the place of the rate is not a known rate, the rate is unknown, but the cable is kept.
_COMMENT = re.compile(
    rb'\s*(?:lid\s+\d+\s+lmc\s+\d+\s+)?"(?P<description>.*)"\s+lid\s+\d+'
    rb'(?:\s+(?P<width>\d{1,2})x(?P<speed>[A-Z]{3}\d{0,2}|\?{3}))?(?:\s[^"]*)?'
)
_SYSTEM_IMAGE = re.compile(rb"\s*sysimgguid=0x([0-9a-fA-F]{1,16})(?:\s.*)?")
_IDENTITY = re.compile(rb"\s*(?:switch|ca|rt)guid=0x[0-9a-fA-F]{1,16}(?:\W.*)?")
_PASSED_OVER = re.compile(
    rb"\s*(?:#.*|(?:vend|dev)id=0x[0-9a-fA-F]+\s*|Chassis \d+.*|Non-Chassis Nodes\s*|Hostname:.*|DR path .*)?"
)


@dataclass(frozen=True, slots=True)
class Header:
    """The header line of a device. The description is `start:end` of the line."""

    kind: int
    guid: int
    port_count: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Record:
    """The line of a port. The description of the peer is `start:end` of the line."""

    port: int
    port_guid: int
    kind: int
    guid: int
    peer_port: int
    rate_gbps: float
    width: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SystemImage:
    """A `sysimgguid=` line."""

    guid: int


@dataclass(frozen=True, slots=True)
class Identity:
    """A `switchguid=`, `caguid=` or `rtguid=` line: it ends the previous block."""


@dataclass(frozen=True, slots=True)
class Nothing:
    """A blank line, a comment or a heading, which contains nothing that is kept."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A line that the tool does not print."""

    reason: str


Line = Header | Record | SystemImage | Identity | Nothing | Unreadable


def read_line(line: bytes, *, cut: bool = False) -> Line:
    """Read one line, without its newline. `cut`: it is the last line and has no newline."""
    if len(line) > MAX_LINE:
        return Unreadable(f"a line of {len(line)} bytes; expected at most {MAX_LINE} bytes")
    if _PASSED_OVER.fullmatch(line):
        return Nothing()
    if found := _RECORD.fullmatch(line):
        return _record(found, cut=cut)
    if found := _HEADER.fullmatch(line):
        return _header(found, cut=cut)
    if found := _SYSTEM_IMAGE.fullmatch(line):
        return SystemImage(int(found[1], 16))
    if _IDENTITY.fullmatch(line):
        return Identity()
    if cut:
        return Unreadable("the last line is cut short")
    return Unreadable(f"not a line of ibnetdiscover: {_shown(line)}")


def printable(text: bytes) -> str:
    """Return a description as printable text."""
    return cleaned(text.decode("utf-8", "replace"))


def _record(found: re.Match[bytes], *, cut: bool) -> Line:
    guid = int(found["guid"], 16)
    if not guid:
        return Unreadable("the GUID at the other end is 0")
    comment = found["comment"]
    rate, width, start, end = 0.0, 0, 0, 0
    if comment is not None:
        base = found.start("comment")
        parsed = _COMMENT.fullmatch(comment)
        if parsed is None:
            if cut:
                return Unreadable("the last line is cut short")
            return Unreadable(f"expected a description, lid and rate after '#', found {_shown(comment)}")
        start, end = base + parsed.start("description"), base + parsed.end("description")
        if parsed["width"]:
            width = int(parsed["width"])
            rate = width * LANE_GBPS.get(parsed["speed"], 0.0)
    elif cut:
        return Unreadable("the last line is cut short")
    return Record(
        port=int(found[1]),
        port_guid=int(found["port_guid"], 16) if found["port_guid"] else 0,
        kind=_KIND_OF_PREFIX[found["kind"]],
        guid=guid,
        peer_port=int(found["peer_port"]),
        rate_gbps=rate,
        width=width,
        start=start,
        end=end,
    )


def _header(found: re.Match[bytes], *, cut: bool) -> Line:
    guid, kind = int(found[4], 16), _KIND_OF_WORD[found[1]]
    if not guid:
        return Unreadable("the device's GUID is 0")
    if _KIND_OF_PREFIX[found[3]] != kind:
        return Unreadable(f"a {found[1].decode()} block with a name that begins with {found[3].decode()}")
    if found["description"] is None:
        if cut:
            return Unreadable("the last line is cut short")
        return Header(kind, guid, int(found[2]), 0, 0)
    return Header(kind, guid, int(found[2]), found.start("description"), found.end("description"))


def _shown(text: bytes) -> str:
    """Return the first 60 bytes of a text, safe to print."""
    return ascii(text[:60].decode("utf-8", "replace"))
