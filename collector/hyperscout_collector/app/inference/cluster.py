"""Describes the Kubernetes clusters: their nodes, the nodes that are down, and conflicting HyperNodes."""

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from hyperscout_formats.text.reporters import cluster_of, name_in_cluster, node_in
from hyperscout_kubernetes.nodes import Nodes, why_down
from hyperscout_publish.clusters.cut import cut_to, overlap_in
from hyperscout_publish.hypernodes.overlap import OverlapPolicy, overlaps
from hyperscout_publish.hypernodes.plan import is_ours
from hyperscout_topology.topology import Anomaly, Topology


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A snapshot of the cluster, or of several.

    `nodes`: by node name the reason why it is down, None = it is up; the whole mapping is None without a
    cluster. `labels`: the labels of each node. `hypernodes`: the HyperNode objects of the API server.
    `overlap`: what happens to published HyperNodes that overlap with those of other owners.

    `others`: the other clusters that are known, by name, each with its own names of nodes; `nodes` and
    `labels` contain theirs, too. None = there is one cluster at most. `unknown`: the clusters that have not
    been listed yet; `nodes` contains those of the published topology.
    """

    nodes: Mapping[str, str | None] | None = None
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    hypernodes: tuple[Mapping[str, Any], ...] = ()
    overlap: OverlapPolicy = "keep"
    others: "Mapping[str, ClusterView] | None" = None
    unknown: frozenset[str] = frozenset()

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
        if self.others is None:
            found = list(self._overlaps(topology))
        else:
            found = []
            for name, view in {"": self, **self.others}.items():
                if not all(map(is_ours, view.hypernodes)):  # a cut of the topology takes long
                    mine = view._overlaps(cut_to(topology, name))
                    found += [overlap_in(name, x) for x in mine] if name else mine
        if not found:
            return topology
        anomalies = sorted((*topology.anomalies, *found), key=lambda x: (x.key, x.message))
        return replace(topology, anomalies=tuple(anomalies))

    def _overlaps(self, topology: Topology) -> tuple[Anomaly, ...]:
        return overlaps(topology.hypernodes, self.hypernodes, self.labels, self.overlap).anomalies


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

    @property
    def is_away(self) -> bool:
        """Whether its API server did not answer the last request."""
        return self._nodes.reflector.problem is not None

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


_PATIENCE_S = 10.0  # after the start, for an API server that neither answers nor refuses


class SeveralClusters:
    """The collector's own cluster and others, as one. Nodes of the others have the prefix of their cluster.

    Nodes of a cluster that has not been listed yet are those of `published()`: a cluster that is away holds
    up no other, and removes no node. `timer`: monotonic seconds.
    """

    def __init__(
        self,
        own: Cluster,
        others: Mapping[str, KubernetesCluster],
        published: Callable[[], Topology],
        timer: Callable[[], float],
    ) -> None:
        self._own = own
        self._others = others
        self._published = published
        self._timer = timer
        self._until_s = timer() + _PATIENCE_S

    @property
    def is_known(self) -> bool:
        """Whether the own cluster has been listed, and each other one too, or is away."""
        is_late = self._timer() >= self._until_s
        return self._own.is_known and all(
            one.is_known or one.is_away or is_late for one in self._others.values()
        )

    def answering(self) -> dict[str, bool]:
        """By cluster, whether its API server answered the last request; "" = the own one, if it is read."""
        own = {"": self._own} if isinstance(self._own, KubernetesCluster) else {}
        return {name: not one.is_away for name, one in (own | dict(self._others)).items()}

    def view(self) -> ClusterView:
        own = self._own.view()
        nodes, labels = dict(own.nodes or {}), dict(own.labels)
        others = {name: one.view() for name, one in self._others.items() if one.is_known}
        for name, view in others.items():
            nodes |= {node_in(name, node): why for node, why in (view.nodes or {}).items()}
            labels |= {node_in(name, node): mine for node, mine in view.labels.items()}
        unknown = frozenset(self._others.keys() - others.keys())
        if unknown:
            published = self._published()
            placed = (node for h in published.hypernodes for node in h.nodes)
            last = itertools.chain(placed, published.nodes_without_evidence)
            nodes |= {node: None for node in last if cluster_of(node) in unknown}
        return replace(own, nodes=nodes, labels=labels, others=others, unknown=unknown)

    def why_not_reserved(self, node: str) -> str | None:
        cluster = cluster_of(node)
        if not cluster:
            return self._own.why_not_reserved(node)
        if cluster not in self._others:
            return f"the collector's setting `clusters` has no {cluster!r}"
        return self._others[cluster].why_not_reserved(name_in_cluster(node))
