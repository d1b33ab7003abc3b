"""Repair and improvement against going through all ways to move, and against the judge of placements."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hyperscout_placer.cluster.answer import Cost, Placement, Refusal
from hyperscout_placer.cluster.capacity import Capacity, Mask
from hyperscout_placer.cluster.request import (
    Group,
    Request,
    RequestError,
    Spread,
    Workers,
    with_preferences,
    without_preferences,
)
from hyperscout_placer.repair import moving
from hyperscout_placer.repair.rank_exchange import kept
from hyperscout_placer.repair.repair import Repair, improvement, repair
from hyperscout_placer.solve.place import highest, place
from support.examples import in_blocks, seed_blocks
from support.placer_facts import Facts
from support.placer_instances import Instance, random_instance
from support.placer_oracle import verify
from support.placer_ways import WAYS, Ways, first_lines, needs

Tree = dict[str, tuple[int, str | None, tuple[str, ...]]]


def wrong(
    case: Instance, capacity: Capacity, request: Request, running: Sequence[str], placement: Placement
) -> list[str]:
    """What the judge has against it, but for the order of ranks: those that stay keep their numbers.
    `capacity`: with the gang on it as it was."""
    capacity = capacity.copy()
    capacity.give(running, needs(request))
    found = verify(capacity, request, placement, case.masks(capacity.forest))
    return [text for text in found if "do not follow the tree" not in text]


# --- all ways to move ---------------------------------------------------------------------------------------


def gang_in_trouble(seed: int) -> tuple[Instance, Capacity, tuple[str, ...], frozenset[str]] | None:
    """A gang that was placed when less or other things were free, and some nodes that fail.

    No even split: repairs and improvements do not keep it.
    """
    rng = random.Random(seed)
    case = random_instance(seed, most_nodes=8, most_workers=rng.choice((3, 4, 5, 6)))
    case = replace(case, request=replace(case.request, gang=replace(case.request.gang, even=None)))
    capacity = case.capacity()
    masks = case.masks(capacity.forest)
    nodes = capacity.forest.nodes
    then = replace(case.request, avoid=case.request.avoid | {n for n in nodes if rng.random() < 0.3})
    answer = place(capacity, then, masks)
    if isinstance(answer, Refusal):
        answer = place(capacity, case.request, masks)
    if isinstance(answer, Refusal):
        return None
    capacity.take(answer.nodes, needs(case.request))
    for name in nodes:  # others came and went meanwhile
        if rng.random() < 0.3:
            free = capacity.free_of(name)
            capacity.set_free(name, {r: rng.randint(0, n + 1) for r, n in free.items()})
    used = sorted(set(answer.nodes))
    lost = rng.sample(used, min(len(used), rng.choice((1, 1, 1, 2))))
    return case, capacity, answer.nodes, frozenset(lost)


def tight_gang(seed: int) -> tuple[Instance, Capacity, tuple[str, ...], frozenset[str]]:
    """Groups that are bound to leaves, beside workers that are not, where little is free: some others of the
    gang may have to give way."""
    rng = random.Random(seed)
    leaves = rng.choice((2, 3, 3, 4))
    tree: Tree = {"pod-1": (2, None, ()), "pod-2": (2, None, ())}
    for i in range(leaves):
        nodes = tuple(f"n{i}{j}" for j in range(rng.choice((2, 3))))
        tree[f"leaf-{i}"] = (1, "pod-1" if i < 2 else "pod-2", nodes)
    if leaves == 2:
        del tree["pod-2"]
    spread = Spread(1, 0, rng.random() < 0.5) if rng.random() < 0.3 else None
    bound = Group(rng.choice((1, 2)), (Workers(rng.choice((1, 2))),), tier=1, spread=spread)
    parts: list[Group | Workers] = [bound, Workers(rng.choice((1, 2)))]
    if rng.random() < 0.3:
        parts = [Group(1, tuple(parts), tier=rng.choice((None, 2))), Workers(1)]
    rng.shuffle(parts)
    nodes = tuple(node for _, _, inside in tree.values() for node in inside)
    free = {node: {"workers": rng.choice((1, 1, 2))} for node in nodes}
    gang = Group(1, tuple(parts))
    case = Instance(seed, tree, free, Request(gang, rng.choice(("hard", "soft"))))
    capacity = case.capacity()
    then = replace(case.request, avoid=frozenset(rng.sample(nodes, rng.choice((0, 1, 2)))))
    answer = place(capacity, then)
    if isinstance(answer, Refusal):
        return tight_gang(seed + 1_000_000)
    capacity.take(answer.nodes, needs(case.request))
    for node in nodes:
        capacity.set_free(node, {"workers": int(rng.random() < 0.25)})
    return case, capacity, answer.nodes, frozenset((rng.choice(answer.nodes),))


def as_counted(
    case: Instance, capacity: Capacity, running: tuple[str, ...], lost: frozenset[str]
) -> tuple[int, int]:
    """Repairs, and holds it against all ways. Returns the moves (0 = there is no way), and how many must."""
    request = case.request
    found = repair(capacity, request, running, lost, case.masks(capacity.forest))
    ways = Ways(case, capacity, request, running, lost)
    must, preferred = without_preferences(request.gang), with_preferences(request.gang)
    best = ways.fewest(must, len(running), highest(capacity.forest, request))
    if best is None:
        assert isinstance(found, Refusal)
        return 0, len(ways.leaving)
    assert isinstance(found, Repair)
    nicer = None
    if preferred is not None and preferred != must:
        nicer = ways.fewest(preferred, best[0], best[1].top)
    assert bool(found.placement.relaxed) == (preferred != must and nicer is None)
    # It looks neither for preferred nodes nor for fragments.
    in_order = not case.lacking and request.packing == "compact"
    assert found.placement.exact == in_order
    moves, cost = nicer or best
    assert len(found.moves) == moves
    assert not in_order or first_lines(found.placement.cost) == first_lines(cost)
    without = replace(request, avoid=request.avoid | lost)
    assert not wrong(case, capacity, without, running, found.placement)
    moved = {move.rank: (move.source, move.target) for move in found.moves}
    for rank, (old, new) in enumerate(zip(running, found.placement.nodes, strict=True)):
        assert moved.get(rank, (old, old)) == (old, new)
    return len(found.moves), len(ways.leaving)


@seed_blocks(range(600, 616), in_blocks(5, 120))
def test_no_way_to_move_is_better(seeds: range) -> None:
    checked = 0
    for seed in seeds:
        trouble = gang_in_trouble(seed)
        if trouble is not None and len(trouble[0].free) ** len(trouble[2]) <= WAYS:
            as_counted(*trouble)
            checked += 1
    assert checked >= len(seeds) / 2


@seed_blocks(range(308, 314), in_blocks(5, 60))
def test_no_fewer_others_have_to_give_way(seeds: range) -> None:
    outcomes: Counter[str] = Counter()
    for seed in seeds:
        moves, must = as_counted(*tight_gang(seed))
        outcomes["refused" if not moves else "others" if moves > must else "only those"] += 1
    assert all(outcomes[x] for x in ("refused", "others", "only those")), outcomes


# --- cases that a person can check --------------------------------------------------------------------------

# Two pods of two leaves of four nodes.
LEAVES: Tree = {x: (1, f"pod-{1 + i // 2}", tuple(f"{x}{j}" for j in range(4))) for i, x in enumerate("abcd")}
PODS: Tree = {**LEAVES, "pod-1": (2, None, ()), "pod-2": (2, None, ())}
PAIRS = Group(1, (Group(2, (Workers(2),), tier=1),), tier=2)


def cluster(
    free: Mapping[str, int],
    running: Sequence[str],
    request: Request,
    *,
    degraded: Mapping[str, int] | None = None,
    down: frozenset[str] = frozenset(),
) -> Capacity:
    """`free`: workers beside the gang."""
    amounts = Counter(running) + Counter(free)
    case = Instance(0, PODS, {n: {"workers": m} for n, m in amounts.items()}, request, degraded or {}, down)
    capacity = case.capacity()
    capacity.take(running, needs(request))
    return capacity


REPAIRS = {
    # what: (request, running, lost, free, moves, kept tier)
    "next to its group": (Request(PAIRS), "a0 a1 b0 b1", "b1", "a2 b3 c0", {3: "b3"}, True),
    "its group goes with it": (Request(PAIRS), "a0 a1 b0 b1", "b1", "a2 a3 c0", {2: "a2", 3: "a3"}, True),
    "to another pod as a whole": (
        Request(PAIRS),
        "a0 a1 b0 b1",
        "b1",
        "a2 c0 c1 d0 d1 d2",
        {0: "c0", 1: "c1", 2: "d0", 3: "d1"},
        True,
    ),
    "soft goes higher": (
        Request(PAIRS, "soft"),
        "a0 a1 b0 b1",
        "b1",
        "a2 c0 c1 d0",
        {2: "c0", 3: "c1"},
        False,
    ),
    "a neighbour that may leaves": (
        Request(Group(1, (Group(1, (Workers(2),), tier=1), Workers(1)))),
        "a0 a1 a2",
        "a1",
        "b0",
        {1: "a2", 2: "b0"},
        False,
    ),
    "no rank is lost": (Request(PAIRS), "a0 a1 b0 b1", "c0", "a2", {}, True),
    "two on one node": (Request(PAIRS), "a0 a0 b0 b1", "a0", "a1 a1 a2 a3", {0: "a1", 1: "a1"}, True),
    "a whole group was lost": (
        Request(PAIRS),
        "a0 a1 b0 b1",
        "b0 b1",
        "b2 c0 c1 a2 a3",
        {2: "a2", 3: "a3"},
        True,
    ),
    "a node that is no more": (Request(PAIRS), "a0 a1 b0 gone", "", "b2", {3: "b2"}, True),
    "a group that is apart though none was lost": (
        Request(PAIRS),
        "a0 b0 b1 b2",
        "",
        "a1 b3",
        {0: "b3"},
        True,
    ),
    "more than its spread bears": (
        Request(Group(1, (Workers(3),), tier=1, spread=Spread(1, 0))),
        "a0 a0 a1",
        "",
        "a2 b0",
        {1: "a2"},
        True,
    ),
    "preferences that no single request can require": (
        Request(
            Group(1, (Group(2, (Workers(2),), preferred=1),), tier=2, spread=Spread(1, 0, required=False))
        ),
        "a0 a1 b0 b1",
        "a1",
        "a0",
        {1: "a0"},
        True,
    ),
    "where more of its kind fits": (
        Request(Group(1, (Workers(4),), tier=2)),
        "a0 a0 a1 a1",
        "a1",
        "a2 a3 b0 b0",
        {2: "a2", 3: "a3"},
        True,
    ),
}


@pytest.mark.parametrize("small", [24, 0])
@pytest.mark.parametrize("case", REPAIRS)
def test_a_replacement_is_near(case: str, small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the way of small gangs, and by that of large ones."""
    monkeypatch.setattr(moving, "SMALL_GANG", small)
    request, running, lost, free, moves, kept_tier = REPAIRS[case]
    names = tuple(running.split())
    there = [name for name in names if name != "gone"]
    amounts = Counter(there) + Counter(free.split())
    room = Instance(0, PODS, {n: {"workers": m} for n, m in amounts.items()}, request)
    capacity = room.capacity()
    capacity.take(there, needs(request)[: len(there)])
    found = repair(capacity, request, names, frozenset(lost.split()), {})
    assert isinstance(found, Repair), found
    assert len(found.moves) == len(moves)
    if not small and len(moves) == 1:
        return  # which one of the group moves is a guess
    assert {move.rank: move.target for move in found.moves} == moves
    assert all(names[move.rank] == move.source for move in found.moves)
    assert found.kept_tier is kept_tier
    assert found.placement.exact or not small
    assert found.placement.nodes == tuple(moves.get(rank, name) for rank, name in enumerate(names))


