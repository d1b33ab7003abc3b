"""What a Kubernetes cluster adds to the evidence: its nodes, which of them take no work, and whose
HyperNodes stand in the way of ours.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from hyperscout_collector.hierarchy.conditions import ConditionFacts
from hyperscout_collector.kube.nodes import Nodes, why_down
from hyperscout_collector.publish.overlap import overlaps
from hyperscout_collector.topology import Topology


@dataclass(frozen=True, slots=True)
class ClusterView:
    """One moment of the cluster. `nodes`: why each is down, None = it is not; None = there is no cluster."""

    nodes: Mapping[str, str | None] | None = None
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    hypernodes: tuple[Mapping[str, Any], ...] = ()

    @property
    def expected(self) -> frozenset[str] | None:
        """The nodes that belong into the hierarchy; None = what the settings say."""
        return None if self.nodes is None else frozenset(self.nodes)

    def down(self, *topologies: Topology | None) -> dict[str, str]:
        """Why nodes are down; a member of one of the trees that is no node of the cluster is down too."""
        if self.nodes is None:
            return {}
        found = {name: why for name, why in self.nodes.items() if why is not None}
        for topology in topologies:
            for h in topology.hypernodes if topology else ():
                if not h.children:
                    found |= dict.fromkeys((n for n in h.nodes if n not in self.nodes), "no such node")
        return found

    def facts(self, stale: Mapping[str, int], *topologies: Topology | None) -> ConditionFacts:
        return ConditionFacts(self.down(*topologies), stale)

    def marked(self, topology: Topology) -> Topology:
        """The topology with an anomaly for each overlap."""
        found = overlaps(topology.hypernodes, self.hypernodes, self.labels).anomalies
        if not found:
            return topology
        anomalies = sorted((*topology.anomalies, *found), key=lambda x: (x.key, x.message))
        return replace(topology, anomalies=tuple(anomalies))


class Cluster(Protocol):
    """What the pipeline asks."""

    @property
    def is_known(self) -> bool:
        """Whether its nodes have been listed: before that nothing can be said of the cluster."""

    def view(self) -> ClusterView: ...


class NoCluster:
    """Without Kubernetes."""

    is_known = True

    def view(self) -> ClusterView:
        return ClusterView()


class KubernetesCluster:
    """The cluster as the watches know it. `hypernodes`: those of the API server, ours and others'."""

    def __init__(self, nodes: Nodes, hypernodes: Iterable[Mapping[str, Any]]) -> None:
        self._nodes = nodes
        self._hypernodes = hypernodes

    @property
    def is_known(self) -> bool:
        return self._nodes.reflector.synced.is_set()

    def view(self) -> ClusterView:
        return ClusterView(
            {node["metadata"]["name"]: why_down(node) for node in self._nodes},
            {node["metadata"]["name"]: node["metadata"]["labels"] for node in self._nodes},
            tuple(self._hypernodes),
        )
