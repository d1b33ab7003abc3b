"""Tables as kubectl prints them: upper-case headings, columns as wide as their widest cell."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hyperscout_collector.publish.texts.names import visible

_GAP = "   "


@dataclass(frozen=True, slots=True)
class Row:
    """One object: the cells of the table, those that `wide` adds, and the whole as plain data."""

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


def lines(table: Table, *, wide: bool = False, heading: bool = True) -> Iterator[str]:
    """The table as text. Empty cells show as `-`."""
    cells = [_cells((*r.cells, *r.more) if wide else r.cells) for r in table.rows]
    if heading:
        cells.insert(0, (*table.headings, *table.more) if wide else table.headings)
    if not cells:
        return
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    for row in cells:
        yield _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n"


def _cells(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(visible(text) if text else "-" for text in texts)


def age(since_ns: int, now_ns: int) -> str:
    """How long ago, as kubectl shortens it: 12s, 5m12s, 3h20m, 2d4h, 41d; empty when unknown."""
    if not since_ns:
        return ""
    s = max(0, now_ns - since_ns) // 1_000_000_000
    steps = (
        (s // 86_400, "d", s // 3600 % 24, "h"),
        (s // 3600, "h", s // 60 % 60, "m"),
        (s // 60, "m", s % 60, "s"),
    )
    for large, unit, small, small_unit in steps:
        if large:
            return f"{large}{unit}" + (f"{small}{small_unit}" if small and large < 10 else "")
    return f"{s}s"
