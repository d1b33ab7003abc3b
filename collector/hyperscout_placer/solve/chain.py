"""Computes exact placements of gangs with one kind of worker: thousands of workers on 100,000 nodes.

Where each level has one kind of unit, a placement is a choice of domains, of their children, and of nodes.
Only the total number of units that the choice fits matters. So a table contains the least cost of fitting *at
least* n units, and a child matters only at the steps of its table. Of the children of the top, `sifted` and
then a comparison of their costs first leave out what cannot be part of a best placement.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from hyperscout_placer.cluster.forest import Flags, Longs
from hyperscout_placer.cluster.units import GANG, Units
from hyperscout_placer.solve.costs import NEVER, among_least, keep_least, less
from hyperscout_placer.solve.equal_domains import Alike
from hyperscout_placer.solve.free import Free, Parts
from hyperscout_placer.solve.sifting import Window, choosable, sifted, whole
from hyperscout_placer.solve.tables import Held, TooBigError, Work

MAX_ENTRIES: Final = 2 * 10**7  # entries of the tables that are in memory at once
MAX_COSTS: Final = 3 * 10**6  # costs of the children of the top that are compared
_STEP: Final = 3_000  # fixed cost of a step, in table entries
_SORTED: Final = 30  # cost of sorting one cost, in table entries
_ROUNDS: Final = 4  # rounds that make as few tables as possible; each later round makes twice as many

_Option = tuple[int, Longs]  # units, and their cost


@dataclass(frozen=True, slots=True)
class Level:
    """One level below the top.

    `unit`: its unit. `ratio`: number of units of the level below (at the nodes: workers) in one. `most`: the
    limit per domain that a spread sets.
    """

    unit: int
    ratio: int
    most: int


def levels_of(units: Units) -> list[Level] | None:
    """The levels below the top, from the nodes up; None where a level has several kinds of units."""
    if len(units.kinds) > 1 or any(unit.spread is not None for unit in units.units[1:]):
        return None
    spread = units.units[GANG].spread
    if spread is not None and spread.least:
        return None  # a table of at least so many units has no upper limit
    found: list[Level] = []
    for tier in range(units.top):
        (unit,) = units.level(tier)
        size = units.units[unit].size
        most = units.units[unit].total
        if spread is not None and spread.tier == tier:
            most = min(most, spread.most // size)
        below = units.units[found[-1].unit].size if found else 1
        found.append(Level(unit, size // below, most))
    return found


class Chain:
    """Placements with a top domain of one tier."""

    def __init__(self, free: Free, alike: Alike, units: Units, levels: Sequence[Level], work: Work) -> None:
        self.work = work
        self.free = free
        self.alike = alike
        self.units = units
        self.levels = levels
        self._top = units.top
        self.wanted = units.units[levels[-1].unit].total
        self.whole_nodes = bool(free.fits[0].max(initial=0) <= 1)
        self.fits = [self._most(tier) for tier in range(units.top)]

    @cached_property
    def sound(self) -> list[Longs]:
        """`fits` without what has degraded links."""
        return [self._most(tier, sound=True) for tier in range(self._top)]

    def _most(self, tier: int, *, sound: bool = False) -> Longs:
        """(domains,) how many units of its level each domain of a tier fits."""
        found = self.free.fit(0, tier)
        if not sound and all(
            level.ratio == 1 and level.most >= self.units.units[level.unit].total
            for level in self.levels[: tier + 1]
        ):
            return found
        if tier:
            found = self.free.forest.layers[tier - 1].summed(self._most(tier - 1, sound=sound))
        found = np.minimum(found // self.levels[tier].ratio, self.levels[tier].most)
        return np.where(self.free.degraded(tier) > 0, 0, found) if sound else found

    def might(self) -> Flags:
        """(domains of the top tier,) whether the gang fits."""
        gang = self.units.units[GANG]
        if gang.spread is not None and gang.spread.tier >= self._top and gang.size > gang.spread.most:
            return np.zeros(self.free.forest.count(self._top), np.bool_)
        if self._top > self.free.forest.top:
            return np.array([self.fits[-1].sum() >= self.wanted])
        return self.free.forest.layers[self._top - 1].summed(self.fits[-1]) >= self.wanted

    def sizes(self, tier: int) -> list[tuple[Longs, int]]:
        """(domains of a lower tier,) how many of its units fit, and how many units the gang has."""
        return [(self.fits[tier], self.units.units[self.levels[tier].unit].total)]

    def least(
        self, domain: int, best: tuple[int, ...] | None
    ) -> tuple[tuple[int, ...], Callable[[], Held]] | None:
        """The least cost below a domain that fits the gang, as `Parts` orders it, and how to build it.

        None where the cost cannot be below `best`, a cost that was found elsewhere. Raises TooBigError.
        """
        below = Below(self, domain)
        parts = below.least(best)
        return None if parts is None else (parts, below.held)


class Below:
    """Tables below one domain of the top tier."""

    def __init__(self, chain: Chain, domain: int) -> None:
        self._chain = chain
        self._free = chain.free
        self._alike = chain.alike
        self._units = chain.units
        self._levels = chain.levels
        self._fits = chain.fits
        self._whole_nodes = chain.whole_nodes
        self._work = chain.work
        self._wanted = chain.wanted
        self._domain = domain
        self._parts = Parts(chain.free, chain.units, domain, whole_nodes=chain.whole_nodes)
        self._options: dict[tuple[int, int, int], list[_Option]] = {}
        self._used: list[tuple[int, list[_Option]]] = []  # usable children of the top
        self._steps: list[Longs] = []

    def least(self, best: tuple[int, ...] | None) -> tuple[int, ...] | None:
        """See `Chain.least`."""
        tier = self._units.top - 1
        if tier == 0 and self._whole_nodes:
            nodes = self._best_nodes(self._domain, self._wanted)
            return self._parts.unpacked(self._parts.of_nodes(nodes).sum(axis=1))
        windows, counts, _ = self._windows(tier)
        if best is not None and not self._free.fragments and counts > best[: len(counts)]:
            return None
        other = self._free.fragments or self._free.lacking  # compared before the degraded links
        if self._whole_nodes and len(counts) == tier and not other:
            windows = self._without_degraded(tier, counts) or windows
        self._used = self._useful(tier, windows, counts[0])
        self._steps = self._joined(self._wanted, [options for _, options in self._used])
        return self._parts.unpacked(self._steps[-1][:, self._wanted])

    def held(self) -> Held:
        """The choice with the least cost."""
        self._work = Work(2**62)  # the same computation ran within the limit before
        top, wanted = self._units.top, self._wanted
        if top == 1 and self._whole_nodes:
            taken = self._inside(1, self._domain, wanted)
        else:
            taken = taken_of(self._used, self._steps, wanted)
        return self._held(top, self._domain, {GANG: 1}, taken)

    def _windows(self, tier: int) -> tuple[list[Window], tuple[int, ...], tuple[int, ...]]:
        """The children of the top that may be part of a best placement.

        Also returns the numbers of used children, grandchildren and so on, as far as they are known: lower
        bounds, and numbers that some placement has.
        """
        start, stop = self._free.children(self._units.top, self._domain)
        fits = self._fits[tier][start:stop]
        if self._free.fragments:  # the fewest children need not be best
            may = np.flatnonzero(fits)
            return whole(start, fits, may), (len(may),), (len(may),)
        if tier == 0 or (tier == 1 and self._whole_nodes):  # there is no choice below
            may, used, _ = choosable(fits, self._wanted)
            return whole(start, fits, may), (used,), (used,)
        layer = self._free.forest.layers[tier - 1]
        runs = layer.child[start:stop], layer.child_stop[start:stop]
        inside, ratio = self._fits[tier - 1], self._levels[tier].ratio
        found, used, least, enough = sifted(start, fits, *runs, inside, ratio, self._wanted)
        return found, (used, least), (used, enough)

    def _without_degraded(self, tier: int, counts: tuple[int, ...]) -> list[Window] | None:
        """The windows where nothing with degraded links is used; None: the best placement may need it.

        `counts`: lower bounds of the numbers of used domains.
        """
        start, stop = self._free.children(self._units.top, self._domain)
        self._fits = self._chain.sound
        if self._fits[tier][start:stop].sum() >= self._wanted:
            windows, _, enough = self._windows(tier)
            if enough == counts:
                self._parts = Parts(self._free, self._units, self._domain, whole_nodes=True, sound=True)
                return windows
        self._fits = self._chain.fits
        return None

    def _useful(self, tier: int, windows: Sequence[Window], used: int) -> list[tuple[int, list[_Option]]]:
        """The children of the top, and those of their steps that the best placement may use.

        It uses `used` children. It does not use a step where that many others fit as many units and cost
        less, or cost the same and are earlier. Children for which lower bounds show this need no table.
        """
        least, most = min(window.least for window in windows), max(window.most for window in windows)
        if self._parts.packing.words * len(windows) * (most - least) > MAX_COSTS:
            every = [(x, self._options_of(tier, x.index, x.most)) for x in windows]
            return [(x.index, [step for step in steps if step[0] >= x.least]) for x, steps in every]
        domains = np.array([window.index for window in windows])
        costs = self._lower_costs(tier, windows, np.arange(least, most + 1))
        known = self._have_one_step(tier, domains)  # their lower bounds are the costs
        rounds = 0
        while (asked := (may := among_least(costs, used)).any(axis=1) & ~known).any():
            self._work.spend(_SORTED * costs.size)
            rounds += 1
            if rounds > _ROUNDS:
                asked = among_least(costs, used << rounds).any(axis=1) & ~known
            for i in np.flatnonzero(asked).tolist():
                window = windows[i]
                table = self._table(tier, window.index, window.most)
                costs[:, i, window.least - least : window.most - least + 1] = table[:, window.least :]
            known |= asked
        may[:, :-1] &= less(costs[:, :, :-1], costs[:, :, 1:])  # the steps
        return [
            (windows[i].index, [(least + n, costs[:, i, n]) for n in np.flatnonzero(may[i]).tolist()])
            for i in np.flatnonzero(may.any(axis=1)).tolist()
        ]

    def _lower_costs(self, tier: int, windows: Sequence[Window], units: Longs) -> Longs:
        """(words, children, units) lower bounds of the cost of at least so many units in each child."""
        found = np.full((self._parts.packing.words, len(windows), len(units)), NEVER)
        owns = self._own(tier, np.array([window.index for window in windows]))
        size = self._units.units[self._levels[tier].unit].size
        for i, window in enumerate(windows):
            there = slice(window.least - int(units[0]), window.most - int(units[0]) + 1)
            found[:, i, there] = owns[:, i, None]
            if len(window.held):
                start, stop = self._free.children(tier, window.index)
                fits = self._free.fit(self._free.reference, tier - 1)[start:stop]
                smallest = np.sort(fits[self._fits[tier - 1][start:stop] > 0]).cumsum()
                count = np.searchsorted(window.held, units[there])
                left = np.maximum(smallest[count - 1], size * units[there])
                found[:, i, there] += self._parts.of_used(tier - 1, count, left)
        return found

    # Tables of at least n units

    def _joined(self, most: int, children: Sequence[Sequence[_Option]]) -> list[Longs]:
        """(words, most + 1) each: the table of no children, then after each child."""
        words = self._parts.packing.words
        self._work.spend(words * (most + _STEP) * sum(map(len, children)))
        if words * most * len(children) > MAX_ENTRIES:
            raise TooBigError
        none = np.zeros((words, most + 1), np.int64)  # 0 units cost 0; nothing else fits without children
        none[0, 1:] = NEVER
        return joined(none, children)

    def _options_of(self, tier: int, index: int, most: int) -> list[_Option]:
        """The steps of a domain's table up to `most` units of its level."""
        alike = self._alike.number(1, index) if tier == 1 else index
        key = (tier, alike, most)
        found = self._options.get(key)
        if found is None:
            found = self._options[key] = steps_of(self._table(tier, index, most))
        return found

    def _table(self, tier: int, index: int, most: int) -> Longs:
        """(words, most + 1): the cost of at least so many units of its level, with the domain's own cost."""
        own = self._own(tier, np.array([index]))
        ratio = self._levels[tier].ratio
        if tier == 0:
            return own.repeat(most + 1, axis=1)
        if tier == 1 and self._whole_nodes:
            costs = self._parts.of_nodes(self._by_cost(index))
            table = np.concatenate((np.zeros_like(own), np.cumsum(costs, axis=1)), axis=1)
        else:
            table = self._joined(most * ratio, [x for _, x in self._children(tier, index, most * ratio)])[-1]
        found: Longs = table[:, : most * ratio + 1 : ratio] + own
        return found

    def _children(self, tier: int, index: int, most: int) -> list[tuple[int, list[_Option]]]:
        """The children of a domain that is to fit at most that many of their units, and their steps."""
        start, stop = self._free.children(tier, index)
        fits = np.minimum(self._fits[tier - 1][start:stop], most)
        inside = np.flatnonzero(fits)
        counts, inside = fits[inside].tolist(), start + inside
        one_step = self._have_one_step(tier - 1, inside).tolist()
        costs = self._own(tier - 1, inside).T
        return [
            (i, [(n, cost)] if one else self._options_of(tier - 1, i, n))
            for i, n, cost, one in zip(inside.tolist(), counts, costs, one_step, strict=True)
        ]

    def _own(self, tier: int, domains: Longs) -> Longs:
        """(words, domains) the cost of using each of these domains, or a worker on each of these nodes."""
        found = self._parts.own(tier, domains)
        return found if tier else found + self._parts.lacks((0,), domains)

    def _have_one_step(self, tier: int, domains: Longs) -> Flags:
        """(domains,) whether all that fits in each of these domains costs as much as one unit."""
        if tier == 1 and self._whole_nodes and self._fits is not self._chain.sound:
            sound: Flags = self._alike.worn[domains] == 0
            return sound
        return np.full(len(domains), tier == 0 or (tier == 1 and self._whole_nodes))

    # Tracing the choice back

    def _held(self, tier: int, index: int, units: dict[int, int], taken: Sequence[tuple[int, int]]) -> Held:
        children = []
        for child, count in taken:
            held = {self._levels[tier - 1].unit: count}
            if tier == 1:
                children.append(Held(child, held, {}))
            else:
                taken_inside = self._inside(tier - 1, child, count * self._levels[tier - 1].ratio)
                children.append(self._held(tier - 1, child, held, taken_inside))
        return Held(index, units, self._units.opened(tier, units)[1], children)

    def _inside(self, tier: int, index: int, wanted: int) -> list[tuple[int, int]]:
        """How many units each child gets when the domain holds `wanted` units of the level below."""
        if tier == 1 and self._whole_nodes:
            return [(node, 1) for node in self._best_nodes(index, wanted).tolist()]
        children = self._children(tier, index, wanted)
        steps = self._joined(wanted, [options for _, options in children])
        return taken_of(children, steps, wanted)

    def _best_nodes(self, index: int, wanted: int) -> Longs:
        """The `wanted` usable nodes of a tier-1 domain that cost least, in tree order."""
        return np.sort(self._by_cost(index)[:wanted])

    def _by_cost(self, index: int) -> Longs:
        """The usable nodes of a tier-1 domain: by what they lack, then degraded links, then in tree order."""
        start, stop = self._free.nodes(1, index)
        nodes = start + np.flatnonzero(self._fits[0][start:stop])
        order = np.lexsort((self._free.forest.degraded[nodes], self._free.lacked((0,), nodes)))
        found: Longs = nodes[order]
        return found


