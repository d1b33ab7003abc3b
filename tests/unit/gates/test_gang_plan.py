"""Plans come back from what is stored as they were, and anything else is no plan, said so by name."""

import base64
import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hyperscout_gates.state.gang import is_resized, with_ranks
from hyperscout_gates.state.gang_plan import (
    PREFIX,
    GangPlan,
    PlanError,
    from_object,
    name_of,
    to_object,
)
from hyperscout_placer.cluster.answer import Cost, Placement
from hyperscout_placer.cluster.numa_zones import Zone
from hyperscout_placer.cluster.request import Group, Range, Request, Spread, Workers
from hypothesis import given
from hypothesis import strategies as st

REQUEST = Request(
    Group(
        1,
        (
            Workers(1, (("cpu", 500), ("memory", 2**30)), "launcher"),
            Group(2, (Workers(3, (("nvidia.com/gpu", 8),)),), tier=1, spread=Spread(1, 0, required=False)),
        ),
        tier=2,
        spread=Spread(4, 1),
    ),
    "soft",
    frozenset({"n9", "leaf-3"}),
    use_down=True,
)
COST = Cost(2, (2,), 3, 1, (5, 0, 0))
ALL_LINES = Cost(2, (2,), 3, 1, (5, 0, 0), (7, 2), 1, (1, 0), fragments=(5, 0, 0), unpreferred=30)
PLAN = GangPlan(
    "ns/Job/train",
    "1234",
    "Job",
    REQUEST,
    Placement(("n1", "n1", "n2", "n3", "n1", "n1", "n1"), 2, "pod-1", COST),
    {"pod-a": 3, "pod-b": 0},
)


def plan_of(count: int, node: Callable[[int], str]) -> GangPlan:
    request = Request(Group(1, (Workers(count),)))
    placement = Placement(tuple(map(node, range(count))), None, None, Cost(4, (2, 1), 1, 0, (0,)))
    return GangPlan("ns/Job/large", "u", "Job", request, placement)


