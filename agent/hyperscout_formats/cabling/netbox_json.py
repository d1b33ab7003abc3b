"""Reads the cables of NetBox 4.6 from its REST API: `GET /api/dcim/cables/`, a page or a list of cables.

The fields are those of `CableSerializer` (netbox/dcim/api/serializers_/cables.py).
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from hyperscout_formats.cabling.netbox_csv import DECOMMISSIONING, NO_END, SEVERAL, other_end
from hyperscout_formats.cabling.plan import MAX_BYTES, Place, Plan, PlanBuilder, PlannedEnd
from hyperscout_formats.text import json_document
from hyperscout_formats.text.errors import FormatError

_EXPECTED: Final = "expected the answer of NetBox to GET /api/dcim/cables/"
_SIDES: Final = ("a_terminations", "b_terminations")
_FIELD: Final = re.compile(rb'"a_terminations"[ \t\r\n]*+:')


def matches(data: bytes) -> bool:
    """Return whether the data is JSON with the field a_terminations."""
    return data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[") and _FIELD.search(data) is not None


def parse(data: bytes, source: str = "netbox") -> Plan:
    """Return the cables between interfaces. Raises FormatError."""
    builder = PlanBuilder(data, source)
    document = json_document.document(data.removeprefix(b"\xef\xbb\xbf"), source, MAX_BYTES, _EXPECTED)
    if isinstance(document, Mapping):
        if document.get("next"):
            raise FormatError(source, 0, "next: there are more pages: join the results of all into one list")
        document = document.get("results")
    if not isinstance(document, list):
        raise FormatError(source, 0, f"no list of cables; {_EXPECTED}")
    for number, cable in enumerate(document, 1):
        if not isinstance(cable, Mapping):
            raise FormatError(source, 0, f"cable {number} of the list: not an object; {_EXPECTED}")
        ident = cable.get("id")
        known = isinstance(ident, int) and 0 < ident < 1 << 63
        place = Place(0, f"cable {ident}" if known else f"cable {number} of the list")
        _cable(builder, place, cable)
    return builder.plan()


def _cable(builder: PlanBuilder, place: Place, cable: Mapping[str, Any]) -> None:
    status = cable.get("status")
    if (status.get("value") if isinstance(status, Mapping) else status) == DECOMMISSIONING:
        builder.leave_out(DECOMMISSIONING)
        return
    sides = [[] if (side := cable.get(field)) is None else side for field in _SIDES]
    for field, side in zip(_SIDES, sides, strict=True):
        if not isinstance(side, list) or not all(isinstance(end, Mapping) for end in side):
            raise builder.error(place, f"{field}: expected a list of objects")
    if not all(sides):
        builder.leave_out(NO_END)
        return
    kinds = [
        builder.name(place, f"{field}.object_type", end.get("object_type"))
        for field, side in zip(_SIDES, sides, strict=True)
        for end in side
    ]
    if reason := next(filter(None, map(other_end, kinds)), ""):
        builder.leave_out(reason)
        return
    a, b = ([_end(builder, place, f, x) for x in side] for f, side in zip(_SIDES, sides, strict=True))
    if len(a) > 1 and len(b) > 1:  # only the profile of the cable says which end leads to which
        builder.leave_out(SEVERAL)
        return
    # The port of a breakout cable is several ports to hyperscout, with names that NetBox does not have.
    for near in a:
        for far in b:
            builder.add(
                place,
                near if len(b) == 1 else near._replace(port=""),
                far if len(a) == 1 else far._replace(port=""),
            )


def _end(builder: PlanBuilder, place: Place, field: str, end: Mapping[str, Any]) -> PlannedEnd:
    found = end.get("object")
    device = found.get("device") if isinstance(found, Mapping) else None
    if not isinstance(found, Mapping) or not isinstance(device, Mapping):
        raise builder.error(place, f"{field}.object.device: expected an object")
    return PlannedEnd(
        builder.name(place, f"{field}.object.device.name", device.get("name")),
        builder.name(place, f"{field}.object.name", found.get("name")),
    )
