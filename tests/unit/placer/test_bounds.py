"""What is asked may be absurd: memory stays bounded, and the ways around it find the same."""

import tracemalloc
from types import ModuleType

import pytest
from hyperscout_placer.cluster.answer import Placement, Refusal
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.request import (
    MAX_KINDS,
    MAX_RESOURCES,
    WORKERS,
    Group,
    Request,
    RequestError,
    Spread,
    Workers,
)
from hyperscout_placer.solve import chain, search, sifting
from hyperscout_placer.solve import place as place_module
from hyperscout_placer.solve.greedy import Greedy
from hyperscout_placer.solve.place import place
from hyperscout_placer.solve.tables import Work
from hyperscout_topology.topology import Topology
from support.builders import hypernode, worker_capacity
from support.examples import seed_blocks, slow_after
from support.placer_chain import random_chain
from support.placer_instances import random_instance
from support.placer_oracle import verify

MIB = 1 << 20


@seed_blocks(range(150, 156), [range(150)])
@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        pytest.param(sifting, "MAX_HELD", 0, id="nothing is sifted"),
        pytest.param(sifting, "MAX_VALUES", 1, id="weak bounds of the used nodes"),
        pytest.param(chain, "MAX_COSTS", 0, id="no steps are compared"),
        pytest.param(chain, "_ROUNDS", 0, id="more tables in each round"),
    ],
)
def test_other_ways_find_the_same(
    module: ModuleType, name: str, value: int, seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = [random_chain(seed) for seed in seeds]
    before = [place(case.capacity(), case.request) for case in cases]
    monkeypatch.setattr(module, name, value)
    for case, answer in zip(cases, before, strict=True):
        other = place(case.capacity(), case.request)
        assert isinstance(other, Refusal) == isinstance(answer, Refusal), case
        if isinstance(other, Placement) and isinstance(answer, Placement):
            assert (other.cost, other.exact) == (answer.cost, answer.exact), case


def two_tiers(leaves: list[int]) -> Forest:
    """So many nodes in each leaf of a pod."""
    names = [tuple(f"node-{i:02}-{j:05}" for j in range(n)) for i, n in enumerate(leaves)]
    below = [hypernode(f"leaf-{i:04}", nodes, parent="pod") for i, nodes in enumerate(names)]
    every = tuple(sorted(node for nodes in names for node in nodes))
    pod = hypernode("pod", every, children=(h.name for h in below))
    return Forest.of(Topology(1, (*below, pod)))


@pytest.mark.parametrize(
    ("leaves", "workers"),
    [
        pytest.param([400, 400], 1100, id="two leaves of hundreds"),
        pytest.param([4000, 4000], 11000, marks=pytest.mark.slow, id="two leaves of thousands"),
        pytest.param([20000] + [10] * 300, 21500, marks=pytest.mark.slow, id="one much larger leaf"),
    ],
)
def test_leaves_of_thousands_of_nodes_do_not_cost_the_memory(leaves: list[int], workers: int) -> None:
    forest = two_tiers(leaves)
    capacity = worker_capacity(forest, {node: 1 + i % 2 for i, node in enumerate(forest.nodes)})
    tracemalloc.start()
    try:
        answer = place(capacity, Request(Group(1, (Workers(workers),))))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(answer, Placement)
    assert peak < 150 * MIB


def test_a_gang_of_any_number_of_kinds_is_refused_before_it_is_looked_at() -> None:
    many: Group | Workers = Workers(1)
    for _ in range(16):
        many = Group(1, (many,) * MAX_KINDS)
    with pytest.raises(RequestError, match=f"more than {MAX_KINDS} kinds of workers in the gang"):
        place(worker_capacity(two_tiers([1, 1])), Request(Group(1, (many,))))


def test_as_many_kinds_as_may_be() -> None:
    capacity = worker_capacity(two_tiers([40, 40]))
    answer = place(capacity, Request(Group(1, (Workers(1),) * MAX_KINDS)))
    assert isinstance(answer, Placement)
    assert answer.cost.nodes == MAX_KINDS


def test_kinds_together_name_no_more_resources_than_one_may() -> None:
    def kind(i: int) -> Workers:
        return Workers(1, tuple((f"example.com/{i}-{j}", 1) for j in range(MAX_RESOURCES // 2)))

    capacity = worker_capacity(two_tiers([1, 1]))
    assert isinstance(place(capacity, Request(Group(1, (kind(1), kind(2))))), Refusal)
    with pytest.raises(RequestError, match="gang: 48 different resources: at most 32"):
        place(capacity, Request(Group(1, (kind(1), Group(1, (kind(2), kind(3)))))))


@pytest.fixture
def no_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever needs a table is filled in greedily."""
    monkeypatch.setattr(place_module, "Work", lambda: Work(0))


@pytest.mark.usefixtures("no_tables")
@pytest.mark.parametrize("first", slow_after(1, range(0, 400, 100)))
def test_what_is_filled_in_keeps_every_rule(first: int) -> None:
    inexact = 0
    for seed in range(first, first + 100):
        case = random_instance(seed, most_nodes=20, most_workers=20)
        capacity = case.capacity()
        masks = case.masks(capacity.forest)
        answer = place(capacity, case.request, masks)
        if isinstance(answer, Placement):
            assert not verify(capacity, case.request, answer, masks), case
            inexact += not answer.exact
    assert inexact > 20


@pytest.mark.usefixtures("no_tables")
def test_what_is_preferred_and_only_looked_for_is_not_said_to_be_impossible() -> None:
    capacity = worker_capacity(two_tiers([2, 2]), {f"node-00-{i:05}": 2 for i in range(2)})
    gang = Group(1, (Workers(2, role="a"), Workers(1, role="b")), spread=Spread(1, 0, required=False))
    answer = place(capacity, Request(gang))
    assert isinstance(answer, Placement)
    assert answer.relaxed == ("the preferred spread was not found within the search limit at this tier",)


def test_many_kinds_are_filled_in_once_a_tier_where_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place_module, "Work", lambda: Work(0))
    monkeypatch.setattr(search, "MAX_LOOKS", 0)
    filled: list[int] = []
    held = Greedy.held
    monkeypatch.setattr(Greedy, "held", lambda self, domain: (filled.append(domain), held(self, domain))[1])
    leaves = [3, 3, 3, 3]
    capacity = worker_capacity(
        two_tiers(leaves), {f"node-{i:02}-{j:05}": 1 + i for i in range(4) for j in range(3)}
    )
    gang = Group(1, (Workers(2, role="a"), Workers(1, ((WORKERS, 2),), role="b")))
    answer = place(capacity, Request(gang))
    assert isinstance(answer, Placement)
    assert not answer.exact
    assert len(filled) == 1
    monkeypatch.setattr(search, "MAX_LOOKS", 10**6)
    place(capacity, Request(gang))
    assert len(filled) > 2


def test_all_that_a_refusal_tries_has_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Work] = []
    monkeypatch.setattr(place_module, "Work", lambda: made.append(Work()) or made[-1])
    capacity = worker_capacity(two_tiers([2, 2]))
    gang = Group(1, (Workers(2, role="a"), Workers(1, role="b")), tier=1)
    answer = place(capacity, Request(gang))
    assert isinstance(answer, Refusal)
    assert "the gang fits if tier 2 (pod) is allowed" in answer.reason
    assert len(made) == 1


@pytest.mark.parametrize("work", [0, 10**9])
@pytest.mark.parametrize(
    ("gang", "leaves"),
    [
        pytest.param(Group(1, (Group(3, (Workers(2),), 1),), None, Spread(3, 1)), [4, 2], id="of a gang"),
        pytest.param(
            Group(1, (Group(2, (Group(2, (Workers(2),), 1),), 2, Spread(3, 1)),)), [6, 2], id="of two groups"
        ),
    ],
)
def test_a_spread_counts_whole_groups(
    gang: Group, leaves: list[int], work: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three workers to a leaf, in pairs: one pair, and for two groups two."""
    monkeypatch.setattr(place_module, "Work", lambda: Work(work))
    assert isinstance(place(worker_capacity(two_tiers(leaves)), Request(gang)), Refusal)
    more = place(worker_capacity(two_tiers([*leaves, 2])), Request(gang))
    assert isinstance(more, Placement)
    assert more.cost.domains == (3,)
