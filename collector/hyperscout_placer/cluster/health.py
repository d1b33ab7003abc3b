"""Derives from live anomalies which nodes are down, and how many degraded links count against each domain.

The anomalies that count are those of the condition Degraded. An anomaly takes a node out of use only if its
confidence is high enough as well.

| anomaly | counts against a node | counts against its domain |
|---|---|---|
| a node's own link is missing, erroring or slow | 1 each; if missing and sure: the node is down | - |
| a link between switches | - | 1 each |
| a switch is missing | - | the usual number of links of such a switch in the domain |
| a domain, or a path between two nodes, measured to be slow | - | 1 |
| a host or port measured to be slow | 1 | - |
| a cable in the wrong place | - | - |

A miswired cable carries traffic, so it neither takes its node out of use nor degrades it. The condition
Consistent reports that the node's place may be wrong. A missing leaf switch leaves its nodes in use,
whichever rail it serves. It affects all of them alike, so it counts against their domain.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from hyperscout_topology.health import DEGRADING, SURE, is_of_a_link, nodes_of
from hyperscout_topology.link_changes import table_of
from hyperscout_topology.memo import memoized, nodes_of_adapters, positions
from hyperscout_topology.topology import Anomaly, Topology

_Ends = frozenset[tuple[str, str | None]]


@dataclass(frozen=True, slots=True)
class Health:
    """`down`: nodes with a down link of their own, and nodes that no fabric shows any more.

    `nodes`, `hypernodes`: number of degraded links by name, without zeros. A link is counted once: with its
    node if it is the node's own link (a link between two nodes counts with both), else with one domain.
    """

    down: frozenset[str]
    nodes: Mapping[str, int]
    hypernodes: Mapping[str, int]


def health_of(topology: Topology) -> Health:
    """The health of a topology's nodes and domains.

    Linear in nodes and anomalies. The links are read only where a switch is missing.
    """
    relevant = [x for x in topology.anomalies if x.kind in DEGRADING]
    if not relevant and not topology.nodes_without_evidence:
        return Health(frozenset(), {}, {})
    nodes = _all_of([h.nodes for h in topology.hypernodes if not h.children])
    down = nodes.intersection(topology.nodes_without_evidence)
    owner = nodes_of_adapters(topology.adapters) if relevant else {}
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


@memoized
def _all_of(domains: Sequence[Sequence[str]]) -> frozenset[str]:
    return frozenset().union(*domains)


def _of_a_strangers_link(anomaly: Anomaly, switches: set[str]) -> bool:
    """Whether the anomaly is of a link between one of the cluster's switches and a host outside the cluster.

    No gang's traffic uses such a link. An anomaly without a switch at either end is a measured path, or a
    domain as a whole.
    """
    ends = [anomaly.subject, *([anomaly.peer] if anomaly.peer else [])]
    wired = [end.device in switches for end in ends]
    return any(wired) and not all(wired)


def _links(found: Iterable[tuple[str, Anomaly]]) -> dict[str, int]:
    """Number of links by the node or domain they count against.

    A link with two anomalies, for example erroring and slow, counts once. Parallel links without known ports
    count as often as the most frequent anomaly kind among them.
    """
    count = Counter((name, x.ends, x.kind) for name, x in found)
    most: dict[tuple[str, _Ends], int] = {}
    for (name, ends, _), times in count.items():
        most[name, ends] = max(times, most.get((name, ends), 0))
    total: Counter[str] = Counter()
    for (name, _), times in most.items():
        total[name] += times
    return dict(total)


def _links_of_a_switch(topology: Topology, domains: Iterable[str]) -> dict[str, int]:
    """The median number of links of a switch that belongs to each of these domains; at least 1."""
    wanted = set(domains)
    of: dict[str, list[str]] = {name: [] for name in wanted}
    seen: set[str] = set()
    for h in topology.hypernodes:  # sorted by tier: a switch belongs to the lowest HyperNode that lists it
        if h.name in wanted:
            of[h.name] = [s for s in h.switches if s not in seen]
        seen.update(h.switches)
    table = table_of(topology.links)
    links = np.bincount(np.concatenate([table.a, table.b]), minlength=len(table.devices))
    at = positions(table.devices)
    counts = {name: [links[at[s]] if s in at else 0 for s in mine] for name, mine in of.items()}
    return {name: max(1, round(float(np.median(found)))) if found else 1 for name, found in counts.items()}
