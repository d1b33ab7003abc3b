"""What roles of a request demand of nodes: as messages, checked as pods are, and where workers go then."""

from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from hyperscout.v1 import placement_pb2 as pb
from hyperscout_kubernetes.nodes import kept
from hyperscout_placer.cluster.answer import Placement, Refusal
from hyperscout_placer.cluster.capacity import Capacity
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.request import RequestError
from hyperscout_placer.demands import node_masks
from hyperscout_placer.demands.node_masks import NodeMasks
from hyperscout_placer.messages.requests import request_message, request_of, stored_request
from hyperscout_placer.solve.explain import explain
from hyperscout_placer.solve.place import place
from hyperscout_topology.topology import Topology
from support.kube_objects import node, node_affinity, preferred_affinity
from support.placer_oracle import verify
from support.topologies import leaves

FOREST = Forest.of(leaves(("a", "b", "c"), ("d", "e", "f")))
FREE = {name: {"workers": 1, "cpu": 2} for name in FOREST.nodes}
NODES = {
    name: kept(node(name, labels={"gpu": gpu, "size": size}, spec={"taints": taints}))
    for name, gpu, size, taints in (
        ("a", "h100", "1", []),
        ("b", "h100", "2", []),
        ("c", "a100", "3", []),
        ("d", "a100", "4", [{"key": "spot", "value": "yes", "effect": "NoSchedule"}]),
        ("e", "h100", "5", []),
        ("f", "h100", "6", [{"key": "spot", "value": "no", "effect": "NoExecute"}]),
    )
}

TOLERANT = {"tolerations": [{"operator": "Exists"}]}
VALUES = [str(i) for i in range(256)]


def workers(count: int, **fields: Any) -> dict[str, Any]:
    return {"workers": {"count": count, **fields}}


def message(*parts: dict[str, Any], **fields: Any) -> pb.PlaceRequest:
    return ParseDict({"parts": list(parts), **fields}, pb.PlaceRequest())


def answer(asked: pb.PlaceRequest, masks: NodeMasks | None = None) -> Placement | Refusal:
    request, capacity = request_of(asked, FOREST), Capacity(FOREST, FREE)
    of_roles = (masks or NodeMasks(NODES.get)).now(FOREST).of(request)
    found = place(capacity, request, of_roles)
    if isinstance(found, Placement):
        assert not verify(capacity, request, found, of_roles)
    assert explain(capacity, request, found, of_roles).text
    return found


def says(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("fields", "nodes"),
    [
        ({}, "abc"),
        ({"nodeSelector": {"gpu": "h100"}}, "abe"),  # f is tainted
        ({"nodeSelector": {"gpu": "h100"}, **TOLERANT}, "abe"),
        (
            {
                "tolerations": [{"key": "spot", "operator": "Exists"}],
                **node_affinity(says("size", "Gt", "3")),
            },
            "def",
        ),
        ({"tolerations": [{"key": "spot", "value": "yes"}], "nodeSelector": {"gpu": "a100"}}, "cd"),
        (preferred_affinity((1, says("size", "Gt", "2"))), "abc"),  # d to f are no leaf of three
        ({**TOLERANT, **preferred_affinity((50, says("gpu", "In", "a100")))}, "abc"),
        ({**TOLERANT, **preferred_affinity((5, says("size", "Gt", "3")))}, "def"),
        (
            {**TOLERANT, **preferred_affinity((60, says("size", "Gt", "3")), (50, says("size", "Lt", "3")))},
            "def",
        ),
    ],
)
def test_where_workers_go(fields: dict[str, Any], nodes: str) -> None:
    found = answer(message(workers(len(nodes), **fields)))
    assert isinstance(found, Placement)
    assert "".join(found.nodes) == nodes


def test_each_role_has_its_own_demands() -> None:
    leader = workers(1, role="leader", nodeSelector={"gpu": "a100"})
    found = answer(message(leader, workers(2, nodeSelector={"gpu": "h100"})))
    assert isinstance(found, Placement)
    assert found.nodes == ("c", "a", "b")
    # Of the nodes of one leaf, each role is on those that it prefers.
    prefers = preferred_affinity((10, says("size", "In", "3")))
    found = answer(message(workers(1, role="leader", **prefers), workers(2, nodeSelector={"gpu": "h100"})))
    assert isinstance(found, Placement)
    assert (found.nodes, found.cost.unpreferred) == (("c", "a", "b"), 0)