@pytest.mark.parametrize("moves", [False, True])
def test_what_is_stored_is_read_back(*, moves: bool) -> None:
    plan = replace(PLAN, moves=moves)
    found = to_object(plan, "own")
    assert found["metadata"]["namespace"] == "own"
    assert found["metadata"]["name"] == name_of(PLAN.key, PLAN.uid)
    assert found["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "hyperscout"
    # The server gives it back as JSON.
    assert from_object(json.loads(json.dumps(found))) == plan


def test_all_lines_of_the_cost_are_read_back() -> None:
    packed = replace(REQUEST, packing="fragments")
    plan = replace(PLAN, request=packed, placement=replace(PLAN.placement, cost=ALL_LINES))
    assert from_object(json.loads(json.dumps(to_object(plan, "own")))) == plan


def test_elastic_parts_are_stored_and_plans_are_cut() -> None:
    elastic = replace(REQUEST, gang=Group(1, (Workers(2), Group(2, (Workers(2),), elastic=Range(1, 4)))))
    zones = (None, None, Zone(0, ()), Zone(1, ()), None, None)
    placement = Placement(("n1", "n1", "n2", "n3", "n1", "n4"), 2, "pod-1", COST, zones=zones)
    plan = replace(PLAN, request=elastic, placement=placement, pods={"a": 3, "b": 4})
    assert from_object(json.loads(json.dumps(to_object(plan, "own")))) == plan
    less = plan.with_ranks(with_ranks(elastic, 3))
    assert from_object(json.loads(json.dumps(to_object(less, "own")))) == less
    assert (less.nodes, less.placement.zones, dict(less.pods)) == (plan.nodes[:4], zones[:4], {"a": 3})


@pytest.mark.parametrize(("number", "count"), [(0, 1), (3, 1), (4, 1), (5, 2), (8, 3), (99, 4)])
def test_groups_stay_whole(number: int, count: int) -> None:
    request = Request(Group(1, (Workers(2), Group(2, (Workers(2),), elastic=Range(1, 4)))))
    last = with_ranks(request, number).gang.parts[-1]
    assert last.count == count
    assert is_resized(request, with_ranks(request, number))
    assert not is_resized(request, replace(request, use_down=True))


def test_the_stored_form_of_0_1_0_stays() -> None:
    text = (
        '{"version":1,"gang":"ns/Job/train","uid":"1234","kind":"Job","digest":"","request":{"gang":{'
        '"groups":1,"parts":[{"workers":1,"role":"launcher","resources":[["cpu",500],["memory",1073741824]]},'
        '{"groups":2,"parts":[{"workers":3,"role":"worker","resources":[["nvidia.com/gpu",8]]}],"tier":1,'
        '"spread":[1,0,false]}],"tier":2,"spread":[4,1,true]},"mode":"soft","avoid":["leaf-3","n9"],'
        '"useDown":true},"nodes":[["n1",2],["n2",1],["n3",1],["n1",3]],"tier":2,"hypernode":"pod-1",'
        '"cost":[2,[2],3,1,[5,0,0]],"exact":true,"pods":{"pod-a":3,"pod-b":0}}'
    )
    assert to_object(PLAN, "own")["data"] == {"plan.json": text}
    for digest in ("", "abcd"):  # no collector reads it
        data = {"plan.json": text.replace('"digest":""', f'"digest":"{digest}"')}
        assert from_object({"metadata": {"name": name_of(PLAN.key, PLAN.uid)}, "data": data}) == PLAN


def test_numa_zones_are_stored_in_runs() -> None:
    zones = (None, None, Zone(0, ("mlx5_0",)), Zone(0, ("mlx5_0",)), Zone(1), Zone(None), None)
    plan = replace(PLAN, placement=replace(PLAN.placement, zones=zones))
    found = to_object(plan, "own")
    assert json.loads(found["data"]["plan.json"])["zones"] == [
        [2], [2, 0, ["mlx5_0"]], [1, 1, []], [1, None, []], [1],
    ]  # fmt: skip
    assert from_object(json.loads(json.dumps(found))) == plan
    for wrong in ([[8]], [[2]], [[7, 0]], [[0]], [[7, 0, [1]]], [[7, -1, []]], "x", 1):
        text = json.loads(found["data"]["plan.json"]) | {"zones": wrong}
        with pytest.raises(PlanError):
            from_object({**found, "data": {"plan.json": json.dumps(text)}})


def test_one_a_gang_and_run() -> None:
    names = {name_of(*gang) for gang in (("a", "1"), ("a", "2"), ("b", "1"), ("a1", ""), ("a", ""))}
    assert len(names) == 5
    assert all(name.startswith(PREFIX) and len(name) < 64 for name in names)


def test_runs_of_ranks_are_short_and_large_plans_are_packed() -> None:
    plan = plan_of(100_000, lambda rank: f"node-{rank // 8:05}.gpu.example")
    found = to_object(plan, "own")
    assert "data" not in found
    assert len(json.dumps(found)) < 200_000
    assert from_object(found) == plan


@pytest.mark.slow
def test_what_no_configmap_holds_is_refused() -> None:
    plan = plan_of(120_000, lambda rank: f"{rank * 2654435761 % 2**64:064x}")
    with pytest.raises(PlanError, match="the limit is 900000"):
        to_object(plan, "own")


def stored(change: Callable[[Any], object]) -> Any:
    """A stored plan with something changed in it."""
    found = to_object(PLAN, "own")
    plan = json.loads(found["data"]["plan.json"])
    change(plan)
    found["data"]["plan.json"] = json.dumps(plan)
    return found


def deep(plan: Any) -> None:
    part = plan["request"]["gang"]
    for _ in range(40):
        part["parts"] = [{"groups": 1, "parts": part["parts"]}]


JUNK: dict[str, Any] = {
    "nothing": {},
    "no data": {"metadata": {"name": "x"}, "data": None},
    "another's": {"metadata": {"name": "x"}, "data": {"plan.json": "kind: Config"}},
    "a list": {"metadata": {"name": "x"}, "data": {"plan.json": "[]"}},
    "deep JSON": {"metadata": {"name": "x"}, "data": {"plan.json": "[" * 100_000}},
    "another name": to_object(PLAN, "own") | {"metadata": {"name": "x"}},
    "another version": stored(lambda p: p.update(version=2)),
    "too few nodes": stored(lambda p: p["nodes"].pop()),
    "too many nodes": stored(lambda p: p["nodes"].append(["n1", 1])),
    "endless nodes": stored(lambda p: p.update(nodes=[["n1", 2**60]])),
    "no node at all": stored(lambda p: p["nodes"].insert(0, ["n1", 0])),
    "a rank that is not": stored(lambda p: p["pods"].update(x=7)),
    "a rank for two": stored(lambda p: p["pods"].update(x=3)),
    "a negative rank": stored(lambda p: p["pods"].update(x=-1)),
    "a truth for a count": stored(lambda p: p["request"]["gang"].update(groups=True)),
    "endless workers": stored(lambda p: p["request"]["gang"]["parts"][0].update(workers=2**61)),
    "no gang": stored(lambda p: p["request"].update(gang={"workers": 7, "role": "x", "resources": []})),
    "deep groups": stored(deep),
    "no mode": stored(lambda p: p["request"].update(mode="maybe")),
    "no packing": stored(lambda p: p["request"].update(packing="loose")),
    "no weight": stored(lambda p: p.update(unpreferred=-1)),
    "a lone surrogate": stored(lambda p: p.update(gang="\ud800")),
    "no base64": {"metadata": {"name": "x"}, "binaryData": {"plan.json.z": "*"}},
    "not packed": {"metadata": {"name": "x"}, "binaryData": {"plan.json.z": "aGVsbG8="}},
    "packed and cut": {
        "metadata": {"name": "x"},
        "binaryData": {"plan.json.z": base64.b64encode(zlib.compress(b"x" * 9999)[:-4]).decode()},
    },
}


@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK)
def test_junk_is_no_plan(junk: Any) -> None:
    with pytest.raises(PlanError):
        from_object(junk)


