"""Add drift to a topology as anomalies, each at the domain where an operator has to check."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from hyperscout_topology.topology import Anomaly, Endpoint, HyperNode, Topology

from hyperscout_inference.blueprint.comparing import KIND, Comparison, Drift

# The blueprint of another cluster would differ everywhere. Anomalies are published and stored, so they are
# limited.
MAX_ANOMALIES = 1000


def with_drift(topology: Topology, found: Comparison) -> Topology:
    """Return the topology with one anomaly for each drift. Conditions stay as they are."""
    if not found.drifts:
        return topology
    home = _homes(topology.hypernodes)
    parent = {h.name: h for h in topology.hypernodes}
    anomalies = [_placed(drift, home, parent) for drift in found.drifts[:MAX_ANOMALIES]]
    if more := len(found.drifts) - len(anomalies) + found.more:
        text = f"{more} more differences: `hyperscout diff --blueprint` lists them"
        anomalies.append(Anomaly(KIND, Endpoint("", "blueprint"), None, None, (), 1.0, text))
    merged = sorted((*topology.anomalies, *anomalies), key=lambda x: (x.key, x.message))
    return replace(topology, anomalies=tuple(merged))


def _homes(hypernodes: Iterable[HyperNode]) -> dict[str, HyperNode]:
    """Return the lowest domain of each switch, and of each node the lowest that has switches: its cables are
    there."""
    home: dict[str, HyperNode] = {}
    nodes: dict[str, HyperNode] = {}
    for h in hypernodes:  # by tier
        for switch in h.switches:
            home.setdefault(switch, h)
        for node in h.nodes:
            if node not in nodes or (h.switches and not nodes[node].switches):
                nodes[node] = h
    return nodes | home


def _placed(drift: Drift, home: Mapping[str, HyperNode], by_name: Mapping[str, HyperNode]) -> Anomaly:
    x = drift.anomaly
    ends = [x.subject] if x.peer is None else [x.subject, x.peer]  # the lower end first
    here = next((h for e in ends if (h := home.get(e.device) or home.get(e.name)) is not None), None)
    if here is None:
        here = _common([home[device] for device in drift.near if device in home], by_name)
    return replace(x, hypernode=here.name, tier=here.tier) if here is not None else x


def _common(places: list[HyperNode], by_name: Mapping[str, HyperNode]) -> HyperNode | None:
    """Return the lowest domain that contains all places. Without a common one it is the first place; None for
    no places."""
    if not places:
        return None
    chains = [_up(h, by_name) for h in {h.name: h for h in places}.values()]
    shared = set(chains[0]).intersection(*chains[1:])
    return by_name[next((name for name in chains[0] if name in shared), chains[0][0])]


def _up(h: HyperNode, by_name: Mapping[str, HyperNode]) -> list[str]:
    chain = [h.name]
    while h.parent is not None and h.parent in by_name and len(chain) < 64:
        h = by_name[h.parent]
        chain.append(h.name)
    return chain
