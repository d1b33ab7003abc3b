"""Replaces failed nodes of a running gang, and moves only the ranks that must move.

A rank that moves has to stop and start again. So the number of moves comes before every part of the
objective. The search is in `moving`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from hyperscout_formats.text.counts import count

from hyperscout_placer.cluster.answer import Cost, Placement, Refusal
from hyperscout_placer.cluster.capacity import Capacity, Mask
from hyperscout_placer.cluster.forest import Forest, say_tier
from hyperscout_placer.cluster.request import Request, RequestError, checked
from hyperscout_placer.repair.calculations import width
from hyperscout_placer.repair.layout import GANG, Layout
from hyperscout_placer.repair.moving import Gang, Moved, Nowhere, anew, move
from hyperscout_placer.repair.rank_exchange import kept


@dataclass(frozen=True, slots=True)
class Move:
    rank: int
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Repair:
    """Replacements. `moves`: by rank. `placement`: the gang afterwards.

    `placement.exact`: no fewer moves are possible, and no choice with as few moves costs less. `kept_tier`:
    neither the gang nor any group in it is spread wider than before; one node counts as tier 1.
    """

    moves: tuple[Move, ...]
    placement: Placement
    kept_tier: bool


@dataclass(frozen=True, slots=True)
class Improvement:
    """`moves` change the gang's cost from `before` to `placement.cost`. `gain`, `price`: in words."""

    moves: tuple[Move, ...]
    before: Cost
    placement: Placement
    gain: str
    price: str


def repair(
    capacity: Capacity,
    request: Request,
    running: Sequence[str],
    lost: frozenset[str],
    masks: Mapping[str, Mask],
) -> Repair | Refusal:
    """Replacements for the ranks on `lost` nodes and on nodes that are not in the forest.

    `running`: nodes by rank; their resources are taken from `capacity` already. The fewest moves come first,
    then the gang's cost as in `Cost`. Raises RequestError.
    """
    forest = capacity.forest
    gang, layout = read_gang(capacity, request, running, masks)
    gang = replace(gang, barred=gang.barred | forest.below(lost & forest.index.keys()))
    leaving = frozenset(rank for rank, name in enumerate(running) if name in lost or name not in forest.index)
    found = move(gang, leaving)
    if isinstance(found, Nowhere):
        return _refused(gang, layout, found, running)
    return Repair(
        moves_of(forest, running, found.nodes),
        placement_at(gang, found),
        _kept_tier(forest, layout, gang.before, found.nodes),
    )


def improvement(
    capacity: Capacity, request: Request, running: Sequence[str], masks: Mapping[str, Mask]
) -> Improvement | None:
    """A better place for the whole gang; None = there is none. Ranks that can stay where they are do so.

    Better is a lower tier, else fewer degraded links, else fewer domains. Unlike in a first placement,
    degraded links come before the number of domains. A ring runs at the speed of its slowest link, another
    healthy domain of the same tier costs little, and stopping a job is expensive. Nodes and fragmentation do
    not justify a move. Raises RequestError.
    """
    gang, layout = read_gang(capacity, request, running, masks)
    if -1 in gang.before:
        return None  # a node is gone: use `repair`
    before = gang.cost(layout, gang.before)
    best: tuple[tuple[object, ...], Moved] | None = None
    for place in _better_places(gang, layout, before):
        # The found cost depends on what the search barred; the gang's real cost does not.
        found = replace(place, cost=gang.cost(layout, place.nodes))
        rank = (*_worth(found.cost), gang.moved(found.nodes), found.cost, found.nodes)
        if _worth(found.cost) < _worth(before) and (best is None or rank < best[0]):
            best = rank, found
    if best is None:
        return None
    found = best[1]
    moves = moves_of(capacity.forest, running, found.nodes)
    price = f"{len(moves)} of {len(running)} workers move"
    worse = _compared(capacity.forest, found.cost, before)
    return Improvement(
        moves,
        before,
        placement_at(gang, found),
        "; ".join(text for text, better in worse if better),
        "; ".join([price, *(text for text, better in worse if not better)]),
    )


def moves_of(forest: Forest, running: Sequence[str], nodes: Sequence[int]) -> tuple[Move, ...]:
    """The moves, by rank."""
    targets = (forest.nodes[node] for node in nodes)
    return tuple(
        Move(rank, source, target)
        for rank, (source, target) in enumerate(zip(running, targets, strict=True))
        if source != target
    )


def read_gang(
    capacity: Capacity, request: Request, running: Sequence[str], masks: Mapping[str, Mask]
) -> tuple[Gang, Layout]:
    """The running gang. Raises RequestError."""
    checked(request, capacity.forest.top)
    layout = Layout.of(request, masks)
    if len(running) != len(layout):
        raise RequestError(f"running: {len(running)} nodes for {len(layout)} workers")
    return Gang.of(capacity, request, masks, running), layout


def placement_at(gang: Gang, found: Moved) -> Placement:
    """The gang on the nodes that were found."""
    forest, nodes = gang.capacity.forest, found.nodes
    tier, name = forest.named_holder(nodes) or (None, None)
    # A lower bound of every gang's cost: one node in one leaf domain.
    bound = None if found.exact else Cost(1, (), 1, 0, ())
    return Placement(
        tuple(forest.nodes[node] for node in nodes), tier, name, found.cost, found.exact, bound, found.relaxed
    )


