"""What a cluster says about nodes, and whose HyperNodes stand in the way."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hyperscout_collector.app.inference import cluster
from hyperscout_collector.app.inference.cluster import (
    RESERVED_LABEL,
    ClusterView,
    KubernetesCluster,
    NoCluster,
    SeveralClusters,
)
from hyperscout_kubernetes.nodes import kept, why_down
from hyperscout_publish.clusters.cut import cut_to
from hyperscout_topology.topology import Topology
from support.builders import hypernode
from support.kube_objects import hypernode_object, node

TREE = Topology(
    1,
    (
        hypernode("leaf", ("n1", "n2", "n3"), parent="core"),
        hypernode("core", ("n1", "n2", "n3"), tier_name="core", children=("leaf",)),
    ),
)


def found(*, ready: str | None = "True", reason: str = "", **spec: object) -> dict[str, object]:
    """A node with parts that are large, and are not kept."""
    large = node(
        ready=ready, reason=reason, spec={"podCIDR": "10.0.0.0/24", **spec}, annotations={"big": "x" * 10_000}
    )
    large["status"]["images"] = ["x"] * 100
    return large


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (found(), None),
        (found(unschedulable=True), "cordoned"),
        (found(ready="False", reason="KubeletNotReady"), "NotReady: KubeletNotReady"),
        (found(ready="Unknown", reason="NodeStatusUnknown"), "NotReady: NodeStatusUnknown"),
        (found(ready="False", unschedulable=True), "NotReady"),
        (found(ready=None), "NotReady"),
        ({"metadata": {"name": "n1"}}, "NotReady"),
    ],
)
def test_why_a_node_takes_no_work(found: dict[str, object], why: str | None) -> None:
    assert why_down(kept(found)) == why


def with_labels(labels: dict[str, str], **spec: object) -> dict[str, object]:
    found = node(**spec)
    return {**found, "metadata": {"name": "n1", "labels": labels}}


@pytest.mark.parametrize(
    ("found", "may"),
    [
        (found(), False),
        (found(unschedulable=True), True),
        (found(ready="False", unschedulable=True), True),  # its agent answers, and no pod comes
        (found(ready="False"), False),
        (with_labels({RESERVED_LABEL: "true"}), True),
        (with_labels({RESERVED_LABEL: ""}), True),
        (with_labels({RESERVED_LABEL: "false"}), False),
        (with_labels({"reserved-for-measuring": "true"}), False),
        (None, False),
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_which_nodes_may_be_measured_with(found: dict[str, object] | None, may: bool, known: bool) -> None:
    synced = asyncio.Event()
    if known:
        synced.set()
    nodes = SimpleNamespace(
        get=lambda name: kept(found) if name == "n1" and found else None,
        reflector=SimpleNamespace(synced=synced),
    )
    why = KubernetesCluster(nodes, ()).why_not_reserved("n1")  # type: ignore[arg-type]
    assert (why is None) == (may and known)
    if not known:
        assert why == "the nodes of the cluster are not listed yet: try again"
    elif found is None:
        assert "no such node" in str(why)
    elif not may:
        assert "kubectl cordon" in str(why)
    assert NoCluster().why_not_reserved("n1") is None


def test_a_heartbeat_changes_nothing_that_is_kept() -> None:
    before, after = found(), found()
    after["metadata"] = {**after["metadata"], "resourceVersion": "2"}  # type: ignore[dict-item]
    assert {**kept(before), "metadata": 0} == {**kept(after), "metadata": 0}


def test_without_a_cluster_nothing_is_known_of_nodes() -> None:
    view = NoCluster().view()
    assert NoCluster().is_known
    assert view.expected is None
    assert view.down(TREE) == {}
    assert view.marked(TREE) is TREE


def test_a_member_that_is_no_node_is_down() -> None:
    view = ClusterView({"n1": None, "n2": "cordoned", "n9": "NotReady"})
    assert view.expected == {"n1", "n2", "n9"}
    assert view.down(None) == {"n2": "cordoned", "n9": "NotReady"}
    assert view.down(TREE, None) == {"n2": "cordoned", "n9": "NotReady", "n3": "no such node"}


def test_an_overlap_is_an_anomaly_of_the_leaf() -> None:
    member = {"type": "Node", "selector": {"exactMatch": {"name": "n2"}}}
    foreign = {"metadata": {"name": "theirs"}, "spec": {"tier": 1, "members": [member]}}
    (found,) = ClusterView({}, {}, (foreign,)).marked(TREE).anomalies
    assert (found.kind, found.hypernode) == ("Overlap", "leaf")
    assert "this HyperNode is not published" in found.message
    view = KubernetesCluster((), (foreign,), "yield").view()  # type: ignore[arg-type]
    assert "no HyperNode that contains them is published" in view.marked(TREE).anomalies[0].message


# --- several clusters


class FakeNodes(dict[str, Any]):
    """The nodes of one cluster. `synced`: they have been listed. `problem`: why not, or not any more."""

    def __init__(self, *nodes: dict[str, object], synced: bool = True, problem: str | None = None) -> None:
        super().__init__({one["metadata"]["name"]: kept(one) for one in nodes})  # type: ignore[index]
        self.reflector = SimpleNamespace(synced=SimpleNamespace(is_set=lambda: synced), problem=problem)

    def __iter__(self) -> Any:
        return iter(self.values())


def several(
    own: FakeNodes | None,
    published: Topology = TREE,
    timer: Callable[[], float] = lambda: 0.0,
    **others: FakeNodes,
) -> SeveralClusters:
    return SeveralClusters(
        NoCluster() if own is None else KubernetesCluster(own, ()),  # type: ignore[arg-type]
        {name: KubernetesCluster(nodes, ()) for name, nodes in others.items()},  # type: ignore[arg-type]
        lambda: published,
        timer,
    )


def test_the_nodes_of_several_clusters_have_the_names_of_their_clusters() -> None:
    own, east = FakeNodes(node("n1"), node("n2", ready="False")), FakeNodes(node("n1", labels={"zone": "a"}))
    clusters = several(own, east=east, west=FakeNodes())
    view = clusters.view()
    assert clusters.is_known
    assert view.nodes == {"n1": None, "n2": "NotReady", "east/n1": None}
    assert view.labels["east/n1"] == {"zone": "a"}
    assert several(None, east=east).view().expected == {"east/n1"}


@pytest.mark.parametrize(
    ("problem", "is_known"), [(None, False), ("connection refused", True)], ids=["waits", "away"]
)
def test_a_cluster_that_was_not_listed_removes_no_node(problem: str | None, is_known: bool) -> None:
    leaf = hypernode("leaf", ("east/n1", "west/n1", "n3"))
    tree = Topology(1, (leaf,), nodes_without_evidence=("east/n7", "west/n7"))
    away = FakeNodes(synced=False, problem=problem)
    clusters = several(FakeNodes(node("n1")), tree, east=away, west=FakeNodes(node("n2")))
    assert clusters.is_known is is_known
    view = clusters.view()
    assert view.expected == {"n1", "east/n1", "east/n7", "west/n2"}
    assert view.unknown == {"east"}
    assert view.down(tree) == {"west/n1": "no such node", "n3": "no such node"}


def test_the_start_waits_10_s_for_an_api_server_that_does_not_answer() -> None:
    now_s = [5.0]
    clusters = several(FakeNodes(), timer=lambda: now_s[0], east=FakeNodes(synced=False))
    now_s[0] = 14.9
    assert not clusters.is_known
    now_s[0] = 15.0
    assert clusters.is_known
    assert not several(FakeNodes(synced=False), timer=lambda: now_s[0], east=FakeNodes()).is_known


def test_a_node_is_reserved_in_its_own_cluster() -> None:
    cordoned = node("n1", spec={"unschedulable": True})
    clusters = several(FakeNodes(node("n1")), east=FakeNodes(cordoned))
    assert clusters.why_not_reserved("east/n1") is None
    assert "kubectl cordon" in str(clusters.why_not_reserved("n1"))
    assert "no such node" in str(clusters.why_not_reserved("east/n2"))
    assert "`clusters` has no 'west'" in str(clusters.why_not_reserved("west/n1"))


def test_an_overlap_counts_in_the_cluster_of_the_other_hypernode_only() -> None:
    member = {"type": "Node", "selector": {"exactMatch": {"name": "n2"}}}
    foreign = {"metadata": {"name": "theirs"}, "spec": {"tier": 1, "members": [member]}}
    tree = Topology(1, (hypernode("leaf", ("east/n2", "n2", "west/n2")),))
    nodes = dict.fromkeys(("n2", "east/n2", "west/n2"))
    east = ClusterView({"n2": None}, {}, (foreign,))
    marked = ClusterView(nodes, {}, (), others={"east": east, "west": ClusterView({"n2": None})}).marked(tree)
    (found,) = marked.anomalies
    assert (found.kind, found.hypernode, found.nodes) == ("Overlap", "leaf", ("east/n2",))
    assert found.message.startswith("in cluster east, HyperNode theirs")
    assert [len(cut_to(marked, name).anomalies) for name in ("", "east", "west")] == [0, 1, 0]


def test_a_topology_is_cut_only_if_a_cluster_has_hypernodes_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cut: list[str] = []
    monkeypatch.setattr(cluster, "cut_to", lambda topology, name: cut.append(name) or topology)
    theirs = {"metadata": {"name": "theirs"}, "spec": {"tier": 1, "members": []}}
    own = (hypernode_object("leaf", "n1"),)
    assert ClusterView({"n1": None}, {}, own, others={"east": ClusterView({}, {}, own)}).marked(TREE) is TREE
    assert cut == []
    ClusterView({"n1": None}, {}, own, others={"east": ClusterView({}, {}, (theirs,))}).marked(TREE)
    assert cut == ["east"]
