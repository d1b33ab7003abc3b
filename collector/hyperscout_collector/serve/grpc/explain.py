"""Explains how two nodes are connected: lowest common HyperNode, a shortest path, and its anomalies."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.finding_pb2 import FindingKey
from hyperscout_formats.text.counts import count
from hyperscout_topology.figures import digits
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
from hyperscout_collector.serve.grpc.path_legs import CABLE, Hop, leg_text, path_legs, slowest_gbps

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
    0.3 s with a million links, so call it in a thread.
    """
    chains = {node: _chain(topology, node) for node in (node_a, node_b)}
    devices = {node: {x.id for x in topology.adapters if x.node == node} for node in chains}
    for node, chain in chains.items():
        if not chain and not devices[node] and node not in topology.nodes_without_evidence:
            raise UnknownNodeError(f"no node {node!r}: `hyperscout get nodes` lists them")
    names_b = {h.name for h in chains[node_b]}
    common = next((h for h in chains[node_a] if h.name in names_b), None)
    hops = [] if node_a == node_b else shortest_path(topology, devices[node_a], devices[node_b])
    own = {*devices[node_a], *devices[node_b], node_a, node_b}
    anomalies = [a for a in topology.anomalies if _touches(a, hops, own)]
    legs = path_legs(topology, chains, common, hops, reports)
    answer = pb.ExplainResponse(
        tier=common.tier if common else 0,
        tier_name=common.tier_name if common else "",
        hypernode=common.name if common else "",
        hypernodes_a=[h.name for h in chains[node_a]],
        hypernodes_b=[h.name for h in chains[node_b]],
        path=links_to_proto(hop.link for hop in hops),
        anomalies=[anomaly_to_proto(a) for a in anomalies[:_MAX_ANOMALIES]],
        evidence=[
            FindingKey(node=key.node, probe=key.probe, subject=key.subject)
            for key in sorted(set(evidence))[:_MAX_EVIDENCE]
        ],
        legs=legs,
    )
    if node_a != node_b:
        _set_speeds(answer, node_a, node_b, common, reports)
    measured = between(node_a, node_b, reports)
    answer.text = _text(topology, chains, common, answer, anomalies, measured)
    return answer


def _set_speeds(
    answer: pb.ExplainResponse,
    node_a: str,
    node_b: str,
    common: HyperNode | None,
    reports: Sequence[NodeReport],
) -> None:
    """Set latency and bandwidth between the nodes: of the pair, else of the HyperNode, else as read."""
    measured_us, gbps = latency_us(node_a, node_b, reports), bandwidth_gbps(node_a, node_b, reports)
    if measured_us is None and common is not None and common.latency_us is not None:
        measured_us = common.latency_us.median / 2
    if gbps is None and common is not None and common.bandwidth_gbps is not None:
        gbps = common.bandwidth_gbps.median
    if measured_us is not None:
        answer.latency_us, answer.latency_source = measured_us, "measured"
    if gbps is not None:
        answer.bandwidth_gbps, answer.bandwidth_source = gbps, "measured"
    elif (read_gbps := slowest_gbps(answer.legs)) is not None:
        answer.bandwidth_gbps, answer.bandwidth_source = read_gbps, "read"


def shortest_path(topology: Topology, start: set[str], goal: set[str]) -> list[Hop]:
    """A path with the fewest links from one of `start` to one of `goal`, through switches only; [] = no path.

    Of several such paths the order of the links determines one, so equal topologies give equal paths.
    """
    table = topology.links if isinstance(topology.links, LinkTable) else LinkTable.of(topology.links)
    switches = {s.id for s in topology.switches}
    near, far = np.concatenate([table.a, table.b]), np.concatenate([table.b, table.a])
    link = np.concatenate([np.arange(len(table)), np.arange(len(table))])
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
                    return _walk_back(topology, table, came, there)
                queue.append(there)
    return []


def _walk_back(
    topology: Topology, table: LinkTable, came: Mapping[int, tuple[int, int] | None], end: int
) -> list[Hop]:
    steps = []
    while (step := came[end]) is not None:
        steps.append((step, end))
        end = step[0]
    names = {s.id: s.name for s in topology.switches}
    on_path = {table.devices[end] for (near, _), far in steps for end in (near, far)}
    names |= {x.id: f"{x.node} {x.name}".rstrip() for x in topology.adapters if x.id in on_path}
    return [_hop(table, names, *step) for step, _ in reversed(steps)]


def _hop(table: LinkTable, names: Mapping[str, str], near: int, index: int) -> Hop:
    link: Link = table[index]
    a = Endpoint(link.a_device, names.get(link.a_device, link.a_device), link.a_port)
    b = Endpoint(link.b_device, names.get(link.b_device, link.b_device), link.b_port)
    return Hop(link, a, b) if int(table.a[index]) == near else Hop(link, b, a)


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
    cables = sum(leg.kind == CABLE for leg in answer.legs)
    if cables:
        lines.append(f"A shortest path has {count(cables, 'cable')}:")
    elif answer.legs:
        lines.append("NVLink joins them:")
    lines += [f"  {leg_text(leg)}" for leg in answer.legs]
    lines += _speeds(answer)
    if not cables and len(nodes) > 1 and (common is None or common.source == "wires"):
        lines.append("No evidence shows a path between them.")
    if len(nodes) > 1:
        lines += [*sayings(topology, common), *measured]
    lines += [f"{a.kind}: {a.message}" for a in anomalies[:_MAX_ANOMALIES]]
    if cables and not anomalies:
        lines.append("There are no anomalies on this path.")
    return "\n".join(lines)
