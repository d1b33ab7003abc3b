"""Finds equal domains and equal nodes: what is best in one of them is best in the others."""

from functools import cached_property

import numpy as np

from hyperscout_placer.cluster.capacity import summed
from hyperscout_placer.cluster.forest import Longs
from hyperscout_placer.solve.free import Room


class Alike:
    """Equivalence numbers of domains and nodes in one gang's `Room`, computed on demand."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._numbers: list[dict[object, int]] = [{} for _ in range(room.forest.top + 1)]
        self._known: list[dict[int, int]] = [{} for _ in range(room.forest.top + 1)]
        self._features = [*room.fits, *room.free]  # the columns that distinguish nodes
        self._whole_nodes = len(self._features) == 1 and bool(room.fits[0].max(initial=0) <= 1)
        if room.forest.degraded.any():
            self._features.append(room.forest.degraded)

    def children(self, tier: int, index: int) -> list[int]:
        """The children with free resources, equal ones next to each other."""
        inside = self._with_room(tier, index)
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
        degraded = int(self._room.degraded(tier)[index])
        if tier == 1 and self._whole_nodes and not self._worn[index]:
            return degraded, int(self._room.fit(0, 1)[index])
        if tier == 1:
            nodes = self._with_room(tier, index)
            columns = np.array([x[nodes] for x in self._features])
            return degraded, columns[:, np.lexsort(columns)].tobytes()
        return degraded, tuple(sorted(self.number(tier - 1, x) for x in self._with_room(tier, index)))

    @cached_property
    def _worn(self) -> Longs:
        """(domains of tier 1,) degraded links of the nodes with free resources."""
        return summed(self._room.forest, np.where(self._room.fits[0] > 0, self._room.forest.degraded, 0))[0]

    def _with_room(self, tier: int, index: int) -> list[int]:
        start, stop = self._room.children(tier, index)
        fits = [self._room.fit(kind, tier - 1)[start:stop] for kind in range(len(self._room.fits))]
        return (start + np.flatnonzero(np.logical_or.reduce(fits))).tolist()
