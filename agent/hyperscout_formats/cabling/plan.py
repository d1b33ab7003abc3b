"""Defines a cabling plan, and collects the cables of one within bounds."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from hyperscout_formats.text.errors import FormatError
from hyperscout_formats.text.json_document import MAX_NAME

MAX_BYTES: Final = 32 << 20
MAX_CABLES: Final = 500_000  # a fabric of 65,536 hosts and three tiers has 200,000


class Place(NamedTuple):
    """Where a cable is written. `line` counts from 1, 0 = the file has no lines, and `name` says where."""

    line: int
    name: str = ""

    def __str__(self) -> str:
        return self.name or f"line {self.line}"


class PlannedEnd(NamedTuple):
    """A device by name, and its port. "" = any port."""

    device: str
    port: str


class PlannedCable(NamedTuple):
    """A cable between two ends."""

    place: Place
    a: PlannedEnd
    b: PlannedEnd


@dataclass(frozen=True, slots=True)
class Plan:
    """`left_out`: number of cables that were left out, by reason."""

    cables: Sequence[PlannedCable]
    left_out: Mapping[str, int]


class PlanBuilder:
    """Collects the cables of a file. A cable that is listed twice, from either end, is one cable."""

    def __init__(self, data: bytes, source: str) -> None:
        if len(data) > MAX_BYTES:
            raise FormatError(source, 0, f"{len(data)} bytes: a file has at most {MAX_BYTES}")
        self._source = source
        self._cables: list[PlannedCable] = []
        self._known: set[tuple[PlannedEnd, PlannedEnd]] = set()
        self._left_out = Counter[str]()

    def error(self, place: Place, reason: str) -> FormatError:
        """Return an error about this place."""
        return FormatError(self._source, place.line, f"{place.name}: {reason}" if place.name else reason)

    def name(self, place: Place, field: str, text: object) -> str:
        """Return the text as the name of a device or port. Raises FormatError that names the field."""
        name = text.strip() if isinstance(text, str) else ""
        if not name or len(name) > MAX_NAME or not name.isprintable():
            shown = ascii(text[:60]) if isinstance(text, str) else "no text"
            expected = f"expected a name of 1 to {MAX_NAME} printable characters"
            raise self.error(place, f"{field}: found {shown}, {expected}")
        return name

    def add(self, place: Place, a: PlannedEnd, b: PlannedEnd) -> None:
        """Add a cable. Raises FormatError."""
        if a.port and b.port:
            ends = (min(a, b), max(a, b))
            if ends in self._known:
                return
            self._known.add(ends)
        if len(self._cables) == MAX_CABLES:
            raise self.error(place, f"more than {MAX_CABLES} cables")
        self._cables.append(PlannedCable(place, a, b))

    def leave_out(self, reason: str) -> None:
        """Count a cable that is no part of the plan."""
        self._left_out[reason] += 1

    def plan(self) -> Plan:
        """Return the plan. Raises FormatError if it has no cable."""
        if not self._cables:
            reasons = "".join(f"; {number} {reason}" for reason, number in self._left_out.items())
            raise FormatError(self._source, 0, f"no cable between two network ports{reasons}")
        return Plan(tuple(self._cables), dict(self._left_out))


def text_of(data: bytes, source: str) -> str:
    """Return the text of a file, without a byte order mark. Raises FormatError."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FormatError(source, line, "not UTF-8: save the file as UTF-8") from error
