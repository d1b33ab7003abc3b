"""Finds the best placement, tier by tier and domain by domain.

The lowest tier comes first. Of its domains that may fit the gang, the one with the least lower bound comes
first. The search ends when no other domain's bound is below the cost that was found. Where the exact tables
of a gang of many kinds would be too large, the domain is filled greedily, and the answer contains a lower
bound.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from hyperscout_placer.cluster.answer import Cost, Placement, cost_of
from hyperscout_placer.cluster.forest import Flags, Longs
from hyperscout_placer.cluster.request import Group, splits
from hyperscout_placer.cluster.units import GANG, Units, units_of
from hyperscout_placer.solve.chain import Chain, levels_of
from hyperscout_placer.solve.equal_domains import Alike
from hyperscout_placer.solve.free import Free
from hyperscout_placer.solve.greedy import Greedy, cost_parts
from hyperscout_placer.solve.ranks import nodes_by_rank
from hyperscout_placer.solve.sifting import MAX_VALUES, values_to
from hyperscout_placer.solve.tables import Held, TooBigError, Trees, Work

GUESSES: Final = 16  # domains of a tier that are filled greedily
MAX_LOOKS: Final = 300_000  # unit trials, about a second; after them one domain per tier

_Parts = tuple[int, ...]
# For a tier below the top, for each kind of unit: (domains,) how many fit, and how many the gang has.
_Sizes = Callable[[int], Sequence[tuple[Longs, int]]]


class Search:
    """The search for one gang. `complete`: every domain that was tried has an exact answer.

    `split`: the gang that `best` placed last, with the limits of its even split. `trials_complete`: as
    `complete`, for the trials with more constraints, which have a limit of their own.
    """

    def __init__(self, free: Free, work: Work) -> None:
        self.complete = self.trials_complete = True
        self._trials = Work()
        self.split = Group(1, ())
        self._free = free
        self._alike = Alike(free)
        self._work = work

    def best(self, gang: Group, tiers: Sequence[int]) -> Placement | None:
        """The best placement at the lowest of these tiers where there is one."""
        unsure: list[tuple[int, _Parts]] = []  # tier and bound of the domains without an exact answer
        for tier in tiers:
            for split in splits(gang):
                units = units_of(split, tier)
                found = self._at_tier(units, unsure) if self._may_split(units) else None
                if found is not None:
                    self.split = split
                    return _placement(self._free, units, *found, min(unsure, default=None))
        return None

    def _may_split(self, units: Units) -> bool:
        """Whether enough workers may fit in the domains that take enough for an even split."""
        gang, free = units.units[GANG], self._free
        spread = gang.spread
        if spread is None or not spread.least:
            return True
        fits = np.sum([free.fit(kind, spread.tier) for kind in range(len(free.fits))], axis=0)
        return int(np.minimum(fits[fits >= spread.least], spread.most).sum()) >= gang.size

    def most_in_one(self, tier: int) -> int:
        """An upper bound of the workers in one domain of a tier."""
        fits = [self._free.fit(kind, tier) for kind in range(len(self._free.fits))]
        return int(np.sum(fits, axis=0).max(initial=0))

    def as_good(self, gang: Group, cost: Cost) -> Placement | None:
        """A placement of a gang with more constraints that costs no more than without these."""
        units = units_of(gang, cost.top)
        wear = cost.unpreferred, cost.degraded
        limit = (
            *cost.fragments,
            *cost.domains,
            cost.nodes,
            *wear,
            *cost.fragmentation,
            *cost.above,
            cost.whole,
        )
        found = self._at_tier(units, [], limit)
        return None if found is None else _placement(self._free, units, *found, None)

    def _at_tier(
        self, units: Units, unsure: list[tuple[int, _Parts]], limit: _Parts | None = None
    ) -> tuple[_Parts, Callable[[], Held]] | None:
        """The best placement at the tier of the units. `limit`: only a placement of this cost is wanted."""
        free = self._free
        levels = levels_of(units)
        work = self._work if limit is None else self._trials
        solver = (
            Trees(free, self._alike, units, work)
            if levels is None
            else Chain(free, self._alike, units, levels, work)
        )
        might = solver.might()
        seen: set[int] = set()  # numbers of tried domains
        before: tuple[_Parts, int] | None = None  # the bound of the last tried domain, and the domain
        guesses = 0
        best: tuple[_Parts, Callable[[], Held]] | None = None
        for bound, domain in _candidates(free, units, solver.sizes, might, bounded=limit is not None):
            if limit is not None and bound > limit:
                break
            if limit is not None and _known(free, bound, units.top) != _known(free, limit, units.top):
                continue  # it costs more or less
            if best is not None and bound >= best[0]:
                break
            # Equal domains have equal bounds. `Trees` orders children by number, so there each gets one.
            if before is not None and (levels is None or bound == before[0]):
                seen.add(self._alike.number(units.top, before[1]))
                if self._alike.number(units.top, domain) in seen:
                    continue
            before = bound, domain
            try:
                found = solver.least(domain, limit if best is None else best[0])
            except TooBigError:
                if limit is not None:
                    self.trials_complete = False
                    break
                self.complete = False
                unsure.append((units.top, bound or _bound_of(free, units, solver.sizes, domain)))
                if guesses == GUESSES or (guesses and self._work.looks > MAX_LOOKS):
                    break
                guesses += 1
                found = self._guessed(units, domain)
            if found is not None:
                cost = _whole_cost(free, units, domain, found[0])
                if limit is not None and cost > limit:
                    continue
                if best is None or cost < best[0]:
                    best = cost, found[1]
        return best

    def _guessed(self, units: Units, domain: int) -> tuple[_Parts, Callable[[], Held]] | None:
        if (spread := units.units[GANG].spread) is not None and spread.least:
            return None  # greedy filling splits nothing evenly
        greedy = Greedy(self._free, units)
        held = greedy.held(domain)
        self._work.looks += greedy.looks
        return None if held is None else (cost_parts(self._free, units, held), lambda: held)


def _whole_cost(free: Free, units: Units, domain: int, parts: _Parts) -> _Parts:
    """The whole cost of a domain, from the parts of the cost below it."""
    tier = units.top
    counts, degraded, left, whole = parts[: tier + 1], parts[tier + 1], parts[tier + 2 : -1], parts[-1]
    degraded += int(free.degraded(tier)[domain])
    left = (int(free.fit(free.reference, tier)[domain]), *left)
    above = (int(column[0]) for column in free.above(tier, np.array([domain])))
    left = tuple(x - free.placed for x in left)
    return (
        *(left if free.fragments else ()),
        *counts,
        degraded,
        *left,
        *above,
        whole + int(free.whole(tier)[domain]),
    )


def _placement(
    free: Free, units: Units, parts: _Parts, held: Callable[[], Held], unsure: tuple[int, _Parts] | None
) -> Placement:
    """`unsure`: tier and bound of the best domain without an exact answer."""
    forest = free.forest
    nodes = nodes_by_rank(forest, units, held())
    holder = forest.holder(nodes)
    top = units.top
    cost = _cost(free, top, parts)
    if holder is not None and top > holder[0]:  # the greedy placement is closer together than required
        near = cost_of(forest, free.fits[free.reference], nodes, free.placed)
        first = near.fragmentation if free.fragments else ()
        cost = replace(near, unpreferred=cost.unpreferred, fragments=first)
    exact = unsure is None or _cost(free, *unsure) >= cost
    tier, name = forest.named_holder(nodes) or (None, None)
    return Placement(
        tuple(forest.nodes[node] for node in nodes),
        tier,
        name,
        cost,
        exact,
        None if exact or unsure is None else _cost(free, *unsure),
    )


def _cost(free: Free, tier: int, parts: _Parts) -> Cost:
    first, parts = parts[: _first(free, tier)], parts[_first(free, tier) :]
    left, above = parts[tier + 2 : 2 * tier + 3], parts[2 * tier + 3 : -1]
    found = Cost(tier, parts[: tier - 1], parts[tier - 1], parts[tier + 1], left, above, parts[-1])
    return replace(found, unpreferred=parts[tier], fragments=first)


def _first(free: Free, tier: int) -> int:
    """The number of parts of a cost before the number of domains."""
    return tier + 1 if free.fragments else 0


def _candidates(
    free: Free, units: Units, sizes: _Sizes, might: Flags, *, bounded: bool
) -> Iterator[tuple[_Parts, int]]:
    """Each domain of `might` (domains of the top tier,) as (lower bound of the cost, number), least first.

    `bounded`: a single domain needs a bound, too.
    """
    which = np.flatnonzero(might)
    if not len(which) or (len(which) == 1 and not bounded):
        yield from (((), domain) for domain in which.tolist())
        return
    columns = _bounds(free, units, sizes, which)
    for i in np.lexsort((which, *columns[::-1])).tolist():
        yield tuple(int(column[i]) for column in columns), int(which[i])


def _known(free: Free, parts: _Parts, top: int) -> _Parts:
    """The parts of a cost that depend on the top domain alone: workers that still fit in it and above it."""
    parts = parts[_first(free, top) :]
    return parts[top + 2], *parts[2 * top + 3 : -1]


def _bound_of(free: Free, units: Units, sizes: _Sizes, domain: int) -> _Parts:
    """A lower bound of the gang's cost in a domain of the top tier."""
    return tuple(int(column[0]) for column in _bounds(free, units, sizes, np.array([domain])))