def _kept_tier(forest: Forest, layout: Layout, before: Sequence[int], now: Sequence[int]) -> bool:
    for copy in layout.copies:
        old = [node for node in before[copy.start : copy.stop] if node >= 0]
        # A group that moves from one node to two nodes of a leaf domain stays as near to its switch.
        if old and max(1, width(forest, now[copy.start : copy.stop])) > max(1, width(forest, old)):
            return False
    return True


def _refused(gang: Gang, layout: Layout, nowhere: Nowhere, running: Sequence[str]) -> Refusal:
    rank, refusal = nowhere.rank, nowhere.refusal
    text = f"no replacement for rank {rank} ({layout.kinds[layout.kind[rank]].role}) of {running[rank]}"
    whole = f"; the whole gang has no other place: {refusal.reason}" if refusal.reason else ""
    return replace(refusal, reason=text + bound_to(gang, layout, rank) + whole)


def bound_to(gang: Gang, layout: Layout, rank: int) -> str:
    """Where a rank without a place has to be, because others of its group are there; "" = anywhere."""
    forest = gang.capacity.forest
    for number in layout.around(rank):
        copy = layout.copies[number]
        others = [n for n in gang.before[copy.start : copy.stop] if n >= 0 and not gang.barred[n]]
        if copy.tier is not None and others:
            domain = int(forest.domain_of(copy.tier, np.array(others[:1]))[0])
            what, limit = f"its group (ranks {copy.start} to {copy.stop - 1})", "the tier of the group"
            if number == GANG:
                what, limit = "the gang", "its highest tier allowed"
            where, tier = forest.names(copy.tier)[domain], say_tier(forest, copy.tier)
            step = "; to use other nodes, place the gang anew with a higher one"
            return (
                f": {what} must stay in {where}, which has no place: {tier} is {limit}"
                f"{step if copy.tier < forest.top else ''}"
            )
    return ""


# Improvement


def _worth(cost: Cost) -> tuple[int, int, tuple[int, ...]]:
    return cost.top, cost.degraded, cost.domains


def _better_places(gang: Gang, layout: Layout, before: Cost) -> Iterator[Moved]:
    """Candidate moves that may improve the gang.

    Some ranks leave what is degraded, or join the others in a lower tier. Or the whole gang moves to where it
    would be placed now, also if it avoids the degraded domains and nodes that it uses.
    """
    forest, request = gang.capacity.forest, gang.request
    sick = _degraded(gang, before.top)
    for names in sick:
        off = forest.below(names)
        leaving = frozenset(rank for rank, node in enumerate(gang.before) if off[node])
        if len(leaving) < len(layout):
            yield from _found(replace(gang, barred=gang.barred | off), leaving)
    for tier in range(min(before.top - 1, forest.top), 0, -1):
        of_node = forest.layers[tier - 1].of_node
        (home, _), *_ = Counter(of_node[list(gang.before)].tolist()).most_common(1)
        leaving = frozenset(rank for rank, node in enumerate(gang.before) if of_node[node] != home)
        yield from _found(replace(gang, highest=tier), leaving)
    for names in (frozenset[str](), *sick):
        answer = anew(gang, replace(request, avoid=request.avoid | names))
        if isinstance(answer, Placement):
            nodes = kept(request.gang, gang.before, [forest.index[name] for name in answer.nodes])
            yield Moved(nodes, gang.cost(layout, nodes), answer.exact and not names, answer.relaxed)


def _found(gang: Gang, leaving: frozenset[int]) -> Iterator[Moved]:
    found = move(gang, leaving)
    if isinstance(found, Moved):
        yield replace(found, exact=False)


def _degraded(gang: Gang, top: int) -> list[frozenset[str]]:
    """Sets of names of degraded nodes and domains that the gang uses.

    The first set is the nodes, the second adds the domains below the top, the third adds the top. Empty and
    repeated sets are left out.
    """
    forest = gang.capacity.forest
    used = np.unique(np.asarray(gang.before, np.int64))
    names = {forest.nodes[node] for node in used[forest.degraded[used] > 0].tolist()}
    found = [frozenset(names)]
    for layer in forest.layers[:top]:
        which = np.unique(layer.of_node[used])
        names |= {layer.names[domain] for domain in which[layer.degraded[which] > 0].tolist()}
        if layer.tier in (top - 1, top):
            found.append(frozenset(names))
    return [x for i, x in enumerate(found) if x and x not in found[:i]]


def _compared(forest: Forest, now: Cost, before: Cost) -> list[tuple[str, bool]]:
    """The differences in words, each with whether it is better now."""
    found = []
    if now.top != before.top:
        texts = [_tier_name(forest, cost.top) for cost in (now, before)]
        found.append((f"tier {texts[0]} instead of {texts[1]}", now.top < before.top))
    if now.degraded != before.degraded:
        links = count(now.degraded, "degraded link") if now.degraded else "no degraded link"
        text = f"{links} instead of {before.degraded}"
        found.append((text, now.degraded < before.degraded))
    if now.top == before.top:
        for tier, a, b in zip(range(now.top - 1, 0, -1), now.domains, before.domains, strict=True):
            if a != b:
                text = f"{count(a, f'{_tier_name(forest, tier)} domain')} instead of {b}"
                found.append((text, a < b))
    return found


def _tier_name(forest: Forest, tier: int) -> str:
    if tier > forest.top:
        return "several islands"
    return forest.layers[tier - 1].tier_name or str(tier)
