"""Reads the cables of NetBox 4.6 from CSV: what its bulk import takes, and what its table of cables exports.

The form of the import is `CableImportForm` (netbox/dcim/forms/bulk_import.py), and the table `CableTable`
(netbox/dcim/tables/cables.py). The table does not tell interfaces from ports for console or power, and joins
several ends with commas in no order.
"""

from typing import Final

from hyperscout_formats.cabling.csv_rows import first_rows, rows
from hyperscout_formats.cabling.plan import Place, Plan, PlanBuilder, PlannedEnd
from hyperscout_formats.text.errors import FormatError

INTERFACE: Final = "dcim.interface"
IMPORT_COLUMNS: Final = (
    "side_a_device",
    "side_a_type",
    "side_a_name",
    "side_b_device",
    "side_b_type",
    "side_b_name",
)
_TABLE_COLUMNS: Final = ("Device A", "Termination A", "Device B", "Termination B")
_TERMINATIONS: Final = {"Termination A", "Termination B"}
_PASS_THROUGH: Final = {"dcim.frontport", "dcim.rearport"}

DECOMMISSIONING: Final = "decommissioning"
NO_END: Final = "without two ends"
SEVERAL: Final = "with several ends"


def matches(data: bytes) -> bool:
    """Return whether the first row has the columns of one of the two forms."""
    found = {cell for cells in first_rows(data, 1) for cell in cells}
    return found.issuperset(IMPORT_COLUMNS) or found.issuperset(_TERMINATIONS)


def parse(data: bytes, source: str = "netbox") -> Plan:
    """Return the cables between interfaces. Raises FormatError."""
    builder = PlanBuilder(data, source)
    table = rows(data, source)
    _, header = next(table, (Place(1), ()))
    is_import = set(header).issuperset(IMPORT_COLUMNS)
    if not is_import and (missing := [name for name in _TABLE_COLUMNS if name not in header]):
        hint = "export all data, or show these columns in NetBox's table of cables"
        raise FormatError(source, 1, f"no column {', '.join(missing)}: {hint}")
    for place, cells in table:
        if len(cells) > len(header):
            raise builder.error(place, f"{len(cells)} cells: expected {len(header)}, as in the first row")
        row = dict(zip(header, cells, strict=False))
        if row.get("status", row.get("Status", "")).lower() == DECOMMISSIONING:
            builder.leave_out(DECOMMISSIONING)
        elif is_import:
            _of_import(builder, place, row)
        else:
            _of_table(builder, place, row)
    return builder.plan()


def other_end(kind: str) -> str:
    """Return the reason to leave out a cable with an end of this type, "" = an interface."""
    if kind == INTERFACE:
        return ""
    return "at a patch panel" if kind in _PASS_THROUGH else "at no network interface"


def _of_import(builder: PlanBuilder, place: Place, row: dict[str, str]) -> None:
    kinds = [builder.name(place, name, row.get(name)) for name in ("side_a_type", "side_b_type")]
    if reason := other_end(kinds[0]) or other_end(kinds[1]):
        builder.leave_out(reason)
        return
    names = [builder.name(place, x, row.get(x)) for x in IMPORT_COLUMNS if not x.endswith("type")]
    builder.add(place, PlannedEnd(*names[:2]), PlannedEnd(*names[2:]))


def _of_table(builder: PlanBuilder, place: Place, row: dict[str, str]) -> None:
    texts = {name: row.get(name, "") for name in _TABLE_COLUMNS}
    if not all(texts.values()):
        builder.leave_out(NO_END)
    elif any("," in text for text in texts.values()):
        builder.leave_out(SEVERAL)
    else:
        names = [builder.name(place, name, text) for name, text in texts.items()]
        builder.add(place, PlannedEnd(*names[:2]), PlannedEnd(*names[2:]))
