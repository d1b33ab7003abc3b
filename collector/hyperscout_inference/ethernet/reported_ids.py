"""Find the chassis id that neighbours report for a switch with a table that lacks it.

Some switches do not report their chassis id, or report another one than they announce. Their table then has
an id that no neighbour reports. The announced id is found among those that neighbours report: by the switch's
management address, by the other end of its own cables, by the address of one of its ports, or by its name.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from hyperscout_formats.facts.facts import LldpNeighbour, SwitchPort

from hyperscout_inference.fabric.inputs import FabricInputs

_ROUNDS = 8  # each switch that is found helps to find its neighbours


class Report(NamedTuple):
    """One whole switch as one reporter describes it."""

    chassis: str
    ports: Sequence[SwitchPort]
    source: str
    reporter: str
    silent: bool
    at_ns: int
    addresses: tuple[str, ...] = ()


def reported_ids(tables: Sequence[Report], inputs: FabricInputs) -> dict[str, str]:
    """Return the ids that neighbours report, by the table ids that no neighbour reports. An id that two
    tables may have is not assigned."""
    own = {report.chassis for report in tables}
    reported = {n.chassis_id for _, n in _rows(tables)}
    if own <= reported:
        return {}
    from_hosts = [n for mine in inputs.lldp.values() for port in mine for n in port.neighbours]
    unreported = [r for r in tables if r.chassis not in reported.union(n.chassis_id for n in from_hosts)]
    own.add("")  # neighbours without a chassis id
    unassigned = [n for n in (*(n for _, n in _rows(tables)), *from_hosts) if n.chassis_id not in own]
    if not unreported or not unassigned:
        return {}
    announced = _Announced(unassigned)
    found: dict[str, str] = {}
    for _ in range(_ROUNDS):
        back = _back_rows(tables, found)
        options: dict[str, set[str]] = {}
        for report in unreported:
            if report.chassis not in found:
                mine = announced.of(report, back) - set(found.values())
                options.setdefault(report.chassis, set()).update(mine)
        claims = Counter(chassis for mine in options.values() for chassis in mine)
        new = {
            made_up: next(iter(mine))
            for made_up, mine in options.items()
            if len(mine) == 1 and claims[next(iter(mine))] == 1
        }
        if not new:
            break
        found |= new
    return found


class _Announced:
    """What neighbours report of switches that have no table."""

    def __init__(self, unassigned: Sequence[LldpNeighbour]) -> None:
        self._ids = {n.chassis_id for n in unassigned}
        self._by_name: dict[str, set[str]] = {}
        self._by_address: dict[str, set[str]] = {}
        for neighbour in unassigned:
            if neighbour.system_name:
                self._by_name.setdefault(neighbour.system_name, set()).add(neighbour.chassis_id)
            for address in neighbour.management_addresses:
                self._by_address.setdefault(address, set()).add(neighbour.chassis_id)

    def of(self, report: Report, back: dict[tuple[str, str], set[tuple[str, str]]]) -> set[str]:
        """Return the chassis ids that the switch may have, by the strongest sign that exists."""
        found: set[str] = set()
        for address in report.addresses:
            found |= self._by_address.get(address, set())
        if found:
            return found
        for entry in report.ports:
            for neighbour in entry.neighbours:
                for chassis, port in back.get((neighbour.chassis_id, neighbour.port_id), ()):
                    if port in (entry.port_id, entry.interface) and chassis in self._ids:
                        found.add(chassis)
        found = found or {entry.mac for entry in report.ports} & self._ids
        if not found:
            for name in {entry.system_name for entry in report.ports if entry.system_name}:
                found |= self._by_name.get(name, set())
        return found


def _rows(tables: Sequence[Report]) -> Iterator[tuple[SwitchPort, LldpNeighbour]]:
    for report in tables:
        for entry in report.ports:
            for neighbour in entry.neighbours:
                yield entry, neighbour


def _back_rows(
    tables: Collection[Report], found: dict[str, str]
) -> dict[tuple[str, str], set[tuple[str, str]]]:
    """Return the neighbours of each port of a known switch, by its chassis id and port id."""
    reported: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for report in tables:
        chassis = found.get(report.chassis, report.chassis)
        for entry in report.ports:
            reported[chassis, entry.port_id] = {(n.chassis_id, n.port_id) for n in entry.neighbours}
    return reported
