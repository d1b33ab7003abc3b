"""Find the chassis id that neighbours hear for a switch with a table that lacks it.

Some switches do not report their chassis id, or report another one than they announce. Their table then has
an id that no neighbour hears. The announced id is found among those that neighbours hear: by the switch's
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
    teller: str
    silent: bool
    at_ns: int
    addresses: tuple[str, ...] = ()


def heard_ids(tables: Sequence[Report], inputs: FabricInputs) -> dict[str, str]:
    """Return the ids that neighbours hear, by the table ids that no neighbour hears. An id that two tables
    may have is not assigned."""
    told = {report.chassis for report in tables}
    heard = {n.chassis_id for _, n in _rows(tables)}
    if told <= heard:
        return {}
    from_hosts = [n for mine in inputs.lldp.values() for port in mine for n in port.neighbours]
    unheard = [r for r in tables if r.chassis not in heard.union(n.chassis_id for n in from_hosts)]
    told.add("")  # neighbours without a chassis id
    strangers = [n for n in (*(n for _, n in _rows(tables)), *from_hosts) if n.chassis_id not in told]
    if not unheard or not strangers:
        return {}
    signs = _Signs(strangers)
    found: dict[str, str] = {}
    for _ in range(_ROUNDS):
        back = _back_rows(tables, found)
        wished: dict[str, set[str]] = {}
        for report in unheard:
            if report.chassis not in found:
                mine = signs.of(report, back) - set(found.values())
                wished.setdefault(report.chassis, set()).update(mine)
        claims = Counter(chassis for mine in wished.values() for chassis in mine)
        new = {
            made_up: next(iter(mine))
            for made_up, mine in wished.items()
            if len(mine) == 1 and claims[next(iter(mine))] == 1
        }
        if not new:
            break
        found |= new
    return found


class _Signs:
    """What neighbours hear of switches that have no table."""

    def __init__(self, strangers: Sequence[LldpNeighbour]) -> None:
        self._ids = {n.chassis_id for n in strangers}
        self._by_name: dict[str, set[str]] = {}
        self._by_address: dict[str, set[str]] = {}
        for neighbour in strangers:
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
        for said in report.ports:
            for neighbour in said.neighbours:
                for chassis, port in back.get((neighbour.chassis_id, neighbour.port_id), ()):
                    if port in (said.port_id, said.interface) and chassis in self._ids:
                        found.add(chassis)
        found = found or {said.mac for said in report.ports} & self._ids
        if not found:
            for name in {said.system_name for said in report.ports if said.system_name}:
                found |= self._by_name.get(name, set())
        return found


def _rows(tables: Sequence[Report]) -> Iterator[tuple[SwitchPort, LldpNeighbour]]:
    for report in tables:
        for said in report.ports:
            for neighbour in said.neighbours:
                yield said, neighbour


def _back_rows(
    tables: Collection[Report], found: dict[str, str]
) -> dict[tuple[str, str], set[tuple[str, str]]]:
    """Return the neighbours of each port of a known switch, by its chassis id and port id."""
    heard: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for report in tables:
        chassis = found.get(report.chassis, report.chassis)
        for said in report.ports:
            heard[chassis, said.port_id] = {(n.chassis_id, n.port_id) for n in said.neighbours}
    return heard
