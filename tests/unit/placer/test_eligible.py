"""Which nodes a pod may run on: the rules of kube-scheduler."""

from typing import Any

import numpy as np
import pytest
from hyperscout_kubernetes.nodes import kept
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.demands.eligible import _Demands, demands_key, mask_for
from hyperscout_topology.topology import Topology
from hypothesis import given
from hypothesis import strategies as st
from support.builders import hypernode
from support.kube_objects import node, node_affinity, preferred_affinity
from support.workloads import may_run

Object = dict[str, Any]


def kept_node(name: str = "n1", ready: str = "True", labels: Object | None = None, **spec: Any) -> Object:
    return kept(node(name, ready=ready, labels=labels or {}, spec=spec))


def says(key: str, operator: str, *values: str) -> Object:
    return node_affinity({"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]})


def named(operator: str, *values: str) -> Object:
    return node_affinity(
        {"matchFields": [{"key": "metadata.name", "operator": operator, "values": list(values)}]}
    )


LABELS = {"zone": "a", "gen": "7", "minus": "-3", "huge": "9" * 19, "empty": "", "word": "x7"}


@pytest.mark.parametrize(
    ("spec", "may"),
    [
        ({}, True),
        ({"nodeSelector": {"zone": "a"}}, True),
        ({"nodeSelector": {"zone": "a", "gen": "8"}}, False),
        ({"nodeSelector": {"none": ""}}, False),
        ({"nodeSelector": {"empty": ""}}, True),
        ({"nodeSelector": None, "affinity": None, "tolerations": None}, True),
        ({"affinity": {"podAntiAffinity": {}}}, True),
        ({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}}}, True),
        (says("zone", "In", "b", "a"), True),
        (says("zone", "In", "b"), False),
        (says("none", "In", ""), False),
        (says("empty", "In", ""), True),
        (says("zone", "In"), False),  # no value: the term is in error, and an error holds nowhere
        (says("zone", "NotIn", "b"), True),
        (says("zone", "NotIn", "b", "a"), False),
        (says("none", "NotIn", "b"), True),
        (says("zone", "NotIn"), False),
        (says("zone", "Exists"), True),
        (says("none", "Exists"), False),
        (says("zone", "Exists", "a"), False),
        (says("zone", "DoesNotExist"), False),
        (says("none", "DoesNotExist"), True),
        (says("none", "DoesNotExist", "a"), False),
        (says("gen", "Gt", "6"), True),
        (says("gen", "Gt", "7"), False),
        (says("gen", "Gt", "06"), True),
        (says("gen", "Lt", "8"), True),
        (says("gen", "Lt", "7"), False),
        (says("gen", "Lt", "8", "9"), False),
        (says("gen", "Gt", "six"), False),
        (says("gen", "Gt", "-8"), False),  # no label value
        (says("minus", "Lt", "0"), True),
        (says("word", "Gt", "1"), False),
        (says("none", "Gt", "1"), False),
        (says("huge", "Gt", "1"), False),  # above 64 bits
        (says("gen", "Lt", "9" * 19), False),
        (says("zone", "in", "a"), False),
        (says("zone", "NotIn", "no value!"), False),
        (node_affinity(), False),
        (node_affinity({}), False),
        (node_affinity({"matchExpressions": []}), False),
        (node_affinity({}, {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}), True),
        (
            node_affinity(
                {"matchExpressions": [{"key": "zone", "operator": "Huh"}]},
                {"matchExpressions": [{"key": "gen", "operator": "In", "values": ["7"]}]},
            ),
            True,
        ),
        (
            node_affinity({"matchExpressions": [{"key": x, "operator": "Exists"} for x in ("zone", "none")]}),
            False,
        ),
        (named("In", "n1"), True),
        (named("In", "n2"), False),
        (named("In", "n1", "n2"), False),
        (named("NotIn", "n1"), False),
        (named("NotIn", "n2"), True),
        (named("Exists"), False),
        (node_affinity({"matchFields": [{"key": "spec.x", "operator": "In", "values": ["n1"]}]}), False),
        (
            node_affinity(
                {
                    "matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}],
                    "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
                }
            ),
            False,
        ),
        ({"nodeSelector": {"zone": "b"}, **named("In", "n1")}, False),
    ],
)
def test_selectors_and_affinity(spec: Object, may: bool) -> None:
    assert may_run(spec, kept_node(labels=LABELS)) == may


