"""Nothing is better than what `place` finds: judged by going through all sets of nodes of small clusters."""

import dataclasses
from dataclasses import replace

import numpy as np
import pytest
from hyperscout_placer.cluster.answer import Placement, Refusal
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.request import Group, RequestError, Workers, checked, size
from hyperscout_placer.solve.place import place
from support.examples import in_blocks, seed_blocks, slow_after
from support.placer_chain import chain_cost, random_chain
from support.placer_instances import Instance, random_instance
from support.placer_oracle import Free, brute_place, verify

SEEDS = 400


@seed_blocks(range(50), in_blocks(SEEDS // 50, 50)[1:])
def test_as_good_as_brute_force(seeds: range) -> None:
    for seed in seeds:
        case = random_instance(seed)
        forest = case.forest()
        best = brute_place(Free(forest, case.free), case.request, case.masks(forest))
        check(case, best)


@seed_blocks(range(159, 166), in_blocks(3, 50))
def test_costs_of_several_machine_words(seeds: range) -> None:
    for seed in seeds:
        case = random_instance(seed, huge=True)
        try:
            checked(case.request, case.tiers)
        except RequestError:
            continue  # the gang has groups that are larger than its spread
        forest = case.forest()
        check(case, brute_place(Free(forest, case.free), case.request, case.masks(forest)))


@seed_blocks(range(206, 216), in_blocks(4, 50))
def test_as_good_as_all_counts_of_each_domain(seeds: range) -> None:
    """One kind of workers on more nodes, where domains have nearly as much room as each other: what is left
    out because it cannot be best must not have been."""
    for seed in seeds:
        case = random_chain(seed)
        capacity = case.capacity()
        masks = case.masks(capacity.forest)
        answer, best = place(capacity, case.request, masks), chain_cost(capacity, case.request, masks)
        if isinstance(answer, Refusal):
            assert best is None, (case, best)
            continue
        assert answer.exact, (case, answer)
        assert replace(answer.cost, widths=()) == best, (case, best, answer)
        assert not verify(capacity, case.request, answer, masks), (case, answer)


@pytest.mark.parametrize("seed", slow_after(20, range(100)))
def test_all_counts_are_as_good_as_brute_force(seed: int) -> None:
    case = random_chain(seed, most_nodes=12)
    room = Free(case.forest(), case.free)
    masks = case.masks(room.forest)
    best = brute_place(room, case.request, masks)
    assert chain_cost(room, case.request, masks) == (
        None if isinstance(best, Refusal) else replace(best.cost, widths=())
    ), case


def check(case: Instance, best: Placement | Refusal) -> None:
    """`best`: what an oracle found."""
    capacity = case.capacity()
    masks = case.masks(capacity.forest)
    answer = place(capacity, case.request, masks)
    assert isinstance(answer, Refusal) == isinstance(best, Refusal), (case, best, answer)
    assert answer == place(capacity, case.request, masks), case
    if isinstance(best, Refusal) or isinstance(answer, Refusal):
        assert isinstance(answer, Refusal)
        assert (answer.tier, answer.proven) == (best.tier, True), (case, best, answer)
        return
    assert answer.exact, (case, answer)
    assert answer.cost == best.cost, (case, best, answer)
    assert bool(answer.relaxed) == bool(best.relaxed), (case, best, answer)
    assert not verify(capacity, case.request, answer, masks), (case, answer)


@pytest.mark.parametrize("seed", range(40))
def test_the_forest_is_numbered_as_described(seed: int) -> None:
    case = random_instance(seed)
    ours, theirs = case.forest(), Forest.of(case.topology)
    assert len(ours.layers) == len(theirs.layers)
    for a, b in [(ours, theirs), *zip(ours.layers, theirs.layers, strict=True)]:
        for field in dataclasses.fields(a):
            if field.name != "layers":
                assert np.array_equal(getattr(a, field.name), getattr(b, field.name)), (case, field.name)


def test_cases_are_of_all_kinds() -> None:
    """What is never asked proves nothing."""
    cases = [random_instance(seed) for seed in range(SEEDS)]
    groups = [list(_groups(case.request.gang, 1, 1)) for case in cases]
    found = {
        "several islands": sum(sum(p is None for _, p, _ in case.tree.values()) > 1 for case in cases),
        "four tiers": sum(case.tiers == 4 for case in cases),
        "degraded": sum(bool(case.degraded) for case in cases),
        "down": sum(bool(case.down) for case in cases),
        "down but used": sum(bool(case.down) and case.request.use_down for case in cases),
        "masks": sum(bool(case.allowed) for case in cases),
        "preferred nodes": sum(bool(case.lacking) for case in cases),
        "fragments": sum(case.request.packing == "fragments" for case in cases),
        "avoid": sum(bool(case.request.avoid) for case in cases),
        "several resources": sum(len(next(iter(case.free.values()))) > 1 for case in cases),
        "ten workers": sum(size(case.request.gang) >= 10 for case in cases),
        "groups three deep": sum(any(depth > 3 for _, depth, _ in g) for g in groups),
        "leader": sum("leader" in repr(case.request) for case in cases),
        "several roles in repeated groups": sum(
            any(n > 1 and sum(isinstance(p, Workers) for p in x.parts) > 1 for x, _, n in g) for g in groups
        ),
        "groups on a node": sum(any(x.tier == 0 for x, depth, _ in g if depth > 1) for g in groups),
        "gangs on a node": sum(case.request.gang.tier == 0 for case in cases),
        "spread of the gang": sum(case.request.gang.spread is not None for case in cases),
        "spread of repeated groups": sum(any(n > 1 and x.spread for x, _, n in g) for g in groups),
        "even": sum(case.request.gang.even is not None for case in cases),
        "preferred tier": sum(any(x.preferred is not None for x, _, _ in g) for g in groups),
        "preferred spread": sum(any(x.spread and not x.spread.required for x, _, _ in g) for g in groups),
    }
    assert min(found.values()) >= 8, found


@pytest.mark.slow
def test_answers_are_of_all_kinds() -> None:
    answers = []
    for case in map(random_instance, range(SEEDS)):
        forest = case.forest()
        answers.append(brute_place(Free(forest, case.free), case.request, case.masks(forest)))
    placed = [answer for answer in answers if isinstance(answer, Placement)]
    assert SEEDS / 2 < len(placed) < SEEDS * 0.9
    assert sum(answer.tier is None for answer in placed) >= 5
    assert sum(answer.cost.nodes > 2 for answer in placed) >= 50
    assert sum(bool(answer.relaxed) for answer in placed) >= 5


def _groups(group: Group, depth: int, times: int):  # type: ignore[no-untyped-def]
    """Each with how deep it is, and how often it comes."""
    yield group, depth, times
    for part in group.parts:
        if isinstance(part, Group):
            yield from _groups(part, depth + 1, times * part.count)
