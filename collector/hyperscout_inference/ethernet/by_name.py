"""Add chassis ids and port ids to tables that name devices only (NetQ's tables).

A name means the one chassis id that hosts, switches and other tables report with it. A name with no such
id, or with several, stays as it is; the table then describes devices of its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from hyperscout_formats.facts.facts import LldpNeighbour, SwitchPort

from hyperscout_inference.fabric.inputs import FabricInputs, SwitchTableSeen

NAMES_ALONE: Final = frozenset({"netq"})

_Id = tuple[str, str]  # subtype and value
_Known = Mapping[str, _Id]  # chassis ids by name
_Ports = Mapping[tuple[str, str], _Id]  # port ids by chassis id and interface


def with_identities(inputs: FabricInputs) -> tuple[SwitchTableSeen, ...]:
    """Return all tables of the evidence. The order of the evidence does not matter."""
    if not any(seen.source in NAMES_ALONE for seen in inputs.tables):
        return inputs.tables
    all_ports = [port for ports in inputs.switch_ports.values() for port in ports]
    all_ports += [
        port for seen in inputs.tables if seen.source not in NAMES_ALONE for port in seen.table.ports
    ]
    all_neighbours = [neighbour for port in all_ports for neighbour in port.neighbours]
    all_neighbours += [n for ports in inputs.lldp.values() for port in ports for n in port.neighbours]
    known = _chassis(all_ports, all_neighbours)
    ports = _ports(all_ports, all_neighbours)
    return tuple(
        replace(seen, table=replace(seen.table, ports=tuple(_own(p, known, ports) for p in seen.table.ports)))
        if seen.source in NAMES_ALONE
        else seen
        for seen in inputs.tables
    )


def _chassis(all_ports: Iterable[SwitchPort], all_neighbours: Iterable[LldpNeighbour]) -> _Known:
    """Return chassis ids by full name and, where the short name is unambiguous, by short name."""
    ids: dict[str, set[_Id]] = {}
    named: tuple[SwitchPort | LldpNeighbour, ...] = (*all_ports, *all_neighbours)
    for one in named:
        if one.system_name and one.chassis_id and one.chassis_id_subtype:
            ids.setdefault(_plain(one.system_name), set()).add((one.chassis_id_subtype, one.chassis_id))
    short: dict[str, set[_Id]] = {}
    for name, mine in ids.items():
        short.setdefault(name.partition(".")[0], set()).update(mine)
    return {name: next(iter(mine)) for name, mine in {**short, **ids}.items() if len(mine) == 1}


def _ports(all_ports: Iterable[SwitchPort], all_neighbours: Iterable[LldpNeighbour]) -> _Ports:
    """Return the port ids that a switch announces where they differ from the interface's name."""
    found: dict[tuple[str, str], set[_Id]] = {}
    for port in all_ports:
        if port.interface and port.port_id:
            found.setdefault((port.chassis_id, port.interface), set()).add(
                (port.port_id_subtype, port.port_id)
            )
    for neighbour in all_neighbours:
        if neighbour.port_description and neighbour.port_id_subtype != "ifname":
            key = neighbour.chassis_id, neighbour.port_description
            found.setdefault(key, set()).add((neighbour.port_id_subtype, neighbour.port_id))
    return {key: next(iter(mine)) for key, mine in found.items() if len(mine) == 1}


def _own(port: SwitchPort, known: _Known, ports: _Ports) -> SwitchPort:
    subtype, chassis = _find(port.system_name, known) or (port.chassis_id_subtype, port.chassis_id)
    id_subtype, port_id = ports.get((chassis, port.interface), (port.port_id_subtype, port.port_id))
    return replace(
        port,
        chassis_id_subtype=subtype,
        chassis_id=chassis,
        port_id_subtype=id_subtype,
        port_id=port_id,
        neighbours=_neighbours(port.neighbours, known, ports),
    )


def _neighbours(
    neighbours: Sequence[LldpNeighbour], known: _Known, ports: _Ports
) -> tuple[LldpNeighbour, ...]:
    found = []
    for neighbour in neighbours:
        subtype, chassis = _find(neighbour.system_name, known) or (
            neighbour.chassis_id_subtype,
            neighbour.chassis_id,
        )
        id_subtype, port_id = ports.get(
            (chassis, neighbour.port_id), (neighbour.port_id_subtype, neighbour.port_id)
        )
        found.append(
            replace(
                neighbour,
                chassis_id_subtype=subtype,
                chassis_id=chassis,
                port_id_subtype=id_subtype,
                port_id=port_id,
            )
        )
    return tuple(found)


def _find(name: str, known: _Known) -> _Id | None:
    plain = _plain(name)
    return known.get(plain) or known.get(plain.partition(".")[0])


def _plain(name: str) -> str:
    return name.lower().rstrip(".")
