"""Reads topology files of IBDM, which `ibdiagnet` and UFM write and UFM's cable validation checks (`.topo`).

    MQM8700 sw-hdr01
        P2 -4x-50G-> HCA_mlx5_3 host-04 mlx5_0/P1
        P40 -4x-50G-> MQM9700 sw-ndr05 P62

Grammar: ibdm-topo-file(1). Width and speed in the arrow: UFM Cable Validation Tool 1.5.0, Topo File.
"""

import re
from typing import Final

from hyperscout_formats.cabling.plan import Place, Plan, PlanBuilder, PlannedEnd, text_of

_ARROW: Final = re.compile(r"(?:-[-\w.]*)?->", re.ASCII)
_SYSTEM: Final = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:\s++|#[^\n]*+)*+[^\s:#]++[ \t]++[^\s:]++[ \t]*+(?:CFG:[^\n]*+)?\r?\n"
)
_LINK: Final = re.compile(
    rb"^[ \t]*+[^\s#]++[ \t]++(?:-[-\w.]*)?->[ \t]++\S++[ \t]++\S++[ \t]++\S++[ \t\r]*+$", re.MULTILINE
)
_PORT: Final = re.compile(r"(?:(.+)/)?[Pp]([0-9]+)", re.ASCII)
_HOST: Final = "HCA"  # the types of adapters begin with it


def matches(data: bytes) -> bool:
    """Return whether the data begins with a system, and has a link."""
    return _SYSTEM.match(data) is not None and _LINK.search(data) is not None


def parse(data: bytes, source: str = "topo") -> Plan:
    """Return the cables of all systems. Raises FormatError."""
    builder = PlanBuilder(data, source)
    system: tuple[str, str] | None = None
    for number, line in enumerate(text_of(data, source).split("\n"), 1):
        place, words = Place(number), line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) < 2 or not _ARROW.fullmatch(words[1]):
            if len(words) != 2 and (len(words) < 3 or not words[2].startswith("CFG:")):
                found = ascii(line.strip()[:60])
                raise builder.error(place, f"found {found}, expected TYPE NAME or PORT -> TYPE NAME PORT")
            system = (words[0], words[1])
            continue
        if system is None:
            raise builder.error(place, "found a link, expected a system before it: TYPE NAME")
        if len(words) != 5:
            raise builder.error(place, f"{len(words)} words: expected PORT -> TYPE NAME PORT")
        builder.add(
            place, _end(builder, place, *system, words[0]), _end(builder, place, words[2], words[3], words[4])
        )
    return builder.plan()


def _end(builder: PlanBuilder, place: Place, kind: str, device: str, port: str) -> PlannedEnd:
    """Return an end with its port as hyperscout writes it: P2 is 2, and mlx5_0/P1 is mlx5_0 at an adapter."""
    found = _PORT.fullmatch(builder.name(place, "port", port))
    if found and found[1] and kind.upper().startswith(_HOST):
        port = found[1] if found[2] == "1" else f"{found[1]}/{found[2]}"
    elif found and not found[1]:
        port = found[2]
    return PlannedEnd(builder.name(place, "name", device), port)
