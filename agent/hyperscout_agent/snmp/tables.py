"""Adjusts a switch's table between its walk and its finding: size, chassis id and problems."""

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

# Leaves space for the finding's key and reason, and for problems and addresses from other reports.
_MAX_TABLE_BYTES: Final = MAX_FINDING_BYTES - 16 * 1024
# Tried in turn when a table is too large.
_NEIGHBOURS_A_PORT: Final = (snmp_switch.MAX_NEIGHBOURS, 256, 64, 16, 4, 1)


class TooLarge(Exception):  # noqa: N818 - what it is
    """The switch's table does not fit into a finding."""


def fitted(walk: Walk, address: str) -> SwitchTable:
    """Build a switch's table that fits into a finding. Raises TooLarge.

    If needed, neighbours of ports with many neighbours are omitted and counted.
    """
    for most in _NEIGHBOURS_A_PORT:
        table = snmp_switch.read(walk.rows, address, address, neighbours_per_port=most)
        table = replace(table, problems=(*walk.problems, *table.problems))
        if switch_table_to_proto(table).ByteSize() <= _MAX_TABLE_BYTES:
            return table
    raise TooLarge(f"the table of its {len(table.ports)} ports is larger than {_MAX_TABLE_BYTES} bytes")


def called(table: SwitchTable, chassis: str, subtype: str) -> SwitchTable:
    """Return the table with another chassis id. `subtype`: "" = no switch announces this id."""
    stand_in = table.ports[0].chassis_id
    if chassis == stand_in:
        return table
    ports = tuple(replace(port, chassis_id_subtype=subtype, chassis_id=chassis) for port in table.ports)
    problems = table.problems
    if subtype:
        odd = f"it reports no chassis id: the id {chassis} is the one that its neighbours received over LLDP"
        problems = (*(one for one in problems if stand_in not in one), odd)
    return SwitchTable(ports, table.addresses, problems)


def with_problem(table: SwitchTable, problem: str) -> SwitchTable:
    return replace(table, problems=(*table.problems, problem))


def anonymous(table: SwitchTable) -> tuple[SwitchPort, ...]:
    """Return the ports without chassis id and counters, for comparison."""
    return tuple(replace(port, chassis_id_subtype="", chassis_id="") for port in uncounted(table).ports)


def uncounted(table: SwitchTable) -> SwitchTable:
    """Return the table without counters, because their changes are not significant."""
    return replace(table, ports=tuple(replace(port, counters=PortCounters()) for port in table.ports))


def may_switch(neighbour: LldpNeighbour) -> bool:
    """Whether a neighbour may be a switch.

    If it announces capabilities, these decide. Otherwise it may be one unless it resembles an adapter's own
    LLDP agent, which sends a port id of subtype "mac" and no system name.
    """
    if neighbour.capabilities:
        return bool(SWITCHING.intersection(neighbour.capabilities))
    return neighbour.port_id_subtype != "mac" or bool(neighbour.system_name)


def short(name: str) -> str:
    """Return a host name up to its first dot, case-folded, for comparison."""
    return name.partition(".")[0].casefold()
