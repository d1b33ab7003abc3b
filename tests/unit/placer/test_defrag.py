"""Plans that make room: carried out step by step, held against what a person would do, and against all that
few moves can do."""

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hyperscout_placer.cluster.answer import Placement, Refusal
from hyperscout_placer.cluster.capacity import Capacity
from hyperscout_placer.cluster.numa_zones import in_one_zone, zone_share
from hyperscout_placer.cluster.request import Group, Request, Workers, ranks
from hyperscout_placer.repair.defrag import MovePlan, Running, defragment
from hyperscout_placer.solve.place import place
from support.examples import in_blocks, seed_blocks
from support.placer_facts import Facts
from support.placer_instances import Instance
from support.placer_oracle import verify

Tree = dict[str, tuple[int, str | None, tuple[str, ...]]]

# Two pods of two leaves of four nodes; a node takes one worker.
TREE: Tree = {
    f"leaf-{x}": (1, f"pod-{1 + i // 2}", tuple(f"{x}{j}" for j in range(4))) for i, x in enumerate("abcd")
}
ABSENT = 5  # a tier of gangs that stay: no rule says where they may go
TREE |= {"pod-1": (2, None, ()), "pod-2": (2, None, ())}
CASE = Instance(
    0,
    TREE,
    {n: {"workers": 1} for _, _, nodes in TREE.values() for n in nodes},
    Request(Group(1, (Workers(1),))),
)


def one(count: int, tier: int | None = None) -> Request:
    return Request(Group(1, (Workers(count),), tier=tier))


def running(name: str, *nodes: str, tier: int | None = None, movable: bool = True) -> Running:
    return Running(name, one(len(nodes), tier if movable else ABSENT), nodes)


def can_move(gang: Running) -> bool:
    return gang.request.gang.tier != ABSENT


def with_gangs(gangs: Sequence[Running], case: Instance = CASE) -> Capacity:
    capacity = case.capacity()
    for gang in gangs:
        capacity.take(gang.nodes, list(ranks(gang.request.gang)))
    return capacity


def carried_out(capacity: Capacity, request: Request, gangs: Sequence[Running], plan: MovePlan) -> None:
    """Each step onto what is free by then; all gangs as they have to be; the new one as `place` says."""
    room = capacity.copy()
    by_name = {gang.name: gang for gang in gangs}
    assert plan.moved == sum(len(moves) for _, moves in plan.moves)
    assert len({name for name, _ in plan.moves}) == len(plan.moves)
    for name, moves in plan.moves:
        gang = by_name[name]
        assert can_move(gang)
        assert moves
        needs = list(ranks(gang.request.gang))
        each = [needs[move.rank] for move in moves]
        room.give([move.source for move in moves], each)
        now = list(gang.nodes)
        for move in moves:
            assert now[move.rank] == move.source != move.target
            now[move.rank] = move.target
        room.take([move.target for move in moves], each)  # raises where there is no room
        room.give(now, needs)
        facts = Facts(room, gang.request, {})
        tops = [facts.top_of([room.forest.index[node] for node in nodes]) for nodes in (gang.nodes, now)]
        assert tops[1] <= tops[0], "it ends no higher than it was"
        tier, hypernode = room.forest.holder([room.forest.index[node] for node in now]) or (None, None)
        cost = facts.cost([room.forest.index[node] for node in now])
        found = verify(room, gang.request, Placement(tuple(now), tier, hypernode, cost))
        assert not [text for text in found if "do not follow the tree" not in text]
        room.take(now, needs)
    assert place(room, request) == plan.placement
    assert not verify(room, request, plan.placement)


def test_what_fits_needs_no_plan() -> None:
    capacity = with_gangs([running("a", "a0")])
    plan = defragment(capacity, one(4, 1), [running("a", "a0")], {})
    assert isinstance(plan, MovePlan)
    assert (plan.moves, plan.moved) == ((), 0)
    assert plan.placement == place(capacity, one(4, 1))


def test_a_single_worker_makes_way() -> None:
    gangs = [
        running("big", "a0", "a1", "a2", "a3", tier=1),
        running("pair", "b0", "b1", tier=1),
        running("lone", "c0"),
        running("trio", "d0", "d1", "d2", tier=1),
    ]
    capacity = with_gangs(gangs)
    plan = defragment(capacity, one(4, 1), gangs, {})
    assert isinstance(plan, MovePlan)
    carried_out(capacity, one(4, 1), gangs, plan)
    assert [(name, len(moves)) for name, moves in plan.moves] == [("lone", 1)]
    assert plan.placement.hypernode == "leaf-c"
    assert capacity.free_of("c0") == {}, "nothing was carried out"


