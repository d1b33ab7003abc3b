"""What other owners' HyperNodes claim, by every selector, and what that blocks."""

from typing import Any

import pytest
from hyperscout_publish.hypernodes.overlap import NO_OVERLAPS, overlaps
from hyperscout_publish.hypernodes.wanted import OWNER_LABELS
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
    assert overlaps(TREE, present, LABELS).blocked == blocked


def test_ours_claim_nothing_from_ourselves() -> None:
    present = [object_("leaf-a", node(exactMatch={"name": "n1"}), ours=True)]
    assert overlaps(TREE, present, LABELS) is NO_OVERLAPS


def test_a_taken_name_blocks_what_stands_above() -> None:
    found = overlaps(TREE, [object_("pod-2", node(exactMatch={"name": "x"}))], LABELS)
    assert found.blocked == {"pod-2", "core"}
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
