"""How close two nodes are, and why: their lowest common HyperNode, a shortest path, what is wrong on it."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.finding_pb2 import FindingKey

from hyperscout_collector.api.mapping import anomaly_to_proto, links_to_proto
from hyperscout_collector.evidence.rows import Key
from hyperscout_collector.fabric.network import Network
from hyperscout_collector.topology import Anomaly, Endpoint, HyperNode, Link, Topology

_MAX_EVIDENCE = 500  # keys in one answer
_MAX_ANOMALIES = 100


class UnknownNodeError(LookupError):
    """A node that neither the published topology nor the evidence knows."""


@dataclass(frozen=True, slots=True)
class _Hop:
    """One cable of the path, walked from `near` to `far` (device indices)."""

    link: int
    near: int
    far: int


def explain(
    topology: Topology, network: Network, node_a: str, node_b: str, evidence: Iterable[Key]
) -> pb.ExplainResponse:
    """Both nodes in the published topology, and the way between them in the fused evidence.

    `evidence`: keys of the findings of both nodes. Raises UnknownNodeError.
    """
    chains = {node: _chain(topology, node) for node in (node_a, node_b)}
    devices = {node: _devices(network, node) for node in (node_a, node_b)}
    for node in (node_a, node_b):
        if not chains[node] and not devices[node] and node not in topology.nodes_without_evidence:
            raise UnknownNodeError(f"no node {node!r}: `hyperscout get nodes` lists them")
    names_b = {h.name for h in chains[node_b]}
    common = next((h for h in chains[node_a] if h.name in names_b), None)
    hops = [] if node_a == node_b else shortest_path(network, devices[node_a], devices[node_b])
    anomalies = _anomalies_on(topology, network, hops, {*devices[node_a], *devices[node_b]}, {node_a, node_b})
    return pb.ExplainResponse(
        tier=common.tier if common else 0,
        tier_name=common.tier_name if common else "",
        hypernode=common.name if common else "",
        hypernodes_a=[h.name for h in chains[node_a]],
        hypernodes_b=[h.name for h in chains[node_b]],
        path=links_to_proto(_link(network, hop) for hop in hops),
        anomalies=[anomaly_to_proto(a) for a in anomalies[:_MAX_ANOMALIES]],
        evidence=[
            FindingKey(node=key.node, probe=key.probe, subject=key.subject)
            for key in sorted(set(evidence))[:_MAX_EVIDENCE]
        ],
        text=_text(
            network,
            (node_a, node_b),
            common,
            [n for n in chains if not chains[n]],
            hops=hops,
            anomalies=anomalies,
        ),
    )


def shortest_path(network: Network, start: Sequence[int], goal: Sequence[int]) -> list[_Hop]:
    """The fewest cables from one of `start` to one of `goal`, through switches only; [] if there is no way.

    Of several, the one through the lowest device indices: the same evidence gives the same path.
    """
    goals = set(goal)
    links = np.arange(len(network.a))
    near = np.concatenate([network.a, network.b])
    far = np.concatenate([network.b, network.a])
    order = np.lexsort((far, near))
    first = np.searchsorted(near[order], np.arange(len(network.ids) + 1))
    link_of = np.concatenate([links, links])[order]
    far = far[order]
    came: dict[int, _Hop | None] = dict.fromkeys(sorted(start))
    queue = deque(came)
    while queue:
        here = queue.popleft()
        if came[here] is not None and not network.is_switch[here]:
            continue  # hosts do not forward
        for i in range(first[here], first[here + 1]):
            there = int(far[i])
            if there in came:
                continue
            came[there] = _Hop(int(link_of[i]), here, there)
            if there in goals:
                return _walk_back(came, there)
            queue.append(there)
    return []


def _walk_back(came: dict[int, _Hop | None], end: int) -> list[_Hop]:
    hops: list[_Hop] = []
    while (hop := came[end]) is not None:
        hops.append(hop)
        end = hop.near
    return hops[::-1]


def _chain(topology: Topology, node: str) -> list[HyperNode]:
    """The HyperNodes that hold the node, from tier 1 up."""
    return sorted((h for h in topology.hypernodes if node in h.nodes), key=lambda h: h.tier)


def _devices(network: Network, node: str) -> list[int]:
    try:
        host = list(network.hosts).index(node)
    except ValueError:
        return []
    return [int(i) for i in np.flatnonzero(network.host == host)]


def _link(network: Network, hop: _Hop) -> Link:
    a, b = _ends(network, hop)
    return Link(
        a.device,
        a.port or "",
        b.device,
        b.port or "",
        network.fabrics[network.fabric[hop.link]],
        network.source_sets[network.sources[hop.link]],
    )


def _ends(network: Network, hop: _Hop) -> tuple[Endpoint, Endpoint]:
    """Both ends of a hop, the near one first."""
    i = hop.link
    a = network.end(int(network.a[i]), int(network.a_port[i]))
    b = network.end(int(network.b[i]), int(network.b_port[i]))
    return (a, b) if int(network.a[i]) == hop.near else (b, a)


def _anomalies_on(
    topology: Topology, network: Network, hops: Sequence[_Hop], own: set[int], nodes: set[str]
) -> list[Anomaly]:
    """Anomalies that name a port or a whole device of the path, or anything of the two nodes."""
    ports = {(end.device, end.port) for hop in hops for end in _ends(network, hop)}
    whole = {device for device, _ in ports}
    mine = {network.ids[i] for i in own} | nodes

    def touches(end: Endpoint | None) -> bool:
        if end is None:
            return False
        return (
            end.device in mine
            or (end.device, end.port) in ports
            or (end.port is None and end.device in whole)
        )

    return [a for a in topology.anomalies if touches(a.subject) or touches(a.peer)]


def _text(
    network: Network,
    nodes: tuple[str, str],
    common: HyperNode | None,
    homeless: Sequence[str],
    *,
    hops: Sequence[_Hop],
    anomalies: Sequence[Anomaly],
) -> str:
    node_a, node_b = nodes
    lines = []
    if node_a == node_b:
        lines.append(f"{node_a} is one node.")
    elif common is not None:
        lines.append(
            f"{node_a} and {node_b} are {common.tier_name} neighbours: "
            f"both are in {common.name}, tier {common.tier}."
        )
    else:
        lines.append(f"{node_a} and {node_b} share no HyperNode.")
    lines += [f"{node} is in no HyperNode." for node in homeless]
    if hops:
        steps = " = ".join(
            f"{near.name} {near.port or '?'} -> {far.name} {far.port or '?'}"
            for near, far in (_ends(network, hop) for hop in hops)
        )
        lines.append(f"A shortest path has {len(hops)} cable{'s'[: len(hops) > 1]}: {steps}.")
    elif node_a != node_b:
        lines.append("No evidence shows a way between them.")
    if anomalies:
        lines.append(f"{len(anomalies)} anomalies on the way or on the nodes:")
        lines += [f"  {a.kind}: {a.message}" for a in anomalies[:_MAX_ANOMALIES]]
    elif hops:
        lines.append("Nothing is wrong on the way.")
    return "\n".join(lines)
