"""Keeps a domain for a waiting gang: which domain, and how other gangs are placed around it.

Nodes of the domain that become free stay free until the gang fits. Another gang gets such a node only if its
reservation expires before the waiting gang can fit, as far as expiries are known. The end of a gang without
expiry is unknown, and a reservation may be released before it expires.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from hyperscout_placer.book.reservation import Reservation
from hyperscout_placer.book.without import Booked
from hyperscout_placer.cluster.answer import Placement, Refusal
from hyperscout_placer.cluster.capacity import Capacity, Mask, narrowed
from hyperscout_placer.cluster.forest import Flags, Forest, Longs
from hyperscout_placer.cluster.kinds import reference_of
from hyperscout_placer.cluster.request import Group, Request, Workers, ends
from hyperscout_placer.solve.estimate import Estimate
from hyperscout_placer.solve.place import highest, place

TRIES: Final = 6  # domains in which the gang is placed, to see whether it fits there

Engine = Callable[[Capacity, Request, Mapping[str, Mask]], Placement | Refusal]


@dataclass(frozen=True, slots=True, eq=False)
class Drain:
    """A domain that is kept for a waiting gang.

    `tier`: 0 = one node. `hypernode`: its name, at tier 0 that of the node; None = all islands together.
    `kept`: (nodes,) its nodes that the gang can use, in `forest`. `workers`: number of the gang's workers of
    its most numerous kind. `priority`: of the gang.
    """

    gang: str
    request: Request
    masks: Mapping[str, Mask]
    tier: int
    hypernode: str | None
    forest: Forest
    kept: Flags
    workers: int
    priority: int
    _others: Mask = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_others", Mask.of(~self.kept, {}))

    @property
    def where(self) -> str:
        if self.hypernode is None:
            return "the whole cluster"
        return f"{'HyperNode' if self.tier else 'node'} {self.hypernode}"

    def masks_of_others(self, request: Request, forest: Forest, masks: Mapping[str, Mask]) -> dict[str, Mask]:
        """The masks of another gang: without the kept nodes.

        In another topology, the nodes of the same names are kept.
        """
        others = self._others
        if forest is not self.forest:
            names = frozenset(self.forest.nodes[at] for at in np.flatnonzero(self.kept).tolist())
            others = Mask.of(~forest.below(names), {})
        return narrowed(masks, {kind.role for kind in ends(request.gang)}, others)

    def keeps_off(self, request: Request, expires_ns: int, booked: Callable[[Request], Booked]) -> bool:
        """Whether another gang must leave the kept nodes free.

        It need not if it has a higher priority, or ends at `expires_ns` (0 = never), before they are needed.
        """
        if request.priority > self.priority:
            return False
        return not 0 < expires_ns <= self.free_at_ns(booked(self.request))

    def keeps(self, nodes: Iterable[str]) -> bool:
        """Whether one of the nodes is kept."""
        index = self.forest.index
        return any(self.kept[index[node]] for node in nodes if node in index)

    def fits(self, capacity: Capacity) -> int:
        """How many of `workers` fit on the kept nodes now; 0 in another topology."""
        if capacity.forest is not self.forest:
            return 0
        return min(self.workers, _Count(self.request, self.masks).on(capacity, self.kept))

    def free_at_ns(self, booked: Booked) -> int:
        """The earliest time at which the gang can fit, as far as that is known: Unix ns, 0 = at any time.

        A gang without expiry can end at any time, so it counts as ended.
        """
        if booked.capacity.forest is not self.forest:
            return 0
        count = _Count(self.request, self.masks)
        return _first(
            [0, *_expiries(booked.held)],
            lambda at_ns: (
                count.on(booked.without(lambda x: x.expires_ns <= at_ns), self.kept) >= self.workers
            ),
        )


class _Count:
    """Counts how many of the `workers` of a gang's most numerous kind fit."""

    def __init__(self, request: Request, masks: Mapping[str, Mask]) -> None:
        self._most, self.workers = reference_of(request.gang, masks)
        self._request = request
        self._masks = masks

    def on(self, capacity: Capacity, nodes: Flags) -> int:
        return int(self._estimate(capacity).fit(self._most)[nodes].sum())

    def by_domain(self, capacity: Capacity, tier: int) -> Longs:
        """(domains,) of a tier; 0 = nodes. Above the highest tier is one domain: all islands together."""
        estimate = self._estimate(capacity)
        return estimate.summed(estimate.fit(self._most), 0, tier)

    def usable(self, capacity: Capacity) -> Flags:
        """(nodes,) whether a worker of any kind fits."""
        estimate = self._estimate(capacity)
        found: Flags = np.any([estimate.fit(kind) > 0 for kind in ends(self._request.gang)], axis=0)
        return found

    def _estimate(self, capacity: Capacity) -> Estimate:
        return Estimate(
            capacity,
            self._request,
            self._masks,
            capacity.forest.barred(self._request.avoid, self._request.cluster),
        )


