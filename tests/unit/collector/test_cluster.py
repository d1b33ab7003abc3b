"""What a cluster says about nodes, and whose HyperNodes stand in the way."""

import pytest
from hyperscout_collector.cluster import ClusterView, NoCluster
from hyperscout_collector.kube.nodes import kept, why_down
from hyperscout_collector.topology import HyperNode, Topology

TREE = Topology(
    1,
    (
        HyperNode("leaf", 1, "leaf", "core", (), ("n1", "n2", "n3"), ()),
        HyperNode("core", 2, "core", None, ("leaf",), ("n1", "n2", "n3"), ()),
    ),
)


def node(ready: str | None = "True", reason: str = "", **spec: object) -> dict[str, object]:
    conditions = [] if ready is None else [{"type": "Ready", "status": ready, "reason": reason}]
    return {
        "metadata": {"name": "n1", "uid": "u", "resourceVersion": "1", "annotations": {"big": "x" * 10_000}},
        "spec": {"podCIDR": "10.0.0.0/24", **spec},
        "status": {"conditions": conditions, "images": ["x"] * 100},
    }


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (node(), None),
        (node(unschedulable=True), "cordoned"),
        (node("False", "KubeletNotReady"), "NotReady: KubeletNotReady"),
        (node("Unknown", "NodeStatusUnknown"), "NotReady: NodeStatusUnknown"),
        (node("False", unschedulable=True), "NotReady"),
        (node(None), "NotReady"),
        ({"metadata": {"name": "n1"}}, "NotReady"),
    ],
)
def test_why_a_node_takes_no_work(found: dict[str, object], why: str | None) -> None:
    assert why_down(kept(found)) == why


def test_a_heartbeat_changes_nothing_that_is_kept() -> None:
    before, after = node(), node()
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
    assert view.facts({"n1": 5}, TREE).stale == {"n1": 5}


def test_an_overlap_is_an_anomaly_of_the_leaf() -> None:
    member = {"type": "Node", "selector": {"exactMatch": {"name": "n2"}}}
    foreign = {"metadata": {"name": "theirs"}, "spec": {"tier": 1, "members": [member]}}
    (found,) = ClusterView({}, {}, (foreign,)).marked(TREE).anomalies
    assert (found.kind, found.hypernode) == ("Overlap", "leaf")