def test_masks_avoid_and_nodes_down_hold_only_for_workers_that_move() -> None:
    request = Request(Group(1, (Workers(2), Workers(1, role="leader")), tier=2), avoid=frozenset(("a1", "c")))
    names = ("a0", "a1", "b0")
    capacity = cluster(Counter(["a2", "a3", "b1", "b2", "c0"]), names, request, down=frozenset(("a2", "b0")))
    allowed = np.array([name != "b1" for name in capacity.forest.nodes], np.bool_)
    masks = {"worker": Mask("not b1", allowed)}
    found = repair(capacity, request, names, frozenset(("a0",)), masks)
    assert isinstance(found, Repair)
    assert [(move.rank, move.target) for move in found.moves] == [(0, "a3")]
    assert min(found.placement.cost.fragmentation) >= 0
    for name in ("a3", "b2"):
        capacity.set_free(name, {})
    other = repair(capacity, replace(request, use_down=True), names, frozenset(("a0",)), masks)
    assert isinstance(other, Repair)
    assert other.moves[0].target == "a2"


def test_a_refusal_says_which_rank_and_where() -> None:
    names = ("a0", "a1", "b0", "b1")
    found = repair(
        cluster({"a2": 1, "c0": 1}, names, Request(PAIRS)), Request(PAIRS), names, frozenset(("b1",)), {}
    )
    assert isinstance(found, Refusal)
    assert found.reason.startswith(
        "no replacement for rank 3 (worker) of b1: its group (ranks 2 to 3) must stay in b, which has no "
        "place: tier 1 (nvlink) is the tier of the group; to use other nodes, place the gang anew with "
        "a higher one"
    )


