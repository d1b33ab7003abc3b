"""Cuts a topology down to the nodes of one cluster. Pure.

The domains of the cluster's tree are those of the whole topology, with their names and tiers, so that a name
means the same switches in every cluster, and a new node of one cluster changes no name in another. Left out
are domains without nodes of the cluster, and tiers that group nothing there: each of their domains has one
domain below it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from hyperscout_formats.text.reporters import cluster_of, name_in_cluster, node_in
from hyperscout_inference.hierarchy.conditions import INFERENCE_FAILED, ConditionFacts, with_conditions
from hyperscout_topology.link_changes import table_of, without
from hyperscout_topology.topology import Anomaly, Condition, Endpoint, HyperNode, LinkTable, Topology

_HYPERNODE = "hypernode/"  # before the name of another owner's HyperNode: the device of an `Overlap`


def cut_to(topology: Topology, cluster: str) -> Topology:
    """Return the topology of one cluster, "" = the collector's own. Nodes have no prefix in it.

    Conditions are those of the cluster's own nodes and of the switches. Findings and links of nodes of other
    clusters are left out.
    """
    names = _Names.of(topology, cluster)
    hypernodes = _without_idle_tiers(list(_own_domains(topology.hypernodes, names.own)))
    tiers = {h.name: h.tier for h in hypernodes}
    found = replace(
        topology,
        hypernodes=tuple(hypernodes),
        adapters=tuple(
            a._replace(id=names.short(a.id), node=names.short(a.node))
            for a in topology.adapters
            if a.node in names.own
        ),
        links=_own_links(topology, names),
        anomalies=tuple(_own_anomalies(topology.anomalies, cluster, names, tiers)),
        nodes_without_evidence=tuple(
            names.short(node) for node in topology.nodes_without_evidence if node in names.own
        ),
        foreign_endpoints=(),
        tiers=tuple(tier for tier in topology.tiers if tier.tier in tiers.values()),
        devices={names.short(node): mine for node, mine in topology.devices.items() if node in names.own},
    )
    return _with_own_conditions(found, topology, names)


@dataclass(frozen=True, slots=True)
class _Names:
    """`own`, `others`: the nodes of the cluster, and of the other clusters. `owner`: the node of each
    adapter."""

    own: frozenset[str]
    others: frozenset[str]
    owner: Mapping[str, str]

    @classmethod
    def of(cls, topology: Topology, cluster: str) -> "_Names":
        owner = {adapter.id: adapter.node for adapter in topology.adapters}
        placed = (node for h in topology.hypernodes if not h.children for node in h.nodes)
        about = (node for x in topology.anomalies for node in x.nodes)
        nodes = {*placed, *owner.values(), *topology.nodes_without_evidence, *topology.devices, *about}
        own = frozenset(node for node in nodes if cluster_of(node) == cluster)
        return cls(own, frozenset(nodes) - own, owner)

    def short(self, text: str) -> str:
        """Return the name of an own node without its prefix; any other text as it is."""
        return name_in_cluster(text) if text in self.own else text

    def is_of_another(self, end: Endpoint) -> bool:
        """Return whether a device is a node of another cluster."""
        return not self.others.isdisjoint((end.name, end.device, self.owner.get(end.device, "")))

    def end(self, end: Endpoint) -> Endpoint:
        return replace(end, device=self.short(end.device), name=self.short(end.name))


def _own_domains(hypernodes: Iterable[HyperNode], own: frozenset[str]) -> Iterable[HyperNode]:
    """Yield the domains with own nodes. Their children may not be there."""
    for h in hypernodes:
        if nodes := tuple(sorted(name_in_cluster(node) for node in h.nodes if node in own)):
            yield replace(h, nodes=nodes)


def _without_idle_tiers(hypernodes: list[HyperNode]) -> list[HyperNode]:
    """Return the domains without the tiers above the lowest whose domains all have one child.

    `hypernodes`: sorted by tier.
    """
    children: dict[str, list[str]] = {}
    for h in hypernodes:
        if h.parent is not None:
            children.setdefault(h.parent, []).append(h.name)
    grouping = {h.tier for h in hypernodes if len(children.get(h.name, ())) != 1}
    kept = [h for h in hypernodes if h.tier in grouping]
    by_name, names = {h.name: h for h in hypernodes}, {h.name for h in kept}
    parent: dict[str, str | None] = {}
    below: dict[str, list[str]] = {}
    for h in kept:
        above = h.parent
        while above is not None and above not in names:
            above = by_name[above].parent if above in by_name else None
        parent[h.name] = above
        if above is not None:
            below.setdefault(above, []).append(h.name)
    return [replace(h, parent=parent[h.name], children=tuple(sorted(below.get(h.name, ())))) for h in kept]


def _own_links(topology: Topology, names: _Names) -> LinkTable:
    table = table_of(topology.links)
    devices = [names.owner.get(device, device) for device in table.devices]
    other = np.fromiter((device in names.others for device in devices), np.bool_, len(devices))
    table = without(table, np.flatnonzero(other[table.a] | other[table.b]).tolist())
    return replace(table, devices=tuple(map(names.short, table.devices)))


def _own_anomalies(
    anomalies: Iterable[Anomaly], cluster: str, names: _Names, tiers: Mapping[str, int]
) -> Iterable[Anomaly]:
    for x in anomalies:
        ends = [x.subject] if x.peer is None else [x.subject, x.peer]
        nodes = tuple(node for node in x.nodes if node in names.own)
        if any(map(names.is_of_another, ends)) or (x.nodes and not nodes) or _overlaps_elsewhere(x, cluster):
            continue
        message = x.message
        for node in names.own.intersection((*nodes, *(end.name for end in ends))):
            message = message.replace(node, names.short(node))
        yield replace(
            x,
            subject=names.end(x.subject),
            peer=None if x.peer is None else names.end(x.peer),
            hypernode=x.hypernode if x.hypernode in tiers else None,
            tier=tiers.get(x.hypernode or ""),
            message=message,
            nodes=tuple(sorted(map(names.short, nodes))),
        )


def overlap_in(cluster: str, anomaly: Anomaly) -> Anomaly:
    """Return an anomaly of `overlaps` in the part of a cluster as one of the whole topology."""
    owner = node_in(cluster, anomaly.peer.name if anomaly.peer is not None else "")
    return replace(
        anomaly,
        peer=Endpoint(_HYPERNODE + owner, owner),
        nodes=tuple(node_in(cluster, node) for node in anomaly.nodes),
        message=f"in cluster {cluster}, {anomaly.message}",
    )


def _overlaps_elsewhere(anomaly: Anomaly, cluster: str) -> bool:
    """Return whether it is about a HyperNode in another cluster. HyperNodes have names of nodes there."""
    if anomaly.kind != "Overlap" or anomaly.peer is None:
        return False
    return cluster_of(anomaly.peer.device.removeprefix(_HYPERNODE)) != cluster


def _with_own_conditions(found: Topology, whole: Topology, names: _Names) -> Topology:
    """Return the topology with the conditions of its own nodes.

    They are derived anew from those of the whole topology, which name all nodes and switches that are not
    ready or stale. A condition that is as it was keeps its time.
    """
    ready, stale = _by_type(whole, "Ready"), _by_type(whole, "Stale")
    failing = (c.message for c in stale if c.reason == INFERENCE_FAILED)
    facts = ConditionFacts(
        {names.short(node): "" for c in ready for node in c.nodes if node in names.own},
        {names.short(node): 0 for c in stale for node in c.nodes if node in names.own},
        {switch: 0 for c in stale for switch in c.switches},
        min(failing, key=len, default=""),
    )
    since_ns = {(h.name, c.type, c.status): c.since_ns for h in whole.hypernodes for c in h.conditions}

    def dated(h: HyperNode) -> HyperNode:
        conditions = (replace(c, since_ns=since_ns.get((h.name, c.type, c.status), 0)) for c in h.conditions)
        return replace(h, conditions=tuple(conditions))

    found = with_conditions(found, facts)
    return replace(found, hypernodes=tuple(map(dated, found.hypernodes)))


def _by_type(topology: Topology, kind: str) -> list[Condition]:
    return [c for h in topology.hypernodes for c in h.conditions if c.type == kind]
