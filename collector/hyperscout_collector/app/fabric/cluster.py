"""What a Kubernetes cluster adds to the evidence: its nodes, which of them take no work, and whose
HyperNodes stand in the way of ours.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from hyperscout_inference.hierarchy.conditions import ConditionFacts
from hyperscout_kubernetes.nodes import Nodes, why_down
from hyperscout_publish.hypernodes.overlap import overlaps
from hyperscout_topology.topology import Topology


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

    def facts(
        self, stale: Mapping[str, int], stale_switches: Mapping[str, int], *topologies: Topology | None
    ) -> ConditionFacts:
        return ConditionFacts(self.down(*topologies), stale, stale_switches)

    def marked(self, topology: Topology) -> Topology:
        """The topology with an anomaly for each overlap."""
        found = overlaps(topology.hypernodes, self.hypernodes, self.labels).anomalies
        if not found:
            return topology
        anomalies = sorted((*topology.anomalies, *found), key=lambda x: (x.key, x.message))
        return replace(topology, anomalies=tuple(anomalies))


RESERVED_LABEL = "hyperscout.io/reserved-for-measuring"


class Cluster(Protocol):
    """What the pipeline asks, and who wants to use nodes for measuring."""

    @property
    def is_known(self) -> bool:
        """Whether its nodes have been listed: before that nothing can be said of the cluster."""

    def view(self) -> ClusterView: ...

    def why_not_reserved(self, node: str) -> str | None:
        """Why measuring might disturb somebody on a node; None where nobody else may come."""


class NoCluster:
    """Without Kubernetes. Who is to be disturbed there nobody knows but those who ask for a measurement."""

    is_known = True

    def view(self) -> ClusterView:
        return ClusterView()

    def why_not_reserved(self, node: str) -> str | None:
        return None


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

    def why_not_reserved(self, node: str) -> str | None:
        if not self.is_known:
            return "the cluster's nodes are not known yet"
        found = self._nodes.get(node)
        if found is None:
            return "no such node in the cluster (or `node_selector` leaves it out)"
        reserved = found["metadata"]["labels"].get(RESERVED_LABEL, "false") != "false"
        if reserved or found["spec"]["unschedulable"]:
            return None
        return f"neither cordoned nor reserved: `kubectl cordon` it, or label it {RESERVED_LABEL}=true"
