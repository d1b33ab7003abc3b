"""Judges health: the conditions of a HyperNode, and which node's link an anomaly is about.

Taints, conditions of nodes and placement judge links in the same way.
"""

from collections.abc import Container, Iterator, Mapping

from hyperscout_topology.memo import nodes_of_adapters
from hyperscout_topology.topology import Anomaly, HyperNode, Topology, is_measured

HEALTHY = {"Ready": "True", "Degraded": "False", "Consistent": "True", "Stale": "False"}
LINK_KINDS = frozenset({"MissingLink", "ErroringLink", "SlowLink"})
# The kinds of anomalies that the condition Degraded reports.
DEGRADING = LINK_KINDS | {"MissingSwitch"}
SURE = 0.5  # confidence above which an anomaly is not ambiguous


def marks(hypernode: HyperNode) -> list[tuple[str, str, str]]:
    """(mark, reason, message) of each unhealthy condition.

    Marks are for example NotReady, Degraded, Stale?.
    """
    found = []
    for condition in hypernode.conditions:
        healthy = HEALTHY.get(condition.type)
        if healthy is None or condition.status == healthy:
            continue
        word = condition.type if healthy == "False" else f"Not{condition.type}"
        unsure = "?" if condition.status == "Unknown" else ""
        found.append((word + unsure, condition.reason, condition.message))
    return found


def is_of_a_link(anomaly: Anomaly) -> bool:
    """Whether a link is down, erroring or slow.

    A slow measured path between two nodes is neither's own link.
    """
    return anomaly.kind in LINK_KINDS and not (is_measured(anomaly) and anomaly.peer is not None)


def nodes_of(anomaly: Anomaly, owner: Mapping[str, str], nodes: Container[str]) -> set[str]:
    """The nodes that the link belongs to. `owner`: the node of each adapter.

    An end that has no adapter, or no longer has one, still has the node's name.
    """
    ends = [anomaly.subject, *([anomaly.peer] if anomaly.peer else [])]
    return {n for end in ends for n in (owner.get(end.device, ""), end.device, end.name) if n in nodes}


def accused(topology: Topology) -> Iterator[tuple[str, Anomaly]]:
    """Yield the nodes whose own links are down, erroring or slow, with each anomaly that is not ambiguous."""
    links = [x for x in topology.anomalies if x.confidence > SURE and is_of_a_link(x)]
    if not links:
        return
    owner = nodes_of_adapters(topology.adapters)
    hosts = {n for h in topology.hypernodes if not h.children for n in h.nodes}
    for x in links:
        for node in sorted(nodes_of(x, owner, hosts)):
            yield node, x


def lowest_domains(topology: Topology) -> list[HyperNode]:
    """The domains that have no domain with switches below them."""
    wired = {h.name for h in topology.hypernodes if h.switches}
    return [h for h in topology.hypernodes if wired.isdisjoint(h.children)]