def _bounds(free: Free, units: Units, sizes: _Sizes, which: Longs) -> list[Longs]:
    """The bounds, (which,) each.

    In order: domains from the tier below the top down, nodes, what nodes lack, degraded links, workers that
    still fit in the domain, in those below it (0: not known) and in those above it, and the domain itself if
    it is whole.
    """
    wanted = units.kinds_in(GANG)
    columns: list[Longs] = []
    for lower in range(units.top - 1, -1, -1):
        around = columns[-1] if columns else None
        kinds = [_fewest(free, units.top, which, lower, *kind, around) for kind in sizes(lower)]
        columns.append(np.max(kinds, axis=0))
    fits = free.fit(free.reference, units.top)[which]
    unknown = [np.zeros(len(which), np.int64)] * units.top
    whole = free.whole(units.top)[which].astype(np.int64)
    degraded = free.degraded(units.top)[which]
    if len(wanted) == 1 and units.top <= free.forest.top and (bad := free.forest.degraded > 0).any():
        # A gang that does not fit on the nodes without degraded links uses at least one degraded link more.
        worn = _in_domains(free, units.top, np.where(bad, free.fits[0], 0))[which]
        degraded = degraded + (fits - worn < wanted[0])
    lacking = _least_lacking(free, units.top, which, wanted)
    left = [fits - free.placed, *unknown]
    first = left if free.fragments else []
    return [*first, *columns, lacking, degraded, *left, *free.above(units.top, which), whole]


