"""What other owners' HyperNodes claim, by every selector, and what is not published because of it."""

from typing import Any

import pytest
from hyperscout_publish.hypernodes.overlap import NO_OVERLAPS, OverlapPolicy, overlaps
from hyperscout_publish.hypernodes.wanted import NOTHING_HELD, OWNER_LABELS, Held, wanted
from hyperscout_topology.topology import HyperNode, Topology
from support.builders import hypernode

TREE = (
    hypernode("leaf-a", ("n1", "n2"), parent="pod-1"),
    hypernode("leaf-b", ("n3", "n4"), parent="pod-1"),
    hypernode("leaf-c", ("n5",), parent="pod-2"),
    hypernode("pod-1", ("n1", "n2", "n3", "n4"), parent="core", children=("leaf-a", "leaf-b")),
    hypernode("pod-2", ("n5",), parent="core", children=("leaf-c",)),
    hypernode("core", ("n1", "n2", "n3", "n4", "n5"), tier=3, children=("pod-1", "pod-2")),
)
LABELS = {"n1": {"rack": "r1"}, "n2": {"rack": "r1", "gpu": "h100"}, "n3": {"rack": "r2"}, "n5": {}}
A = frozenset({"leaf-a", "pod-1", "core"})


def object_(name: str, *members: dict[str, Any], ours: bool = False) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": dict(OWNER_LABELS) if ours else {}},
        "spec": {"tier": 1, "members": list(members)},
    }


def node(**selector: Any) -> dict[str, Any]:
    return {"type": "Node", "selector": selector}


def child(name: str) -> dict[str, Any]:
    return {"type": "HyperNode", "selector": {"exactMatch": {"name": name}}}


def label(labels: dict[str, str] | None = None, *expressions: tuple[str, str, list[str]]) -> dict[str, Any]:
    chosen: dict[str, Any] = {"matchLabels": labels} if labels else {}
    if expressions:
        chosen["matchExpressions"] = [{"key": k, "operator": o, "values": v} for k, o, v in expressions]
    return node(labelMatch=chosen)


ALL = frozenset(h.name for h in TREE)


@pytest.mark.parametrize(
    ("members", "blocked"),
    [
        ([node(exactMatch={"name": "n1"})], A),
        ([node(exactMatch={"name": "elsewhere"})], frozenset()),
        ([node(regexMatch={"pattern": "^n[12]$"})], A),
        ([node(regexMatch={"pattern": "5"})], frozenset({"leaf-c", "pod-2", "core"})),
        ([node(regexMatch={"pattern": "n.*"})], ALL),
        ([node(regexMatch={"pattern": "(unclosed"})], frozenset()),
        ([node(regexMatch={"pattern": "(?!lookahead)"})], frozenset()),
        ([node(regexMatch={"pattern": "(n+)+" * 300})], frozenset()),
        ([label({"rack": "r1"})], A),
        ([label({"rack": "r1", "gpu": "h100"})], A),
        ([label({"rack": "r9"})], frozenset()),
        ([label(None, ("rack", "In", ["r2", "r3"]))], frozenset({"leaf-b", "pod-1", "core"})),
        ([label(None, ("rack", "Exists", []), ("gpu", "DoesNotExist", []), ("rack", "NotIn", ["r2"]))], A),
        ([label(None, ("rack", "Sideways", []))], frozenset()),
        ([label()], ALL),
        ([child("below")], A),
        ([child("leaf-c")], frozenset({"leaf-c", "pod-2", "core"})),
        ([child("nowhere")], frozenset()),
        ([child("theirs")], frozenset()),
    ],
)
def test_what_another_owner_s_hypernode_claims(
    members: list[dict[str, Any]], blocked: frozenset[str]
) -> None:
    present = [
        object_("theirs", *members),
        object_("below", node(exactMatch={"name": "n2"}), ours=True),
        object_("leaf-c", node(exactMatch={"name": "n5"}), ours=True),
    ]
    assert overlaps(TREE, present, LABELS, "yield").held.hypernodes == blocked


def on_server(*hypernodes: HyperNode) -> list[dict[str, Any]]:
    """These HyperNodes as this collector published them."""
    return [
        {
            "metadata": {"name": w.name, "labels": dict(OWNER_LABELS)},
            "spec": {"tier": w.tier, "members": w.members()},
        }
        for w in wanted(Topology(1, hypernodes))
    ]


