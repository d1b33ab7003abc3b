"""Finds equal domains and equal nodes: what is best in one of them is best in the others."""

from functools import cached_property

import numpy as np

from hyperscout_placer.cluster.forest import Longs
from hyperscout_placer.solve.free import Free


class Alike:
    """Equivalence numbers of domains and nodes in one gang's `Free`, computed on demand."""

    def __init__(self, free: Free) -> None:
        self._free = free
        self._numbers: list[dict[object, int]] = [{} for _ in range(free.forest.top + 1)]
        self._known: list[dict[int, int]] = [{} for _ in range(free.forest.top + 1)]
        self._features = [*free.fits, *free.free]  # the columns that distinguish nodes
        self._whole_nodes = len(self._features) == 1 and bool(free.fits[0].max(initial=0) <= 1)
        self._features += [x for x in (free.forest.degraded, *free.lacking) if x.any()]

    def children(self, tier: int, index: int) -> list[int]:
        """The children with free resources, equal ones next to each other."""
        inside = self._with_free(tier, index)
        return [child for _, child in sorted((self.number(tier - 1, x), x) for x in inside)]

    def number(self, tier: int, index: int) -> int:
        """The equivalence number: equal domains of a tier have the same number."""
        found = self._known[tier].get(index)
        if found is None:
            numbers = self._numbers[tier]
            found = self._known[tier][index] = numbers.setdefault(self._key(tier, index), len(numbers))
        return found

    def _key(self, tier: int, index: int) -> object:
        if tier == 0:
            return tuple(int(x[index]) for x in self._features)
        degraded = int(self._free.degraded(tier)[index]), bool(self._free.whole(tier)[index])
        if tier == 1 and self._whole_nodes and not self.worn[index]:
            return degraded, int(self._free.fit(0, 1)[index])
        if tier == 1:
            nodes = self._with_free(tier, index)
            columns = np.array([x[nodes] for x in self._features])
            return degraded, columns[:, np.lexsort(columns)].tobytes()
        return degraded, tuple(sorted(self.number(tier - 1, x) for x in self._with_free(tier, index)))

    @cached_property
    def worn(self) -> Longs:
        """(domains of tier 1,) degraded links of the nodes with free resources, and what these nodes lack."""
        free = self._free
        worn = sum(free.lacking, free.forest.degraded)
        return free.forest.layers[0].summed(np.where(free.fits[0] > 0, worn, 0))

    def _with_free(self, tier: int, index: int) -> list[int]:
        start, stop = self._free.children(tier, index)
        fits = [self._free.fit(kind, tier - 1)[start:stop] for kind in range(len(self._free.fits))]
        return (start + np.flatnonzero(np.logical_or.reduce(fits))).tolist()
