"""Reads point-to-point files of UFM's cable validation: sheets of a spreadsheet, or one sheet as CSV.

Columns: UFM Cable Validation Tool 1.5.0, P2P File. Either `A-Node Name`, `A-Type`, `A-Port` and the same with
Z, or those of its sample: `Rack, U, Name, HCA/Port, Rack, U, Name, Port`. A name belongs to the next port.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from hyperscout_formats.cabling import xlsx
from hyperscout_formats.cabling.csv_rows import Row, first_rows, rows
from hyperscout_formats.cabling.plan import Place, Plan, PlanBuilder, PlannedEnd

_HEADER_ROWS: Final = 10  # titles may be above the row of columns
_NAMES: Final = {"name", "anodename", "znodename"}
_PORTS: Final = {"port", "hcaport", "aport", "zport"}
_TYPES: Final = {"atype", "ztype"}
_HOST_PORTS: Final = "hcaport"


class _Side(NamedTuple):
    """Indexes of the columns of one side, -1 = none. `is_host`: the heading of the ports is `HCA/Port`."""

    name: int
    port: int
    type: int
    is_host: bool


def matches(data: bytes) -> bool:
    """Return whether the data is a spreadsheet, or CSV with the columns."""
    return xlsx.matches(data) or any(_sides(cells) for cells in first_rows(data, _HEADER_ROWS))


def parse(data: bytes, source: str = "p2p") -> Plan:
    """Return the cables of all sheets that have the columns. Raises FormatError."""
    builder = PlanBuilder(data, source)
    sheets: Iterable[Iterable[Row]] = [rows(data, source)]
    if xlsx.matches(data):
        sheets = xlsx.sheets(data, source)
    is_known = False
    for sheet in sheets:
        is_known |= _sheet(builder, sheet)
    if not is_known:
        reason = f"the first {_HEADER_ROWS} rows of no sheet have A-Node Name, A-Port, Z-Node Name and Z-Port"
        raise builder.error(Place(0), reason)
    return builder.plan()


def _sheet(builder: PlanBuilder, sheet: Iterable[Row]) -> bool:
    """Add the cables of a sheet. Returns whether it has the columns."""
    sides = None
    header: Sequence[str] = ()
    for number, (place, cells) in enumerate(sheet):
        if sides is not None:
            texts = [cells[x] if x < len(cells) else "" for side in sides for x in (side.name, side.port)]
            if not any(texts):
                continue  # a title or a sum
            a, z = (_end(builder, place, side, cells, header) for side in sides)
            builder.add(place, a, z)
        elif number == _HEADER_ROWS:
            break
        else:
            sides, header = _sides(cells), cells
    return sides is not None


def _sides(cells: Sequence[str]) -> tuple[_Side, _Side] | None:
    """Return the columns of both sides, None = this row does not have them."""
    plain = [re.sub(r"[^a-z]", "", cell.lower()) for cell in cells]
    ports = [i for i, text in enumerate(plain) if text in _PORTS]
    found = []
    after = 0
    for port in ports:
        names = [i for i in range(after, port) if plain[i] in _NAMES]
        types = [i for i in range(after, port) if plain[i] in _TYPES]
        if names:
            found.append(_Side(names[-1], port, types[-1] if types else -1, plain[port] == _HOST_PORTS))
        after = port + 1
    return (found[0], found[1]) if len(found) == 2 else None


def _end(
    builder: PlanBuilder, place: Place, side: _Side, cells: Sequence[str], header: Sequence[str]
) -> PlannedEnd:
    def text(index: int) -> str:
        return cells[index] if 0 <= index < len(cells) else ""

    port = builder.name(place, header[side.port], text(side.port))
    if port.isascii() and port.isdecimal() and (side.is_host or text(side.type).lower() == "host"):
        number = int(port)
        if not 1 <= number <= 1000:
            reason = f"{header[side.port]}: found {port[:60]}, expected an adapter from 1 to 1000"
            raise builder.error(place, reason)
        port = f"mlx5_{number - 1}"
    return PlannedEnd(builder.name(place, header[side.name], text(side.name)), port)
