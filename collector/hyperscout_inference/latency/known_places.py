"""Prepare the known places of nodes for the planner: from the published tree or from latency."""

from collections.abc import Sequence

import numpy as np
from hyperscout_topology.topology import Topology

from hyperscout_inference.latency.pairs import Longs, PairTable
from hyperscout_inference.latency.tiers import LatencyTiers

WIRES = "wires"
_REPRESENTATIVES = 2  # of a domain


def wired_nodes(topology: Topology) -> frozenset[str]:
    """Return the nodes that the published tree places by wires. NVLink alone places none: it ends at the
    rack."""
    return frozenset(node for h in topology.hypernodes if h.source == WIRES for node in h.nodes)


def published_domains(topology: Topology, nodes: Sequence[str]) -> list[Longs]:
    """Return, for each tier of the published tree, innermost first, (nodes,) the domain of each, -1 =
    none."""
    place = {node: i for i, node in enumerate(nodes)}
    found: dict[int, Longs] = {}
    for number, h in enumerate(topology.hypernodes):
        domain = found.setdefault(h.tier, np.full(len(nodes), -1, np.int64))
        domain[[place[node] for node in h.nodes if node in place]] = number
    return [found[tier] for tier in sorted(found)]


def measured_domains(tiers: LatencyTiers, nodes: Sequence[str]) -> list[Longs]:
    """Return, for each tier that latency shows, innermost first, (nodes,) the domain of each, -1 = none."""
    place = {host: i for i, host in enumerate(tiers.hosts)}
    at = np.array([place.get(node, -1) for node in nodes], np.int64)
    return [np.where(at < 0, -1, np.append(domain, -1)[at]).astype(np.int64) for domain in tiers.domain]


def representatives(nodes: Sequence[str], domains: Sequence[Longs]) -> frozenset[str]:
    """Return the first nodes of each innermost domain, by name. They represent the others."""
    if not domains:
        return frozenset()
    count: dict[int, int] = {}
    chosen = []
    for node, domain in sorted(zip(nodes, domains[0].tolist(), strict=True)):
        if domain >= 0 and count.setdefault(domain, 0) < _REPRESENTATIVES:
            count[domain] += 1
            chosen.append(node)
    return frozenset(chosen)


def any_unmeasured(pairs: PairTable, wanted: Sequence[tuple[str, str]]) -> bool:
    """Return whether any of the pairs `wanted` is not measured yet."""
    place = {node: i for i, node in enumerate(pairs.nodes)}
    n = len(place)
    measured = set((pairs.a.astype(np.int64) * n + pairs.b).tolist())
    for a, b in wanted:
        x, y = sorted((place.get(a, -1), place.get(b, -1)))
        if x < 0 or x * n + y not in measured:
            return True
    return False