def test_a_preferred_spread_is_kept_where_that_moves_no_more() -> None:
    spread = Group(1, (Workers(3),), tier=1, spread=Spread(1, 0, required=False))
    names = ("a0", "a1", "a2")
    for free, target, relaxed in (({"a0": 1, "a3": 1}, "a3", False), ({"a0": 1}, "a0", True)):
        found = repair(cluster(free, names, Request(spread)), Request(spread), names, frozenset(("a2",)), {})
        assert isinstance(found, Repair)
        assert [move.target for move in found.moves] == [target]
        assert bool(found.placement.relaxed) is relaxed


def test_a_gang_and_its_nodes_have_to_go_together() -> None:
    with pytest.raises(RequestError, match="running: 3 nodes for 4 workers"):
        repair(cluster({}, ("a0",) * 4, Request(PAIRS)), Request(PAIRS), ("a0",) * 3, frozenset(), {})


FIVE = Request(Group(1, (Workers(4),), tier=2))
IMPROVEMENTS = {
    # what: (running, free, degraded, moves, gain, price)
    "off a degraded link": (
        "a0 a1 b0 b1",
        "b2 d0",
        {"b1": 2},
        {3: "b2"},
        "no degraded link instead of 2",
        "1 of 4 workers move",
    ),
    "off a degraded leaf": (
        "a0 a1 b0 b1",
        "a2 b2 c0 c1 c2 c3 d0 d1 d2 d3",
        {"b": 1, "c": 1},
        {0: "d0", 1: "d1", 2: "d2", 3: "d3"},
        "tier nvlink instead of leaf; no degraded link instead of 1",
        "4 of 4 workers move",
    ),
    "to the others in a lower tier": (
        "a0 a1 a2 b1",
        "a3 c0 c1 c2 c3",
        {},
        {3: "a3"},
        "tier nvlink instead of leaf",
        "1 of 4 workers move",
    ),
    "degraded before fewer domains": (
        "a0 a1 a2 b0",
        "b1 b2",
        {"a1": 1, "a2": 1},
        {1: "b1", 2: "b2"},
        "no degraded link instead of 2",
        "2 of 4 workers move",
    ),
    "a lower tier, though its link is degraded": (
        "a0 a1 b0 b1",
        "b2 b3",
        {"b2": 1},
        {0: "b2", 1: "b3"},
        "tier nvlink instead of leaf",
        "2 of 4 workers move; 1 degraded link instead of 0",
    ),
}


