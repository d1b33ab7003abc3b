"""Which domains of a tier might hold a gang, and what each costs at least: the most promising first."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from hyperscout_placer.cluster.forest import Flags, Longs
from hyperscout_placer.cluster.units import GANG, Units
from hyperscout_placer.solve.free import Room

_SMALL = 64  # workers on a node: so few that they are counted, not sorted

# Of a tier below the top, for each kind of unit: (domains,) how many fit, and how many the gang has.
Sizes = Callable[[int], Sequence[tuple[Longs, int]]]


def candidates(room: Room, units: Units, sizes: Sizes, might: Flags) -> Iterator[tuple[tuple[int, ...], int]]:
    """`might`: (domains of the top tier,). Each with a cost that it cannot go below; the least first."""
    which = np.flatnonzero(might)
    if len(which) <= 1:  # nothing to compare it with
        yield from (((), domain) for domain in which.tolist())
        return
    columns = _bounds(room, units, sizes, which)
    for i in np.lexsort((which, *columns[::-1])).tolist():
        yield _at(columns, i, units), int(which[i])


def bound_of(room: Room, units: Units, sizes: Sizes, domain: int) -> tuple[int, ...]:
    """A cost that a domain of the top tier cannot go below."""
    return _at(_bounds(room, units, sizes, np.array([domain])), 0, units)


def _at(columns: Sequence[Longs], i: int, units: Units) -> tuple[int, ...]:
    # Nothing is known of what is left over below it.
    return (*(int(column[i]) for column in columns), *(0,) * units.top)


def _bounds(room: Room, units: Units, sizes: Sizes, which: Longs) -> list[Longs]:
    """(which,) each: domains from the tier below down, nodes, degraded links, what is left over in it."""
    wanted = units.kinds_in(GANG)
    columns = []
    for lower in range(units.top - 1, -1, -1):
        fewest = np.zeros(len(which), np.int64)
        for fits, count in sizes(lower):
            np.maximum(fewest, _fewest(room, units.top, which, lower, fits, count), out=fewest)
        columns.append(fewest)
    free = room.fit(units.reference, units.top)[which]
    degraded = room.degraded(units.top)[which]
    if len(wanted) == 1 and units.top <= room.forest.top and (bad := room.forest.degraded > 0).any():
        # A gang that does not fit on what is sound takes one degraded link more at least.
        worn = np.concatenate(([0], np.cumsum(np.where(bad, room.fits[0], 0))))
        layer = room.forest.layers[units.top - 1]
        degraded = degraded + (free - (worn[layer.stop] - worn[layer.start])[which] < wanted[0])
    return [*columns, degraded, free - wanted[units.reference]]


def _fewest(room: Room, tier: int, which: Longs, lower: int, sizes: Longs, wanted: int) -> Longs:
    """(which,) how many of its domains of a lower tier (nodes at 0) at least reach so many units together,
    wherever below it they are. `sizes`: (domains of that tier,) how many fit."""
    most = int(sizes.max(initial=0))
    if lower == 0 and most <= 1:
        return np.full(len(which), wanted)
    if tier > room.forest.top:
        first, last = np.array([0]), np.array([len(room.forest.nodes)])
    else:
        layer = room.forest.layers[tier - 1]
        first, last = layer.start[which], layer.stop[which]
    if lower:
        starts = room.forest.layers[lower - 1].start
        first, last = np.searchsorted(starts, first), np.searchsorted(starts, last)
    ends = np.cumsum(last - first)
    owner = np.repeat(np.arange(len(which)), last - first)
    sizes = sizes[np.arange(len(owner)) - (ends - last)[owner]]
    if most > _SMALL:
        return _fewest_sorted(owner, sizes, ends, wanted)
    values = np.arange(most, 0, -1)
    counts = np.bincount(owner * (most + 1) + sizes, minlength=len(which) * (most + 1))
    counts = counts.reshape(len(which), most + 1)[:, :0:-1]  # the largest first
    sums = np.cumsum(counts * values, axis=1)
    at = np.arange(len(which)), np.argmax(sums >= wanted, axis=1)
    before = sums[at] - (counts * values)[at]
    found: Longs = np.cumsum(counts, axis=1)[at] - counts[at] - (before - wanted) // values[at[1]]
    return found


def _fewest_sorted(owner: Longs, sizes: Longs, ends: Longs, wanted: int) -> Longs:
    order = np.lexsort((-sizes, owner))
    sums = np.cumsum(sizes[order])
    before = np.concatenate(([0], sums))[np.concatenate(([0], ends[:-1]))]
    short = sums - before[owner] < wanted
    return np.bincount(owner[short], minlength=len(ends)) + 1
