"""Summarises `ibnetdiscover` text without a full parse: counts of devices, and whether it is such a text.

The agent must not load NumPy, but must notice a sweep that is smaller than the previous one. A search for
fixed bytes is enough for that.
"""

import re
from dataclasses import dataclass

_INITIATED = b"# Initiated from node "
_FROM = re.compile(rb"([0-9a-fA-F]{1,16})\b(?: port ([0-9a-fA-F]{1,16})\b)?")
_DEVICE = re.compile(rb'^(?:Switch|Ca|Rt)[\t ]+\d{1,3}[\t ]+"[SHR]-[0-9a-f]{16}"', re.MULTILINE)
HEAD_BYTES = 65_536  # bytes that are searched to identify a text

# Texts that users pass by mistake: a pattern in the first part, and the name of the text.
_LOOKALIKES = (
    (rb"^(?:SW|CA|RT) +\d+ +\d+ 0x[0-9a-f]{16} ", "the ports report of `ibnetdiscover -p`"),
    (rb"^(?:Ca|Switch|Router)\s+: 0x[0-9a-f]{16} ports ", "a node list of `ibnetdiscover -l`"),
    (rb"==\(.{0,80}\)==>", "the output of `iblinkinfo`"),
    (rb'^(?:Hca|Switch)\s+\d{1,3}\s+"(?![SHR]-[0-9a-f]{16}")', "an ibsim net file"),
    (rb"\A(?:\x1f\x8b|\x28\xb5\x2f\xfd|\xfd7zXZ|BZh)", "a compressed file (decompress it first)"),
    (rb"\A\s*[{\[]", "JSON"),
    (rb"\A# ", "Markdown"),
    (rb"\A(?:\xff\xfe|\xfe\xff)", "UTF-16 text (save it as UTF-8)"),
)


@dataclass(frozen=True, slots=True)
class TextSummary:
    """Numbers of lines by kind.

    `port_guid` and `initiated_from` are 0 where the text does not contain them.
    """

    switches: int
    adapters: int
    routers: int
    records: int
    initiated_from: int = 0  # node GUID
    port_guid: int = 0


def summary(data: bytes) -> TextSummary:
    """Count devices and port records. Accepts any bytes."""
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
    """Return the GUID of the node that ran the sweep, 0 = not in the text."""
    return _initiated(data)[0]


def may_have_devices(data: bytes) -> bool:
    """Return False if the text cannot contain a device block. This quick check avoids a full read of junk."""
    return any(word in data for word in (b"Switch", b"Ca", b"Rt"))


def is_grouped(data: bytes) -> bool:
    """Return whether the text was made with `-g`."""
    return b"\nNon-Chassis Nodes" in data or b"\nChassis " in data


def is_sweep(data: bytes) -> bool:
    """Return whether the first part of a text has a device block."""
    return _DEVICE.search(data[:HEAD_BYTES]) is not None


def why_refused(data: bytes) -> str:
    """Return the reason why a text without a device block is refused."""
    what = "no Switch, Ca or Rt block found"
    if not data or data.isspace():
        what = "the input is empty"
    else:
        head = data[:HEAD_BYTES]
        for pattern, name in _LOOKALIKES:
            if re.search(pattern, head, re.MULTILINE):
                what = f"this is probably {name}"
                break
    expected = "expected the output of plain `ibnetdiscover`: write it with `sudo ibnetdiscover > fabric.txt`"
    return f"{what}; {expected}"


def _initiated(data: bytes) -> tuple[int, int]:
    """Return node and port GUID, 0 = none. With `-s`, any number of lines may come before."""
    at = data.find(_INITIATED)
    if at < 0 or data[max(at - 1, 0) : at] not in {b"", b"\n"}:
        return 0, 0
    found = _FROM.match(data, at + len(_INITIATED))
    return (int(found[1], 16), int(found[2] or b"0", 16)) if found else (0, 0)


def _lines_with(data: bytes, beginning: bytes) -> int:
    return data.count(b"\n" + beginning) + data.startswith(beginning)