A_TAINT = {"key": "a", "effect": "NoSchedule"}
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("taint", "tolerations", "may"),
    [
        (GPU_TAINT, [], False),
        ({**GPU_TAINT, "effect": "NoExecute"}, [], False),
        ({**GPU_TAINT, "effect": "PreferNoSchedule"}, [], True),
        ({"key": "hyperscout.io/degraded", "effect": "NoSchedule"}, [], False),
        ({"key": "hyperscout.io/degraded", "effect": "PreferNoSchedule"}, [], True),
        (GPU_TAINT, [{"operator": "Exists"}], True),
        (GPU_TAINT, [{"operator": "Exists", "effect": "NoExecute"}], False),
        (GPU_TAINT, [{"key": "nvidia.com/gpu", "operator": "Exists"}], True),
        (GPU_TAINT, [{"key": "other", "operator": "Exists"}], False),
        (GPU_TAINT, [{"key": "nvidia.com/gpu", "value": "present"}], True),
        (GPU_TAINT, [{"key": "nvidia.com/gpu", "value": "absent"}], False),
        (
            GPU_TAINT,
            [{"key": "nvidia.com/gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"}],
            True,
        ),
        (GPU_TAINT, [{"key": "nvidia.com/gpu", "operator": "Like", "value": "present"}], False),
        (A_TAINT, [{"key": "a"}], True),
        *(
            ({**A_TAINT, "value": value}, [{"key": "a", "operator": operator, "value": than}], may)
            for value, operator, than, may in (
                ("5", "Lt", "6", True),
                ("5", "Lt", "5", False),
                ("5", "Gt", "4", True),
                ("5", "Gt", "-4", True),
                ("5", "Gt", "04", False),
                ("x", "Lt", "6", False),
            )
        ),
    ],
)
def test_taints_and_tolerations(taint: Object, tolerations: list[Object], may: bool) -> None:
    assert may_run({"tolerations": tolerations}, kept_node(taints=[taint])) == may


def test_every_taint_must_be_tolerated() -> None:
    both = [GPU_TAINT, {"key": "b", "effect": "NoSchedule"}]
    one = {"key": "b", "operator": "Exists"}
    assert not may_run({"tolerations": [one]}, kept_node(taints=both))
    assert may_run(
        {"tolerations": [one, {"key": "nvidia.com/gpu", "operator": "Exists"}]}, kept_node(taints=both)
    )


def test_cordoned_and_not_ready() -> None:
    assert not may_run({}, kept_node(unschedulable=True))
    key = "node.kubernetes.io/unschedulable"
    assert may_run({"tolerations": [{"key": key, "operator": "Exists"}]}, kept_node(unschedulable=True))
    assert may_run({"tolerations": [{"operator": "Exists"}]}, kept_node(unschedulable=True))
    for status in ("False", "Unknown"):
        assert not may_run({"tolerations": [{"operator": "Exists"}]}, kept_node(ready=status))


def forest(count: int) -> Forest:
    names = tuple(f"n{i}" for i in range(count))
    return Forest.of(Topology(1, (hypernode("leaf", names),)))


def test_a_mask_names_the_nodes_and_leaves_out_those_that_are_gone() -> None:
    nodes = {f"n{i}": kept_node(f"n{i}", labels={"gpu": str(i % 2)}) for i in range(5)}
    del nodes["n3"]
    mask = mask_for({"nodeSelector": {"gpu": "1"}}, nodes.get, forest(6))
    assert mask.allowed.tolist() == [False, True, False, False, False, False]
    assert mask.allowed.dtype == np.bool_