def _least_lacking(free: Free, tier: int, which: Longs, wanted: Mapping[int, int]) -> Longs:
    """(which,) what the used nodes lack of preferences at least; 0 for several kinds of workers.

    The workers that do not fit on the nodes below a weight use nodes that lack at least that weight.
    """
    found = np.zeros(len(which), np.int64)
    (kind, count), *others = wanted.items()
    index = free.prefers[kind]
    if others or index is None:
        return found
    fits, lacking = free.fits[kind], free.lacking[index]
    weights = np.unique(lacking[fits > 0])
    before, each = 0, max(1, int(fits.max(initial=0)))
    for weight in weights[:: len(weights) // MAX_VALUES + 1].tolist():
        below = _in_domains(free, tier, np.where(lacking < weight, fits, 0))[which]
        found += (weight - before) * -(-np.maximum(count - below, 0) // each)
        before = weight
    return found


def _in_domains(free: Free, tier: int, counts: Longs) -> Longs:
    """(domains of the tier,) sums of a count per node."""
    sums: Longs = np.concatenate(([0], np.cumsum(counts)))
    if tier > free.forest.top:
        return sums[-1:]
    layer = free.forest.layers[tier - 1]
    return sums[layer.stop] - sums[layer.start]


def _fewest(
    free: Free, tier: int, which: Longs, lower: int, sizes: Longs, wanted: int, around: Longs | None
) -> Longs:
    """(which,) a lower bound of the domains of tier `lower` (0 = nodes) that together fit `wanted` units.

    `sizes`: (domains of tier `lower`,) how many units fit. `around`: (which,) how many domains of the tier
    above `lower` they are in; None = any.
    """
    most = min(int(sizes.max(initial=0)), wanted)
    if lower == 0 and most <= 1:
        return np.full(len(which), wanted)
    sizes = np.minimum(sizes, most)
    if around is None:
        owner, first, inside = _inside(free, tier, which, lower)
        sums = _sums_of_largest(owner, sizes[inside])
        short = sums[1:] - sums[first][owner] < wanted
        return np.bincount(owner[short], minlength=len(which)) + 1
    # For every number v: n domains fit at most n v, and what more than v fits in each of them. In `around`
    # domains, the latter is at most the sum of the largest sums by domain of the tier above.
    owner, first, inside = _inside(free, tier, which, lower + 1)
    last = np.append(first[1:], len(owner))
    found = np.zeros(len(which), np.int64)
    for v in values_to(most):
        more = free.forest.layers[lower].summed(np.maximum(sizes - v, 0))[inside]
        sums = _sums_of_largest(owner, np.minimum(more, wanted))
        most_more = sums[np.minimum(first + around, last)] - sums[first]
        np.maximum(found, -((most_more - wanted) // v), out=found)
    return found


def _inside(free: Free, tier: int, which: Longs, lower: int) -> tuple[Longs, Longs, Longs]:
    """The domains of a lower tier inside those of `which`, one owner after the other.

    Returns the owner of each, the position of each owner's first, and their numbers.
    """
    first, last = np.array([0]), np.array([len(free.forest.nodes)])
    if tier <= free.forest.top:
        layer = free.forest.layers[tier - 1]
        first, last = layer.start[which], layer.stop[which]
    if lower:
        starts = free.forest.layers[lower - 1].start
        first, last = np.searchsorted(starts, first), np.searchsorted(starts, last)
    count = last - first
    begin = np.cumsum(count) - count
    owner = np.repeat(np.arange(len(which)), count)
    return owner, begin, np.arange(len(owner)) + (first - begin)[owner]


def _sums_of_largest(owner: Longs, values: Longs) -> Longs:
    """(values + 1,) sums of the first values, where those of each owner are sorted, the largest first."""
    step = int(values.max(initial=0)) + 1
    return np.concatenate(([0], np.cumsum(owner * step - np.sort(owner * step - values))))
