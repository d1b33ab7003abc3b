"""Repair and improvement against going through all ways to move, and against the judge of placements."""

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hyperscout_collector.placer.answer import Cost, Placement, Refusal
from hyperscout_collector.placer.capacity import Capacity
from hyperscout_collector.placer.place import highest, place
from hyperscout_collector.placer.repair import Repair, repair
from hyperscout_collector.placer.request import (
    Group,
    Request,
    Spread,
    Workers,
    ranks,
    size,
    with_preferences,
    without_preferences,
)
from support.placer_facts import Facts
from support.placer_instances import Instance, random_instance
from support.placer_oracle import verify

Tree = dict[str, tuple[int, str | None, tuple[str, ...]]]

WAYS = 40_000  # to move, that a test goes through


def needs(request: Request) -> list[Workers]:
    return list(ranks(request.gang))


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


def in_groups(part: Group, nodes: Sequence[int], domain_of: Sequence[Sequence[int]]) -> bool:
    """Whether all copies of a group are whole in their tier, and spread as they should be."""
    one = len(nodes) // part.count
    for first in range(0, len(nodes), one):
        run = nodes[first : first + one]
        if part.tier is not None and len({domain_of[part.tier][node] for node in run}) > 1:
            return False
        if part.spread is not None:
            counts = Counter(domain_of[part.spread.tier][node] for node in run)
            if max(counts.values()) > part.spread.most:
                return False
        at = 0
        for inner in part.parts:
            if isinstance(inner, Group) and not in_groups(inner, run[at : at + size(inner)], domain_of):
                return False
            at += size(inner)
    return True


class Ways:
    """All ways in which a gang can move off lost nodes."""

    def __init__(
        self,
        case: Instance,
        capacity: Capacity,
        request: Request,
        running: Sequence[str],
        lost: frozenset[str],
    ) -> None:
        given = capacity.copy()
        given.give(running, needs(request))
        self.request = request
        self.facts = Facts(given, replace(request, avoid=request.avoid | lost), case.masks(capacity.forest))
        self.capacity = capacity
        self.running = [capacity.forest.index[name] for name in running]
        self.leaving = [rank for rank, name in enumerate(running) if name in lost]
        self.staying = [rank for rank, name in enumerate(running) if name not in lost]
        self.needs = [dict(need.resources) for need in needs(request)]
        self.kinds = needs(request)

    def fewest(self, gang: Group, most: int, top: int) -> tuple[int, Cost] | None:
        """The fewest moves, and the least cost of so few. `most`: moves."""
        gang = replace(gang, tier=None)
        for extra in range(min(most, len(self.running)) - len(self.leaving) + 1):
            costs = []
            for more in itertools.combinations(self.staying, extra):
                movers = [*self.leaving, *more]
                free = [self.capacity.free_of(name) for name in self.capacity.forest.nodes]
                for rank in more:
                    for name, amount in self.needs[rank].items():
                        free[self.running[rank]][name] = free[self.running[rank]].get(name, 0) + amount
                costs += [
                    self.facts.cost(nodes)
                    for nodes in self._placed(movers, free, list(self.running))
                    if in_groups(gang, nodes, self.facts.domain_of) and self.facts.top_of(nodes) <= top
                ]
            if costs:
                return len(self.leaving) + extra, min(costs)
        return None

    def _placed(self, movers: list[int], free: list[dict[str, int]], nodes: list[int]) -> Iterator[list[int]]:
        if not movers:
            yield nodes
            return
        rank, *rest = movers
        kind = next(k for k in self.facts.kinds if k == self.kinds[rank])
        for node, ok in enumerate(self.facts.usable[kind]):
            if ok and all(free[node].get(name, 0) >= n for name, n in self.needs[rank].items()):
                for name, n in self.needs[rank].items():
                    free[node][name] = free[node].get(name, 0) - n
                nodes[rank] = node
                yield from self._placed(rest, free, nodes)
                nodes[rank] = self.running[rank]
                for name, n in self.needs[rank].items():
                    free[node][name] += n


def gang_in_trouble(seed: int) -> tuple[Instance, Capacity, tuple[str, ...], frozenset[str]] | None:
    """A gang that was placed when less or other things were free, and some nodes that fail."""
    rng = random.Random(seed)
    case = random_instance(seed, most_nodes=8, most_workers=rng.choice((3, 4, 5, 6)))
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
    must, wish = without_preferences(request.gang), with_preferences(request.gang)
    best = ways.fewest(must, len(running), highest(capacity.forest, request))
    if best is None:
        assert isinstance(found, Refusal)
        return 0, len(ways.leaving)
    assert isinstance(found, Repair)
    nicer = ways.fewest(wish, best[0], best[1].top) if wish != must else None
    assert bool(found.placement.relaxed) == (wish != must and nicer is None)
    assert found.placement.exact
    assert (len(found.moves), found.placement.cost) == (nicer or best)
    without = replace(request, avoid=request.avoid | lost)
    assert not wrong(case, capacity, without, running, found.placement)
    moved = {move.rank: (move.source, move.target) for move in found.moves}
    for rank, (old, new) in enumerate(zip(running, found.placement.nodes, strict=True)):
        assert moved.get(rank, (old, old)) == (old, new)
    return len(found.moves), len(ways.leaving)


@pytest.mark.parametrize("block", range(5))
def test_no_way_to_move_is_better(block: int) -> None:
    checked = 0
    for seed in range(block * 120, block * 120 + 120):
        trouble = gang_in_trouble(seed)
        if trouble is not None and len(trouble[0].free) ** len(trouble[2]) <= WAYS:
            as_counted(*trouble)
            checked += 1
    assert checked >= 60


@pytest.mark.parametrize("block", range(5))
def test_no_fewer_others_have_to_give_way(block: int) -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(block * 60, block * 60 + 60):
        moves, must = as_counted(*tight_gang(seed))
        outcomes["refused" if not moves else "others" if moves > must else "only those"] += 1
    assert all(outcomes[x] for x in ("refused", "others", "only those")), outcomes