def test_the_same_demands_have_the_same_key_and_others_another() -> None:
    one = {"nodeSelector": {"a": "1", "b": "2"}, "containers": [{"image": "x"}]}
    assert demands_key(one) == demands_key({"nodeSelector": {"b": "2", "a": "1"}, "affinity": {}})
    others: list[Object] = [{}, says("a", "Exists"), says("a", "DoesNotExist"), named("In", "n1")]
    others += [{"tolerations": [{"operator": "Exists"}]}, one]
    others += [preferred_affinity((1, IN_A)), preferred_affinity((2, IN_A)), preferred_affinity((2, BIG))]
    assert len({demands_key(spec) for spec in others}) == len(others)
    # What admission adds to every pod changes nothing.
    added = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
    assert demands_key({"tolerations": [{**added, "tolerationSeconds": 300}]}) == demands_key({})


_KEYS = st.sampled_from(["a", "b", "c"])
_VALUES = st.sampled_from(["", "1", "2", "x"])
_NAMES = st.sampled_from(["n0", "n1", "n2"])
_EXPRESSIONS = st.fixed_dictionaries(
    {
        "key": _KEYS,
        "operator": st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
        "values": st.lists(_VALUES, max_size=2),
    }
)
_FIELDS = st.fixed_dictionaries(
    {
        "key": st.just("metadata.name"),
        "operator": st.sampled_from(["In", "NotIn"]),
        "values": st.lists(_NAMES, max_size=2),
    }
)
_TAINTS = st.fixed_dictionaries(
    {
        "key": _KEYS,
        "value": _VALUES,
        "effect": st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"]),
    }
)
_TOLERATIONS = st.fixed_dictionaries(
    {},
    optional={
        "key": _KEYS,
        "value": _VALUES,
        "operator": st.sampled_from(["Equal", "Exists"]),
        "effect": st.sampled_from(["NoSchedule", "NoExecute"]),
    },
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "nodeSelector": st.dictionaries(_KEYS, _VALUES, max_size=1),
            "tolerations": st.lists(_TOLERATIONS, max_size=2),
            "affinity": st.lists(
                st.fixed_dictionaries(
                    {},
                    optional={
                        "matchExpressions": st.lists(_EXPRESSIONS, max_size=2),
                        "matchFields": st.lists(_FIELDS, max_size=2),
                    },
                ),
                max_size=2,
            ).map(lambda listed: node_affinity(*listed)["affinity"]),
        },
    ),
    st.lists(
        st.tuples(
            st.dictionaries(_KEYS, _VALUES, max_size=3),
            st.lists(_TAINTS, max_size=2),
            st.booleans(),
            st.sampled_from(["True", "True", "True", "False"]),
        ),
        min_size=1,
        max_size=6,
    ),
)
def test_a_mask_is_what_each_node_says_for_itself(spec: Object, drawn: list[Any]) -> None:
    """Nodes that are judged together are alike."""
    nodes = {
        f"n{i}": kept_node(f"n{i}", ready, labels=labels, taints=taints, unschedulable=cordoned)
        for i, (labels, taints, cordoned, ready) in enumerate(drawn)
    }
    mask = mask_for(spec, nodes.get, forest(len(nodes)))
    assert mask.allowed.tolist() == [may_run(spec, found) for found in nodes.values()]
    # The same key is the same nodes.
    for other in ({}, {"tolerations": [{"operator": "Exists"}]}):
        its = mask_for(other, nodes.get, forest(len(nodes)))
        assert (its.key == mask.key) == (its.allowed.tolist() == mask.allowed.tolist())


