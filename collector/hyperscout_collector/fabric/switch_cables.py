"""What switches say of their own ports: cables between switches, and hosts' cables from the other end.

A switch's port is its chassis id and port id, as it announces them itself; so what both ends report is one
cable. A host is known by the MAC addresses that its own agent reports, never by what it calls itself.

What an agent that speaks no more said last stands, but only where nobody who still speaks says otherwise: an
agent that is away is no cable that is missing.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hyperscout_formats.facts import LldpNeighbour, SwitchPort

from hyperscout_collector.fabric.inputs import FabricInputs
from hyperscout_collector.topology import Anomaly, Endpoint

SOURCE = "switch"
SWITCHING = frozenset({"Bridge", "Router"})


class End(NamedTuple):
    """A switch's port: chassis id and port id."""

    chassis: str
    port: str


class Jack(NamedTuple):
    """A host's port: node and interface."""

    host: str
    interface: str


class SwitchCable(NamedTuple):
    """A cable between two switches; `a` sorts before `b`."""

    a: End
    b: End
    speed_mbps: int = 0  # 0 = unknown


@dataclass(frozen=True, slots=True)
class SwitchView:
    """`names`: of switches by chassis id, as they and their neighbours say. `hosts`: the host's end of the
    cable in a switch's port. `own`: chassis ids of switches that report themselves.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    cables: Sequence[SwitchCable] = ()
    hosts: Mapping[tuple[str, str], Jack] = field(default_factory=dict)  # by `End`
    own: frozenset[str] = frozenset()
    silent: frozenset[str] = frozenset()  # of those, the ones whose agents speak no more
    anomalies: Sequence[Anomaly] = ()


@dataclass(frozen=True, slots=True)
class _Port:
    """What a switch says of one of its ports."""

    said: SwitchPort
    silent: bool


def switch_view(inputs: FabricInputs) -> SwitchView:
    """All that switches see, whatever hosts say of it."""
    if not inputs.switch_ports:
        return SwitchView()
    ports: dict[End, _Port] = {}
    speakers: dict[str, set[str]] = {}  # reporters of a chassis id; those that still speak
    names: dict[str, str] = {}
    # Who still speaks comes last, and stays.
    for reporter in sorted(inputs.switch_ports, key=lambda name: (name not in inputs.silent, name)):
        silent = reporter in inputs.silent
        mine = inputs.switch_ports[reporter]
        for chassis, name in {said.chassis_id: said.system_name for said in mine}.items():
            speakers.setdefault(chassis, set()).update(() if silent else (reporter,))
            names[chassis] = name or names.get(chassis, "")
        for said in mine:
            if said.port_id:
                ports[End(said.chassis_id, said.port_id)] = _Port(said, silent)
    whose = _whose(inputs, ports.values())
    hosts: dict[tuple[str, str], Jack] = {}
    claims: dict[tuple[End, End], set[End]] = {}  # by both ends: those that say so
    heard_names: dict[str, str] = {}
    for end, port in ports.items():
        for neighbour in port.said.neighbours if port.said.carrier else ():
            if (jack := whose.of(neighbour)) is not None:
                hosts.setdefault(end, jack)
            elif is_switch(neighbour, speakers) and neighbour.chassis_id != end.chassis:
                other = End(neighbour.chassis_id, neighbour.port_id)
                claims.setdefault((min(end, other), max(end, other)), set()).add(end)
                known = heard_names.get(other.chassis, "")
                heard_names[other.chassis] = max(known, neighbour.system_name)
    names = heard_names | {chassis: name for chassis, name in names.items() if name}
    cables, anomalies = _settled(claims, ports, names)
    anomalies += [
        Anomaly(
            "SourcesDisagree",
            Endpoint(chassis, names.get(chassis) or chassis),
            None,
            None,
            (SOURCE,),
            0.9,
            f"{', '.join(sorted(who))} announce one chassis id, {chassis}: their cables cannot be told apart",
        )
        for chassis, who in sorted(speakers.items())
        if len(who) > 1
    ]
    silent_ones = frozenset(chassis for chassis, who in speakers.items() if not who)
    return SwitchView(names, cables, hosts, frozenset(speakers), silent_ones, anomalies)


def is_switch(neighbour: LldpNeighbour, own: Container[str]) -> bool:
    """Whether it switches. `own`: chassis ids of switches that report themselves, whatever they say of it."""
    return not SWITCHING.isdisjoint(neighbour.capabilities) or neighbour.chassis_id in own


def _settled(
    claims: Mapping[tuple[End, End], set[End]], ports: Mapping[End, _Port], names: Mapping[str, str]
) -> tuple[list[SwitchCable], list[Anomaly]]:
    """One cable a port: what both ends say, then what one says that still speaks, then the rest."""

    def is_silent(pair: tuple[End, End]) -> bool:
        return all(ports[end].silent for end in claims[pair])

    standing = [pair for pair, by in claims.items() if not _denied(pair, by, ports)]
    standing.sort(key=lambda pair: (len(claims[pair]) < 2, is_silent(pair), pair))
    holder: dict[End, tuple[End, End]] = {}
    cables: list[SwitchCable] = []
    anomalies: list[Anomaly] = []
    for pair in standing:
        rival = next((holder[end] for end in pair if end in holder), None)
        if rival is None:
            holder |= dict.fromkeys(pair, pair)
            said = [ports[end].said.speed_mbps for end in pair if end in ports]
            cables.append(SwitchCable(*pair, max(said, default=0)))
        elif not is_silent(pair) and not claims[pair] <= claims[rival]:
            a, b = (Endpoint(x.chassis, names.get(x.chassis) or x.chassis, x.port) for x in pair)
            text = (
                f"{a.name}/{a.port} to {b.name}/{b.port} is reported, "
                "but another cable already holds one of these ports"
            )
            anomalies.append(Anomaly("SourcesDisagree", a, b, None, (SOURCE,), 0.7, text))
    return sorted(cables), anomalies


def _denied(pair: tuple[End, End], by: set[End], ports: Mapping[End, _Port]) -> bool:
    """Whether the end that does not report the cable knows better: it has no carrier, or it still speaks
    while the other does not."""
    if len(by) == 2:
        return False
    (says,) = by
    other = ports.get(pair[0] if says == pair[1] else pair[1])
    if other is None:
        return False
    if ports[says].silent:
        return not other.silent or not other.said.carrier
    return not other.silent and not other.said.carrier


class _Whose:
    """Whose port it is that a switch hears. An address that two ports have is nobody's."""

    def __init__(self, jacks: Mapping[str, Sequence[Jack]], interfaces: Mapping[str, set[str]]) -> None:
        self._jacks = jacks
        self._interfaces = interfaces

    def of(self, neighbour: LldpNeighbour) -> Jack | None:
        if neighbour.port_id_subtype == "mac" and (at := self._jacks.get(neighbour.port_id)) is not None:
            return at[0] if len(at) == 1 else None
        if neighbour.chassis_id_subtype != "mac":
            return None
        hosts = {jack.host for jack in self._jacks.get(neighbour.chassis_id, ())}
        if len(hosts) != 1:
            return None
        (host,) = hosts
        return Jack(host, neighbour.port_id) if neighbour.port_id in self._interfaces[host] else None


def _whose(inputs: FabricInputs, ports: Iterable[_Port]) -> _Whose:
    """Of all nodes only those whose addresses switches hear: a cluster has many ports."""
    heard = set()
    for port in ports:
        for neighbour in port.said.neighbours:
            if neighbour.port_id_subtype == "mac":
                heard.add(neighbour.port_id)
            if neighbour.chassis_id_subtype == "mac":
                heard.add(neighbour.chassis_id)
    jacks: dict[str, list[Jack]] = {}
    for node, own in inputs.lldp.items():
        for said in own:
            if said.mac in heard:
                jacks.setdefault(said.mac, []).append(Jack(node, said.interface))
    nodes = {jack.host for at in jacks.values() for jack in at}
    return _Whose(jacks, {node: {said.interface for said in inputs.lldp[node]} for node in nodes})