def test_a_gang_moves_as_a_whole_where_a_part_would_end_higher() -> None:
    gangs = [
        running("pair", "b0", "b1", tier=1),
        running("fixed-a", "a0", "a1", movable=False),
        running("fixed-c", "c0", "c1", "c2", movable=False),
        running("fixed-d", "d0", "d1", "d2", "d3", movable=False),
    ]
    capacity = with_gangs(gangs)
    plan = defragment(capacity, one(4, 1), gangs, {})
    assert isinstance(plan, MovePlan)
    carried_out(capacity, one(4, 1), gangs, plan)
    assert [(name, [(m.source, m.target) for m in moves]) for name, moves in plan.moves] == [
        ("pair", [("b0", "a2"), ("b1", "a3")])
    ]


def full(*leaves: str) -> list[Running]:
    return [running(f"fixed-{x}", *(f"{x}{i}" for i in range(4)), movable=False) for x in leaves]


def test_no_gang_moves_onto_what_the_new_gang_needs() -> None:
    gangs = [
        running("pair", "a0", "a1", tier=1),
        running("fixed-b", "b0", "b1", movable=False),
        *full("c", "d"),
    ]
    capacity = with_gangs(gangs)
    plan = defragment(capacity, one(4, 1), gangs, {})
    assert isinstance(plan, MovePlan)
    carried_out(capacity, one(4, 1), gangs, plan)
    assert [(m.source, m.target) for _, moves in plan.moves for m in moves] == [("a0", "b2"), ("a1", "b3")]


def test_two_do_not_move_onto_the_same() -> None:
    gangs = [
        running("lone-1", "a0"),
        running("lone-2", "a1"),
        running("fixed-b", "b0", "b1", "b2", movable=False),
        running("fixed-c", "c0", "c1", "c2", movable=False),
        *full("d"),
    ]
    capacity = with_gangs(gangs)
    plan = defragment(capacity, one(4, 1), gangs, {})
    assert isinstance(plan, MovePlan)
    carried_out(capacity, one(4, 1), gangs, plan)
    assert plan.moved == 2


def test_the_plan_with_the_fewest_moves_of_all_domains() -> None:
    """As much is missing in both leaves, but the pair of the first only moves as a whole."""
    gangs = [
        running("pair", "a0", "a1", tier=1),
        running("lone-1", "b0"),
        running("lone-2", "b1"),
        running("fixed-c", "c0", "c1", movable=False),
        *full("d"),
    ]
    capacity = with_gangs(gangs)
    plan = defragment(capacity, one(3, 1), gangs, {})
    assert isinstance(plan, MovePlan)
    carried_out(capacity, one(3, 1), gangs, plan)
    assert (plan.moved, plan.placement.hypernode) == (1, "leaf-b")


def test_of_a_gang_only_those_in_the_way_move() -> None:
    gangs = [
        running("trio", "a0", "a1", "b0", tier=2),
        running("fixed-b", "b1", "b2", movable=False),
        *full("c", "d"),
    ]
    capacity = with_gangs(gangs)
    plan = defragment(capacity, one(3, 1), gangs, {})
    assert isinstance(plan, MovePlan)
    carried_out(capacity, one(3, 1), gangs, plan)
    assert [(m.rank, m.source, m.target) for _, moves in plan.moves for m in moves] == [(0, "a0", "b3")]


def test_workers_that_go_along_count() -> None:
    """One of the pair is in the way, two would have to move."""
    gangs = [
        running("pair", "a0", "a1", tier=1),
        running("fixed-b", "b0", "b1", movable=False),
        *full("c", "d"),
    ]
    capacity = with_gangs(gangs)
    found = defragment(capacity, one(3, 1), gangs, {}, most_moves=1)
    assert isinstance(found, Refusal)
    assert found.reason.endswith("; 2 workers would have to move; the limit is 1")
    assert isinstance(defragment(capacity, one(3, 1), gangs, {}, most_moves=2), MovePlan)


def test_a_gang_of_other_tiers_stays_where_it_is() -> None:
    """Asked for when there was a tier more: no rule says where it may go."""
    old = Running("old", Request(Group(1, (Workers(1),), tier=ABSENT)), ("a0",))
    gangs = [old, running("fixed-b", "b0", movable=False), *full("c", "d")]
    found = defragment(with_gangs(gangs), one(4, 1), gangs, {})
    assert isinstance(found, Refusal)
    assert found.proven


