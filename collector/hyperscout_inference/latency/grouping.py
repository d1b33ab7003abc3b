"""Group hosts or domains into domains by the votes of all measured pairs between them.

A pair votes for (up to 1) or against (down to -1) its two ends being together. Two groups merge if each is
the other's best and the votes between them are in favour. This is average linkage: one wrong value neither
merges two domains nor splits one, as it can with single or complete linkage. Then each unit moves to the
group that its own votes favour.
"""

from typing import Final

import numpy as np

from hyperscout_inference.latency.pairs import Floats, Longs

DENSE: Final = 100  # places per key up to which a table is faster than sorting
LEAST_PLACES: Final = 1 << 16
MAX_PLACES: Final = 1 << 24
MIX: Final = 1_000_003


def grouped(unit: Longs, a: Longs, b: Longs, vote: Floats) -> Longs:
    """(hosts,) the group of each host, numbered from 0. Units stay whole. `unit`: (hosts,) numbered from
    0."""
    if not len(unit):
        return unit
    units = int(unit.max()) + 1
    p, q, votes, count = _between(unit[a], unit[b], vote, np.ones(len(vote)), units)
    group = np.arange(units)
    for _ in range(3):
        group = _merged(group, p, q, votes, count)
        moved = _moved(group, p, q, votes)
        if np.array_equal(moved, group):
            break
        group = moved
    return numbered(group)[unit]


def numbered(label: Longs) -> Longs:
    """Renumber labels from 0, in the order of their first use."""
    if not len(label):
        return label
    first = np.full(int(label.max()) + 1, len(label))
    np.minimum.at(first, label, np.arange(len(label)))
    used = np.flatnonzero(first < len(label))
    first[used[np.argsort(first[used])]] = np.arange(len(used))
    return first[label]


def _between(
    p: Longs, q: Longs, vote: Floats, count: Floats, units: int
) -> tuple[Longs, Longs, Floats, Floats]:
    """Return the sums of votes and counts for each pair of groups that has some."""
    apart = p != q
    if not apart.all():
        p, q, vote, count = p[apart], q[apart], vote[apart], count[apart]
    stride = max(1, units)
    key = np.minimum(p, q) * stride + np.maximum(p, q)
    if np.all(key[1:] > key[:-1]):
        return key // stride, key % stride, vote, count  # each pair occurs once already
    key, (votes, number) = _summed(key, stride * stride, vote, count)
    return key // stride, key % stride, votes, number


def _summed(key: Longs, keys: int, *values: Floats) -> tuple[Longs, list[Floats]]:
    """Return each key once, ascending, with its sums. `keys`: upper bound of the keys, exclusive."""
    if keys <= max(LEAST_PLACES, min(DENSE * len(key), MAX_PLACES)):  # several times faster than sorting
        used = np.zeros(keys, np.bool_)
        used[key] = True
        found = np.flatnonzero(used)
        place = np.empty(keys, np.int64)
        place[found] = np.arange(len(found))
        where = place[key]
    else:
        order = np.argsort(key, kind="stable")  # mostly sorted already, which is fast
        ordered = key[order]
        new = np.ones(len(key), np.bool_)
        new[1:] = ordered[1:] != ordered[:-1]
        found = ordered[new]
        where = np.empty(len(key), np.int64)
        where[order] = np.cumsum(new) - 1
    return found, [np.bincount(where, value, len(found)).astype(np.float64) for value in values]


def _merged(group: Longs, p: Longs, q: Longs, votes: Floats, count: Floats) -> Longs:
    """Merge groups that are each other's best, until no two groups have votes in favour."""
    group = numbered(group)
    p, q, votes, count = _between(group[p], group[q], votes, count, len(group))
    while True:
        wanted = np.flatnonzero(votes > 0)
        if not len(wanted):
            return group
        left, right = p[wanted], q[wanted]
        # Few votes weigh less. Ties go by a hash of the group numbers, so that not all choose the same group.
        mix = (left * 2654435761 + right * 40503 + left * right) % MIX
        wish = np.rint(votes[wanted] / (count[wanted] + 1.0) * 1e9).astype(np.int64) * MIX + mix
        groups = int(group.max()) + 1
        best = np.full(groups, -1)
        np.maximum.at(best, left, wish)
        np.maximum.at(best, right, wish)
        best_of_left, best_of_right = best[left] == wish, best[right] == wish
        mutual = best_of_left & best_of_right
        to = np.arange(groups)
        to[right[mutual]] = left[mutual]
        # A group that is the best of several units (all near one landmark) absorbs them at once.
        stays = np.zeros(groups, np.bool_)
        stays[left[mutual]] = True
        free = ~stays
        free[right[mutual]] = False
        for one, other, is_best in ((left, right, best_of_left), (right, left, best_of_right)):
            joins = is_best & free[one] & stays[other] & (wish // MIX == best[other] // MIX)
            to[one[joins]] = other[joins]
        to = numbered(to)
        group = to[group]
        p, q, votes, count = _between(to[p], to[q], votes, count, int(to.max()) + 1)


def _moved(group: Longs, p: Longs, q: Longs, votes: Floats) -> Longs:
    """Move each unit to the group that its own votes favour most, or out on its own if they favour none."""
    units = len(group)
    unit = np.concatenate((p, q))
    groups = int(group.max()) + 1
    key, (total,) = _summed(
        unit * groups + group[np.concatenate((q, p))], units * groups, np.concatenate((votes, votes))
    )
    unit_of, where_to = key // groups, key % groups
    own = np.zeros(units)
    mine = where_to == group[unit_of]
    own[unit_of[mine]] = total[mine]
    order = np.argsort(total, kind="stable")
    best, best_group = np.zeros(units), group.copy()
    best[unit_of[order]] = total[order]
    best_group[unit_of[order]] = where_to[order]
    alone = np.bincount(group, minlength=units)[group] == 1
    moved = np.where((best > own + 1e-9) & (best > 0), best_group, group)
    outcast = (own < 0) & (best <= 0) & ~alone
    return numbered(np.where(outcast, units + np.arange(units), moved))
