"""Collect what hosts report over LLDP. What a node's report shows alone is kept while it does not change."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from hyperscout_formats.facts.facts import LldpNeighbour, LldpPort
from hyperscout_topology.memo import MemoByNode, memoized

from hyperscout_inference.ethernet.dpus import Dpus, may_be_dpus
from hyperscout_inference.ethernet.host_cables import HostCable, HostCables, KeptCables
from hyperscout_inference.ethernet.neighbours import Jack, is_switch
from hyperscout_inference.ethernet.switch_reports import End, SwitchReports
from hyperscout_inference.fabric.inputs import FabricInputs

LLDP: Final = "lldp"
_SOURCES = (LLDP,)
_NONE: frozenset[str] = frozenset()  # one for all nodes: each takes 216 bytes


class NodeReport(NamedTuple):
    """What one node's report shows alone. `dpus`: what can be its DPUs. `heard`: the chassis ids that it
    hears. `unsure`: those that do not announce that they switch. `cables`: the node's cables, if exactly
    `dpus` of `heard` are DPUs, and none of `unsure` is a switch that reports itself."""

    cables: tuple[HostCable, ...]
    dpus: Dpus
    heard: frozenset[str]
    unsure: frozenset[str]


@dataclass(frozen=True, slots=True)
class HostReports:
    """What hosts report. `claims`: the host ports that report a switch port, by `End`. `of_jacks` and
    `states` (carrier, speed in Mbit/s) are by `Jack`. All but `cables` are empty where no switch reports."""

    cables: HostCables
    switches: Collection[str] = ()  # their chassis ids
    claims: dict[tuple[str, str], list[Jack]] = field(default_factory=dict)
    of_jacks: dict[tuple[str, str], HostCable] = field(default_factory=dict)
    states: dict[tuple[str, str], tuple[bool, int]] = field(default_factory=dict)


def _report_of(node: str, ports: Sequence[LldpPort]) -> NodeReport:
    heard = [neighbour for port in ports for neighbour in port.neighbours]
    dpus = may_be_dpus(node, ports)
    return NodeReport(
        _cables(node, ports, (), dpus),
        dpus,
        frozenset(x.chassis_id for x in heard),
        frozenset(x.chassis_id for x in heard if not is_switch(x, ())) or _NONE,
    )


def dpus_in(of_nodes: Mapping[str, NodeReport]) -> Sequence[Dpus]:
    """Return what can be DPUs, of each node with some."""
    return _some(_dpus_of(of_nodes))


@memoized
def _some(dpus: Mapping[str, Dpus]) -> list[Dpus]:
    return [mine for mine in dpus.values() if mine]


reports_of = MemoByNode(_report_of)
_dpus_of: MemoByNode[NodeReport, Dpus] = MemoByNode(lambda _, mine: mine.dpus)
_cables_of: MemoByNode[NodeReport, Sequence[HostCable]] = MemoByNode(lambda _, mine: mine.cables)
_kept_cables = KeptCables()


def host_reports(
    of_nodes: Mapping[str, NodeReport], inputs: FabricInputs, reports: SwitchReports, dpus: Dpus
) -> HostReports:
    """Return what all hosts report. `of_nodes`: what `reports_of` returns for their reports."""
    are_dpus = frozenset(dpus)

    def cables_of(node: str) -> Sequence[HostCable]:
        mine = of_nodes[node]
        if mine.heard & are_dpus == mine.dpus.keys() and mine.unsure.isdisjoint(reports.own):
            return mine.cables
        return _cables(node, inputs.lldp[node], reports.own, dpus)

    by_node: Mapping[str, Sequence[HostCable]]
    if reports.own:
        by_node = {node: _as_switches_call_them(cables_of(node), reports) for node in of_nodes}
    elif are_dpus or dpus_in(of_nodes):
        by_node = {node: cables_of(node) for node in of_nodes}
    else:  # the common case
        by_node = _cables_of(of_nodes)
    cables = _kept_cables(by_node)
    by_hosts = HostReports(cables, frozenset(cables.chassis.values))
    if not reports.rows:
        return by_hosts
    for node in sorted(inputs.lldp):
        for port in inputs.lldp[node]:
            jack = Jack(node, port.interface)
            carrier, speed_mbps = by_hosts.states.get(jack, (False, 0))
            by_hosts.states[jack] = carrier or port.carrier, max(speed_mbps, port.speed_mbps)
    for cable in cables.rows:
        jack = Jack(cable.host, cable.interface)
        by_hosts.of_jacks.setdefault(jack, cable)  # rows are sorted: the least one
        by_hosts.claims.setdefault(End(cable.chassis, cable.port), []).append(jack)
    return by_hosts


def _cables(node: str, ports: Sequence[LldpPort], own: Collection[str], dpus: Dpus) -> tuple[HostCable, ...]:
    """Return the cables that a node reports."""
    found = []
    for port in ports:
        if port.carrier and (neighbour := _switch_on(port, own, dpus)) is not None:
            end = neighbour.chassis_id, neighbour.port_id
            name = neighbour.system_name
            found.append(HostCable(node, port.interface, *end, port.speed_mbps, _SOURCES, heard=name))
    return _each_once(found)


def _as_switches_call_them(cables: Sequence[HostCable], reports: SwitchReports) -> Sequence[HostCable]:
    """Return the cables of one node, with the switches' own names of their ports."""
    ends = [reports.end(cable.chassis, cable.port) for cable in cables]
    if ends == [(cable.chassis, cable.port) for cable in cables]:
        return cables
    pairs = zip(cables, ends, strict=True)
    return _each_once(cable._replace(chassis=end.chassis, port=end.port) for cable, end in pairs)


def _each_once(cables: Iterable[HostCable]) -> tuple[HostCable, ...]:
    """Return the cables of one node in order. Of cables that differ in the name of the switch, the one with
    the greatest name stays, because it is the node's vote."""
    return tuple({cable._replace(heard=""): cable for cable in sorted(cables)}.values())


def _switch_on(port: LldpPort, own: Collection[str], dpus: Dpus) -> LldpNeighbour | None:
    """Return the switch at the other end, or None for a station, the host's own DPU or no neighbour. Of
    several neighbours (a NIC's own LLDP agent also announces itself) the one that switches comes first."""
    found: Sequence[LldpNeighbour] = port.neighbours
    if dpus:
        found = [n for n in found if n.chassis_id not in dpus]
    if len(found) > 1:
        found = sorted(found, key=lambda n: (not is_switch(n, own), n.chassis_id, n.port_id))
    if not found or ("Station" in found[0].capabilities and not is_switch(found[0], own)):
        return None
    return found[0]
