"""Elastic gangs: how many of each part are placed, and how a gang grows and shrinks in place."""

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hyperscout_placer.cluster.answer import Cost, Placement, Refusal
from hyperscout_placer.cluster.capacity import Capacity
from hyperscout_placer.cluster.request import (
    Group,
    Range,
    Request,
    RequestError,
    Spread,
    Workers,
    ranks,
    size,
    with_preferences,
    without_preferences,
)
from hyperscout_placer.repair.resize import Resized, resize
from hyperscout_placer.solve import elastic as elastic_module
from hyperscout_placer.solve import place as place_module
from hyperscout_placer.solve.elastic import (
    Counts,
    at_least,
    carried,
    counts_for,
    counts_of,
    elastic_parts,
    place_elastic,
    with_counts,
)
from hyperscout_placer.solve.place import highest
from hyperscout_placer.solve.tables import Work
from support.builders import worker_capacity
from support.examples import in_blocks, seed_blocks
from support.placer_instances import Instance, elastic_instance
from support.placer_oracle import Free, brute_place, verify
from support.placer_ways import WAYS, Ways, first_lines

TREE = {
    **{x: (1, f"pod-{1 + i // 2}", tuple(f"{x}{j}" for j in range(4))) for i, x in enumerate("abcd")},
    "pod-1": (2, None, ()),
    "pod-2": (2, None, ()),
}
FOREST = Instance(0, TREE, {}, Request(Group(1, (Workers(1),)))).forest()


def room(**free: int) -> Capacity:
    """So many nodes of each leaf are free, for one worker each."""
    return worker_capacity(FOREST, {f"{x}{i}": 1 for x, n in free.items() for i in range(n)})


def workers(least: int, most: int, role: str = "worker") -> Workers:
    return Workers(most, role=role, elastic=Range(least, most))


def groups(least: int, most: int, *parts: Group | Workers, tier: int = 1) -> Group:
    return Group(most, parts, tier, elastic=Range(least, most))


def gang(*parts: Group | Workers, tier: int | None = None, **more: object) -> Request:
    return Request(Group(1, parts, tier, **more))  # type: ignore[arg-type]


# --- placing ------------------------------------------------------------------------------------------------

FLEXIBLE = (workers(1, 4, "server"), workers(2, 8))


@pytest.mark.parametrize(
    ("request_", "free", "counts"),
    [
        (gang(workers(2, 8)), {"a": 4, "b": 4}, (8,)),
        (gang(workers(2, 8)), {"a": 4, "b": 1}, (5,)),
        (gang(workers(2, 8), tier=1), {"a": 3, "b": 4}, (4,)),  # the number comes first, then the place
        (gang(workers(2, 8), tier=2), {"a": 3, "b": 2, "c": 4}, (5,)),
        (gang(workers(2, 8), spread=Spread(2, 1)), {"a": 4, "b": 1}, (3,)),
        (gang(workers(2, 7), even=1), {"a": 4, "b": 1}, (4,)),
        (gang(groups(1, 3, Workers(2))), {"a": 3, "b": 3}, (2,)),
        (gang(groups(1, 3, Workers(1, role="leader"), workers(1, 3))), {"a": 4, "b": 2, "c": 4}, (3, 1)),
        (gang(*FLEXIBLE), {"a": 4, "b": 3}, (4, 3)),  # the first part first
        (gang(*FLEXIBLE), {"a": 4, "b": 1}, (3, 2)),
        (gang(Workers(2, role="leader"), workers(1, 4)), {"a": 3}, (1,)),
    ],
)
def test_as_many_as_fit(request_: Request, free: dict[str, int], counts: tuple[int, ...]) -> None:
    answer = place_elastic(room(**free), request_)
    assert isinstance(answer, Placement)
    assert (answer.counts, answer.exact) == (counts, True)
    assert not verify(room(**free), with_counts(request_, counts), answer)


def test_less_than_the_minimum_is_refused_with_the_reason() -> None:
    answer = place_elastic(room(a=4, b=2), gang(workers(7, 8), tier=2))
    assert isinstance(answer, Refusal)
    assert answer.reason.startswith("the minimum of 7 workers does not fit: ")
    assert "all nodes together fit 6 now" in answer.reason


