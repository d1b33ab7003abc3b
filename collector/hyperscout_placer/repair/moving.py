"""Finds new nodes for the ranks of a gang that must leave, so that few other ranks have to move.

The first attempt moves only the ranks that must leave. If they have no place, further ranks are set free. For
a small gang all choices are tried, the smallest first. For a large gang the search frees what blocks the rank
that found no node: its groups as a whole, or neighbours that may leave the domain to which it is bound. The
last resort is to move the whole gang.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from hyperscout_placer.cluster.answer import Cost, Placement, Refusal
from hyperscout_placer.cluster.capacity import Capacity, Mask
from hyperscout_placer.cluster.forest import Flags
from hyperscout_placer.cluster.request import (
    Request,
    RequestError,
    bounded,
    checked,
    with_preferences,
    without_preferences,
)
from hyperscout_placer.repair.filling import Filled, Filling, Stuck
from hyperscout_placer.repair.layout import Layout
from hyperscout_placer.repair.rank_exchange import kept
from hyperscout_placer.repair.view import Changes, View, cost_of
from hyperscout_placer.solve.place import highest, place

SMALL_GANG: Final = 24  # workers
SMALL_CHOICES: Final = 512  # sets of further ranks that are tried
_TRIES: Final = 32  # attempts for a larger gang
_NEIGHBOURS: Final = 8  # neighbours that are tried for one blocked rank


@dataclass(frozen=True, slots=True, eq=False)
class Gang:
    """A running gang. `before`: its nodes by rank (-1 = not in the forest).

    `capacity` with `changes` counts these nodes as taken. `barred`: (nodes,) no rank may move there.
    `highest`: the highest tier that may contain the gang.
    """

    capacity: Capacity
    request: Request
    masks: Mapping[str, Mask]
    before: tuple[int, ...]
    barred: Flags
    highest: int
    changes: Changes | None = None

    @classmethod
    def of(
        cls, capacity: Capacity, request: Request, masks: Mapping[str, Mask], nodes: Sequence[str]
    ) -> "Gang":
        forest = capacity.forest
        return cls(
            capacity,
            request,
            masks,
            tuple(forest.index.get(name, -1) for name in nodes),
            forest.barred(request.avoid, request.cluster),
            max(1, highest(forest, request)),
        )

    def view(self) -> View:
        return View(self.capacity, self.request, self.masks, self.barred, self.changes)

    def cost(self, layout: Layout, now: Sequence[int]) -> Cost:
        return cost_of(self.view(), layout, self.before, now)

    def moved(self, now: Sequence[int]) -> int:
        return sum(a != b for a, b in zip(self.before, now, strict=True))


@dataclass(frozen=True, slots=True)
class Moved:
    """`nodes`: by rank. `exact`: no fewer moves are possible, and no choice with as few moves costs less."""

    nodes: tuple[int, ...]
    cost: Cost
    exact: bool
    relaxed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Nowhere:
    """`rank`: the first rank without a node when only the leaving ranks moved.

    `refusal`: of the whole gang.
    """

    rank: int
    refusal: Refusal


def move(gang: Gang, leaving: frozenset[int]) -> Moved | Nowhere:
    """New nodes for the leaving ranks.

    Preferences are met where that takes no more moves and no higher tier.
    """
    return _preferring(gang, leaving, _move)


def add(gang: Gang, new: frozenset[int]) -> Moved | Nowhere:
    """Nodes for the new ranks. No other rank moves. Preferences as in `move`."""
    return _preferring(gang, new, _add)


def _preferring(
    gang: Gang, leaving: frozenset[int], move_them: Callable[[Gang, frozenset[int]], Moved | Nowhere]
) -> Moved | Nowhere:
    must = without_preferences(gang.request.gang)
    found = move_them(replace(gang, request=replace(gang.request, gang=must)), leaving)
    if isinstance(found, Nowhere) or must == gang.request.gang:
        return found
    better: Moved | Nowhere | None = None
    if (preferring := _with_preferences(gang)) is not None:
        better = move_them(
            replace(gang, request=preferring, highest=min(gang.highest, found.cost.top)), leaving
        )
    if isinstance(better, Moved) and gang.moved(better.nodes) <= gang.moved(found.nodes):
        return replace(better, exact=better.exact and found.exact)
    return replace(
        found, relaxed=("not all preferences are kept; more moves or a higher tier may keep them",)
    )


def _with_preferences(gang: Gang) -> Request | None:
    """The request with all preferences made required; None where no request can require all of them."""
    if (all_met := with_preferences(gang.request.gang)) is None:
        return None
    try:
        return checked(replace(gang.request, gang=all_met), gang.capacity.forest.top)
    except RequestError:
        return None


def _add(gang: Gang, new: frozenset[int]) -> Moved | Nowhere:
    layout = Layout.of(gang.request, gang.masks)
    found = _filled(gang, layout, new)
    if isinstance(found, Stuck):
        return Nowhere(found.rank, Refusal(gang.highest, proven=found.proven))
    return _moved(gang, layout, found.nodes, found.exact)


def _move(gang: Gang, leaving: frozenset[int]) -> Moved | Nowhere:
    layout = Layout.of(gang.request, gang.masks)
    if len(leaving) == len(layout):
        return _anew(gang, layout, min(leaving), proven=True)
    first = _filled(gang, layout, leaving)
    if isinstance(first, Filled):
        return _moved(gang, layout, first.nodes, first.exact)
    staying = [rank for rank in range(len(layout)) if rank not in leaving]
    choices = _choices(gang, layout, staying) if len(layout) <= SMALL_GANG else None
    if choices is None:
        found, proven = _widening(gang, layout, leaving, first), False
    else:
        found, proven = _exhaustive(gang, layout, leaving, choices, proven=first.proven)
    return found if found is not None else _anew(gang, layout, first.rank, proven=proven)


def _filled(gang: Gang, layout: Layout, leaving: frozenset[int]) -> Filled | Stuck:
    view = gang.view()
    at = [-1 if rank in leaving else node for rank, node in enumerate(gang.before)]
    for rank in leaving:
        node = gang.before[rank]
        if node >= 0:  # others may use its resources, unless the node is barred
            view.give(node, layout.kinds[layout.kind[rank]])
    found = Filling(view, layout, at, gang.before, gang.highest).run()
    return (
        replace(found, nodes=_in_order(gang, layout, leaving, found.nodes))
        if isinstance(found, Filled)
        else found
    )


def _in_order(gang: Gang, layout: Layout, leaving: frozenset[int], nodes: Sequence[int]) -> tuple[int, ...]:
    """Equal ranks get their nodes in tree order; a rank keeps its old node if it is among them."""
    alike: dict[tuple[int, int], list[int]] = {}
    for rank in sorted(leaving):
        alike.setdefault((layout.copy[rank], layout.kind[rank]), []).append(rank)
    found = list(nodes)
    for ranks in alike.values():
        rest = sorted(nodes[rank] for rank in ranks)
        moving = []
        for rank in ranks:
            if gang.before[rank] in rest:
                rest.remove(gang.before[rank])
                found[rank] = gang.before[rank]
            else:
                moving.append(rank)
        for rank, node in zip(moving, rest, strict=True):
            found[rank] = node
    return tuple(found)


def _moved(gang: Gang, layout: Layout, nodes: tuple[int, ...], exact: bool) -> Moved:
    # `Filling` compares neither preferred nodes nor fragments.
    compact = gang.request.packing == "compact"
    exact = exact and compact and all(mask.lacking is None for mask in gang.masks.values())
    return Moved(nodes, gang.cost(layout, nodes), exact)


# Freeing further ranks


def _choices(gang: Gang, layout: Layout, staying: Sequence[int]) -> list[list[int]] | None:
    """The staying ranks, in lists of equal ranks (any of which may move); None = too many choices."""
    alike: dict[tuple[int, int, int], list[int]] = {}
    for rank in staying:
        alike.setdefault((gang.before[rank], layout.copy[rank], layout.kind[rank]), []).append(rank)
    count = 1
    for ranks in alike.values():
        count *= len(ranks) + 1
    return list(alike.values()) if count <= SMALL_CHOICES else None


def _exhaustive(
    gang: Gang, layout: Layout, leaving: frozenset[int], choices: list[list[int]], *, proven: bool
) -> tuple[Moved | None, bool]:
    """The best move with the fewest further ranks, and whether fewer are proven impossible."""
    for extra in range(1, sum(map(len, choices))):
        best: Moved | None = None
        exact = proven
        for more in _of_size(choices, extra):
            found = _filled(gang, layout, leaving | more)
            if isinstance(found, Filled):
                exact &= found.exact
                best = _better(best, _moved(gang, layout, found.nodes, True))
            else:
                exact &= found.proven
        if best is not None:
            return replace(best, exact=exact), exact
        proven = exact
    return None, proven


def _of_size(choices: list[list[int]], extra: int, at: int = 0) -> Iterator[frozenset[int]]:
    if not extra:
        yield frozenset()
    elif at < len(choices):
        for n in range(min(extra, len(choices[at])), -1, -1):
            for more in _of_size(choices, extra - n, at + 1):
                yield frozenset(choices[at][len(choices[at]) - n :]) | more


def _better(best: Moved | None, found: Moved) -> Moved:
    if best is None or (found.cost, found.nodes) < (best.cost, best.nodes):
        return found
    return best


def _widening(gang: Gang, layout: Layout, leaving: frozenset[int], stuck: Stuck) -> Moved | None:
    """Free the ranks that are in the way, the smallest sets first."""
    seen: set[frozenset[int]] = set()
    todo: list[tuple[int, int, frozenset[int]]] = []

    def look(open_ranks: frozenset[int], rank: int) -> None:
        for more in _in_the_way(gang, layout, open_ranks, rank):
            if (new := open_ranks | more) not in seen:
                seen.add(new)
                heapq.heappush(todo, (len(new), len(seen), new))

    look(leaving, stuck.rank)
    best: Moved | None = None
    for _ in range(_TRIES):
        if not todo or len(todo[0][2]) == len(layout):
            break
        count, _, open_ranks = heapq.heappop(todo)
        if best is not None and count > gang.moved(best.nodes):
            break
        found = _filled(gang, layout, open_ranks)
        if isinstance(found, Filled):
            best = _better(best, _moved(gang, layout, found.nodes, False))
        else:
            look(open_ranks, found.rank)
    return best


def _in_the_way(
    gang: Gang, layout: Layout, open_ranks: frozenset[int], rank: int
) -> Iterator[frozenset[int]]:
    """Sets of ranks to free for a rank that found no node."""
    if rank not in open_ranks:
        yield frozenset((rank,))
    bound = None
    for number in layout.around(rank):
        copy = layout.copies[number]
        if copy.tier is None and copy.spread is None:
            continue
        rest = [r for r in range(copy.start, copy.stop) if r not in open_ranks]
        if rest:
            yield frozenset(rest)
            if bound is None and copy.tier is not None:
                bound = copy.tier, gang.before[rest[0]]
    if bound is None:
        return
    tier, node = bound
    domains = gang.capacity.forest.domain_of(tier, np.array((*gang.before, node), np.int64))
    seen: set[tuple[int, int, int]] = set()
    for other, at in enumerate(gang.before):
        if other in open_ranks or domains[other] != domains[-1] or len(seen) == _NEIGHBOURS:
            continue
        tiers = (layout.copies[n].tier for n in layout.around(other))
        if any(low is not None and low <= tier for low in tiers):
            continue  # bound to that domain itself
        if (key := (at, layout.copy[other], layout.kind[other])) not in seen:
            seen.add(key)
            yield frozenset((other,))


# Moving the whole gang


def anew(gang: Gang, request: Request) -> Placement | Refusal:
    """Place the gang as if it were not running. The capacity is not changed."""
    forest = gang.capacity.forest
    layout = Layout.of(request, gang.masks)
    capacity = gang.capacity.copy()
    for at, free in (gang.changes or {}).items():
        capacity.set_free(forest.nodes[at], free)
    here = [(forest.nodes[at], need) for at, need in zip(gang.before, layout.needs, strict=True) if at >= 0]
    capacity.give([node for node, _ in here], [need for _, need in here])
    barred = gang.barred & ~forest.barred(request.avoid, request.cluster)
    if barred.any():
        avoid = {forest.nodes[at] for at in np.flatnonzero(barred).tolist()}
        request = replace(request, avoid=request.avoid | avoid)
    return place(capacity, request, gang.masks)


def _anew(gang: Gang, layout: Layout, rank: int, *, proven: bool) -> Moved | Nowhere:
    request = gang.request
    if gang.highest <= gang.capacity.forest.top:
        tier = 0 if request.on_node else gang.highest
        within = bounded(replace(request.gang, tier=tier), tier)
        if within is None:
            return Nowhere(rank, Refusal(gang.highest))
        request = replace(request, mode="hard", gang=within)
    answer = anew(gang, request)
    if isinstance(answer, Refusal):
        return Nowhere(rank, answer)
    index = gang.capacity.forest.index
    nodes = kept(gang.request.gang, gang.before, [index[name] for name in answer.nodes])
    return _moved(gang, layout, nodes, answer.exact and proven)
