"""What is done to a switch's table between its walk and its finding: size, name, what others say of it."""

from dataclasses import replace
from typing import Final

from hyperscout_formats.facts.facts import (
    SWITCHING,
    LldpNeighbour,
    PortCounters,
    SwitchPort,
    SwitchTable,
)
from hyperscout_formats.facts.wire import switch_table_to_proto
from hyperscout_formats.snmp import switch as snmp_switch

from hyperscout_agent.findings.store import MAX_FINDING_BYTES
from hyperscout_agent.snmp.walk import Walk

# What still leaves room for the finding's key and reason, and for what others say of it.
_MAX_TABLE_BYTES: Final = MAX_FINDING_BYTES - 16 * 1024
# Tried in turn when a table is too large.
_NEIGHBOURS_A_PORT: Final = (snmp_switch.MAX_NEIGHBOURS, 256, 64, 16, 4, 1)


class TooLarge(Exception):  # noqa: N818 - what it is
    """There is no way to tell all of a switch."""


def fitted(walk: Walk, address: str) -> SwitchTable:
    """What a switch said, in a finding's size: where a port hears too many, some are left out and counted.

    Raises TooLarge.
    """
    for most in _NEIGHBOURS_A_PORT:
        table = snmp_switch.read(walk.rows, address, address, neighbours_per_port=most)
        table = replace(table, problems=(*walk.problems, *table.problems))
        if switch_table_to_proto(table).ByteSize() <= _MAX_TABLE_BYTES:
            return table
    raise TooLarge(f"says more of its {len(table.ports)} ports than fits into {_MAX_TABLE_BYTES} bytes")


def called(table: SwitchTable, chassis: str, subtype: str) -> SwitchTable:
    """The same under another chassis id. `subtype`: "" = nobody announces it."""
    stand_in = table.ports[0].chassis_id
    if chassis == stand_in:
        return table
    ports = tuple(replace(port, chassis_id_subtype=subtype, chassis_id=chassis) for port in table.ports)
    problems = table.problems
    if subtype:
        odd = f"it tells no chassis id: it goes by {chassis}, by which others hear it"
        problems = (*(one for one in problems if stand_in not in one), odd)
    return SwitchTable(ports, table.addresses, problems)


def with_problem(table: SwitchTable, problem: str) -> SwitchTable:
    return replace(table, problems=(*table.problems, problem))


def anonymous(table: SwitchTable) -> tuple[SwitchPort, ...]:
    """Its ports without what it is called there, or counted meanwhile."""
    return tuple(replace(port, chassis_id_subtype="", chassis_id="") for port in uncounted(table).ports)


def uncounted(table: SwitchTable) -> SwitchTable:
    """What is news of it: not that counters went on."""
    return replace(table, ports=tuple(replace(port, counters=PortCounters()) for port in table.ports))


def may_switch(neighbour: LldpNeighbour) -> bool:
    """Who does not say what it does may be anything; what an adapter itself sends says little."""
    if neighbour.capabilities:
        return bool(SWITCHING.intersection(neighbour.capabilities))
    return neighbour.port_id_subtype != "mac" or bool(neighbour.system_name)


def short(name: str) -> str:
    """A host name up to its first dot, for comparing."""
    return name.partition(".")[0].casefold()