@pytest.mark.parametrize("case", IMPROVEMENTS)
def test_moving_helps(case: str) -> None:
    running, free, degraded, moves, gain, price = IMPROVEMENTS[case]
    names = tuple(running.split())
    capacity = cluster(Counter(free.split()), names, FIVE, degraded=degraded)
    before = {name: capacity.free_of(name) for name in capacity.forest.nodes}
    found = improvement(capacity, FIVE, names, {})
    assert found is not None
    assert {move.rank: move.target for move in found.moves} == moves
    assert (found.gain, found.price) == (gain, price)
    given = capacity.copy()
    given.give(names, needs(FIVE))
    assert found.before == Facts(given, FIVE, {}).cost([capacity.forest.index[name] for name in names])
    assert {name: capacity.free_of(name) for name in capacity.forest.nodes} == before


def test_fewer_nodes_or_less_left_over_are_not_worth_a_move() -> None:
    names = ("a0", "a1", "a2", "a3")
    assert improvement(cluster({"b0": 4}, names, FIVE), FIVE, names, {}) is None
    assert improvement(cluster({}, names, FIVE, degraded={"a": 1}), FIVE, names, {}) is None


@seed_blocks(range(446, 463), in_blocks(4, 100))
def test_what_is_better_is_no_worse_than_placed_anew(seeds: range) -> None:
    better = 0
    for seed in seeds:
        trouble = gang_in_trouble(seed)
        if trouble is None:
            continue
        case, capacity, running, _ = trouble
        request, masks = case.request, case.masks(capacity.forest)
        found = improvement(capacity, request, running, masks)
        anew = capacity.copy()
        anew.give(running, needs(request))
        least = place(anew, request, masks)
        before = Facts(anew, request, masks).cost([capacity.forest.index[name] for name in running])
        assert isinstance(least, Placement)
        if found is None:
            assert worth(least.cost) >= worth(before), seed
            continue
        assert found.before == before
        assert worth(found.placement.cost) < worth(before)
        assert worth(found.placement.cost) <= worth(least.cost)
        assert not wrong(case, capacity, request, running, found.placement), seed
        better += 1
    assert better >= 2


