"""What is asked may be absurd: memory stays bounded, and the ways around it find the same."""

import tracemalloc
from types import ModuleType

import pytest
from hyperscout_collector.placer import chain, sifting
from hyperscout_collector.placer.answer import Placement, Refusal
from hyperscout_collector.placer.capacity import Capacity
from hyperscout_collector.placer.forest import Forest
from hyperscout_collector.placer.place import place
from hyperscout_collector.placer.request import (
    MAX_KINDS,
    MAX_RESOURCES,
    Group,
    Request,
    RequestError,
    Workers,
)
from hyperscout_collector.topology import HyperNode, Topology
from support.placer_chain import random_chain

MIB = 1 << 20


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        pytest.param(sifting, "MOST_HELD", 0, id="nothing is sifted"),
        pytest.param(sifting, "_AT_ONCE", 0, id="sifted in small blocks"),
        pytest.param(chain, "_MANY", 0, id="all steps at once"),
        pytest.param(chain, "_AT_ONCE", 0, id="all steps at once in small blocks"),
    ],
)
def test_other_ways_find_the_same(
    module: ModuleType, name: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = [random_chain(seed) for seed in range(150)]
    before = [place(case.capacity(), case.request) for case in cases]
    if name == "_AT_ONCE":
        monkeypatch.setattr(chain, "_MANY", 0)
    monkeypatch.setattr(module, name, value)
    for case, answer in zip(cases, before, strict=True):
        other = place(case.capacity(), case.request)
        assert isinstance(other, Refusal) == isinstance(answer, Refusal), case
        if isinstance(other, Placement) and isinstance(answer, Placement):
            assert (other.cost, other.exact) == (answer.cost, answer.exact), case


def two_tiers(leaves: list[int]) -> Forest:
    """So many nodes in each leaf of a pod."""
    names = [tuple(f"node-{i:02}-{j:05}" for j in range(n)) for i, n in enumerate(leaves)]
    below = [HyperNode(f"leaf-{i:04}", 1, "leaf", "pod", (), nodes, ()) for i, nodes in enumerate(names)]
    every = tuple(sorted(node for nodes in names for node in nodes))
    pod = HyperNode("pod", 2, "pod", None, tuple(h.name for h in below), every, ())
    return Forest.of(Topology(1, (*below, pod)))


@pytest.mark.parametrize(
    ("leaves", "workers"),
    [
        pytest.param([4000, 4000], 11000, id="two leaves of thousands"),
        pytest.param([25000] + [10] * 600, 30000, id="one leaf much larger than others"),
    ],
)
def test_leaves_of_thousands_of_nodes_do_not_cost_the_memory(leaves: list[int], workers: int) -> None:
    forest = two_tiers(leaves)
    capacity = Capacity.of_workers(forest, {node: 1 + i % 2 for i, node in enumerate(forest.nodes)})
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
        place(Capacity.of_workers(two_tiers([1, 1])), Request(Group(1, (many,))))


def test_as_many_kinds_as_may_be() -> None:
    capacity = Capacity.of_workers(two_tiers([40, 40]))
    answer = place(capacity, Request(Group(1, (Workers(1),) * MAX_KINDS)))
    assert isinstance(answer, Placement)
    assert answer.cost.nodes == MAX_KINDS


def test_kinds_together_name_no_more_resources_than_one_may() -> None:
    def kind(i: int) -> Workers:
        return Workers(1, tuple((f"example.com/{i}-{j}", 1) for j in range(MAX_RESOURCES // 2)))

    capacity = Capacity.of_workers(two_tiers([1, 1]))
    assert isinstance(place(capacity, Request(Group(1, (kind(1), kind(2))))), Refusal)
    with pytest.raises(RequestError, match="gang: 48 different resources: at most 32"):
        place(capacity, Request(Group(1, (kind(1), Group(1, (kind(2), kind(3)))))))
