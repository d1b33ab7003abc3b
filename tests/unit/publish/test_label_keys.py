"""Labels under keys of other projects: which keys the tiers get, and what is ours to change."""

import pytest
from hyperscout_publish.nodes.label_keys import (
    key_template,
    key_templates,
    keys_of_tiers,
    other_keys,
    set_by_us,
)
from hyperscout_publish.nodes.tier_labels import Patch, tier_labels
from hyperscout_topology.topology import Topology
from hypothesis import given
from hypothesis import strategies as st
from support.fake_kube import merge
from support.topologies import pods, towers

DOMAIN, FABRIC = "accelerator.topograph.run/domain", "fabric.topograph.run/tier-"
TOPOGRAPH = (f"{DOMAIN}=nvlink", FABRIC + "{fabric_tier}")


def labels(topology: Topology, *entries: str) -> dict[str, dict[str, str]]:
    found = tier_labels(topology, keys=keys_of_tiers(topology, key_templates(entries)))
    return {node: dict(of) for node, of in found.items()}


def test_the_fabrics_tiers_count_from_0_and_the_others_from_1() -> None:
    found = labels(pods(1), FABRIC + "{fabric_tier}", "example.com/{tier}", "example.com/rack=leaf")
    assert found["n0000"] == {
        f"{FABRIC}0": "pod0-l00",
        f"{FABRIC}1": "pod0",
        f"{FABRIC}2": "core",
        "example.com/1": "pod0-l00",
        "example.com/2": "pod0",
        "example.com/3": "core",
        "example.com/rack": "pod0-l00",
    }


def test_nvlink_is_no_tier_of_the_fabric() -> None:
    found = labels(towers("nvlink", "leaf", "pod"), *TOPOGRAPH, "example.com/{tier}")
    outer = {f"{FABRIC}0": "leaf", f"{FABRIC}1": "pod", "example.com/2": "leaf", "example.com/3": "pod"}
    assert found["n1"] == {DOMAIN: "near", "example.com/1": "near"} | outer
    assert found["n3"] == {"example.com/1": "alone"} | outer, "one host alone is no NVLink domain"


def test_nvlink_domains_that_are_the_leaves_too_count_as_leaves() -> None:
    found = labels(towers("nvlink", "pod"), *TOPOGRAPH)
    assert found["n1"] == {DOMAIN: "near", f"{FABRIC}0": "near", f"{FABRIC}1": "pod"}
    assert found["n3"] == {f"{FABRIC}0": "alone", f"{FABRIC}1": "pod"}


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("a..b/x=leaf", "expected a label key"),
        ("a.-b/x=leaf", "expected a label key"),
        ("example.com/rack", "expected KEY=TIER, or a key with"),
        ("example.com/{tier}=leaf", "expected KEY=TIER, or a key with"),
        ("example.com/{tier}-{fabric_tier}", "expected KEY=TIER, or a key with"),
        ("example.com/rack=rack", "expected the name of a tier"),
        ("example.com/rack=", "expected the name of a tier"),
        ("example.com/a b=leaf", "'example.com/a b': expected a label key"),
        ("example.com/{level}-{tier}", "expected a label key"),
        (f"example.com/{'x' * 62}{{tier}}", "expected a label key"),
        ("hyperscout.io/rack=leaf", "node_labels sets the labels of hyperscout.io"),
        ("x.hyperscout.io/{tier}", "node_labels sets the labels of hyperscout.io"),
    ],
)
def test_entries_that_are_refused(entry: str, words: str) -> None:
    with pytest.raises(ValueError, match="^" + words if words.startswith("^") else words) as refused:
        key_template(entry)
    assert repr(entry) in str(refused.value)


@pytest.mark.parametrize(
    "entries",
    [
        ("a/b=leaf", "a/b=pod"),
        ("a/b-{tier}", "a/b-{fabric_tier}"),
        ("a/b-{tier}", "a/b-1=leaf"),
    ],
)
def test_one_key_twice_is_refused(entries: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"an earlier entry gives a/b.* too"):
        key_templates(entries)
    assert len(key_templates([f"{entry}" if n else f"x.{entry}" for n, entry in enumerate(entries)])) == 2


@pytest.mark.parametrize(
    ("name", "present", "record", "wanted", "patch", "after"),
    [
        ("new", {"x": "y"}, "", {"a": "1", "b": "2"}, {"a": "1", "b": "2"}, "a=1,b=2"),
        ("right", {"a": "1"}, "a=1", {"a": "1"}, {}, "a=1"),
        ("moved", {"a": "1"}, "a=1", {"a": "2"}, {"a": "2"}, "a=2"),
        ("of another owner", {"a": "9"}, "", {"a": "1"}, {}, ""),
        ("alike, of another owner", {"a": "1"}, "", {"a": "1"}, {}, ""),
        ("changed by another client", {"a": "9"}, "a=1", {"a": "2"}, {}, ""),
        ("removed by another client", {}, "a=1", {"a": "1"}, {"a": "1"}, "a=1"),
        ("no longer wanted", {"a": "1", "b": "2"}, "a=1,b=2", {"b": "2"}, {"a": None}, "b=2"),
        ("not wanted, and changed by another client", {"a": "9"}, "a=1", {}, {}, ""),
        ("a record of another client", {"a": "1"}, "a,=,b==,,", {}, {}, ""),
    ],
)
def test_what_changes(
    name: str, present: dict[str, str], record: str, wanted: dict[str, str], patch: Patch, after: str
) -> None:
    found = other_keys(present, set_by_us(present, record, ()), wanted)
    assert (found.patch, found.record) == (patch, after)


@pytest.mark.parametrize("key", ["hyperscout.io/leaf", "node-restriction.kubernetes.io/x", "k8s.io/x"])
def test_the_record_that_a_kubelet_can_write_counts_for_no_label_that_it_cannot(key: str) -> None:
    assert set_by_us({key: "1", "a": "1"}, f"{key}=1,a=1", ()) == {"a": "1"}
    assert set_by_us({key: "1"}, f"{key}=1", {key}) == {key: "1"}


KEYS = st.sampled_from("abc")
LABELS = st.dictionaries(KEYS, st.sampled_from("12"))


@given(foreign=LABELS, first=LABELS, second=LABELS)
def test_labels_of_others_stay_whatever_is_wanted(
    foreign: dict[str, str], first: dict[str, str], second: dict[str, str]
) -> None:
    present, record = dict(foreign), ""
    for wanted in (first, second, {}):
        change = other_keys(present, set_by_us(present, record, ()), wanted)
        assert not change.patch.keys() & foreign.keys()
        assert change.taken == wanted.keys() & foreign.keys()
        present, record = merge(present, change.patch), change.record
        assert present == wanted | foreign
        again = other_keys(present, set_by_us(present, record, ()), wanted)
        assert (again.patch, again.record) == ({}, record), "a second look changes nothing"
    assert (present, record) == (foreign, "")
