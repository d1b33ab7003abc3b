"""What cannot be meant is refused by name, and whatever is asked, the answer is an answer or that refusal."""

from dataclasses import replace

import pytest
from hyperscout_placer.cluster.answer import Placement, Refusal
from hyperscout_placer.cluster.capacity import Capacity, CapacityError
from hyperscout_placer.cluster.forest import Forest, ForestError
from hyperscout_placer.cluster.request import (
    MAX_WORKERS,
    Group,
    Request,
    RequestError,
    Spread,
    Workers,
    checked,
    ranks,
)
from hyperscout_placer.solve.place import place
from hyperscout_topology.topology import HyperNode, Topology
from hypothesis import given
from hypothesis import strategies as st
from support.builders import hypernode
from support.placer_instances import Instance, random_instance
from support.placer_oracle import verify

TREE = {
    "leaf-a": (1, "pod-1", ("a1", "a2")),
    "leaf-b": (1, "pod-1", ("b1", "b2")),
    "leaf-c": (1, "pod-2", ("c1", "c2")),
    "pod-1": (2, None, ()),
    "pod-2": (2, None, ()),
}
ROOM = {node: {"workers": 2, "cpu": 5} for node in ("a1", "a2", "b1", "b2", "c1", "c2")}
CASE = Instance(0, TREE, ROOM, Request(Group(1, (Workers(1),))))
ONE = Workers(1)
DEEP = Group(1, (ONE,))
for _ in range(20):
    DEEP = Group(1, (DEEP,))


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        pytest.param(Request(Group(2, (ONE,))), "gang.count: 2", id="two gangs"),
        pytest.param(Request(Group(1, (Workers(0),))), "parts[0].count: 0", id="no workers"),
        pytest.param(Request(Group(1, (Workers(-4),))), "parts[0].count: -4", id="fewer than none"),
        pytest.param(
            Request(Group(1, (Workers(MAX_WORKERS + 1),))), f"count: {MAX_WORKERS + 1}", id="absurd"
        ),
        pytest.param(
            Request(Group(1, (Group(1000, (Workers(1001),)),))), "1001000 workers", id="absurd in all"
        ),
        pytest.param(Request(Group(1, (Group(0, (ONE,)),))), "gang.parts[0].count: 0", id="no groups"),
        pytest.param(Request(Group(1, ())), "gang.parts: 0", id="empty"),
        pytest.param(Request(Group(1, (ONE,) * 65)), "gang.parts: 65", id="too many parts"),
        pytest.param(Request(DEEP), "deep", id="too deep"),
        pytest.param(Request(Group(1, (ONE,)), "firm"), "mode: 'firm'", id="mode"),  # type: ignore[arg-type]
        pytest.param(Request(Group(1, (ONE,), tier=3)), "gang.tier: 3", id="tier that is not there"),
        pytest.param(Request(Group(1, (ONE,), tier=-1)), "gang.tier: -1", id="tier below a node"),
        pytest.param(
            Request(Group(1, (Group(1, (ONE,), tier=2),), tier=1)), "parts[0].tier: 2", id="wider than around"
        ),
        pytest.param(Request(Group(1, (ONE,), spread=Spread(0, 0))), "spread.most: 0", id="spread of none"),
        pytest.param(Request(Group(1, (ONE,), spread=Spread(1, -1))), "spread.tier: -1", id="spread below"),
        pytest.param(
            Request(Group(1, (ONE,), tier=1, spread=Spread(1, 1))), "spread.tier: 1", id="spread over itself"
        ),
        pytest.param(
            Request(Group(1, (Group(1, (ONE,), tier=2),), spread=Spread(1, 1))), "below tier 2", id="too low"
        ),
        pytest.param(
            Request(Group(1, (ONE,), tier=0, spread=Spread(1, 0))), "stays on one node", id="spread on a node"
        ),
        pytest.param(
            Request(Group(1, (Group(2, (ONE, Workers(3, role="b")), spread=Spread(2, 0)),))),
            "several kinds",
            id="spread of several kinds in repeated groups",
        ),
        pytest.param(
            Request(Group(1, (Workers(1, ()),))),
            "parts[0].resources: expected at least one resource",
            id="nothing",
        ),
        pytest.param(
            Request(Group(1, (Workers(1, (("cpu", 0),)),))),
            "expected at least one resource",
            id="nothing of it",
        ),
        pytest.param(
            Request(Group(1, (Workers(1, (("cpu", -1), ("workers", 1))),))), "resources['cpu']: -1", id="owed"
        ),
        pytest.param(Request(Group(1, (Workers(1, (("cpu", 2**62),)),))), "resources['cpu']", id="62 bits"),
        pytest.param(Request(Group(1, (ONE,)), avoid=frozenset({"a9"})), "avoid: 'a9'", id="unknown"),
    ],
)
def test_requests_that_cannot_be_meant(request_: Request, words: str) -> None:
    with pytest.raises(RequestError) as caught:
        place(CASE.capacity(), request_)
    assert words in str(caught.value)


