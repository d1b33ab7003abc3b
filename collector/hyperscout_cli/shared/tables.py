"""Tables as kubectl prints them: upper-case headings, columns as wide as their widest cell."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hyperscout_runtime.units import NS
from hyperscout_topology.names import visible

from hyperscout_cli.shared.columns import padded, shortened, width
from hyperscout_cli.shared.output import Terminal, emit, emit_data, note, terminal

_GAP = "   "
# Columns that are shortened if a line is too long; `describe` and `-o json` show the whole text.
_MESSAGES = {"MESSAGE", "REASON", "WHY", "NOTE", "OTHER", "CAUSE", "CHANGE"}
_FREE = _MESSAGES | {"NODES", "HYPERNODES", "SWITCHES", "SOURCES", "ROLES", "SUBJECT", "PEER"}
_NARROWEST = 12  # minimum width of a shortened column
_GOOD, _BAD, _UNSURE = "\x1b[32m", "\x1b[31m", "\x1b[33m"
_RESET = "\x1b[0m"
_TONES: Mapping[tuple[str, str], str] = {
    **{(t, s): c for t in ("READY", "CONSISTENT") for s, c in (("True", _GOOD), ("False", _BAD))},
    **{(t, s): c for t in ("DEGRADED", "STALE") for s, c in (("True", _BAD), ("False", _GOOD))},
    **{(t, "Unknown"): _UNSURE for t in ("READY", "CONSISTENT", "DEGRADED", "STALE")},
    ("OUTCOME", "failed"): _BAD,
    ("STALE", "stale"): _UNSURE,
    ("NOTE", "no evidence"): _BAD,
    ("NOTE", "partial"): _UNSURE,
}


@dataclass(frozen=True, slots=True)
class Row:
    """One object: cells of the table, cells that `wide` adds, and the object as plain data."""

    name: str
    cells: tuple[str, ...]
    more: tuple[str, ...] = ()
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one kind. `kind` is the singular of `-o name` (hypernode/leaf-1)."""

    kind: str
    headings: tuple[str, ...]
    more: tuple[str, ...]
    rows: tuple[Row, ...]


def lines(
    table: Table, *, wide: bool = False, heading: bool = True, to: Terminal | None = None
) -> Iterator[str]:
    """The table as text, fitted to a terminal (by default stdout). An empty cell is shown as `-`."""
    to = terminal() if to is None else to
    headings = (*table.headings, *table.more) if wide else table.headings
    cells = [_cells((*r.cells, *r.more) if wide else r.cells) for r in table.rows]
    if heading:
        cells.insert(0, headings)
    if not cells:
        return
    widths = [max(width(row[i]) for row in cells) for i in range(len(headings))]
    if to.columns is not None:
        _fit(widths, headings, to.columns - len(_GAP) * (len(widths) - 1))
        cells = [tuple(map(shortened, row, widths)) for row in cells]
    for number, row in enumerate(cells, -heading):
        tones = _tones(headings, row, table.rows[number].name) if to.colour and number >= 0 else {}
        parts = [padded(text, columns) for text, columns in zip(row, widths, strict=True)]
        parts[-1] = row[-1]
        for i, tone in tones.items():
            parts[i] = f"{tone}{row[i]}{_RESET}{parts[i][len(row[i]) :]}"
        yield _GAP.join(parts).rstrip() + "\n"


def show(table: Table, output: str, empty: str = "", *, heading: bool = True) -> None:
    """Print a table in the format asked for. `empty`: the note for people if the table has no rows."""
    if emit_data([row.data for row in table.rows], output):
        return
    if output == "name":
        emit(f"{table.kind}/{row.name}\n" for row in table.rows)
    elif table.rows:
        emit(lines(table, wide=output == "wide", heading=heading))
    elif empty:
        note(empty)


def _tones(headings: Sequence[str], row: Sequence[str], name: str) -> dict[int, str]:
    """Colours by column. The name of a row of conditions is its type."""
    found = {}
    for i, (heading, text) in enumerate(zip(headings, row, strict=True)):
        if tone := _TONES.get((name.upper() if heading == "STATUS" else heading, text)):
            found[i] = tone
    return found


def _fit(widths: list[int], headings: Sequence[str], columns: int) -> None:
    """Shorten the widest texts until the line fits, or all have their minimum width."""
    free = [i for i, heading in enumerate(headings) if heading in _FREE and widths[i] > _NARROWEST]
    while free and (over := sum(widths) - columns) > 0:
        free.sort(key=widths.__getitem__)
        widest = free[-1]
        least = max(_NARROWEST, widths[free[-2]] - 1 if len(free) > 1 else 0)
        widths[widest] = max(widths[widest] - over, least)
        free = [i for i in free if widths[i] > _NARROWEST]


def _cells(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(visible(text) if text else "-" for text in texts)


def facts(values: Mapping[str, str], width: int) -> Iterator[str]:
    """Lines `Key: value` with the values in one column; an empty value is left out."""
    return (f"{key + ':':<{width}}{visible(value)}\n" for key, value in values.items() if value)


def age(since_ns: int, now_ns: int) -> str:
    """Age in kubectl's format: 12s, 5m12s, 3h20m, 2d4h, 41d; "" if unknown."""
    if not since_ns:
        return ""
    s = max(0, now_ns - since_ns) // NS
    steps = (
        (s // 86_400, "d", s // 3600 % 24, "h"),
        (s // 3600, "h", s // 60 % 60, "m"),
        (s // 60, "m", s % 60, "s"),
    )
    for large, unit, small, small_unit in steps:
        if large:
            return f"{large}{unit}" + (f"{small}{small_unit}" if small and large < 10 else "")
    return f"{s}s"
