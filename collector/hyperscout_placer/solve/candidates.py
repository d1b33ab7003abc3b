"""Lists the domains of a tier that may fit a gang, with a lower bound of each cost, most promising first."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from hyperscout_placer.cluster.forest import Flags, Longs
from hyperscout_placer.cluster.units import GANG, Units
from hyperscout_placer.solve.free import Free

_SMALL = 64  # workers on a node; up to this number they are counted, not sorted

# For a tier below the top, for each kind of unit: (domains,) how many fit, and how many the gang has.
Sizes = Callable[[int], Sequence[tuple[Longs, int]]]


def candidates(free: Free, units: Units, sizes: Sizes, might: Flags) -> Iterator[tuple[tuple[int, ...], int]]:
    """Each domain of `might` (domains of the top tier,) as (lower bound of the cost, number), least first."""
    which = np.flatnonzero(might)
    if len(which) <= 1:  # a single domain needs no bound
        yield from (((), domain) for domain in which.tolist())
        return
    columns = _bounds(free, units, sizes, which)
    for i in np.lexsort((which, *columns[::-1])).tolist():
        yield _at(columns, i, units), int(which[i])


def bound_of(free: Free, units: Units, sizes: Sizes, domain: int) -> tuple[int, ...]:
    """A lower bound of the gang's cost in a domain of the top tier."""
    return _at(_bounds(free, units, sizes, np.array([domain])), 0, units)


def _at(columns: Sequence[Longs], i: int, units: Units) -> tuple[int, ...]:
    # What is left over in the tiers below is not known: 0 is the bound.
    return (*(int(column[i]) for column in columns), *(0,) * units.top)


def _bounds(free: Free, units: Units, sizes: Sizes, which: Longs) -> list[Longs]:
    """The bounds, (which,) each.

    In order: domains from the tier below the top down, nodes, degraded links, workers that still fit in the
    domain.
    """
    wanted = units.kinds_in(GANG)
    columns = []
    for lower in range(units.top - 1, -1, -1):
        fewest = np.zeros(len(which), np.int64)
        for fits, count in sizes(lower):
            np.maximum(fewest, _fewest(free, units.top, which, lower, fits, count), out=fewest)
        columns.append(fewest)
    whole = free.fit(units.reference, units.top)[which]
    degraded = free.degraded(units.top)[which]
    if len(wanted) == 1 and units.top <= free.forest.top and (bad := free.forest.degraded > 0).any():
        # A gang that does not fit on the nodes without degraded links uses at least one degraded link more.
        worn = np.concatenate(([0], np.cumsum(np.where(bad, free.fits[0], 0))))
        layer = free.forest.layers[units.top - 1]
        degraded = degraded + (whole - (worn[layer.stop] - worn[layer.start])[which] < wanted[0])
    return [*columns, degraded, whole - wanted[units.reference]]


def _fewest(free: Free, tier: int, which: Longs, lower: int, sizes: Longs, wanted: int) -> Longs:
    """(which,) the least number of domains of tier `lower` (0 = nodes) that together fit `wanted` units.

    The domains may be anywhere inside. `sizes`: (domains of tier `lower`,) how many units fit.
    """
    most = int(sizes.max(initial=0))
    if lower == 0 and most <= 1:
        return np.full(len(which), wanted)
    if tier > free.forest.top:
        first, last = np.array([0]), np.array([len(free.forest.nodes)])
    else:
        layer = free.forest.layers[tier - 1]
        first, last = layer.start[which], layer.stop[which]
    if lower:
        starts = free.forest.layers[lower - 1].start
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