def worth(cost: Cost) -> tuple[int, int, tuple[int, ...]]:
    return cost.top, cost.degraded, cost.domains


# --- larger gangs -------------------------------------------------------------------------------------------


def grown(seed: int) -> tuple[Instance, Capacity, tuple[str, ...], frozenset[str]] | None:
    """Some dozen to some hundred workers on a few hundred nodes, and one to four nodes that fail."""
    rng = random.Random(seed)
    tree: Tree = {f"core-{i}": (3, None, ()) for i in range(2)}
    for i in range(rng.choice((3, 5))):
        tree[f"pod-{i}"] = (2, f"core-{i % 2}", ())
        for j in range(rng.choice((3, 4))):
            tree[f"leaf-{i}-{j}"] = (1, f"pod-{i}", tuple(f"n{i}-{j}-{k}" for k in range(rng.choice((6, 9)))))
    most = rng.choice((1, 2, 4, 8))
    nodes = [node for _, _, inside in tree.values() for node in inside]
    free = {node: {"workers": rng.randint(0, most)} for node in nodes}
    count, times = rng.choice((4, 8)), rng.choice((2, 4))
    inner = Group(times, (Workers(count),), tier=rng.choice((None, 1)))
    spread = Spread(rng.choice((8, 16)), 1, rng.random() < 0.5) if rng.random() < 0.3 else None
    parts = (Workers(1, role="leader"), Group(rng.choice((2, 3)), (inner,), rng.choice((None, 2)), spread))
    links = {name: rng.randint(1, 2) for name in (*nodes, *tree) if rng.random() < 0.1}
    case = Instance(seed, tree, free, Request(Group(1, parts), rng.choice(("hard", "soft"))), links)
    capacity = case.capacity()
    then = replace(case.request, avoid=frozenset(rng.sample(nodes, len(nodes) // 5)))
    answer = place(capacity, then)
    if isinstance(answer, Refusal):
        return None
    capacity.take(answer.nodes, needs(case.request))
    left = rng.choice((0.05, 0.2, 0.5))
    for node in nodes:
        capacity.set_free(node, {"workers": rng.randint(0, most) if rng.random() < left else 0})
    used = sorted(set(answer.nodes))
    return case, capacity, answer.nodes, frozenset(rng.sample(used, min(len(used), rng.choice((1, 2, 4)))))


@seed_blocks(range(66, 69), [range(40)])
def test_large_gangs_are_repaired_as_asked(seeds: range) -> None:
    outcomes: Counter[str] = Counter()
    for seed in seeds:
        trouble = grown(seed)
        if trouble is None:
            continue
        case, capacity, running, lost = trouble
        request = case.request
        found = repair(capacity, request, running, lost, {})
        assert found == repair(case_again(capacity), request, running, lost, {}), "the same again"
        must = {rank for rank, node in enumerate(running) if node in lost}
        if isinstance(found, Refusal):
            anew = capacity.copy()
            anew.give(running, needs(request))
            again = place(anew, replace(request, avoid=request.avoid | lost))
            assert isinstance(again, Refusal), "the last resort is the whole gang elsewhere"
            outcomes["refused"] += 1
            continue
        assert must <= {move.rank for move in found.moves}
        assert not lost & set(found.placement.nodes)
        without = replace(request, avoid=request.avoid | lost)
        assert not wrong(case, capacity, without, running, found.placement), seed
        outcomes["only those" if len(found.moves) == len(must) else "others"] += 1
    assert all(outcomes[x] for x in ("refused", "only those", "others")), outcomes


def case_again(capacity: Capacity) -> Capacity:
    """What is free, with nothing remembered."""
    return Capacity(capacity.forest, {name: capacity.free_of(name) for name in capacity.forest.nodes})


@seed_blocks(range(340, 347), [range(300)])
def test_the_way_of_large_gangs_moves_hardly_more_than_need_be(
    seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small gangs of which others have to give way, taken for large ones."""
    same = more = 0
    for seed in seeds:
        case, capacity, running, lost = tight_gang(seed)
        monkeypatch.setattr(moving, "SMALL_GANG", 24)
        least = repair(capacity, case.request, running, lost, {})
        if isinstance(least, Refusal) or len(least.moves) == sum(node in lost for node in running):
            continue
        monkeypatch.setattr(moving, "SMALL_GANG", 0)
        found = repair(capacity, case.request, running, lost, {})
        assert isinstance(found, Repair)
        without = replace(case.request, avoid=case.request.avoid | lost)
        assert not wrong(case, capacity, without, running, found.placement)
        assert len(found.moves) >= len(least.moves)
        same += len(found.moves) == len(least.moves)
        more += len(found.moves) > len(least.moves)
    assert same >= 9 * more
    assert same > len(seeds) / 40


def test_the_same_under_other_names() -> None:
    """Names decide only between what is equal, so fewest moves and costs stay."""
    for seed in range(40):
        trouble = gang_in_trouble(seed)
        if trouble is None:
            continue
        case, capacity, running, lost = trouble
        rng = random.Random(seed)
        old = [*capacity.forest.nodes, *case.tree]
        new = dict(zip(old, rng.sample([f"x{i}" for i in range(len(old))], len(old)), strict=True))
        other = case.renamed(new)
        room = other.capacity()
        for name in capacity.forest.nodes:
            room.set_free(new[name], capacity.free_of(name))
        found = repair(capacity, case.request, running, lost, case.masks(capacity.forest))
        same = repair(
            room,
            other.request,
            [new[name] for name in running],
            frozenset(new[name] for name in lost),
            other.masks(room.forest),
        )
        assert isinstance(found, Repair) == isinstance(same, Repair)
        if isinstance(found, Repair) and isinstance(same, Repair):
            assert len(found.moves) == len(same.moves)
            assert found.placement.cost == same.placement.cost


# --- where the first guess is not the best ------------------------------------------------------------------

FLAT: Tree = {x: (1, "pod", (f"{x}0", f"{x}1", f"{x}2", f"{x}3")) for x in "abcd"} | {"pod": (2, None, ())}
A = (("cpu", 2000),)
B = (("cpu", 1000), ("nvidia.com/gpu", 1))


def test_nodes_that_are_filled_rather_than_the_largest_first() -> None:
    names = ("a0",) * 4 + ("b0",)
    gang = Request(Group(1, (Workers(5),)))
    found = repair(cluster({"b1": 3, "b2": 2, "b3": 2}, names, gang), gang, names, frozenset(("a0",)), {})
    assert isinstance(found, Repair)
    assert [move.target for move in found.moves] == ["b2", "b2", "b3", "b3"]
    assert found.placement.exact


def test_leaves_that_are_filled_rather_than_the_largest_first() -> None:
    names = ("a0",) * 4 + ("a1",)
    free = {"a0": 4, "a1": 1, "b0": 2, "b1": 1, "c0": 2, "d0": 2}
    gang = Request(Group(1, (Workers(5),)))
    capacity = Instance(0, FLAT, {node: {"workers": n} for node, n in free.items()}, gang).capacity()
    capacity.take(names, needs(gang))
    found = repair(capacity, gang, names, frozenset(("a0",)), {})
    assert isinstance(found, Repair)
    assert [move.target for move in found.moves] == ["c0", "c0", "d0", "d0"]
    assert found.placement.exact


def test_nodes_are_alike_only_where_all_that_is_free_is() -> None:
    """One A or one B fits on each of them, but both only on b2."""
    names = ("a0", "a0", "b0")
    gang = Request(Group(1, (Workers(1, A, "a"), Workers(1, B, "b"), Workers(1, A, "a"))))
    free = {
        "a0": {"cpu": 3000, "nvidia.com/gpu": 1},
        "b0": {"cpu": 2000},
        "b1": {"cpu": 2000, "nvidia.com/gpu": 1},
        "b2": {"cpu": 3000, "nvidia.com/gpu": 1},
    }
    capacity = Instance(0, FLAT, free, gang).capacity()
    capacity.take(names, needs(gang))
    found = repair(capacity, gang, names, frozenset(("a0",)), {})
    assert isinstance(found, Repair)
    assert [move.target for move in found.moves] == ["b2", "b2"]


@pytest.mark.parametrize("how", ["avoided", "down", "masked"])
def test_a_node_that_a_neighbour_leaves_is_not_used_where_it_is_excluded(how: str) -> None:
    names = ("a0", "a1", "a2")
    gang = Request(
        Group(1, (Group(1, (Workers(2),), tier=1), Workers(1))),
        avoid=frozenset(("a2",)) if how == "avoided" else frozenset(),
    )
    down = frozenset(("a2",)) if how == "down" else frozenset[str]()
    capacity = cluster({"b0": 1}, names, gang, down=down)
    allowed = np.array([name != "a2" for name in capacity.forest.nodes], np.bool_)
    masks = {"worker": Mask("not a2", allowed)} if how == "masked" else {}
    assert isinstance(repair(capacity, gang, names, frozenset(("a1",)), {}), Repair) is (how == "masked")
    assert isinstance(repair(capacity, gang, names, frozenset(("a1",)), masks), Refusal)


def test_few_moves_before_fewer_nodes() -> None:
    names = ("a0", "a1", "b0", "b1")
    capacity = cluster({"b2": 1, "c0": 2, "d0": 2}, names, FIVE, degraded={"b1": 1})
    found = improvement(capacity, FIVE, names, {})
    assert found is not None
    assert [(move.rank, move.target) for move in found.moves] == [(3, "b2")]


def test_a_degraded_link_is_worse_than_another_domain() -> None:
    names = ("a0", "a1", "b0", "b1")
    free = {name: {"workers": 1} for name in (*names, "c0")}
    capacity = Instance(0, FLAT, free, FIVE, {"b1": 1}).capacity()
    capacity.take(names, needs(FIVE))
    found = improvement(capacity, FIVE, names, {})
    assert found is not None
    assert found.gain == "no degraded link instead of 1"
    assert found.price == "1 of 4 workers move; 3 nvlink domains instead of 2"


def test_copies_change_places_so_that_many_stay() -> None:
    pairs = Group(1, (Workers(1, role="leader"), Group(3, (Group(1, (Workers(2),)),), tier=1)))
    before, now = (9, 1, 2, 3, 4, 5, 6), (9, 3, 7, 6, 5, 8, 1)
    assert kept(pairs, before, now) == (9, 1, 8, 3, 7, 5, 6)
    assert kept(pairs, before, before) == before
    nowhere = (-1,) * 7
    assert kept(pairs, nowhere, now) == (9, 3, 7, 5, 6, 1, 8)