def tainted(**more: str) -> Object:
    return {"taints": [{"key": "a", "value": "1", "effect": "NoSchedule", **more}]}


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("spec", "one", "other"),
    [
        ({"nodeSelector": {"a": "1"}}, {"labels": {"a": "1"}}, {"labels": {"a": "2"}}),
        (says("a", "Exists"), {"labels": {"a": ""}}, {}),
        (named("In", "n0"), {}, {}),
        (named("NotIn", "n1"), {}, {}),
        ({}, {}, {"unschedulable": True}),
        ({}, {}, {"ready": "False"}),
        ({}, tainted(effect="PreferNoSchedule"), tainted()),
        ({"tolerations": [{"key": "a", "value": "1"}]}, tainted(), tainted(value="2")),
        ({"tolerations": [{"key": "a", "operator": "Exists"}]}, tainted(), tainted(key="b")),
    ],
)
def test_nodes_that_differ_in_one_thing_are_judged_apart(
    spec: Object, one: Object, other: Object, turned: bool
) -> None:
    nodes = {"n0": kept_node("n0", **one), "n1": kept_node("n1", **other)}
    names = ("n1", "n0") if turned else ("n0", "n1")
    judged = _Demands(spec).mask(names, nodes.get).allowed
    assert dict(zip(names, judged.tolist(), strict=True)) == {"n0": True, "n1": False}


def test_a_mask_lists_the_taints_of_nodes_that_nothing_else_keeps_out() -> None:
    ours = {"key": "hyperscout.io/degraded", "effect": "NoSchedule"}
    other = {"key": "b", "value": "x", "effect": "NoExecute"}
    soft = {"key": "c", "effect": "PreferNoSchedule"}
    zone = {"zone": "a"}
    nodes = {
        "n0": kept_node("n0", labels=zone, taints=[ours, soft]),
        "n1": kept_node("n1", labels=zone, taints=[other, ours]),
        "n2": kept_node("n2", labels=zone),
        "n3": kept_node("n3", taints=[ours]),
        "n4": kept_node("n4", labels=zone, taints=[ours], unschedulable=True),
        "n5": kept_node("n5", labels=zone, taints=[ours], ready="False"),
    }
    spec: Object = {"nodeSelector": zone}
    found = mask_for(spec, nodes.get, forest(6)).taints
    assert found == {
        0: "hyperscout.io/degraded:NoSchedule",
        1: "b=x:NoExecute, hyperscout.io/degraded:NoSchedule",
    }
    spec["tolerations"] = [{"key": "hyperscout.io/degraded", "operator": "Exists"}]
    assert mask_for(spec, nodes.get, forest(6)).taints == {1: "b=x:NoExecute"}


IN_A = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
BIG = {"matchExpressions": [{"key": "gen", "operator": "Gt", "values": ["5"]}]}
FIRST = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}
IN_ERROR = {"matchExpressions": [{"key": "zone", "operator": "Huh"}]}


@pytest.mark.parametrize(
    ("spec", "lacking"),
    [
        ({}, None),
        (preferred_affinity((10, IN_A)), [0, 10, 0]),
        (preferred_affinity((10, IN_A), (100, BIG)), [100, 110, 0]),
        (preferred_affinity((10, {**IN_A, **BIG})), [10, 10, 0]),
        (preferred_affinity((7, FIRST)), [0, 7, 7]),
        (preferred_affinity((7, IN_ERROR)), [7, 7, 7]),  # in error, so no node matches
        (preferred_affinity((7, {})), None),
        (preferred_affinity((0, IN_A)), None),
        (preferred_affinity((1, {"matchExpressions": [{"key": "zone", "operator": "Exists"}]})), None),
        ({"nodeSelector": {"gen": "7"}, **preferred_affinity((9, FIRST))}, [0, 0, 9]),  # n0, n1 are not used
        ({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": "x"}}}, None),
    ],
)
def test_what_nodes_lack_of_preferences(spec: Object, lacking: list[int] | None) -> None:
    labels = [{"zone": "a", "gen": "3"}, {"zone": "b"}, {"zone": "a", "gen": "7"}]
    nodes = {f"n{i}": kept_node(f"n{i}", labels=x) for i, x in enumerate(labels)}
    mask = mask_for(spec, nodes.get, forest(3))
    assert (None if mask.lacking is None else mask.lacking.tolist()) == lacking
    assert mask_for({}, nodes.get, forest(3)).key != mask.key or lacking is None