def joined(first: Longs, children: Sequence[Sequence[_Option]]) -> list[Longs]:
    """Tables (words, n + 1) of at least n units, after each of the children.

    A child is either not used, or used at one of its steps.
    """
    found = [first]
    n = first.shape[1]
    shifted = np.empty_like(first)
    for options in children:
        before = found[-1]
        after = before.copy()
        for units, cost in options:
            at = min(units, n)
            np.add(before[:, : n - at], cost[:, None], out=shifted[:, at:])
            shifted[:, :at] = cost[:, None]
            keep_least(after[:, 1:], shifted[:, 1:])
        found.append(after)
    return found


def taken_of(
    children: Sequence[tuple[int, list[_Option]]], steps: Sequence[Longs], wanted: int
) -> list[tuple[int, int]]:
    """The used children when `joined` holds `wanted` units, in order, with the number of units of each.

    All but the last are full. The last one gets the rest.
    """
    found = []
    left = wanted
    for (child, options), before, after in zip(children[::-1], steps[-2::-1], steps[:0:-1], strict=True):
        cost = after[:, left].tolist()
        if before[:, left].tolist() == cost:
            continue
        for units, own in options:
            rest = max(0, left - units)
            if (before[:, rest] + own).tolist() == cost:
                found.append((child, units))
                left = rest
                break
    taken = []
    for child, units in reversed(found):  # each used child is needed to fit all units
        taken.append((child, min(units, wanted)))
        wanted -= taken[-1][1]
    return taken


def steps_of(table: Longs) -> list[_Option]:
    """(words, n + 1) -> for each cost the largest number of units, from one unit up."""
    last: Flags = np.ones(table.shape[1], np.bool_)
    last[:-1] = less(table[:, :-1], table[:, 1:])
    last[0] = False
    last &= table[0] < NEVER
    return [(units, table[:, units]) for units in np.flatnonzero(last).tolist()]