def test_a_resource_that_is_named_twice() -> None:
    twice = Request(Group(1, (Workers(1, (("workers", 1), ("workers", 2))),)))
    with pytest.raises(RequestError, match=r"parts\[0\].resources"):
        place(CASE.capacity(), twice)


def changed(**by_name: dict[str, object]) -> Topology:
    """The topology where HyperNodes are otherwise."""
    topology = CASE.topology
    names = {name.replace("_", "-"): change for name, change in by_name.items()}
    return replace(
        topology, hypernodes=tuple(replace(h, **names.get(h.name, {})) for h in topology.hypernodes)
    )


def with_more(*more: HyperNode) -> Topology:
    return replace(CASE.topology, hypernodes=(*CASE.topology.hypernodes, *more))


@pytest.mark.parametrize(
    ("topology", "words"),
    [
        pytest.param(changed(leaf_b={"nodes": ("a1", "b1")}), "a1 is in leaf-a too", id="a node in two"),
        pytest.param(changed(leaf_b={"nodes": ("b1", "b1")}), "leaf-b: a node is listed twice", id="twice"),
        pytest.param(
            changed(pod_2={"children": ("leaf-b", "leaf-c")}), "leaf-b: two parents", id="two parents"
        ),
        pytest.param(changed(pod_2={"children": ("pod-1",)}), "its child pod-1 has tier 2", id="a cycle"),
        pytest.param(changed(pod_2={"children": ("pod-2",)}), "its child pod-2 has tier 2", id="of itself"),
        pytest.param(changed(pod_2={"children": ("leaf-x",)}), "child leaf-x does not exist", id="no child"),
        pytest.param(changed(leaf_c={"parent": "pod-1"}), "leaf-c: parent pod-1", id="says another parent"),
        pytest.param(changed(pod_1={"children": ("leaf-a",)}), "leaf-b: no parent", id="an orphan"),
        pytest.param(changed(pod_1={"nodes": ("a1", "a2")}), "pod-1: node b1", id="fewer nodes than below"),
        pytest.param(changed(leaf_c={"tier": 0}), "leaf-c: tier 0", id="tier 0"),
        pytest.param(changed(leaf_c={"tier": -(2**40)}), "leaf-c: tier -", id="far below"),
        pytest.param(changed(pod_2={"tier": 4}), "pod-2: tier 4, but its child", id="a gap"),
        pytest.param(changed(pod_2={"tier": 2**40}), "pod-2: tier 1099511627776", id="far above"),
        pytest.param(changed(pod_2={"children": ()}), "pod-2: tier 2 with 0 children", id="no children"),
        pytest.param(with_more(CASE.topology.hypernodes[0]), "the name is used twice", id="two of a name"),
        pytest.param(with_more(hypernode("z", ("z1",))), "z: no parent", id="of another depth"),
    ],
)
def test_topologies_that_are_no_forest(topology: Topology, words: str) -> None:
    with pytest.raises(ForestError) as caught:
        Forest.of(topology)
    assert words in str(caught.value)