def test_an_answer_says_what_preferences_its_nodes_lack() -> None:
    prefers = preferred_affinity((10, says("size", "In", "1")), (3, says("size", "Gt", "1")))
    found = answer(message(workers(3, **prefers)))
    assert isinstance(found, Placement)
    assert ("".join(found.nodes), found.cost.unpreferred) == ("abc", 3 + 10 + 10)


def test_a_refusal_says_what_keeps_workers_off() -> None:
    found = answer(message(workers(1, nodeSelector={"gpu": "b200"})))
    assert isinstance(found, Refusal)
    assert "6 may not be used by a worker" in found.reason
    found = answer(message(workers(2, nodeSelector={"gpu": "a100"})))
    assert isinstance(found, Refusal)
    assert "without the taint of d (spot=yes:NoSchedule)" in found.reason
    # Where nothing is known of nodes, no role with demands uses them; others do.
    unknown = NodeMasks(None, "labels are unknown: give them")
    found = answer(message(workers(1, **TOLERANT)), unknown)
    assert isinstance(found, Refusal)
    assert "6 may not be used, because labels are unknown: give them" in found.reason
    assert isinstance(answer(message(workers(1)), unknown), Placement)


def test_masks_are_made_anew_when_a_node_changes() -> None:
    nodes = dict(NODES)
    masks = NodeMasks(nodes.get)
    asked = message(workers(1, nodeSelector={"gpu": "b200"}))
    assert isinstance(answer(asked, masks), Refusal)
    before, nodes["c"] = nodes["c"], kept(node("c", labels={"gpu": "b200"}))
    assert isinstance(answer(asked, masks), Refusal)
    masks.node_changed(before, nodes["c"])
    found = answer(asked, masks)
    assert isinstance(found, Placement)
    assert found.nodes == ("c",)


