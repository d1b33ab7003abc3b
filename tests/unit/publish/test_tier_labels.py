"""Labels of nodes by tier: what nodes should carry, and patches that leave other owners' labels alone."""

from typing import Any

import pytest
from hyperscout_publish.hypernodes.wanted import Held
from hyperscout_publish.nodes.tier_labels import (
    Patch,
    label_patch,
    label_patches,
    level_keys,
    say_patch,
    tier_labels,
)
from hyperscout_topology.topology import HyperNode, Topology
from hypothesis import given
from hypothesis import strategies as st
from support.fake_kube import merge
from support.topologies import leaves, pods, two_leaves

LEAF, POD, CORE = ("hyperscout.io/leaf", "hyperscout.io/pod", "hyperscout.io/core")


def test_each_node_carries_its_domain_of_every_tier() -> None:
    labels = tier_labels(pods(2, 1, nodes=2))
    assert labels["n0000"] == {LEAF: "pod0-l00", POD: "pod0", CORE: "core"}
    assert labels["n0005"] == {LEAF: "pod1-l00", POD: "pod1", CORE: "core"}
    assert len(labels) == 6


def test_values_tell_domains_apart_over_all_tiers() -> None:
    topology = pods(2, 3)
    values = {v for labels in tier_labels(topology).values() for v in labels.values()}
    assert values == {h.name for h in topology.hypernodes}


def test_a_host_that_is_no_kubernetes_node_has_no_labels_and_a_tier_without_a_name_has_its_number() -> None:
    labels = tier_labels(Topology(1, (HyperNode("l1", 1, "", None, (), ("n1", "0x2c9 HCA"), ()),)))
    assert labels == {"n1": {"hyperscout.io/tier-1": "l1"}}


def test_levels_begin_with_the_widest() -> None:
    assert level_keys(pods(1, 1)) == [CORE, POD, LEAF]
    assert level_keys(Topology(1)) == []


@pytest.mark.parametrize(
    ("name", "present", "labels", "patch"),
    [
        ("right", {LEAF: "a", "x": "y"}, {LEAF: "a"}, {}),
        ("new", {"x": "y"}, {LEAF: "a"}, {LEAF: "a"}),
        ("moved", {LEAF: "b", POD: "p"}, {LEAF: "a", POD: "q"}, {LEAF: "a", POD: "q"}),
        ("a tier that is no more", {LEAF: "a", CORE: "c"}, {LEAF: "a"}, {CORE: None}),
        ("a deeper tier", {"hyperscout.io/core-4": "c"}, {}, {"hyperscout.io/core-4": None}),
        ("no domain any more", {LEAF: "a", POD: "p", "x": "y"}, {}, {LEAF: None, POD: None}),
        ("emptied by another client", {LEAF: ""}, {LEAF: "a"}, {LEAF: "a"}),
        ("no tier of ours", {"hyperscout.io/gang": "g", "hyperscout.io/leafy": "s"}, {}, {}),
        ("another owner's leaf", {"example.com/leaf": "a", "leaf": "b"}, {}, {}),
    ],
)
def test_patches(name: str, present: dict[str, str], labels: dict[str, str], patch: Patch) -> None:
    assert label_patch(present, labels) == patch


def test_only_nodes_that_differ_are_patched() -> None:
    wanted = tier_labels(two_leaves())
    there: list[tuple[str, Any]] = [
        ("n01", {LEAF: "leaf-a", CORE: "core"}),
        ("n02", {}),
        ("cpu-1", {"a": "b"}),
        ("cpu-2", {LEAF: "leaf-a"}),
    ]
    patches = label_patches(wanted, there, long_names_only=False)
    assert patches == {"n02": {LEAF: "leaf-a", CORE: "core"}, "cpu-2": {LEAF: None}}


def test_long_names_alone() -> None:
    long, short = "n" * 64, "n" * 63
    wanted = tier_labels(leaves((long, short)))
    patches = label_patches(wanted, [(long, {}), (short, {})], long_names_only=True)
    assert patches == {long: {LEAF: "l1", CORE: "core"}}


def test_labels_of_what_is_held_back_are_not_added_and_stay_up_to_date_where_they_are() -> None:
    topology = leaves(("n1",), ("n2",))
    held = Held(frozenset({"l2", "core"}), frozenset({"n2"}))
    present: list[tuple[str, Any]] = [
        ("n1", {CORE: "core"}),
        ("n2", {LEAF: "old", POD: "gone", "x": "y"}),
        ("n3", {LEAF: "l2"}),
    ]
    some, whole = tier_labels(topology, held), tier_labels(topology)
    assert some == {"n1": {LEAF: "l1"}}
    assert label_patches(some, present, kept=whole, long_names_only=False) == {
        "n1": {LEAF: "l1"},
        "n2": {LEAF: "l2", POD: None},
        "n3": {LEAF: None},
    }
    assert label_patches(some, [("n2", {})], kept=whole, long_names_only=False) == {}
    assert label_patches(some, present, long_names_only=False) == {
        "n1": {CORE: None, LEAF: "l1"},
        "n2": {LEAF: None, POD: None},
        "n3": {LEAF: None},
    }


def test_words() -> None:
    patch: Patch = {CORE: None, LEAF: "b", POD: "p"}
    assert say_patch(patch, {LEAF: "a", CORE: "c"}) == (
        f"{CORE}: c (removed), {LEAF}: a -> b, {POD}: p (new)"
    )


KEYS = st.sampled_from([LEAF, POD, CORE, "hyperscout.io/gang", "kubernetes.io/hostname", "x", "tier-1"])
LABELS = st.dictionaries(KEYS, st.sampled_from(["a", "b", ""]))
OURS = st.dictionaries(st.sampled_from([LEAF, POD, CORE]), st.sampled_from(["a", "b"]))


@given(present=LABELS, labels=OURS)
def test_a_patch_gives_just_our_labels_and_touches_no_other(
    present: dict[str, str], labels: dict[str, str]
) -> None:
    patch = label_patch(present, labels)
    after = merge(present, patch)
    ours = {LEAF, POD, CORE}
    assert {k: v for k, v in after.items() if k in ours} == labels
    assert {k: v for k, v in after.items() if k not in ours} == {
        k: v for k, v in present.items() if k not in ours
    }
    assert label_patch(after, labels) == {}, "a second look changes nothing"
    assert set(patch) <= ours


@st.composite
def trees(draw: st.DrawFn) -> Topology:
    rows: list[HyperNode] = []
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    return pods(*sizes, nodes=draw(st.integers(1, 3))) if sizes else Topology(1, tuple(rows))


@given(topology=trees(), present=st.dictionaries(st.sampled_from(["n0000", "n0001", "other"]), LABELS))
def test_no_node_carries_the_leaf_of_one_pod_and_another_pod(
    topology: Topology, present: dict[str, dict[str, str]]
) -> None:
    parents = {h.name: h.parent for h in topology.hypernodes}
    patches = label_patches(tier_labels(topology), present.items(), long_names_only=False)
    for node, labels in present.items():
        after = merge(labels, patches.get(node, {}))
        if LEAF in after:
            assert after[LEAF] in parents
            assert after[POD] == parents[after[LEAF]]
            assert after[CORE] == "core"
