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


class TableLook(NamedTuple):
    """One reading of one switch. The row's fact is the table."""

    row: Row
    table: SwitchTable

    @property
    def chassis_id(self) -> str:
        """Id of the table's switch; the row's subject where the table has no ports."""
        return self.table.ports[0].chassis_id if self.table.ports else self.row.key.subject


def looks_of(rows: Iterable[Row]) -> tuple[TableLook, ...]:
    """Returns the switch tables among a reporter's findings."""
    return tuple(TableLook(row, row.fact) for row in rows if isinstance(row.fact, SwitchTable))


def in_force(looks: Iterable[TableLook], limit_ns: int) -> tuple[SwitchTableSeen, ...]:
    """Returns one table per probe and switch, sorted by switch.

    `limit_ns`: a table that was seen before is stale.
    """
    newest: dict[tuple[str, str], TableLook] = {}
    # The key makes the order of readings with equal times deterministic.
    for look in sorted(looks, key=lambda look: (look.row.seen_ns, look.row.key)):
        newest[look.chassis_id, look.row.key.probe] = look
    return tuple(
        SwitchTableSeen(look.table, probe, look.row.seen_ns < limit_ns, look.row.seen_ns)
        for (_, probe), look in sorted(newest.items(), key=lambda item: item[0])
    )


def chassis_ids(looks: Iterable[TableLook]) -> dict[str, set[str]]:
    """Returns the switches that each reporter has read, by reporter."""
    found: dict[str, set[str]] = {}
    for look in looks:
        found.setdefault(look.row.key.node, set()).add(look.chassis_id)
    return found
