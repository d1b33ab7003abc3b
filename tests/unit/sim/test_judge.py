"""The judge of inferred topologies: what is right, and every way to be wrong."""

from typing import Any

import pytest
from hyperscout_topology.topology import Anomaly, Endpoint, HyperNode, Topology
from support.builders import anomaly, hypernode
from support.judge import judge

LABELS = {"a1": "a", "a2": "a", "b1": "b", "b2": "b"}
WHOLE = dict.fromkeys(LABELS, "all")
HOST, LEAF = Endpoint("guid-a1", "a1", "1"), Endpoint("guid-leaf", "leaf-a", "7")
OTHER = Endpoint("guid-b1", "b1", "1")
HOST_END, LEAF_END = ["guid-a1", "a1", None], ["guid-leaf", "leaf-a", 7]
CABLE = {"kind": "MissingLink", "ends": [HOST_END, LEAF_END]}
SWAP = {"kind": "Miswired", "ends": [HOST_END, LEAF_END]}
DOWN = {"kind": "MissingSwitch", "ends": [["guid-leaf", "leaf-a", None], HOST_END, ["guid-a2", "a2", None]]}


def expected(**more: Any) -> dict[str, Any]:
    return {"truth": [LABELS, WHOLE], "foreign": ["oss1"], **more}


def tree(*leaves: str, root: str = "a1 a2 b1 b2") -> tuple[HyperNode, ...]:
    """A root over leaves; each is a list of its nodes."""
    names = [f"leaf-{n}" for n in range(len(leaves))]
    below = [hypernode(n, nodes.split(), parent="root") for n, nodes in zip(names, leaves, strict=True)]
    return (*below, hypernode("root", root.split(), children=names))


RIGHT = tree("a1 a2", "b1 b2")


def topology(hypernodes: tuple[HyperNode, ...] = RIGHT, *anomalies: Anomaly, **more: Any) -> Topology:
    return Topology(1, hypernodes, anomalies=anomalies, **more)


def test_the_true_tree_without_anomalies_is_right() -> None:
    assert judge(expected(), topology()).right


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (tree("a1 b1", "a2 b2"), "tier 1: 2 of 2 domains are wrong"),
        (RIGHT[:2], "domains by tier [2], expected [2, 1]"),
        (tree("a1 a2", "b1", root="a1 a2 b1"), "not in the tree: b2"),
        (tree("a1 a2", "b1 b2 vm"), "not a host: vm"),
        (tree("a1 a2", "b1 b2 a2"), "twice in one tier: a2"),
        ((), "not in the tree: a1, a2, b1 and 1 more"),
    ],
)
def test_a_wrong_tree(found: tuple[HyperNode, ...], text: str) -> None:
    assert text in judge(expected(), topology(found)).tree


def test_another_right_truth_counts() -> None:
    together = [dict.fromkeys(LABELS, "x"), WHOLE]
    assert judge(expected(**{"or": [[LABELS, WHOLE]], "truth": together}), topology()).right


def test_an_endpoint_that_does_not_compute_may_be_in_the_tree() -> None:
    assert judge(expected(), topology(tree("a1 a2", "b1 b2 oss1"))).right


@pytest.mark.parametrize(
    ("fault", "found", "named"),
    [
        (CABLE, anomaly("MissingLink", HOST, LEAF), True),
        (CABLE, anomaly("MissingLink", LEAF, HOST), True),
        (CABLE, anomaly("MissingLink", HOST, LEAF, confidence=0.1), True),
        (CABLE, anomaly("MissingLink", HOST, Endpoint("guid-leaf", "leaf-a")), True),
        (CABLE, anomaly("MissingLink", HOST, Endpoint("guid-leaf", "leaf-a", "8")), False),
        (CABLE, anomaly("MissingLink", OTHER, LEAF), False),
        (CABLE, anomaly("MissingLink", HOST), False),
        (CABLE, anomaly("Miswired", HOST, LEAF), False),
        (SWAP, anomaly("Miswired", HOST, LEAF), True),
        (SWAP, anomaly("SourcesDisagree", HOST, LEAF), True),
        (SWAP, anomaly("MissingLink", HOST, LEAF), False),
        (DOWN, anomaly("MissingSwitch", Endpoint("guid-leaf", "leaf-a")), True),
        (DOWN, anomaly("MissingSwitch", Endpoint("x", "level-1 switch"), HOST), True),
        (DOWN, anomaly("MissingSwitch", Endpoint("x", "level-1 switch"), hypernode="leaf-0"), True),
        (DOWN, anomaly("MissingSwitch", Endpoint("x", "level-1 switch"), hypernode="root"), False),
        (DOWN, anomaly("MissingLink", HOST, LEAF), False),
    ],
)
def test_a_fault_is_named_by_its_kind_and_both_ends(fault: Any, found: Anomaly, *, named: bool) -> None:
    verdict = judge(expected(faults=[fault]), topology(RIGHT, found))
    assert (verdict.unnamed == ()) is named