def test_a_bomb_is_no_plan() -> None:
    packed = base64.b64encode(zlib.compress(b" " * (65 << 20), 1)).decode()
    with pytest.raises(PlanError):
        from_object({"metadata": {"name": "x"}, "binaryData": {"plan.json.z": packed}})


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(st.data())
def test_a_plan_with_anything_in_it_is_read_or_refused_by_name(data: st.DataObject) -> None:
    found = to_object(PLAN, "own")
    plan = json.loads(found["data"]["plan.json"])
    where: Any = plan
    for _ in range(data.draw(st.integers(0, 6))):
        keys = list(where) if isinstance(where, dict) else list(range(len(where)))
        if not keys:
            break
        key = data.draw(st.sampled_from(keys))
        if not isinstance(where[key], dict | list) or data.draw(st.booleans()):
            where[key] = data.draw(ANYTHING)
            break
        where = where[key]
    found["data"]["plan.json"] = json.dumps(plan)
    try:
        again = from_object(found)
    except PlanError:
        return
    assert from_object(json.loads(json.dumps(to_object(again, "own")))) == again


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_refused_by_name(text: bytes, packed: bool) -> None:
    data = {"plan.json.z": base64.b64encode(zlib.compress(text)).decode()}
    found: Any = {"metadata": {"name": "x"}, "binaryData": data}
    if not packed:
        found = {"metadata": {"name": "x"}, "data": {"plan.json": text.decode(errors="replace")}}
    with pytest.raises(PlanError):
        from_object(found)
