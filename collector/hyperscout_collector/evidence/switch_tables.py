"""Which looks at whole switches are in force: of several at one switch the newest, and if it still holds.

One switch may be looked at by several, and under several addresses: it is its chassis id that says so. What
a manager shows and what the switch itself answers are two witnesses, so each probe has a look of its own. A
look that failed takes nothing away: what was seen before stays, and grows old.
"""

from collections.abc import Iterable
from typing import NamedTuple

from hyperscout_formats.facts.facts import SwitchTable
from hyperscout_inference.fabric.inputs import SwitchTableSeen

from hyperscout_collector.evidence.rows import Row


class TableLook(NamedTuple):
    """One look at one switch. The row's fact is the table."""

    row: Row
    table: SwitchTable

    @property
    def chassis_id(self) -> str:
        """Whose table it is; its subject where it tells of no port."""
        return self.table.ports[0].chassis_id if self.table.ports else self.row.key.subject


def looks_of(rows: Iterable[Row]) -> tuple[TableLook, ...]:
    """Those among a reporter's findings."""
    return tuple(TableLook(row, row.fact) for row in rows if isinstance(row.fact, SwitchTable))


def in_force(looks: Iterable[TableLook], limit_ns: int) -> tuple[SwitchTableSeen, ...]:
    """One a probe and switch, by switch. `limit_ns`: what was seen before is stale."""
    newest: dict[tuple[str, str], TableLook] = {}
    # Of two looks at one time always the same.
    for look in sorted(looks, key=lambda look: (look.row.seen_ns, look.row.key)):
        newest[look.chassis_id, look.row.key.probe] = look
    return tuple(
        SwitchTableSeen(look.table, probe, look.row.seen_ns < limit_ns, look.row.seen_ns)
        for (_, probe), look in sorted(newest.items(), key=lambda item: item[0])
    )


def chassis_ids(looks: Iterable[TableLook]) -> dict[str, set[str]]:
    """By reporter: the switches that it looked at."""
    found: dict[str, set[str]] = {}
    for look in looks:
        found.setdefault(look.row.key.node, set()).add(look.chassis_id)
    return found