def test_masks_of_a_table_stay_those_of_their_moment_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread uses a table while nodes change. A table keeps few masks where there are many nodes."""
    nodes = dict(NODES)
    masks = NodeMasks(nodes.get)
    request = request_of(message(workers(1, nodeSelector={"gpu": "h100"})), FOREST)
    table = masks.now(FOREST)
    before, nodes["c"] = nodes["c"], kept(node("c", labels={"gpu": "h100"}))
    masks.node_changed(before, nodes["c"])
    seen = [found.of(request)["worker"].allowed.tolist() for found in (table, masks.now(FOREST))]
    assert seen == [[True, True, False, False, True, False], [True, True, True, False, True, False]]
    monkeypatch.setattr(node_masks, "_MAX_ENTRIES", 2 * len(FOREST.nodes))
    made: list[str] = []
    real = node_masks.mask_for
    monkeypatch.setattr(node_masks, "mask_for", lambda *given: (made.append(""), real(*given))[1])
    table = NodeMasks(nodes.get).now(FOREST)
    specs = {str(i): {"nodeSelector": {"gpu": str(i)}} for i in range(3)}
    for role in "0101", "201":
        for one in role:
            table.by_role({one: specs[one]})
    assert len(made) == 5  # the third one discards the first two


ALL = {
    "nodeSelector": {"gpu": "h100", "example.com/zone": ""},
    "tolerations": [
        {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": "30"},
        {"key": "b", "value": "x"},
        {"key": "c", "operator": "Gt", "value": "-5"},
    ],
    "affinity": {
        "nodeAffinity": {
            **node_affinity(says("gpu", "In", "h100"), says("x", "Exists"))["affinity"]["nodeAffinity"],
            **preferred_affinity(
                (100, {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["a"]}]})
            )["affinity"]["nodeAffinity"],
        }
    },
}


def test_a_stored_request_keeps_its_demands_and_its_priority() -> None:
    parts = workers(1, role="leader"), {"group": {"count": 2, "parts": [workers(2, **ALL)]}}
    asked = message(*parts, priority=-(2**31), packing="PACKING_FRAGMENTS")
    request = request_of(asked, FOREST)
    assert [role for role, _ in request.demands] == ["worker"]
    assert (request.priority, request.packing) == (-(2**31), "fragments")
    stored = request_message(request, "train")
    assert stored_request(stored) == request
    assert request_of(stored, FOREST) == request
    assert stored.parts[1].group.parts[0].workers.affinity == asked.parts[1].group.parts[0].workers.affinity


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"nodeSelector": {"a b": "x"}}, "node_selector['a b']: 'a b': expected a key"),
        ({"nodeSelector": {"/a": "x"}}, "node_selector['/a']: '/a': expected a key"),
        ({"nodeSelector": {"a": "x y"}}, "node_selector['a']: 'x y': expected at most 63 letters"),
        ({"nodeSelector": {"a": "x" * 64}}, "expected at most 63 letters"),
        ({"tolerations": [{"operator": "Like"}]}, "tolerations[0].operator: 'Like': expected Equal, Exists"),
        ({"tolerations": [{"key": "a", "effect": "No"}]}, "tolerations[0].effect: 'No': expected NoSchedule"),
        ({"tolerations": [{"key": "a"}, {}]}, "tolerations[1].key: empty: expected the key of a taint, or"),
        (
            {"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]},
            "value: 'b': expected no value",
        ),
        ({"tolerations": [{"key": "a", "operator": "Lt", "value": "b"}]}, "value: 'b': expected an integer"),
        ({"tolerations": [{"key": "a", "value": "b c"}]}, "tolerations[0].value: 'b c': expected at most 63"),
        (
            {"tolerations": [{"key": "a", "effect": "NoSchedule", "tolerationSeconds": 1}]},
            "toleration_seconds: expected only with the effect NoExecute",
        ),
        (node_affinity(), "ignored_during_execution.node_selector_terms: expected at least one term"),
        (node_affinity(says("a", "in", "b")), "operator: 'in': expected In, NotIn, Exists, DoesNotExist"),
        (
            node_affinity(says("a", "In")),
            "expressions[0].values: 0: expected 1 to 256 values for In",
        ),
        (node_affinity(says("a", "Exists", "b")), "values: 1: expected no value for Exists"),
        (node_affinity(says("a", "Gt", "1", "2")), "values: 2: expected one value for Gt"),
        (node_affinity(says("a", "Gt", "b")), "values: 'b': expected an integer for Gt"),
        (node_affinity(says("", "Exists")), "match_expressions[0].key: '': expected a key"),
        (
            node_affinity({"matchFields": [{"key": "spec.x", "operator": "In", "values": ["a"]}]}),
            "node_selector_terms[0].match_fields[0].key: 'spec.x': expected metadata.name",
        ),
        (
            node_affinity({"matchFields": [{"key": "metadata.name", "operator": "Exists"}]}),
            "match_fields[0].operator: 'Exists': expected In, NotIn",
        ),
        (preferred_affinity((0, says("a", "Exists"))), "[0].weight: 0: expected 1 to 100"),
        (preferred_affinity((101, says("a", "Exists"))), "[0].weight: 101: expected 1 to 100"),
        (preferred_affinity((1, says("a", "Is"))), "[0].preference.match_expressions[0].operator: 'Is'"),
        (node_affinity(*[says("a" * 63, "In", *VALUES)] * 64), "characters as JSON: at most 65536"),
        (node_affinity(says("a", "NotIn", *VALUES, "b")), "values: 257: expected 1 to 256 values for NotIn"),
        (
            node_affinity(*[says("a", "Exists")] * 65),
            "execution.node_selector_terms: 65: expected at most 64",
        ),
        (
            preferred_affinity(*[(1, says("a", "Exists"))] * 65),
            "preferred_during_scheduling_ignored_during_execution: 65: expected at most 64",
        ),
        (
            node_affinity({"matchExpressions": says("a", "Exists")["matchExpressions"] * 65}),
            "node_selector_terms[0].match_expressions: 65: expected at most 64",
        ),
        (
            node_affinity(
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}] * 65}
            ),
            "node_selector_terms[0].match_fields: 65: expected at most 64",
        ),
    ],
)
def test_what_a_pod_may_not_say_is_refused(fields: dict[str, Any], error: str) -> None:
    for asked in (message(workers(1, **fields)), message(workers(1, **fields), highestTierAllowed="9")):
        with pytest.raises(RequestError) as refused:
            request_of(asked, FOREST)
        assert str(refused.value).startswith("parts[0].workers")
        assert error in str(refused.value)


def test_workers_of_one_role_have_the_same_demands() -> None:
    inner = {"group": {"count": 1, "parts": [workers(1, nodeSelector={"gpu": "h100"})]}}
    with pytest.raises(RequestError, match=r"^parts\[1\].group.parts\[0\].workers: .* those of parts\[0\]"):
        request_of(message(workers(1), inner), FOREST)
    assert request_of(message(inner, inner), FOREST).demands


def test_an_empty_hierarchy_and_demands_are_a_refusal() -> None:
    empty = Forest.of(Topology(1))
    request = request_of(message(workers(1, **ALL), priority=7), empty)
    found = place(Capacity(empty, {}), request, NodeMasks(NODES.get).now(empty).of(request))
    assert isinstance(found, Refusal)
    assert "no HyperNodes" in found.reason