def of_tree(*names: str) -> list[HyperNode]:
    return [h for h in TREE if h.name in names]


def leaf(name: str, *nodes: str) -> HyperNode:
    return hypernode(name, nodes)


N1 = object_("theirs", node(exactMatch={"name": "n1"}))
NOTHING, JUST_N1 = frozenset[str](), frozenset({"n1"})


@pytest.mark.parametrize(
    ("there", "hypernodes", "nodes"),
    [
        pytest.param([], A, JUST_N1, id="nothing is published"),
        pytest.param(list(TREE), NOTHING, NOTHING, id="all is published"),
        pytest.param(of_tree("leaf-a"), NOTHING, NOTHING, id="the parents of a published leaf are published"),
        pytest.param(of_tree("leaf-b", "pod-1"), {"leaf-a", "core"}, JUST_N1, id="a published parent stays"),
        pytest.param([leaf("leaf-a", "n2")], NOTHING, JUST_N1, id="a node is not added to a published leaf"),
        pytest.param([leaf("leaf-a", "n9")], NOTHING, JUST_N1, id="a name is enough"),
        pytest.param([leaf("old", "n1", "n2")], NOTHING, NOTHING, id="a leaf gets another name"),
        pytest.param([leaf("old", "n2")], NOTHING, JUST_N1, id="a leaf gets another name and a node"),
        pytest.param([leaf("leaf-b", "n1", "n3")], NOTHING, NOTHING, id="a node moves to a new leaf"),
        pytest.param(
            [leaf("leaf-b", "n3", "n4"), hypernode("old", ("n3", "n4"), children=("leaf-b",))],
            {"leaf-a", "core"},
            JUST_N1,
            id="a pod gets another name",
        ),
    ],
)
def test_only_what_is_not_published_is_held_back(
    there: list[HyperNode], hypernodes: frozenset[str], nodes: frozenset[str]
) -> None:
    found = overlaps(TREE, [N1, *on_server(*there)], LABELS)
    assert found.held == Held(frozenset(hypernodes), nodes)
    assert [(x.kind, x.hypernode, x.nodes) for x in found.anomalies] == [("Overlap", "leaf-a", ("n1",))]
    yields = overlaps(TREE, [N1, *on_server(*there)], LABELS, "yield")
    assert yields.held.hypernodes == A


def test_what_is_held_back_is_in_no_parent_and_in_no_count() -> None:
    def tree(held: Held) -> dict[str, tuple[tuple[str, ...], int]]:
        return {w.name: (w.children or w.nodes, w.count) for w in wanted(Topology(1, TREE), held)}

    assert tree(NOTHING_HELD)["core"] == (("pod-1", "pod-2"), 5)
    assert tree(Held(frozenset({"leaf-a"}), JUST_N1)) == {
        "leaf-b": (("n3", "n4"), 2),
        "leaf-c": (("n5",), 1),
        "pod-1": (("leaf-b",), 2),
        "pod-2": (("leaf-c",), 1),
        "core": (("pod-1", "pod-2"), 3),
    }
    without_n1 = tree(Held(nodes=JUST_N1))
    assert (without_n1["leaf-a"], without_n1["pod-1"], without_n1["core"][1]) == (
        (("n2",), 1),
        (("leaf-a", "leaf-b"), 3),
        4,
    )
    adopted = tree(Held(adopted=frozenset({"leaf-a", "pod-2"})))
    assert adopted["leaf-a"] == (("n1", "n2"), 2)
    assert adopted["pod-1"] == (("leaf-b",), 2)
    assert adopted["core"] == (("pod-1",), 2)


NEXT_STEP = ": delete this HyperNode, or remove these members from it"
LONG = "n1-" + "x" * 64


@pytest.mark.parametrize(
    ("labels", "nodes"),
    [({LONG: {"hyperscout.io/leaf": "leaf-l"}}, NOTHING), ({LONG: {}}, frozenset({LONG})), ({}, {LONG})],
)
def test_a_node_with_a_long_name_is_published_by_its_label(
    labels: dict[str, dict[str, str]], nodes: frozenset[str]
) -> None:
    tree = (leaf("leaf-l", LONG, "n2"),)
    theirs = object_("theirs", node(regexMatch={"pattern": "^n1-"}))
    assert overlaps(tree, [theirs, *on_server(*tree)], labels).held == Held(NOTHING, frozenset(nodes))