def choose(
    gang: str,
    request: Request,
    masks: Mapping[str, Mask],
    booked: Booked,
    prefer: str | None = None,
    *,
    priority: int = 0,
) -> Drain | None:
    """The domain to keep for a gang; None = none holds it, even when all gangs of the book have ended.

    It is in the highest allowed tier: there, the fewest gangs have to end, and the least is idle meanwhile. A
    gang with groups, a spread or an even split may need more free nodes than it has workers. Its domain is in
    the lowest tier that has one which holds the gang then. In the tier it is the domain in which enough
    reservations expire soonest, else the one in which the fewest workers have to end. `prefer`: the domain
    that is kept already. It stays while it can hold the gang.
    """
    capacity, forest, count = booked.capacity, booked.capacity.forest, _Count(request, masks)
    emptied = booked.without()
    roles = {kind.role for kind in ends(request.gang)}
    tries = TRIES
    top = highest(forest, request)
    for tier in (top,) if _is_plain(request.gang) or not top else range(1, top + 1):
        able = np.flatnonzero(count.by_domain(emptied, tier) >= count.workers).tolist()
        names = forest.names(tier) if tier <= forest.top else (None,)
        need = np.maximum(count.workers - count.by_domain(capacity, tier), 0)
        soon = _soonest(booked, count, tier) if able else need
        for at in sorted(able, key=lambda at: (names[at] != prefer, -soon[at], need[at], at))[:tries]:
            tries -= 1
            inside = forest.inside(tier, at)
            within = narrowed(masks, roles, Mask.of(inside, {}))
            if isinstance(place(emptied, request, within), Placement):
                kept = inside & count.usable(emptied)
                return Drain(gang, request, masks, tier, names[at], forest, kept, count.workers, priority)
    return None


def _is_plain(gang: Group) -> bool:
    """Whether the gang fits in a domain as soon as enough of its workers do."""
    if gang.even is not None or (gang.spread is not None and gang.spread.required):
        return False
    return all(isinstance(part, Workers) or (part.tier is None and _is_plain(part)) for part in gang.parts)


def place_around(
    drain: Drain | None, engine: Engine, capacity: Capacity, request: Request, masks: Mapping[str, Mask]
) -> Placement | Refusal:
    """Place another gang without the nodes that are kept, if there are any. Raises RequestError."""
    if drain is None:
        return engine(capacity, request, masks)
    answer = engine(capacity, request, drain.masks_of_others(request, capacity.forest, masks))
    if isinstance(answer, Placement):
        return answer
    with_kept = engine(capacity, request, masks)
    if isinstance(with_kept, Refusal):
        return with_kept
    return Refusal(
        answer.tier,
        f"the gang fits only on nodes that are kept for gang {drain.gang}, which has waited longer "
        f"({drain.where}): try again when that gang is placed",
        answer.proven,
    )


def _soonest(booked: Booked, count: _Count, tier: int) -> Longs:
    """(domains,) 1 for the domains that can hold the gang first when reservations expire, else 0."""

    def held_at(at_ns: int) -> Flags:
        ended = booked.without(lambda x: 0 < x.expires_ns <= at_ns)
        found: Flags = count.by_domain(ended, tier) >= count.workers
        return found

    expiries = [0, *_expiries(booked.held)]
    return held_at(_first(expiries, lambda at_ns: bool(held_at(at_ns).any()))).astype(np.int64)


def _expiries(book: Collection[Reservation]) -> list[int]:
    return sorted({held.expires_ns for held in book if held.expires_ns})


def _first(times: list[int], is_enough: Callable[[int], bool]) -> int:
    """The first of the sorted times that is enough; the last one if none is."""
    return times[bisect_left(times, True, hi=len(times) - 1, key=is_enough)]
