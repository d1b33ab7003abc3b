"""Describes the Kubernetes cluster: its nodes, the nodes that are down, and conflicting HyperNodes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from hyperscout_kubernetes.nodes import Nodes, why_down
from hyperscout_publish.hypernodes.overlap import OverlapPolicy, overlaps
from hyperscout_topology.topology import Topology


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A snapshot of the cluster.

    `nodes`: by node name the reason why it is down, None = it is up; the whole mapping is None without a
    cluster. `labels`: the labels of each node. `hypernodes`: the HyperNode objects of the API server.
    `overlap`: what happens to published HyperNodes that overlap with those of other owners.
    """

    nodes: Mapping[str, str | None] | None = None
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    hypernodes: tuple[Mapping[str, Any], ...] = ()
    overlap: OverlapPolicy = "keep"

    @property
    def expected(self) -> frozenset[str] | None:
        """The nodes that the hierarchy must contain; None = the settings decide."""
        return None if self.nodes is None else frozenset(self.nodes)

    def down(self, *topologies: Topology | None) -> dict[str, str]:
        """By node name the reason why it is down. Members of a topology without a Node object are down."""
        if self.nodes is None:
            return {}
        found = {name: why for name, why in self.nodes.items() if why is not None}
        for topology in topologies:
            for h in topology.hypernodes if topology else ():
                if not h.children:
                    found |= dict.fromkeys((n for n in h.nodes if n not in self.nodes), "no such node")
        return found

    def marked(self, topology: Topology) -> Topology:
        """The topology with an anomaly for each overlap with other HyperNodes."""
        found = overlaps(topology.hypernodes, self.hypernodes, self.labels, self.overlap).anomalies
        if not found:
            return topology
        anomalies = sorted((*topology.anomalies, *found), key=lambda x: (x.key, x.message))
        return replace(topology, anomalies=tuple(anomalies))


RESERVED_LABEL = "hyperscout.io/reserved-for-measuring"


class Cluster(Protocol):
    """The cluster as the pipeline and the NCCL runs see it."""

    @property
    def is_known(self) -> bool:
        """Whether its nodes have been listed. Before that, `view` is incomplete."""

    def view(self) -> ClusterView: ...

    def why_not_reserved(self, node: str) -> str | None:
        """Why a measurement could disturb workloads on a node; None = the node is reserved or cordoned."""


class NoCluster:
    """No Kubernetes. The caller of a measurement must know which workloads it disturbs."""

    is_known = True

    def view(self) -> ClusterView:
        return ClusterView()

    def why_not_reserved(self, node: str) -> str | None:
        return None


class KubernetesCluster:
    """The cluster as the watches see it.

    `hypernodes`: all HyperNodes of the API server, those of the collector and those of others.
    """

    def __init__(
        self, nodes: Nodes, hypernodes: Iterable[Mapping[str, Any]], overlap: OverlapPolicy = "keep"
    ) -> None:
        self._nodes = nodes
        self._hypernodes = hypernodes
        self._overlap = overlap

    @property
    def is_known(self) -> bool:
        return self._nodes.reflector.synced.is_set()

    def view(self) -> ClusterView:
        return ClusterView(
            {node["metadata"]["name"]: why_down(node) for node in self._nodes},
            {node["metadata"]["name"]: node["metadata"]["labels"] for node in self._nodes},
            tuple(self._hypernodes),
            self._overlap,
        )

    def why_not_reserved(self, node: str) -> str | None:
        if not self.is_known:
            return "the nodes of the cluster are not listed yet: try again"
        found = self._nodes.get(node)
        if found is None:
            return "the cluster has no such node, or `node_selector` excludes it"
        reserved = found["metadata"]["labels"].get(RESERVED_LABEL, "false") != "false"
        if reserved or found["spec"]["unschedulable"]:
            return None
        return f"neither cordoned nor reserved: `kubectl cordon` it, or label it {RESERVED_LABEL}=true"
