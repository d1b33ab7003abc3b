"""Explains how two nodes are connected: lowest common HyperNode, a shortest path, and its anomalies.

The speeds between the nodes are those that predictions of placements use, unless this pair was measured.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.finding_pb2 import FindingKey
from hyperscout_formats.facts.accelerators import KINDS
from hyperscout_formats.text.counts import count
from hyperscout_placer.cluster.allreduce import HopSpeed, predict
from hyperscout_placer.cluster.forest import Forest, ForestError
from hyperscout_placer.cluster.link_speeds import ETHERNET, down_rows
from hyperscout_placer.cluster.speeds import TierSpeed, speeds_of
from hyperscout_topology.figures import digits
from hyperscout_topology.link_changes import denied_rows, table_of
from hyperscout_topology.proto import anomaly_to_proto, links_to_proto
from hyperscout_topology.topology import Anomaly, Endpoint, HyperNode, Link, LinkTable, Topology

from hyperscout_collector.evidence.rows import Key
from hyperscout_collector.serve.grpc.measured import (
    NodeReport,
    bandwidth_gbps,
    between,
    latency_us,
    sayings,
)
from hyperscout_collector.serve.grpc.path_legs import Hop, Path, leg_text, path_legs

_MAX_EVIDENCE = 500  # keys in one response
_MAX_ANOMALIES = 100


class UnknownNodeError(LookupError):
    """The published topology does not contain the node."""


def explain(
    topology: Topology,
    node_a: str,
    node_b: str,
    evidence: Iterable[Key],
    reports: Sequence[NodeReport] = (),
) -> pb.ExplainResponse:
    """The published facts about two nodes and the path between them. Raises UnknownNodeError.

    `evidence`: keys of the findings of both nodes; `reports`: what they measured, and their GPUs. Takes about
    0.3 s with 400,000 links, so call it in a thread.
    """
    chains = {node: _chain(topology, node) for node in (node_a, node_b)}
    devices = {node: {x.id for x in topology.adapters if x.node == node} for node in chains}
    for node, chain in chains.items():
        if not chain and not devices[node] and node not in topology.nodes_without_evidence:
            raise UnknownNodeError(f"no node {node!r}: `hyperscout get nodes` lists them")
    names_b = {h.name for h in chains[node_b]}
    common = next((h for h in chains[node_a] if h.name in names_b), None)
    path = Path() if node_a == node_b else _path(topology, node_a, node_b, devices)
    hop, tiers = _tier_speeds(topology, node_a, node_b, common)
    measured_us = {tier: x.latency_us for tier, x in enumerate(tiers) if x.latency_source == "measured"}
    own = {*devices[node_a], *devices[node_b], node_a, node_b}
    anomalies = [a for a in topology.anomalies if _touches(a, path.hops, own)]
    legs = path_legs(topology, chains, common, path, measured_us, reports)
    answer = pb.ExplainResponse(
        tier=common.tier if common else 0,
        tier_name=common.tier_name if common else "",
        hypernode=common.name if common else "",
        hypernodes_a=[h.name for h in chains[node_a]],
        hypernodes_b=[h.name for h in chains[node_b]],
        path=links_to_proto(x.link for x in path.hops),
        anomalies=[anomaly_to_proto(a) for a in anomalies[:_MAX_ANOMALIES]],
        evidence=[
            FindingKey(node=key.node, probe=key.probe, subject=key.subject)
            for key in sorted(set(evidence))[:_MAX_EVIDENCE]
        ],
        legs=legs,
    )
    if node_a != node_b:
        _set_speeds(answer, node_a, node_b, common, hop, path, reports)
    measured = between(node_a, node_b, reports)
    answer.text = _text(topology, chains, common, path, answer, anomalies, measured)
    return answer


def _tier_speeds(
    topology: Topology, node_a: str, node_b: str, common: HyperNode | None
) -> tuple[HopSpeed | None, list[TierSpeed]]:
    """The figures of predictions for a hop between the nodes, and for each tier from 0; (None, []) = none."""
    if node_a == node_b or common is None:
        return None, []
    try:
        forest = Forest.of(topology)
    except ForestError:
        return None, []
    tiers = speeds_of(topology, forest)
    return predict(forest, tiers, (node_a, node_b)).hops[-1], tiers


def _set_speeds(
    answer: pb.ExplainResponse,
    node_a: str,
    node_b: str,
    common: HyperNode | None,
    hop: HopSpeed | None,
    path: Path,
    reports: Sequence[NodeReport],
) -> None:
    """Set latency and bandwidth between the nodes: of the pair, else of the tier, measured or read."""
    by_gpus = common is not None and common.source in KINDS
    us, gbps = latency_us(node_a, node_b, reports), bandwidth_gbps(node_a, node_b, reports, by_gpus)
    source = "measured"
    if us is None and hop is not None and hop.latency_source == source:
        us = hop.latency_us
    if gbps is None and hop is not None:
        # Cables limit neither accelerator fabrics, nor what was read of the tree a path that leaves it.
        is_read = hop.bandwidth_source == "read" and path.is_in_tree and not by_gpus
        if is_read or hop.bandwidth_source == source:
            gbps, source = hop.bandwidth_gbps, hop.bandwidth_source
    if us is not None:
        answer.latency_us, answer.latency_source = us, "measured"
    if gbps is not None:
        answer.bandwidth_gbps, answer.bandwidth_source = gbps, source


def _path(topology: Topology, node_a: str, node_b: str, devices: Mapping[str, set[str]]) -> Path:
    """A path from `node_a` to `node_b`; in the other direction the same."""
    first, last = sorted((node_a, node_b))
    path = shortest_path(topology, devices[first], devices[last])
    return path if first == node_a else path.turned()


def shortest_path(topology: Topology, start: set[str], goal: set[str]) -> Path:
    """A path with the fewest links from one of `start` to one of `goal`, through switches only.

    Paths through switches of HyperNodes come first, of these paths without Ethernet. If there is none, links
    of the tree may be down, and last all switches count. Links that others contradict never count. Of several
    such paths the order of the links determines one, so equal topologies give equal paths.
    """
    table = table_of(topology.links)
    wired, up = np.ones(len(table), np.bool_), np.ones(len(table), np.bool_)
    wired[denied_rows(table)] = False
    down = down_rows(topology, table)
    up[down] = False
    tree = {*start, *goal, *(switch for h in topology.hypernodes for switch in h.switches)}
    inside = np.fromiter(map(tree.__contains__, table.devices), np.bool_, len(table.devices))
    in_tree = wired & inside[table.a] & inside[table.b]
    ethernet = np.array([name == ETHERNET for name in table.fabrics], np.bool_)[table.fabric]
    usable = in_tree & up
    for rows in (usable & ~ethernet, usable, in_tree, wired):
        if steps := _steps(topology, table, np.flatnonzero(rows), start, goal):
            hops = _hops(topology, table, steps, frozenset(down))
            return Path(hops, bool(usable[[row for _, row, _ in steps]].all()))
    return Path()


# One link of a path: the device nearer to the start, the row of the link, the other device.
_Step = tuple[int, int, int]


def _steps(
    topology: Topology, table: LinkTable, rows: npt.NDArray[np.intp], start: set[str], goal: set[str]
) -> list[_Step]:
    """The shortest path over these rows of the table; [] = there is none."""
    switches = {s.id for s in topology.switches}
    near = np.concatenate([table.a[rows], table.b[rows]])
    far = np.concatenate([table.b[rows], table.a[rows]])
    link = np.concatenate([rows, rows])
    order = np.lexsort((link, near))
    first = np.searchsorted(near[order], np.arange(len(table.devices) + 1))
    far, link = far[order], link[order]
    came: dict[int, tuple[int, int] | None] = {i: None for i, d in enumerate(table.devices) if d in start}
    queue = deque(came)
    while queue:
        here = queue.popleft()
        if came[here] is not None and table.devices[here] not in switches:
            continue  # hosts do not forward
        for i in range(first[here], first[here + 1]):
            there = int(far[i])
            if there not in came:
                came[there] = (here, int(link[i]))
                if table.devices[there] in goal:
                    return _walk_back(came, there)
                queue.append(there)
    return []


def _walk_back(came: Mapping[int, tuple[int, int] | None], end: int) -> list[_Step]:
    steps = []
    while (step := came[end]) is not None:
        steps.append((*step, end))
        end = step[0]
    return steps[::-1]


def _hops(
    topology: Topology, table: LinkTable, steps: Sequence[_Step], down: frozenset[int]
) -> tuple[Hop, ...]:
    names = {s.id: s.name for s in topology.switches}
    on_path = {table.devices[end] for near, _, far in steps for end in (near, far)}
    names |= {x.id: f"{x.node} {x.name}".rstrip() for x in topology.adapters if x.id in on_path}
    found = []
    for near, row, _ in steps:
        link: Link = table[row]
        a = Endpoint(link.a_device, names.get(link.a_device, link.a_device), link.a_port)
        b = Endpoint(link.b_device, names.get(link.b_device, link.b_device), link.b_port)
        ends = (a, b) if int(table.a[row]) == near else (b, a)
        found.append(Hop(link, *ends, is_up=row not in down))
    return tuple(found)


def _chain(topology: Topology, node: str) -> list[HyperNode]:
    """The HyperNodes that contain the node, from tier 1 upwards."""
    return sorted((h for h in topology.hypernodes if node in h.nodes), key=lambda h: h.tier)


def _touches(anomaly: Anomaly, hops: Sequence[Hop], own: set[str]) -> bool:
    """Whether the anomaly concerns a port or a whole device of the path, or any part of the two nodes."""
    ports = {(end.device, end.port) for hop in hops for end in (hop.near, hop.far)}
    whole = {device for device, _ in ports}
    return any(
        end.device in own
        or end.name in own
        or (end.device, end.port) in ports
        or (end.port is None and end.device in whole)
        for end in (anomaly.subject, anomaly.peer)
        if end is not None
    )


def _speeds(answer: pb.ExplainResponse) -> list[str]:
    """ "One way: 4.5 us (measured), 32 Gbit/s (read)." """
    parts = []
    if answer.HasField("latency_us"):
        parts.append(f"{digits(answer.latency_us, 3)} us ({answer.latency_source})")
    if answer.HasField("bandwidth_gbps"):
        parts.append(f"{digits(answer.bandwidth_gbps, 3)} Gbit/s ({answer.bandwidth_source})")
    return [f"One way: {', '.join(parts)}."] if parts else []


def _text(
    topology: Topology,
    chains: Mapping[str, Sequence[HyperNode]],
    common: HyperNode | None,
    path: Path,
    answer: pb.ExplainResponse,
    anomalies: Sequence[Anomaly],
    measured: Sequence[str],
) -> str:
    nodes = list(chains)
    if len(nodes) == 1:
        lines = [f"{nodes[0]} is one node."]
    elif common is not None:
        where = f"both are in {common.name}, tier {common.tier}"
        lines = [f"{nodes[0]} and {nodes[1]} are {common.tier_name} neighbours: {where}."]
    else:
        lines = [f"{nodes[0]} and {nodes[1]} share no HyperNode."]
    lines += [f"{node} is in no HyperNode." for node in nodes if not chains[node]]
    legs, cables, down = list(answer.legs), len(path.hops), sum(not hop.is_up for hop in path.hops)
    if legs and legs[0].kind in KINDS and legs[0].near.device != legs[0].far.device:
        lines += [f"{KINDS[legs[0].kind].fabric} joins them:", f"  {leg_text(legs.pop(0))}"]
    if cables:
        rail = " over one rail" if path.is_in_tree else ""
        lines.append(f"A shortest path{rail} has {count(cables, 'cable')}{f', {down} down' if down else ''}:")
    lines += [f"  {leg_text(leg)}" for leg in legs]
    lines += _speeds(answer)
    if not cables and len(nodes) > 1 and (common is None or common.source == "wires"):
        lines.append("No evidence shows a path between them.")
    if len(nodes) > 1:
        lines += [*sayings(topology, common), *measured]
    lines += [f"{a.kind}: {a.message}" for a in anomalies[:_MAX_ANOMALIES]]
    if cables and not anomalies:
        lines.append("There are no anomalies on this path.")
    return "\n".join(lines)