@pytest.mark.parametrize(
    ("found", "faults", "allow", "false"),
    [
        (anomaly("MissingLink", HOST, LEAF), [], [], True),
        (anomaly("MissingLink", HOST, LEAF, confidence=0.49), [], [], False),
        (anomaly("MissingLink", HOST, LEAF), [], ["MissingLink"], False),
        (anomaly("ErroringLink", HOST, LEAF), [], [], False),
        (anomaly("SlowLink", OTHER, LEAF), [CABLE], [], True),
        (anomaly("MissingLink", OTHER, Endpoint("guid-leaf", "leaf-a")), [CABLE], [], True),
        (anomaly("MissingLink", OTHER, LEAF), [SWAP], [], False),
        (anomaly("MissingLink", HOST, Endpoint("guid-leaf-b", "leaf-b", "1")), [SWAP], [], False),
        (anomaly("Miswired", HOST, LEAF), [CABLE], [], True),
        (anomaly("MissingLink", HOST, LEAF), [DOWN], [], False),
    ],
)
def test_an_accusation_is_false_unless_it_is_at_a_fault(
    found: Anomaly, faults: list[Any], allow: list[str], *, false: bool
) -> None:
    verdict = judge(expected(faults=faults, allow=allow), topology(RIGHT, found))
    assert bool(verdict.false) is false


MISSING = tree("a1 a2", "b1", root="a1 a2 b1")


@pytest.mark.parametrize(
    ("more", "warnings", "silent"),
    [
        ({}, (), True),
        ({}, ("b2 is in no domain",), False),
        ({}, ("left out: b[1-3]",), False),
        ({}, ("b22 is in no domain",), True),
        ({}, ("1 host is left out",), True),
        ({"nodes_without_evidence": ("b2",)}, (), True),
        ({"nodes_without_evidence": ("b2",)}, ("1 host is left out",), False),
        ({"nodes_without_evidence": ("b2",)}, ("2 hosts are left out",), True),
    ],
)
def test_a_host_outside_the_tree_must_be_reported(
    more: dict[str, Any], warnings: tuple[str, ...], *, silent: bool
) -> None:
    verdict = judge(expected(may_be_missing=["b2"]), topology(MISSING, **more), warnings)
    assert verdict.tree == ()
    assert verdict.silent == ({"b2"} if silent else set())


def test_an_anomaly_reports_the_hosts_at_its_ends() -> None:
    found = anomaly("Miswired", Endpoint("guid-b2", "b2"), LEAF, confidence=0.4)
    assert judge(expected(may_be_missing=["b2"]), topology(MISSING, found)).right


NO_TREE = {"truth": None, "tier1": LABELS}
NOTE = anomaly("NotATree", Endpoint("fabric", "fabric"))


@pytest.mark.parametrize(
    ("found", "right"),
    [
        (topology(), True),
        (topology(RIGHT[:2]), False),
        (topology(RIGHT[:2], NOTE), True),
        (topology(tree("a1 b1", "a2 b2"), NOTE), False),
        (topology(tree("a1 a2", "b1 b2 a1"), NOTE), False),
    ],
)
def test_a_network_that_is_no_tree_has_one_root_or_a_note(found: Topology, *, right: bool) -> None:
    assert judge(NO_TREE, found).right is right


def test_a_warning_is_a_note() -> None:
    assert judge(NO_TREE, topology(RIGHT[:2]), ["the switches form no tree"]).right
