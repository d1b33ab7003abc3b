"""Selects which tables of whole switches are used: for each switch and probe the newest, marked if stale.

Several reporters may read one switch, and under several addresses. Its chassis id identifies it. A manager's
data and the switch's own answers are two independent sources, so each probe keeps its own table. A failed
reading removes nothing: the earlier table stays, and ages.
"""

from collections.abc import Iterable
from typing import NamedTuple

from hyperscout_formats.facts.facts import SwitchTable
from hyperscout_inference.fabric.inputs import SwitchTableSeen

from hyperscout_collector.evidence.rows import Row


class TableReading(NamedTuple):
    """One reading of one switch. The row's fact is the table."""

    row: Row
    table: SwitchTable

    @property
    def chassis_id(self) -> str:
        """Id of the table's switch; the row's subject where the table has no ports."""
        return self.table.ports[0].chassis_id if self.table.ports else self.row.key.subject


def readings_of(rows: Iterable[Row]) -> tuple[TableReading, ...]:
    """Returns the switch tables among a reporter's findings."""
    return tuple(TableReading(row, row.fact) for row in rows if isinstance(row.fact, SwitchTable))


def in_force(readings: Iterable[TableReading], limit_ns: int) -> tuple[SwitchTableSeen, ...]:
    """Returns one table per probe and switch, sorted by switch.

    `limit_ns`: a table that was seen before is stale.
    """
    newest: dict[tuple[str, str], TableReading] = {}
    # The key makes the order of readings with equal times deterministic.
    for reading in sorted(readings, key=lambda reading: (reading.row.seen_ns, reading.row.key)):
        newest[reading.chassis_id, reading.row.key.probe] = reading
    return tuple(
        SwitchTableSeen(reading.table, probe, reading.row.seen_ns < limit_ns, reading.row.seen_ns)
        for (_, probe), reading in sorted(newest.items(), key=lambda item: item[0])
    )


def chassis_ids(readings: Iterable[TableReading]) -> dict[str, set[str]]:
    """Returns the switches that each reporter has read, by reporter."""
    found: dict[str, set[str]] = {}
    for reading in readings:
        found.setdefault(reading.row.key.node, set()).add(reading.chassis_id)
    return found
