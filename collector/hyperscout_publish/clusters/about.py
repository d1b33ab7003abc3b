"""Decides what is about a cluster: events of the history, anomalies, switches. Finds unknown clusters."""

from collections.abc import Callable, Iterable

from hyperscout.v1.topology_pb2 import FlapCount, HistoryEvent
from hyperscout_formats.text.reporters import cluster_of
from hyperscout_topology.topology import Topology


def domains_in(topology: Topology, cluster: str) -> frozenset[str]:
    """The names of the domains that contain nodes of the cluster, "" = the collector's own."""
    return frozenset(
        h.name for h in topology.hypernodes if any(cluster_of(node) == cluster for node in h.nodes)
    )


def not_found(topology: Topology, cluster: str) -> str | None:
    """Return the error of a name of which no node is known, while others are; None = there is none."""
    placed = (node for h in topology.hypernodes if not h.children for node in h.nodes)
    names = {cluster_of(node) for node in (*placed, *topology.nodes_without_evidence)}
    if not names or cluster in names:
        return None
    listed = ", ".join(sorted(name or '""' for name in names))
    return (
        f"no node of cluster {cluster[:253]!r}: the clusters with nodes are {listed} "
        '("" = the collector\'s own)'
    )


def about(topology: Topology, cluster: str) -> Callable[[Iterable[str], str | None], bool]:
    """A predicate: whether what names these devices, and belongs to this domain, is about the cluster.

    The nodes among the names decide; without nodes it is the domain, which contains a node of the cluster.
    Nodes that are no longer in the topology are known by the prefix of a cluster.
    """
    nodes = {node for h in topology.hypernodes for node in h.nodes}
    prefixes = {cluster, *map(cluster_of, nodes)} - {""}
    domains = domains_in(topology, cluster)

    def is_about(names: Iterable[str], domain: str | None) -> bool:
        named = {x for x in names if x in nodes or cluster_of(x) in prefixes}
        return any(cluster_of(x) == cluster for x in named) if named else domain in domains

    return is_about


def change_about(topology: Topology, cluster: str) -> Callable[[HistoryEvent | FlapCount], bool]:
    """A predicate: whether a change is about the cluster. `topology`: the published one."""
    is_about = about(topology, cluster)
    return lambda x: is_about((x.subject.name, x.peer.name, getattr(x, "node", "")), x.hypernode)