REFUSALS = {
    "what cannot be moved": (
        [running(x, f"{x}0", movable=False) for x in "abcd"],
        64,
        (
            "there is no place even without the movable gangs; closest is leaf-a, where 3 of "
            "4 workers fit now and 3 could; a runs there and cannot be moved"
        ),
        True,
    ),
    "nowhere else to go": (
        [running(x, *(f"{x}{i}" for i in range(3)), tier=1) for x in "abcd"],
        64,
        (
            "no plan was found; closest is leaf-a, where 1 of 4 workers fit now and 4 could; a would have to "
            "leave leaf-a but has no other place in an equally low tier"
        ),
        False,
    ),
    "too many": (
        [running(f"{x}{i}", f"{x}{i}") for x in "abcd" for i in range(2)],
        1,
        (
            "no plan was found; closest is leaf-a, where 2 of 4 workers fit now and 4 could; in leaf-a 2 "
            "workers would have to move; the limit is 1"
        ),
        False,
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal_says_what_stood_in_the_way(case: str) -> None:
    gangs, most_moves, reason, proven = REFUSALS[case]
    found = defragment(with_gangs(gangs), one(4, 1), gangs, {}, most_moves=most_moves)
    assert isinstance(found, Refusal)
    assert found.proven is proven
    assert found.tier == 1
    assert found.reason == reason


# --- random clusters ----------------------------------------------------------------------------------------


def scattered(seed: int) -> tuple[Instance, Capacity, list[Running], Request]:
    """Gangs came and went, and what is free lies about."""
    rng = random.Random(seed)
    tree: Tree = {f"pod-{i}": (2, None, ()) for i in range(2)}
    for i in range(4):
        nodes = tuple(f"n{i}{j}" for j in range(rng.choice((3, 4))))
        tree[f"leaf-{i}"] = (1, f"pod-{i // 2}", nodes)
    nodes = [node for _, _, inside in tree.values() for node in inside]
    most = rng.choice((1, 1, 2))
    case = Instance(seed, tree, {node: {"workers": most} for node in nodes}, CASE.request)
    capacity = case.capacity()
    gangs = []
    for i in range(40):
        count = rng.choice((1, 1, 2, 2, 3))
        bound = Group(rng.choice((1, 2)), (Workers(count),), tier=rng.choice((None, 1, 1)))
        gang = Group(1, (bound,), tier=rng.choice((1, 2, 2)))
        if bound.tier and gang.tier and bound.tier > gang.tier:
            continue
        answer = place(capacity, Request(gang, avoid=frozenset(rng.sample(nodes, 4))))
        if isinstance(answer, Placement):
            capacity.take(answer.nodes, list(ranks(gang)))
            request = Request(gang if rng.random() < 0.9 else replace(gang, tier=ABSENT))
            gangs.append(Running(f"gang-{i}", request, answer.nodes))
    for gang in rng.sample(gangs, len(gangs) // 3):
        capacity.give(gang.nodes, list(ranks(gang.request.gang)))
        gangs.remove(gang)
    groups = Group(
        1, (Group(rng.choice((1, 2)), (Workers(rng.choice((2, 3))),), tier=1),), tier=rng.choice((1, 2, 2))
    )
    wanted = Request(
        rng.choice((groups, Group(1, (Workers(rng.choice((3, 4, 6))),), tier=rng.choice((1, 2)))))
    )
    return case, capacity, gangs, wanted


def by_few_moves(
    case: Instance, capacity: Capacity, gangs: Sequence[Running], request: Request, most: int
) -> int | None:
    """The fewest workers, up to `most`, that have to go elsewhere."""
    movable = [(gang, rank) for gang in gangs if can_move(gang) for rank in range(len(gang.nodes))]
    nodes = list(case.free)
    for count in range(1, most + 1):
        for movers in itertools.combinations(movable, count):
            for targets in itertools.product(nodes, repeat=count):
                room = capacity.copy()
                now = {gang.name: list(gang.nodes) for gang, _ in movers}
                for (gang, rank), target in zip(movers, targets, strict=True):
                    room.give((gang.nodes[rank],), (Workers(1),))
                    now[gang.name][rank] = target
                if any(room.free_of(t).get("workers", 0) < targets.count(t) for t in targets):
                    continue
                room.take(targets, [Workers(1)] * count)
                if all(stays_well(room, gang, now[gang.name]) for gang, _ in movers) and isinstance(
                    place(room, request), Placement
                ):
                    return count
    return None


def stays_well(room: Capacity, gang: Running, now: Sequence[str]) -> bool:
    room = room.copy()
    room.give(now, list(ranks(gang.request.gang)))
    facts = Facts(room, gang.request, {})
    at = [room.forest.index[node] for node in now]
    before = [room.forest.index[node] for node in gang.nodes]
    holder = room.forest.holder(at) or (None, None)
    said = Placement(tuple(now), *holder, facts.cost(at))
    found = [x for x in verify(room, gang.request, said) if "do not follow the tree" not in x]
    return not found and facts.top_of(at) <= facts.top_of(before)


@seed_blocks(range(183, 186), in_blocks(4, 40))
def test_plans_can_be_carried_out(seeds: range) -> None:
    plans = refusals = 0
    for seed in seeds:
        _, capacity, gangs, request = scattered(seed)
        found = defragment(capacity, request, gangs, {}, most_moves=8)
        before = capacity.copy()
        assert found == defragment(capacity, request, list(reversed(gangs)), {}, most_moves=8)
        assert all(capacity.free_of(node) == before.free_of(node) for node in capacity.forest.nodes)
        if isinstance(found, Refusal):
            assert found.reason
            refusals += 1
        elif found.moved:
            assert found.moved <= 8
            carried_out(capacity, request, gangs, found)
            plans += 1
    assert plans >= len(seeds) / 8
    assert refusals >= len(seeds) / 8


@seed_blocks(range(1065, 1067), [range(1000, 1060)])
def test_where_one_move_is_enough_one_it_is(seeds: range) -> None:
    """Against all that one move can do."""
    counted = 0
    for seed in seeds:
        case, capacity, gangs, request = scattered(seed)
        if isinstance(place(capacity, request), Placement):
            continue
        least = by_few_moves(case, capacity, gangs, request, 1)
        found = defragment(capacity, request, gangs, {})
        if least is None:
            assert isinstance(found, Refusal) or found.moved > 1
        else:
            assert isinstance(found, MovePlan)
            assert found.moved == least
            counted += 1
    assert counted >= len(seeds) / 15


def test_a_gang_on_one_node_stays_on_one_node() -> None:
    """Two workers fit on each node. The new gang needs a whole node, which would be free if g1 were split."""
    nodes = {name: {"workers": 2} for name in ("a0", "a1", "a2", "a3")}
    case = Instance(0, {"leaf-a": (1, None, tuple(nodes))}, nodes, one(2))
    gangs = [
        running("g1", "a0", "a0"),
        *(running(f"fixed-{node}", node, movable=False) for node in ("a1", "a2")),
        running("fixed", "a3", "a3", movable=False),
    ]
    capacity = with_gangs(gangs, case)
    assert isinstance(defragment(capacity, one(2, tier=0), gangs, {}), Refusal)
    gangs[2] = running("single", "a2")  # it may move to a1, and then g1 to a2
    assert isinstance(defragment(capacity, one(2, tier=0), gangs, {}), MovePlan)


def test_a_plan_in_numa_zones_is_not_disproved() -> None:
    """One gang of 5 GPUs and one of 3 could share a node, but how the zones would be then is not known."""
    single = in_one_zone((("nvidia.com/gpu", 4),))
    nodes = {name: {"nvidia.com/gpu": 8, zone_share(single) or "": 2} for name in ("a0", "a1")}
    case = Instance(0, {"leaf-a": (1, None, tuple(nodes))}, nodes, one(2))
    gangs = []
    for name, devices in (("a0", 5), ("a1", 3)):
        kind = Workers(1, (("nvidia.com/gpu", devices),))
        gangs.append(Running(f"on-{name}", Request(Group(1, (kind,)), "soft"), (name,)))
    capacity = with_gangs(gangs, case)
    for name, (devices, zones) in {"a0": (3, 0), "a1": (5, 0)}.items():  # what the book counts
        capacity.set_free(name, {"nvidia.com/gpu": devices, zone_share(single) or "": zones})
    found = defragment(capacity, Request(Group(1, (Workers(2, single),))), gangs, {})
    assert isinstance(found, Refusal)
    assert not found.proven
    assert "NUMA zone" in found.reason