@pytest.mark.parametrize("amount", [-1, 2**62, 1.5, "2", None, True])
def test_amounts_that_cannot_be(amount: object) -> None:
    forest = CASE.forest()
    with pytest.raises(CapacityError, match=r"node a1: gpu"):
        Capacity(forest, {"a1": {"gpu": amount}})  # type: ignore[dict-item]
    capacity = CASE.capacity()
    with pytest.raises(CapacityError, match=r"node a1: gpu"):
        capacity.set_free("a1", {"workers": 1, "gpu": amount})  # type: ignore[dict-item]
    assert capacity.free_of("a1") == ROOM["a1"]


def test_nodes_that_are_not_there() -> None:
    capacity = CASE.capacity()
    for ask in (
        lambda: capacity.free_of("x"),
        lambda: capacity.set_free("x", {}),
        lambda: capacity.take(["a1", "x"], [ONE, ONE]),
    ):
        with pytest.raises(KeyError):
            ask()
    capacity.give(["x"], [ONE])
    assert {node: capacity.free_of(node) for node in ROOM} == ROOM
    assert Capacity(CASE.forest(), {"x": {"workers": 1}}).free_of("a1") == {}


def test_without_hypernodes_nothing_has_a_place() -> None:
    for mode in ("hard", "soft"):
        assert isinstance(
            place(Capacity(Forest.of(Topology(1)), {}), Request(Group(1, (ONE,)), mode)), Refusal
        )


counts = st.sampled_from((1, 1, 1, 2, 2, 3, 4, 7, 0, -1, 1000, MAX_WORKERS))
tiers = st.sampled_from((None, None, 1, 1, 2, 2, 3, 0, -1))
amounts = st.sampled_from((0, 1, 1, 2, 3, 5, 10**9, 2**61, -1))
needs = st.lists(
    st.tuples(st.sampled_from(("cpu", "workers", "gpu")), amounts), max_size=3, unique_by=lambda need: need[0]
)
workers = st.builds(
    lambda count, resources, role: Workers(count, tuple(sorted(resources)), role),
    counts,
    st.one_of(st.just([("workers", 1)]), needs),
    st.sampled_from(("worker", "leader", "")),
)
spreads = st.one_of(st.none(), st.builds(Spread, st.integers(-1, 5), st.integers(-1, 3), st.booleans()))
groups = st.recursive(
    st.builds(Group, counts, st.lists(workers, max_size=3).map(tuple), tiers, spreads),
    lambda inner: st.builds(
        Group, counts, st.lists(st.one_of(inner, workers), max_size=3).map(tuple), tiers, spreads
    ),
    max_leaves=5,
)


@given(
    gang=groups,
    mode=st.sampled_from(("hard", "soft")),
    avoid=st.frozensets(st.sampled_from(("a1", "leaf-b", "pod-1", "absent")), max_size=2),
)
def test_any_request_has_an_answer(gang: Group, mode: str, avoid: frozenset[str]) -> None:
    request = Request(replace(gang, count=1), mode, avoid)  # type: ignore[arg-type]
    capacity = CASE.capacity()
    try:
        checked(request, 2)
        answer = place(capacity, request)
    except RequestError:
        return
    if isinstance(answer, Placement):
        assert not verify(capacity, request, answer)
        capacity.take(answer.nodes, list(ranks(request.gang)))


def test_a_last_leaf_without_nodes() -> None:
    leaves_without_nodes_change_nothing(7507)


@given(seed=st.integers(0, 10**9))
def test_leaves_without_nodes_change_nothing(seed: int) -> None:
    leaves_without_nodes_change_nothing(seed)


def leaves_without_nodes_change_nothing(seed: int) -> None:
    case = random_instance(seed)
    parent = next((name for name, (tier, _, _) in case.tree.items() if tier == 2), None)
    if parent is None:
        return
    for name in ("a-first", "z-last"):
        tree = {**case.tree, name: (1, parent, ())}
        capacity = replace(case, tree=tree).capacity()
        answer = place(capacity, case.request, case.masks(capacity.forest))
        before = place(case.capacity(), case.request, case.masks(case.forest()))
        assert answer == before or (isinstance(answer, Refusal) and isinstance(before, Refusal))
