"""What is published tells the tree again, whatever other clients did to it meanwhile."""

import json
from typing import Any

import pytest
from hyperscout_inference.hierarchy.conditions import ConditionFacts, with_conditions
from hyperscout_publish.hypernodes.from_hypernodes import topology_of
from hyperscout_publish.hypernodes.objects import body_of, merged
from hyperscout_publish.hypernodes.plan import Create
from hyperscout_publish.hypernodes.wanted import OWNER_LABELS, wanted
from hyperscout_topology.topology import Condition, Measured, Topology
from hypothesis import given
from hypothesis import strategies as st
from support.builders import hypernode
from support.topologies import measured

NOW_NS = 1_800_000_000_000_000_000
LONG = "n" + "x" * 80
DOWN = Condition("Degraded", "True", "LinksDown", "1 of 4 uplinks down: leaf-a/p1", NOW_NS)
TREE = Topology(
    5,
    (
        hypernode("leaf-a", ("n1", "n2"), parent="pod", switches=("sw1",), conditions=(DOWN,)),
        hypernode("leaf-b", (LONG, "n3"), parent="pod", switches=("sw2",)),
        hypernode("pod", ("n1", "n2", LONG, "n3"), children=("leaf-a", "leaf-b")),
    ),
)
LABELS = {LONG: {"hyperscout.io/leaf": "leaf-b"}, "n1": {"hyperscout.io/leaf": "leaf-a"}, "n9": {}}


def published(topology: Topology) -> list[dict[str, Any]]:
    found = []
    for w in wanted(topology):
        body = body_of(Create(w), None, None, ())
        news = merged(body, w.conditions, NOW_NS)
        found.append(body | {"status": {"conditions": news[0] if news else []}})
    return json.loads(json.dumps(found))


def test_a_published_tree_is_the_tree() -> None:
    found = topology_of(published(TREE), LABELS)
    assert found is not None
    assert [(h.name, h.tier, h.tier_name, h.parent, h.children, set(h.nodes)) for h in found.hypernodes] == [
        (h.name, h.tier, h.tier_name, h.parent, h.children, set(h.nodes)) for h in TREE.hypernodes
    ]
    assert found.hypernodes[0].conditions == (DOWN,)
    (anomaly,) = found.anomalies
    assert (anomaly.kind, anomaly.hypernode, anomaly.since_ns) == ("MissingLink", "leaf-a", NOW_NS)


@pytest.mark.parametrize("many", [1, 3, 4])
def test_stale_nodes_are_recalled_where_the_message_names_all(many: int) -> None:
    nodes = [f"n{i}" for i in range(6)]
    leaf = hypernode("leaf", nodes)
    stale = with_conditions(Topology(1, (leaf,)), ConditionFacts(stale=dict.fromkeys(nodes[-many:], NOW_NS)))
    found = topology_of(published(stale), {})
    assert found is not None
    (condition,) = (c for c in found.hypernodes[0].conditions if c.type == "Stale")
    assert condition.nodes == (tuple(nodes[-many:]) if many <= 3 else ()), "a part of a list is no list"


def test_what_was_measured_is_recalled_as_far_as_annotations_tell() -> None:
    found = topology_of(published(measured()), {})
    assert found is not None
    a, b, core = found.hypernodes
    assert (a.source, a.confidence, a.latency_us) == ("latency", 0.93, Measured(4.2, 0.0, 0))
    assert (b.source, b.confidence, b.bandwidth_gbps) == ("nvlink", 1.0, Measured(4.2, 0.0, 0))
    assert (core.source, core.confidence, core.bandwidth_gbps) == ("wires", 1.0, None)
    # What is recalled asks for no write.
    for w, again in zip(wanted(measured()), wanted(found), strict=True):
        assert w.annotations == again.annotations


@pytest.mark.parametrize("value", ["", "garbage", "nan", "inf", "-1", "0", "1e99"])
def test_annotations_that_tell_nothing_are_as_good_as_none(value: str) -> None:
    objects = published(measured())
    for found in objects:
        count = found["metadata"]["annotations"]["hyperscout.io/nodes"]
        found["metadata"]["annotations"] = dict.fromkeys(found["metadata"]["annotations"], value)
        found["metadata"]["annotations"]["hyperscout.io/nodes"] = count
    recalled = topology_of(objects, {})
    assert recalled is not None
    assert {(h.source, h.confidence, h.latency_us, h.bandwidth_gbps) for h in recalled.hypernodes} == {
        ("wires", 1.0, None, None)
    }


@pytest.mark.parametrize(
    "reason", ["LinksDown", "SwitchMissing", "LinksErroring", "SlowLinks", "Miswired", "SourcesDisagree"]
)
def test_nothing_is_given_the_all_clear_unasked(reason: str) -> None:
    kind = "Consistent" if reason in ("Miswired", "SourcesDisagree") else "Degraded"
    bad = Condition(kind, "False" if kind == "Consistent" else "True", reason, "why", NOW_NS)
    leaves = (hypernode("a", ("n1",), conditions=(bad,)), hypernode("b", ("n2",), conditions=(bad,)))
    found = topology_of(published(Topology(1, leaves)), {})
    assert found is not None
    assert len({x.key for x in found.anomalies}) == 2
    for h in with_conditions(found).hypernodes:
        assert next(c.status for c in h.conditions if c.type == kind) == bad.status


def test_without_any_of_ours_there_is_no_past() -> None:
    theirs = {"metadata": {"name": "x"}, "spec": {"tier": 1}}
    assert topology_of([theirs], {}) is None


ODD = {"hyperscout.io/source": "latency", "hyperscout.io/latency-us": "1e999"}
names = st.sampled_from(["a", "b", "c", "d"])
member = st.one_of(
    names.map(lambda n: {"type": "HyperNode", "selector": {"exactMatch": {"name": n}}}),
    names.map(lambda n: {"type": "Node", "selector": {"exactMatch": {"name": n}}}),
    st.just({"type": "Node", "selector": {"regexMatch": {"pattern": ".*"}}}),
    st.just({"type": "HyperNode", "selector": {"labelMatch": {}}}),
)
edited = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"name": names, "labels": st.sampled_from([dict(OWNER_LABELS), {}, None])},
            optional={"annotations": st.sampled_from([None, {"hyperscout.io/nodes": "garbage"}, ODD])},
        ),
        "spec": st.fixed_dictionaries({"tier": st.integers(0, 3)}, optional={"members": st.lists(member)}),
    },
    optional={
        "status": st.fixed_dictionaries(
            {},
            optional={
                "conditions": st.lists(
                    st.fixed_dictionaries(
                        {"type": st.sampled_from(["Ready", "Degraded", "Other"])},
                        optional={
                            "status": st.sampled_from(["True", "False", "Unknown"]),
                            "lastTransitionTime": st.sampled_from(["2026-01-01T00:00:00Z", "garbage", ""]),
                            "reason": st.sampled_from(["LinksDown", "x"]),
                        },
                    )
                )
            },
        )
    },
)


@given(st.lists(edited))
def test_any_edit_gives_a_forest(hypernodes: list[dict[str, Any]]) -> None:
    found = topology_of(hypernodes, {})
    if found is None:
        return
    by_name = {h.name: h for h in found.hypernodes}
    for h in found.hypernodes:
        assert all(by_name[child].parent == h.name and by_name[child].tier < h.tier for child in h.children)
        assert h.parent is None or h.name in by_name[h.parent].children
