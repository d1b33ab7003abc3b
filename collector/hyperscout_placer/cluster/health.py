"""What live anomalies mean to placement: which nodes' own links are down or degraded, and how many links
count against each domain.

What counts is what the condition Degraded counts; what takes a node out of use must be sure as well.

| anomaly | with a node | with its domain |
|---|---|---|
| a node's own link is missing, erroring, slow | 1 each; missing and sure: the node is down | - |
| a link between switches | - | 1 each |
| a switch is missing | - | the links that others of its kind in the domain have |
| a domain, or a way between two nodes, measured to be slow | - | 1 |
| a host or port measured to be slow | 1 | - |
| a cable in the wrong place | - | - |

A miswired cable carries traffic, so it neither takes its node out of use nor degrades it; that the node may
sit elsewhere than it seems to is what the condition Consistent is for. A leaf that is missing leaves its
nodes in use, whichever rail of theirs it was: they are all alike, so it is their domain that is worse.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from hyperscout_topology.link_changes import table_of
from hyperscout_topology.own_links import DEGRADING, SURE, is_of_a_link, nodes_of
from hyperscout_topology.topology import Anomaly, Topology

_Ends = frozenset[tuple[str, str | None]]


@dataclass(frozen=True, slots=True)
class Health:
    """`down`: nodes with a link of their own that is down, and those that no fabric shows any more. `nodes`,
    `hypernodes`: degraded links by name, only where there are any; a link is counted once: with its node if
    it is a node's own (a cable between two nodes is both's), else with the one domain it counts against."""

    down: frozenset[str]
    nodes: Mapping[str, int]
    hypernodes: Mapping[str, int]


def health_of(topology: Topology) -> Health:
    """Linear in nodes and anomalies; links are looked at only where a switch is missing."""
    relevant = [x for x in topology.anomalies if x.kind in DEGRADING]
    if not relevant and not topology.nodes_without_evidence:
        return Health(frozenset(), {}, {})
    nodes = {n for h in topology.hypernodes if not h.children for n in h.nodes}
    down = nodes.intersection(topology.nodes_without_evidence)
    owner = {x.id: x.node for x in topology.adapters} if relevant else {}
    domains = {h.name for h in topology.hypernodes}
    switches = {s.id for s in topology.switches}
    own: list[tuple[str, Anomaly]] = []
    shared: list[tuple[str, Anomaly]] = []
    missing: Counter[str] = Counter()
    for x in relevant:
        mine = nodes_of(x, owner, nodes) if is_of_a_link(x) else set()
        own += [(node, x) for node in mine]
        if x.kind == "MissingLink" and x.confidence > SURE:
            down |= mine
        if mine or x.hypernode is None or x.hypernode not in domains:
            continue
        if x.kind == "MissingSwitch":
            missing[x.hypernode] += 1
        elif not _of_a_strangers_link(x, switches):
            shared.append((x.hypernode, x))
    hypernodes = _links(shared)
    if missing:
        usual = _links_of_a_switch(topology, missing)
        for name, count in missing.items():
            hypernodes[name] = hypernodes.get(name, 0) + count * usual[name]
    return Health(frozenset(down), _links(own), hypernodes)


def _of_a_strangers_link(anomaly: Anomaly, switches: set[str]) -> bool:
    """Of a host that is none of the cluster's nodes, on one of its switches: no gang's traffic takes it. What
    ends at no switch at all is a way that was measured, or a domain as a whole."""
    ends = [anomaly.subject, *([anomaly.peer] if anomaly.peer else [])]
    wired = [end.device in switches for end in ends]
    return any(wired) and not all(wired)


def _links(found: Iterable[tuple[str, Anomaly]]) -> dict[str, int]:
    """How many links these are, by whom they count with. One that is told of twice, say as erroring and as
    slow, is one; parallel cables of which no port is known are as many as one kind tells of."""
    count = Counter((name, _ends(x), x.kind) for name, x in found)
    most: dict[tuple[str, _Ends], int] = {}
    for (name, ends, _), times in count.items():
        most[name, ends] = max(times, most.get((name, ends), 0))
    total: Counter[str] = Counter()
    for (name, _), times in most.items():
        total[name] += times
    return dict(total)


def _ends(x: Anomaly) -> _Ends:
    return frozenset((end.device, end.port) for end in (x.subject, x.peer) if end is not None)


def _links_of_a_switch(topology: Topology, domains: Iterable[str]) -> dict[str, int]:
    """How many links a switch of these domains' own has, the median; at least one."""
    wanted = set(domains)
    of: dict[str, list[str]] = {name: [] for name in wanted}
    seen: set[str] = set()
    for h in topology.hypernodes:  # by tier: a switch that is listed again higher up belongs below
        if h.name in wanted:
            of[h.name] = [s for s in h.switches if s not in seen]
        seen.update(h.switches)
    table = table_of(topology.links)
    links = np.bincount(np.concatenate([table.a, table.b]), minlength=len(table.devices))
    chosen = {s for switches in of.values() for s in switches}
    count = {device: int(links[i]) for i, device in enumerate(table.devices) if device in chosen}
    return {
        name: max(1, round(float(np.median([count.get(s, 0) for s in switches])))) if switches else 1
        for name, switches in of.items()
    }
