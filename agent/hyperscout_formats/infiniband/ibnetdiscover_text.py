"""What can be said of `ibnetdiscover` text at a glance: how much is in it, and whether it is that at all.

The agent may not hold NumPy, yet has to notice a sweep that came out smaller than the last one.
Searching for fixed bytes is all that takes.
"""

import re
from dataclasses import dataclass

_INITIATED = b"# Initiated from node "
_FROM = re.compile(rb"([0-9a-fA-F]{1,16})\b(?: port ([0-9a-fA-F]{1,16})\b)?")
_HEAD = 65_536  # bytes that are looked at to tell what a text is

# What people feed in instead: what its first part has in it, and what it is called.
_LOOKALIKES = (
    (rb"^(?:SW|CA|RT) +\d+ +\d+ 0x[0-9a-f]{16} ", "the ports report of `ibnetdiscover -p`"),
    (rb"^(?:Ca|Switch|Router)\s+: 0x[0-9a-f]{16} ports ", "a node list of `ibnetdiscover -l`"),
    (rb"==\(.{0,80}\)==>", "the output of `iblinkinfo`"),
    (rb'^(?:Hca|Switch)\s+\d{1,3}\s+"(?![SHR]-[0-9a-f]{16}")', "an ibsim net file"),
    (rb"\A(?:\x1f\x8b|\x28\xb5\x2f\xfd|\xfd7zXZ|BZh)", "a compressed file (decompress it first)"),
    (rb"\A(?:\xff\xfe|\xfe\xff)", "UTF-16 text (save it as UTF-8)"),
)


@dataclass(frozen=True, slots=True)
class TextSummary:
    """Numbers of lines by kind. `port_guid` and `initiated_from` are 0 where the text does not say."""

    switches: int
    adapters: int
    routers: int
    records: int
    initiated_from: int = 0  # node GUID
    port_guid: int = 0


def summary(data: bytes) -> TextSummary:
    """Count devices and port records; any bytes will do."""
    node, port = _initiated(data)
    return TextSummary(
        switches=_lines_with(data, b"Switch\t"),
        adapters=_lines_with(data, b"Ca\t"),
        routers=_lines_with(data, b"Rt\t"),
        records=_lines_with(data, b"["),
        initiated_from=node,
        port_guid=port,
    )


def initiated_from(data: bytes) -> int:
    """GUID of the node that the sweep looked from, 0 where the text does not say."""
    return _initiated(data)[0]


def may_have_devices(data: bytes) -> bool:
    """False: no device block can be in it. A quick look that spares the reading of any amount of junk."""
    return any(word in data for word in (b"Switch", b"Ca", b"Rt"))


def is_grouped(data: bytes) -> bool:
    """Whether `-g` was given."""
    return b"\nNon-Chassis Nodes" in data or b"\nChassis " in data


def why_refused(data: bytes) -> str:
    """What to tell a person whose text has no device block in it."""
    what = "no Switch, Ca or Rt block found"
    if not data or data.isspace():
        what = "the input is empty"
    else:
        head = data[:_HEAD]
        for pattern, name in _LOOKALIKES:
            if re.search(pattern, head, re.MULTILINE):
                what = f"this looks like {name}"
                break
    expected = (
        "expected the text of plain `ibnetdiscover`: make it with `ibnetdiscover > fabric.ibnetdiscover`"
    )
    return f"{what}; {expected}"


def _initiated(data: bytes) -> tuple[int, int]:
    """Node and port GUID. With `-s` any number of lines may come before."""
    at = data.find(_INITIATED)
    if at < 0 or data[max(at - 1, 0) : at] not in {b"", b"\n"}:
        return 0, 0
    found = _FROM.match(data, at + len(_INITIATED))
    return (int(found[1], 16), int(found[2] or b"0", 16)) if found else (0, 0)


def _lines_with(data: bytes, beginning: bytes) -> int:
    return data.count(b"\n" + beginning) + data.startswith(beginning)
