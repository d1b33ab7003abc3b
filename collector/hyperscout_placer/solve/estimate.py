"""Counts how much of a gang fits into each domain at most, without placing it.

It counts whole groups, tier by tier from the nodes up. For gangs with one kind of worker the result is exact.
Several kinds share the same resources, so fewer workers may really fit.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from hyperscout_placer.cluster.capacity import Capacity, Mask
from hyperscout_placer.cluster.forest import Flags, Forest, Longs
from hyperscout_placer.cluster.request import MAX_WORKERS, Group, Request, Workers, counted, ends, size

_Part = Group | Workers
_PARTS = 1 << 20
_MAX_PARTS = _PARTS * MAX_WORKERS
_STEPS = 21  # steps of a binary search over the largest number of copies


class Estimate:
    """The estimate of one request on the free resources. `barred`: (nodes,) never used."""

    def __init__(
        self, capacity: Capacity, request: Request, masks: Mapping[str, Mask], barred: Flags
    ) -> None:
        self._capacity = capacity
        self._forest: Forest = capacity.forest
        self._usable = ~barred
        self._fits: dict[tuple[object, str], Longs] = {}
        for kind in ends(request.gang):
            fit = capacity.fit(kind, masks.get(kind.role), use_down=request.use_down).nodes
            self._fits[kind.resources, kind.role] = np.where(barred, 0, fit) if barred.any() else fit

    def fit(self, kind: Workers) -> Longs:
        """(nodes,) how many workers of a kind fit."""
        return self._fits[kind.resources, kind.role]

    def workers(self, group: Group, tier: int) -> Longs:
        """(domains of `tier`,) how many workers of one copy of the group fit, in whole inner groups.

        One tier above the forest's highest: (1,) for all islands together.
        """
        total = np.zeros(self._forest.count(tier), np.int64)
        spread = group.spread if group.spread is not None and group.spread.tier < tier else None
        capped = None if spread is None else np.zeros(self._forest.count(spread.tier), np.int64)
        for part, need in _flat(group, tier):
            one = size(part) // part.count
            at, copies = self._copies(part, tier)
            if spread is not None and capped is not None and at <= spread.tier:
                here = np.minimum(self.summed(copies, at, spread.tier), min(need, spread.most // one))
                capped += one * here
                copies, at = here, spread.tier
            total += one * np.minimum(self.summed(copies, at, tier), need)
        if group.spread is not None and spread is None:
            total = np.minimum(total, group.spread.most)  # all workers are in one domain of the spread's tier
        if spread is not None and capped is not None and capped.any():
            if len(alike := self._alike(group, spread.tier)) == 1:
                capped = np.minimum(capped, alike[0][1])
            total = np.minimum(total, self.summed(np.minimum(capped, spread.most), spread.tier, tier))
        workers = size(group) // group.count
        if alike := self._alike(group, tier):
            total = np.minimum(total, workers - sum(np.maximum(n - there, 0) for n, there in alike))
        for parts in self._shares(group, tier):
            total = np.minimum(total, np.minimum(parts, _PARTS) * workers // _PARTS)
        return total

    def whole(self, group: Group, tier: int) -> bool:
        """Whether one copy of the group fits in some domain of `tier`."""
        return bool(self.copies(group, tier).any())

    def copies(self, group: Group, tier: int) -> Longs:
        """(domains of `tier`,) how many copies of a group fit at once."""
        parts = [(size(p) // p.count, need, *self._copies(p, tier)) for p, need in _flat(group, tier)]
        found = [self.summed(copies, at, tier) // need for _, need, at, copies in parts]
        most: Longs = np.min(found, axis=0)
        for count, there in self._alike(group, tier):
            most = np.minimum(most, there // count)
        for shares in self._shares(group, tier):
            most = np.minimum(most, shares // _PARTS)
        spread = group.spread
        if spread is not None and spread.tier < tier:
            below = [
                (one, need, self.summed(copies, at, spread.tier))
                for one, need, at, copies in parts
                if at <= spread.tier
            ]
            if len(parts) == 1 and below:
                most = self._spread_out(most, spread.tier, tier, spread.most // below[0][0], *below[0][1:])
            elif below:
                held = np.minimum(sum(one * np.minimum(n, need) for one, need, n in below), spread.most)
                wanted = sum(one * need for one, need, _ in below)
                most = np.minimum(most, self.summed(held, spread.tier, tier) // wanted)
        elif spread is not None and spread.most < size(group) // group.count:
            most = np.zeros_like(most)
        return most

    def _copies(self, part: _Part, around: int) -> tuple[int, Longs]:
        """The part's tier, and how many copies fit in each domain of that tier."""
        if isinstance(part, Workers):
            return 0, self.fit(part)
        tier = around if part.tier is None else min(part.tier, around)
        return tier, self.copies(part, tier)

    def _spread_out(self, most: Longs, low: int, tier: int, each: int, need: int, there: Longs) -> Longs:
        """The largest n for which n copies fit, with at most `each` parts of a copy in a domain of `low`.

        `need`: parts of one copy. A binary search works, because the number of missing parts grows with n.
        """
        layer = None if low == 0 else self._forest.layers[low - 1]
        first = np.arange(len(there)) if layer is None else layer.start
        owner = np.zeros(len(there), np.int64)
        if tier <= self._forest.top:
            starts = self._forest.layers[tier - 1].start  # `of_node` has no entry for a domain without nodes
            owner = np.maximum(np.searchsorted(starts, first, side="right") - 1, 0)
        least, most = np.zeros_like(most), most.copy()
        for _ in range(_STEPS):
            middle = (least + most + 1) // 2
            held = self.summed(np.minimum(there, middle[owner] * each), low, tier)
            fits = held >= middle * need
            least, most = np.where(fits, middle, least), np.where(fits, most, np.maximum(middle - 1, 0))
        return least

    def _alike(self, group: Group, tier: int) -> list[tuple[int, Longs]]:
        """For each need: the number of workers with it in one copy of the group, and how many fit per domain.

        Empty where there is only one kind.
        """
        kinds = list(counted(group))
        found: dict[object, tuple[int, Longs]] = {}
        for kind, count in kinds if len(kinds) > 1 else ():
            fit = self.fit(kind)
            before, most = found.get(kind.resources, (0, fit))
            found[kind.resources] = before + count // group.count, np.maximum(most, fit)
        return [(count, self.summed(fit, 0, tier)) for count, fit in found.values()]

    def _shares(self, group: Group, tier: int) -> Iterator[Longs]:
        """For each resource: the free amount of each domain, in units of 1/`_PARTS` of one copy's need.

        Empty unless the group has workers with different needs.
        """
        kinds = list(counted(group))
        if len({kind.resources for kind, _ in kinds}) < 2:
            return
        needed: dict[str, int] = {}
        for kind, count in kinds:
            for name, amount in kind.resources:
                needed[name] = needed.get(name, 0) + amount * (count // group.count)
        usable = self._usable & np.any([self.fit(kind) > 0 for kind, _ in kinds], axis=0)
        for name, amount in needed.items():
            if amount:
                # Amounts are scaled, because a sum of bytes over a whole cluster could overflow.
                parts = np.ceil(np.where(usable, self._capacity.free(name), 0) / amount * _PARTS)
                yield self.summed(np.minimum(parts, float(_MAX_PARTS)).astype(np.int64), 0, tier)

    def summed(self, counts: Longs, low: int, tier: int) -> Longs:
        """Counts of domains of tier `low`, summed for the domains of `tier`."""
        for t in range(low + 1, tier + 1):
            if t > self._forest.top:
                return np.array([counts.sum()], np.int64)
            counts = self._forest.layers[t - 1].summed(counts)
        return counts


def _flat(group: Group, tier: int) -> Iterator[tuple[_Part, int]]:
    """The parts of a group and their number in one copy. Groups without a constraint are dissolved."""

    def parts_of(parts: Sequence[_Part], times: int) -> Iterator[tuple[_Part, int]]:
        for part in parts:
            free = (
                isinstance(part, Group) and part.spread is None and (part.tier is None or part.tier >= tier)
            )
            if isinstance(part, Group) and free:
                yield from parts_of(part.parts, times * part.count)
            else:
                yield part, times * part.count

    yield from parts_of(group.parts, 1)
