"""A gang that is split evenly over as few domains of a tier as possible."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hyperscout_placer.cluster.answer import Placement, Refusal
from hyperscout_placer.cluster.capacity import Capacity
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.request import Group, Range, Request, RequestError, Spread, Workers, checked
from hyperscout_placer.messages.requests import request_message, request_of
from hyperscout_placer.solve.place import place
from hyperscout_topology.topology import Topology
from support.builders import hypernode, worker_capacity
from support.examples import in_blocks, seed_blocks
from support.placer_instances import random_instance
from support.placer_oracle import Free, brute_place, verify

LEAVES = {f"leaf-{x}": tuple(f"{x}{i}" for i in range(6)) for x in "abcd"}
ALL = tuple(node for nodes in LEAVES.values() for node in nodes)
FOREST = Forest.of(
    Topology(
        1,
        (
            *(hypernode(name, nodes, parent="pod") for name, nodes in LEAVES.items()),
            hypernode("pod", ALL, tier=2, children=tuple(LEAVES)),
        ),
    )
)


def room(**free: int) -> Capacity:
    """So many nodes of each leaf are free, for one worker each."""
    return worker_capacity(FOREST, {f"{x}{i}": 1 for x, n in free.items() for i in range(n)})


def split(capacity: Capacity, *parts: Group | Workers, even: int = 1, **more: object) -> dict[str, int] | str:
    request = Request(Group(1, parts, even=even), **more)  # type: ignore[arg-type]
    answer = place(capacity, request)
    if isinstance(answer, Refusal):
        return answer.reason
    assert answer.exact
    assert not verify(capacity, request, answer)
    return dict(sorted(Counter(node[0] for node in answer.nodes).items()))


@pytest.mark.parametrize(
    ("free", "parts", "found"),
    [
        ({"a": 6, "b": 6}, (Workers(6),), {"a": 6}),
        ({"a": 6, "b": 6}, (Workers(8),), {"a": 4, "b": 4}),  # not 6 and 2
        ({"a": 6, "b": 5}, (Workers(9),), {"a": 5, "b": 4}),
        ({"a": 6, "b": 2, "c": 2, "d": 2}, (Workers(8),), {"a": 2, "b": 2, "c": 2, "d": 2}),
        ({"a": 6, "b": 3, "c": 3}, (Workers(9),), {"a": 3, "b": 3, "c": 3}),
        ({"a": 6, "b": 3, "c": 6}, (Workers(10),), {"a": 5, "c": 5}),
        ({"a": 6, "b": 5, "c": 4}, (Group(3, (Workers(2),), 1),), {"a": 6}),
        ({"a": 5, "b": 5, "c": 4}, (Group(3, (Workers(2),), 1),), {"a": 4, "c": 2}),  # the least is left over
        ({"a": 5, "b": 4, "c": 4}, (Group(6, (Workers(2),), 1),), {"a": 4, "b": 4, "c": 4}),
    ],
)
def test_as_few_and_as_even_as_can_be(
    free: dict[str, int], parts: tuple[Group | Workers, ...], found: dict[str, int]
) -> None:
    assert split(room(**free), *parts) == found


def test_several_kinds_count_together() -> None:
    capacity = Capacity(FOREST, {node: {"cpu": 1, "gpu": 1} for node in ALL if node[1] < "3"})
    assert split(capacity, Workers(2, (("cpu", 1),), "leader"), Workers(4, (("gpu", 1),))) == {"a": 3, "b": 3}
    few = Capacity(FOREST, {node: {"cpu": 1, "gpu": 1} for node in ALL if node[1] < "2"})
    assert split(few, Workers(2, (("cpu", 1),), "leader"), Workers(4, (("gpu", 1),))) == {"a": 3, "b": 3}


@seed_blocks(range(2000, 2045), in_blocks(10, 100))
def test_as_good_as_brute_force(seeds: range) -> None:
    """Gangs that were made for other tests, which are split evenly over nodes or domains instead."""
    over: Counter[int] = Counter()
    for seed in seeds:
        case = random_instance(seed, most_nodes=9, most_workers=9)
        gang = replace(case.request.gang, spread=None, even=seed % min(case.tiers + 1, 3))
        request = replace(case.request, gang=gang)
        try:
            checked(request, case.tiers)
        except RequestError:
            continue
        capacity, forest = case.capacity(), case.forest()
        masks = case.masks(forest)
        best, answer = brute_place(Free(forest, case.free), request, masks), place(capacity, request, masks)
        if isinstance(best, Refusal) or isinstance(answer, Refusal):
            assert isinstance(best, Refusal), (case, request, best)
            assert isinstance(answer, Refusal), (case, request, answer)
            continue
        assert answer.cost == best.cost, (case, request, best, answer)
        assert not verify(capacity, request, answer, masks), (case, request, answer)
        tier = request.gang.even or 0
        over[len({forest.domain_of(tier, np.array([forest.index[n]]))[0] for n in answer.nodes})] += 1
    assert sum(count for domains, count in over.items() if domains > 1) >= 3, over


def test_what_cannot_be_even_is_refused_with_the_remedy() -> None:
    reason = split(room(a=6, b=1), Workers(7))
    assert isinstance(reason, str)
    assert reason.endswith("the gang fits if it is not split evenly over tier 1 (leaf)")


def test_messages_carry_it() -> None:
    request = Request(Group(1, (Workers(2),), even=0))
    message = request_message(request)
    assert request_of(message, FOREST) == request
    message.even = "rack"
    with pytest.raises(RequestError, match="even: no tier 'rack'"):
        request_of(message, FOREST)


@pytest.mark.parametrize(
    ("gang", "words"),
    [
        (Group(1, (Workers(2),), even=3), "gang.even: 3: the hierarchy has tiers 0"),
        (Group(1, (Workers(2),), spread=Spread(1, 0), even=1), "give one of them"),
        (Group(1, (Group(2, (Workers(2),), 1), Workers(1)), even=1), "groups of one size"),
        (
            Group(1, (Group(1, (Workers(4, elastic=Range(1, 4)),), 1), Group(1, (Workers(4),), 1)), even=1),
            "give it to the groups",
        ),
    ],
)
def test_what_cannot_be_meant(gang: Group, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        checked(Request(gang), 2)


def test_the_leaders_of_even_groups_stay_with_their_workers() -> None:
    answer = place(room(a=4, b=4), Request(Group(1, (Group(2, (Workers(4),)),), even=1)))
    assert isinstance(answer, Placement)
    assert answer.cost.widths == (1,)