@pytest.mark.parametrize("least", [1, 9])
def test_all_steps_have_one_limit(least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left of it for tables. Greedy searches count their trials together, too."""
    works: list[Work] = []
    for module in (elastic_module, place_module):
        monkeypatch.setattr(module, "Work", lambda: works.append(Work(0)) or works[-1])
    answer = place_elastic(room(a=4, b=3), gang(workers(1, 4, "server"), workers(least, 12)))
    assert isinstance(answer, Placement if least == 1 else Refusal)
    assert len(works) == 1
    assert works[0].looks > 0 or least == 9  # no domain has so many nodes


def test_what_is_impossible_is_refused_without_another_reason() -> None:
    request = replace(gang(workers(2, 8)), impossible="there is no tier rack")
    answer = place_elastic(room(a=4), request)
    assert answer == Refusal(2, "there is no tier rack")


@seed_blocks(range(2000, 2060), in_blocks(10, 100))
def test_as_many_as_brute_force(seeds: range) -> None:
    seen: Counter[str] = Counter()
    for seed in seeds:
        case = elastic_instance(seed)
        if case is None:
            continue
        capacity, forest, request = case.capacity(), case.forest(), case.request
        masks = case.masks(forest)
        answer = place_elastic(capacity, request, masks)
        ranges = (range(limits.most, limits.least - 1, -1) for _, limits in elastic_parts(request.gang))
        best = next(
            (
                (counts, found)
                for counts in itertools.product(*ranges)
                for found in [brute_place(Free(forest, case.free), with_counts(request, counts), masks)]
                if isinstance(found, Placement)
            ),
            None,
        )
        if best is None:
            assert isinstance(answer, Refusal), (seed, answer)
            seen["refused"] += 1
            continue
        assert isinstance(answer, Placement), (seed, best)
        assert (answer.counts, answer.cost) == (best[0], best[1].cost), seed
        assert not verify(capacity, with_counts(request, answer.counts), answer, masks)
        seen["some" if answer.counts != counts_of(request) else "all"] += 1
    assert all(seen[x] >= 2 for x in ("refused", "some", "all")), seen


# --- growing and shrinking ----------------------------------------------------------------------------------


def resized(
    request: Request, running: str, counts: tuple[int, ...], free: str
) -> tuple[tuple[str, ...], tuple[int, ...]] | str:
    names = running.split()
    amounts = Counter(names) + Counter(free.split())
    capacity = worker_capacity(FOREST, dict(amounts))
    capacity.take(names, list(ranks(request.gang)))
    found = resize(capacity, request, names, counts, {})
    if isinstance(found, Refusal):
        return found.reason
    assert len(found.placement.nodes) == size(found.request.gang)
    return found.placement.nodes, counts_of(found.request)


def at(request: Request, *counts: int) -> Request:
    return with_counts(request, counts)


PAIRS = gang(groups(1, 4, Workers(2)), tier=2)


def test_a_rank_on_a_node_that_is_gone_is_released() -> None:
    request, names = gang(workers(1, 3)), ["a0", "a1", "gone"]
    capacity = worker_capacity(FOREST, {"a0": 1, "a1": 1})
    capacity.take(names[:2], list(ranks(request.gang))[:2])
    found = resize(capacity, request, names, (2,), {})
    assert isinstance(found, Resized)
    assert found.placement.nodes == ("a0", "a1")
    with pytest.raises(RequestError, match="node gone of the gang is not in the topology: repair"):
        resize(capacity, request, ["gone", "a0", "a1"], (2,), {})


@pytest.mark.parametrize(
    ("request_", "running", "counts", "free", "nodes", "now"),
    [
        # Into its leaf, then into its pod, and no rank moves to where all would be together.
        (at(gang(workers(1, 8)), 2), "a0 a1", (3,), "c0 c1 c2 c3 a3 b0", "a0 a1 a3", (3,)),
        (at(gang(workers(1, 8)), 2), "a0 a1", (3,), "c0 c1 c2 c3 b0", "a0 a1 b0", (3,)),
        (at(gang(workers(1, 8), tier=2), 2), "a0 a1", (6,), "c0 c1 c2 c3 b0 b1", "a0 a1 b0 b1", (4,)),
        (at(PAIRS, 1), "a0 a1", (2,), "a2 b0 b1 c0 c1", "a0 a1 b0 b1", (2,)),
        (at(PAIRS, 1), "a0 a1", (3,), "a2 b0 b1 c0 c1", "a0 a1 b0 b1", (2,)),
        (at(gang(workers(1, 4), spread=Spread(2, 1)), 2), "a0 a1", (4,), "a2 a3 b0 c0", "a0 a1 b0", (3,)),
        # The last copies of a part go; those of a later part stay on their nodes.
        (gang(workers(1, 3)), "c0 a0 b0", (2,), "", "c0 a0", (2,)),
        (gang(workers(1, 3, "x"), Workers(1)), "c0 a0 b0 d0", (1,), "", "c0 d0", (1,)),
        (at(gang(workers(1, 3, "x"), Workers(1)), 1), "a0 a1", (2,), "a2", "a0 a2 a1", (2,)),
        (at(gang(workers(1, 3, "x"), workers(1, 3)), 1, 3), "a0 a1 a2 a3", (2, 2), "", "a0 a3 a1 a2", (2, 2)),
    ],
)
def test_no_rank_that_stays_moves(
    request_: Request,
    running: str,
    counts: tuple[int, ...],
    free: str,
    nodes: str,
    now: tuple[int, ...],
) -> None:
    assert resized(request_, running, counts, free) == (tuple(nodes.split()), now)


def test_a_gang_that_cannot_be_resized_says_why() -> None:
    two = at(gang(workers(1, 4)), 2)
    for names, words in (
        ("a0", "running: 1 nodes for 2 workers"),
        ("a0 gone", "node gone of the gang is not"),
    ):
        with pytest.raises(RequestError, match=words):
            resize(room(a=4), two, names.split(), (3,), {})
    with pytest.raises(RequestError, match=r"gang.parts\[0\].min_count: 1: expected 1 to 4"):
        resize(room(a=4), two, ["a0", "a1"], (5,), {})


def test_what_cannot_grow_says_where_it_has_to_be() -> None:
    one_leaf = at(gang(workers(1, 4), tier=1), 2)
    reason = "no place for one more worker beside 2 running workers: the gang must stay in a, which has no "
    reason += (
        "place: tier 1 (nvlink) is its highest tier allowed; to use other nodes, place the gang anew with a "
    )
    reason += "higher one"
    assert resized(one_leaf, "a0 a1", (4,), "b0 b1") == reason


def test_a_gang_that_gets_only_some_says_how_many_and_why() -> None:
    request = at(gang(workers(1, 8), tier=2), 2)
    capacity = room(a=4, b=1)
    capacity.take(["a0", "a1"], list(ranks(request.gang)))
    found = resize(capacity, request, ["a0", "a1"], (8,), {})
    assert isinstance(found, Resized)
    assert found.lacking == (
        "5 of 8 workers have a place: no place for one more worker beside 2 running workers: the gang must "
        "stay in pod-1, which has no place: tier 2 (leaf) is its highest tier allowed"
    )
    fewer = resize(capacity, request, ["a0", "a1"], (1,), {})
    assert isinstance(fewer, Resized)
    assert fewer.lacking == ""
    assert (fewer.placement.exact, fewer.placement.bound) == (False, None)  # no rank was placed


@seed_blocks(range(40), in_blocks(5, 120))
def test_no_more_and_no_cheaper_ranks_fit(seeds: range) -> None:
    """Against all ways to add ranks."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        case = elastic_instance(seed)
        if case is None or case.request.gang.even is not None or size(case.request.gang) > 6:
            continue
        capacity, forest = case.capacity(), case.forest()
        masks = case.masks(forest)
        least = at_least(case.request)
        answer = place_elastic(capacity, least, masks)
        if isinstance(answer, Refusal):
            continue
        capacity.take(answer.nodes, list(ranks(least.gang)))
        goal = counts_of(case.request)
        if len(case.free) ** (size(case.request.gang) - size(least.gang)) > WAYS:
            continue
        found = resize(capacity, least, answer.nodes, goal, masks)
        best = next((x for x in grown(case, capacity, least, answer.nodes, goal) if x is not None), None)
        if best is None:
            assert isinstance(found, Refusal), (seed, found)
            seen["refused"] += 1
            continue
        assert isinstance(found, Resized), (seed, best)
        assert counts_of(found.request) == best[0], seed
        # As a repair, it looks neither for preferred nodes nor for fragments.
        in_order = not case.lacking and case.request.packing == "compact"
        assert found.placement.exact == in_order, seed
        assert not in_order or first_lines(found.placement.cost) == first_lines(best[1]), seed
        seen["some" if counts_of(found.request) != goal else "all"] += 1
        kept = carried(least.gang, found.request.gang)
        stay = {new: answer.nodes[old] for new, old in enumerate(kept) if old is not None}
        assert {rank: found.placement.nodes[rank] for rank in stay} == stay
        # And back again: the same ranks are released.
        capacity.take(
            [node for node, old in zip(found.placement.nodes, kept, strict=True) if old is None],
            [need for need, old in zip(ranks(found.request.gang), kept, strict=True) if old is None],
        )
        back = resize(capacity, found.request, found.placement.nodes, counts_of(least), masks)
        assert isinstance(back, Resized)
        assert back.placement.nodes == answer.nodes
        assert replace(back.placement.cost, widths=()) == replace(answer.cost, widths=()), seed
    assert all(seen[x] for x in ("refused", "some", "all")), seen


def grown(
    case: Instance, capacity: Capacity, least: Request, running: tuple[str, ...], goal: tuple[int, ...]
) -> Iterator[tuple[Counts, Cost] | None]:
    """The numbers of the parts with the least cost, the best first; None where a number does not fit."""
    lower, top = counts_of(least), highest(capacity.forest, least)
    for counts in itertools.product(*(range(b, a - 1, -1) for a, b in zip(lower, goal, strict=True))):
        if counts == lower:
            continue
        wanted = with_counts(least, counts)
        before = ["" if old is None else running[old] for old in carried(least.gang, wanted.gang)]
        ways = Ways(case, capacity, wanted, before, frozenset({""}))
        must, preferred = without_preferences(wanted.gang), with_preferences(wanted.gang)
        best = ways.fewest(must, len(ways.leaving), top)
        if best is None:
            yield None
            continue
        nicer = None if preferred is None else ways.fewest(preferred, best[0], best[1].top)
        yield counts, (nicer or best)[1]


# --- numbers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "number", "counts"),
    [
        (at(gang(workers(2, 8)), 4), 8, (8,)),
        (at(gang(workers(2, 8)), 4), 2, (2,)),
        (at(gang(*FLEXIBLE), 2, 4), 7, (3, 4)),
        (at(gang(*FLEXIBLE), 2, 4), 9, (4, 5)),
        (at(gang(*FLEXIBLE), 2, 4), 4, (2, 2)),
        (at(gang(*FLEXIBLE), 2, 4), 3, (1, 2)),
        (at(gang(groups(1, 3, Workers(2)), workers(1, 3)), 2, 1), 8, (3, 2)),
        (gang(workers(2, 8)), 1, "workers: 1: expected 2 to 8"),
        (gang(workers(2, 8)), 9, "workers: 9: expected 2 to 8"),
        (gang(Workers(4)), 3, "workers: 3: the gang has 4 workers, and its request gives no minimum"),
        (
            at(PAIRS, 1),
            5,
            "workers: 5: groups stay whole, and all copies of a group change together: expected 4 or",
        ),
    ],
)
def test_which_parts_grow_and_shrink(request_: Request, number: int, counts: tuple[int, ...] | str) -> None:
    if isinstance(counts, str):
        with pytest.raises(RequestError, match=counts):
            counts_for(request_, number)
    else:
        assert counts_for(request_, number) == counts


def test_a_minimum_above_the_count_is_refused() -> None:
    with pytest.raises(RequestError, match=r"gang.parts\[0\].min_count: 9: expected 1 to 8"):
        place_elastic(room(a=4), gang(workers(9, 8)))