@pytest.mark.parametrize("name", ["leaf-a", "pod-1", "core"])
def test_a_member_of_another_owner_s_hypernode_gets_no_second_parent(name: str) -> None:
    present = [object_("theirs", child(name), child("elsewhere")), *on_server(*TREE)]
    found = overlaps(TREE, present, LABELS)
    assert found.held == Held(adopted=frozenset({name}))
    (anomaly,) = found.anomalies
    assert (anomaly.hypernode, anomaly.peer and anomaly.peer.name) == (name, "theirs")
    assert "remove it from theirs" in anomaly.message
    assert found.notices == (
        ("theirs", f"it has members that are domains of hyperscout ({name}){NEXT_STEP}"),
    )


def test_a_hypernode_that_another_owner_takes_over_leaves_its_published_parents() -> None:
    """Its labels are gone: name and nodes belong to the other owner, also below a root of that owner."""
    theirs = [object_("leaf-a", node(exactMatch={"name": "n1"})), object_("root", child("leaf-a"))]
    found = overlaps(TREE, [*theirs, *on_server(*of_tree("leaf-b", "leaf-c", "pod-1", "core"))], LABELS)
    assert found.held == Held(frozenset({"leaf-a"}), JUST_N1)
    assert {x.message.partition(" ")[2][:12] for x in found.anomalies} <= {"does not man", "root, which "}
    assert len({x.key for x in found.anomalies}) == len(found.anomalies) == 2


@pytest.mark.parametrize(
    ("there", "policy", "effect"),
    [
        (list(TREE), "keep", "this HyperNode stays published, and a scheduler uses these nodes twice"),
        ([], "keep", "this HyperNode is not published; delete theirs to publish it"),
        ([leaf("leaf-a", "n2")], "keep", "this HyperNode is published without n1 until theirs is deleted"),
        (list(TREE), "yield", "no HyperNode that contains them is published; delete theirs"),
    ],
)
def test_an_anomaly_says_what_follows(there: list[HyperNode], policy: OverlapPolicy, effect: str) -> None:
    (anomaly,) = overlaps(TREE, [N1, *on_server(*there)], LABELS, policy).anomalies
    assert effect in anomaly.message


def test_each_other_owner_s_hypernode_gets_one_notice() -> None:
    present = [object_("all", node(regexMatch={"pattern": "n"})), N1, object_("none")]
    everything = (
        "5 of its nodes (n1, n2, n3, n4, n5) belong to domains of hyperscout (leaf-a, leaf-b, leaf-c)"
    )
    assert overlaps(TREE, present, LABELS).notices == (
        ("all", everything + NEXT_STEP),
        ("theirs", f"1 of its nodes (n1) belong to domains of hyperscout (leaf-a){NEXT_STEP}"),
    )


def test_ours_claim_nothing_from_ourselves() -> None:
    present = [object_("leaf-a", node(exactMatch={"name": "n1"}), ours=True)]
    assert overlaps(TREE, present, LABELS) is NO_OVERLAPS


def test_a_taken_name_blocks_what_stands_above() -> None:
    found = overlaps(TREE, [object_("pod-2", node(exactMatch={"name": "x"}))], LABELS)
    assert found.held.hypernodes == {"pod-2", "core"}
    (anomaly,) = found.anomalies
    assert (anomaly.kind, anomaly.hypernode, anomaly.tier) == ("Overlap", "pod-2", 2)
    assert "delete it" in anomaly.message


def test_each_pair_is_an_anomaly_that_says_what_to_do() -> None:
    present = [
        object_("mine", node(exactMatch={"name": "n1"}), node(exactMatch={"name": "n3"})),
        object_("yours", node(exactMatch={"name": "n1"})),
    ]
    found = overlaps(TREE, present, LABELS)
    assert [(x.hypernode, x.peer and x.peer.name) for x in found.anomalies] == [
        ("leaf-a", "mine"),
        ("leaf-a", "yours"),
        ("leaf-b", "mine"),
    ]
    assert [x.nodes for x in found.anomalies] == [("n1",), ("n1",), ("n3",)]
    assert (
        "HyperNode mine, which hyperscout does not manage, contains 1 of its nodes (n1)"
        in found.anomalies[0].message
    )
    assert "delete mine" in found.anomalies[0].message
    assert len({x.key for x in found.anomalies}) == 3
