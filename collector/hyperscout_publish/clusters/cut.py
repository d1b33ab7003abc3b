"""Cuts a topology down to the nodes of one cluster. Pure.

The domains of the cluster's tree are those of the whole topology, with their names, so that a name means the
same switches in every cluster, and a new node of one cluster changes no name in another. Left out are domains
without nodes of the cluster, and the lowest tiers if each of their domains has one node there. The remaining
tiers are numbered from the lowest: NVLink racks of one cluster change no number in another.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat

import numpy as np
from hyperscout_formats.text.reporters import cluster_of, name_in_cluster, node_in
from hyperscout_inference.hierarchy.conditions import INFERENCE_FAILED, ConditionFacts, with_conditions
from hyperscout_runtime.units import from_rfc3339
from hyperscout_topology.link_changes import table_of, without
from hyperscout_topology.topology import Anomaly, Condition, Endpoint, HyperNode, LinkTable, Topology

_HYPERNODE = "hypernode/"  # before the name of another owner's HyperNode: the device of an `Overlap`


def cut_to(topology: Topology, cluster: str, *, prefixed: bool = False) -> Topology:
    """Return the topology of one cluster, "" = the collector's own.

    Nodes have the names of the cluster's API server in it, or those of the collector if `prefixed`.

    Without nodes of other clusters, the own cluster gets the topology itself. Conditions are those of the
    cluster's own nodes and of the switches. Findings and links of nodes of other clusters are left out.
    """
    names = _Names.of(topology, cluster, prefixed=prefixed)
    if not cluster and not names.others:
        return topology
    tree = _Tree.of(topology.hypernodes, names)
    found = replace(
        topology,
        hypernodes=tree.hypernodes,
        adapters=tuple(
            a._replace(id=names.short(a.id), node=names.short(a.node))
            for a in topology.adapters
            if a.node in names.own
        ),
        links=_own_links(topology, names),
        anomalies=tuple(_own_anomalies(topology.anomalies, cluster, names, tree)),
        nodes_without_evidence=tuple(
            names.short(node) for node in topology.nodes_without_evidence if node in names.own
        ),
        foreign_endpoints=(),
        tiers=tuple(replace(x, tier=tree.numbers[x.tier]) for x in topology.tiers if x.tier in tree.numbers),
        devices={names.short(node): mine for node, mine in topology.devices.items() if node in names.own},
    )
    return _with_own_conditions(found, topology, names, tree)


@dataclass(frozen=True, slots=True)
class _Names:
    """`own`, `others`: the nodes of `cluster`, and of the other clusters. `owner`: the node of each
    adapter. `prefixed`: own nodes keep their prefix."""

    cluster: str
    prefixed: bool
    own: frozenset[str]
    others: frozenset[str]
    owner: Mapping[str, str]

    @classmethod
    def of(cls, topology: Topology, cluster: str, *, prefixed: bool) -> "_Names":
        owner = {adapter.id: adapter.node for adapter in topology.adapters}
        placed = (node for h in topology.hypernodes if not h.children for node in h.nodes)
        about = (node for x in topology.anomalies for node in x.nodes)
        nodes = {*placed, *owner.values(), *topology.nodes_without_evidence, *topology.devices, *about}
        own = frozenset(node for node in nodes if cluster_of(node) == cluster)
        return cls(cluster, prefixed, own, frozenset(nodes) - own, owner)

    def short(self, text: str) -> str:
        """Return the name that an own node has in the result; any other text as it is."""
        return name_in_cluster(text) if text in self.own and not self.prefixed else text

    def in_text(self, text: str) -> str:
        """Return a message with the names that the own nodes in it have in the result."""
        if not self.cluster or self.prefixed:
            return text
        return re.sub(
            rf"(?<![\w./-]){self.cluster}/\w(?:[\w.-]*\w)?", lambda found: self.short(found[0]), text
        )

    def is_of_another(self, end: Endpoint) -> bool:
        """Return whether a device is a node of another cluster."""
        return not self.others.isdisjoint((end.name, end.device, self.owner.get(end.device, "")))

    def end(self, end: Endpoint) -> Endpoint:
        return replace(end, device=self.short(end.device), name=self.short(end.name))


@dataclass(frozen=True, slots=True)
class _Tree:
    """The domains of a cluster. `numbers`: the new number of each tier that is left.

    `places`: by name of each domain of the whole tree that has own nodes, the domain itself, or the nearest
    one above it that is left.
    """

    hypernodes: tuple[HyperNode, ...]
    numbers: Mapping[int, int]
    places: Mapping[str, HyperNode]

    @classmethod
    def of(cls, hypernodes: Sequence[HyperNode], names: _Names) -> "_Tree":
        domains = list(_own_domains(hypernodes, names))
        tiers = sorted({h.tier for h in domains})
        # All leaves of a tree have the same depth, so only whole tiers may be left out, from below.
        is_whole = names.others.isdisjoint(n for h in hypernodes for n in h.nodes)
        grouping = tiers if is_whole else [h.tier for h in domains if len(h.nodes) > 1]
        lowest = min(grouping, default=tiers[-1] if tiers else 0)
        first = min((h.tier for h in hypernodes), default=0)
        numbers = {tier: tier - lowest + first for tier in tiers if tier >= lowest}
        kept = {h.name for h in domains if h.tier in numbers}
        places: dict[str, HyperNode] = {}
        for h in sorted(domains, key=lambda h: -h.tier):
            if h.name in kept:
                children = tuple(child for child in h.children if child in kept)
                places[h.name] = replace(h, tier=numbers[h.tier], children=children)
            elif h.parent in places:
                places[h.name] = places[h.parent]
        return cls(tuple(places[h.name] for h in domains if h.name in kept), numbers, places)


def _own_domains(hypernodes: Iterable[HyperNode], names: _Names) -> Iterable[HyperNode]:
    """Yield the domains with own nodes. Their children may not be there."""
    for h in hypernodes:
        if nodes := tuple(sorted(names.short(node) for node in h.nodes if node in names.own)):
            yield replace(h, nodes=nodes)


def _own_links(topology: Topology, names: _Names) -> LinkTable:
    table = table_of(topology.links)
    devices = [names.owner.get(device, device) for device in table.devices]
    other = np.fromiter((device in names.others for device in devices), np.bool_, len(devices))
    table = without(table, np.flatnonzero(other[table.a] | other[table.b]).tolist())
    return replace(table, devices=tuple(map(names.short, table.devices)))


def _own_anomalies(
    anomalies: Iterable[Anomaly], cluster: str, names: _Names, tree: _Tree
) -> Iterable[Anomaly]:
    for x in anomalies:
        ends = [x.subject] if x.peer is None else [x.subject, x.peer]
        nodes = tuple(node for node in x.nodes if node in names.own)
        if any(map(names.is_of_another, ends)) or (x.nodes and not nodes) or _overlaps_elsewhere(x, cluster):
            continue
        place = tree.places.get(x.hypernode or "")
        yield replace(
            x,
            subject=names.end(x.subject),
            peer=None if x.peer is None else names.end(x.peer),
            hypernode=None if place is None else place.name,
            tier=None if place is None else place.tier,
            message=names.in_text(x.message),
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


def _with_own_conditions(found: Topology, whole: Topology, names: _Names, tree: _Tree) -> Topology:
    """Return the topology with the conditions of its own nodes.

    A domain from which nothing was cut keeps its conditions. Others are derived anew from those of the whole
    topology, which list all nodes and switches that are not ready or stale, with details. A condition that is
    as it was keeps its time.
    """
    stale = _by_type(whole, "Stale")
    down, seen = _details(_by_type(whole, "Ready")), _details(stale)
    failing = (c.message for c in stale if c.reason == INFERENCE_FAILED)
    facts = ConditionFacts(
        {names.short(node): why for node, why in down.items() if node in names.own},
        {names.short(node): _time_ns(seen[node]) for c in stale for node in c.nodes if node in names.own},
        {switch: _time_ns(seen[switch]) for c in stale for switch in c.switches},
        min(failing, key=len, default=""),
    )
    before = {h.name: h for h in whole.hypernodes}
    since_ns = {  # of two domains with one place, the upper one counts
        (tree.places[h.name].name, c.type, c.status): c.since_ns
        for h in whole.hypernodes
        if h.name in tree.places
        for c in h.conditions
    }

    def settled(h: HyperNode) -> HyperNode:
        was = before[h.name]
        if len(h.nodes) == len(was.nodes) and h.children == was.children:
            conditions = [
                replace(c, message=names.in_text(c.message), nodes=tuple(map(names.short, c.nodes)))
                for c in was.conditions
            ]
        else:
            conditions = [
                replace(c, since_ns=since_ns.get((h.name, c.type, c.status), 0)) for c in h.conditions
            ]
        return replace(h, conditions=tuple(conditions))

    found = with_conditions(found, facts)
    return replace(found, hypernodes=tuple(map(settled, found.hypernodes)))


def _by_type(topology: Topology, kind: str) -> list[Condition]:
    return [c for h in topology.hypernodes for c in h.conditions if c.type == kind]


def _details(conditions: Iterable[Condition]) -> dict[str, str]:
    """By name of a node or id of a switch, its detail. Topologies of earlier versions have none."""
    return {
        name: detail
        for c in conditions
        for name, detail in zip((*c.nodes, *c.switches), chain(c.details, repeat("")), strict=False)
    }


def _time_ns(detail: str) -> int:
    try:
        return from_rfc3339(detail)
    except ValueError:
        return 0
