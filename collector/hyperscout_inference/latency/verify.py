"""Which pairs to measure again, for ever: a hierarchy that is known may have changed.

Neighbours in each innermost domain, and representatives of domains side by side, stand in rings: so a host or
a domain that is no longer where it was is noticed. A learnt hierarchy rests on other pairs, too; these come
round as well.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from hyperscout_inference.latency.measured import Known, keys_of, sizes_of
from hyperscout_inference.latency.pairs import Longs

NEIGHBOURS: Final = 2  # to either side, in verification


def verification(
    known: Known,
    domains: Sequence[Longs],
    rank: Longs,
    random: np.random.Generator,
    until_ns: int,
    *,
    never: bool,
) -> Longs:
    """Keys of pairs that were not measured since `until_ns`, the oldest first.

    Of a wired hierarchy (`never`) in turn with those that never were; of a learnt one in turn with all else
    that it was learnt from so long ago: a host that moved is held where it was by what was measured there.
    """
    pairs = [_rings(known.nodes, labels, rank) for labels in _sides(domains, rank)]
    keys = np.unique(np.concatenate([np.zeros(0, np.int64), *pairs]))
    when = known.when(keys // known.nodes, keys % known.nodes)
    due = _oldest(keys, when, until_ns)
    if never:
        return _in_turn(random.permutation(keys[when == -1]), due)
    other = ~np.isin(known.key, keys)
    return _in_turn(due, _oldest(known.key[other], known.at_ns[other], until_ns))


def _oldest(keys: Longs, when: Longs, until_ns: int) -> Longs:
    """Those measured before that, the oldest first."""
    old = (when >= 0) & (when < until_ns)
    return np.asarray(keys[old][np.argsort(when[old], kind="stable")])


def _in_turn(x: Longs, y: Longs) -> Longs:
    """One of either at a time, then what is left of the longer."""
    both = np.concatenate((np.arange(len(x)) * 2, np.arange(len(y)) * 2 + 1))
    return np.concatenate((x, y))[np.argsort(both, kind="stable")]


def _sides(domains: Sequence[Longs], rank: Longs) -> list[Longs]:
    """Who stands in a ring with whom: the hosts of each innermost domain; of each domain above, one
    representative of each domain within (-1 = not in one)."""
    rings = [*domains[:1]]
    for inner, outer in pairwise(domains):
        order = np.argsort(rank)
        inside = order[inner[order] >= 0]
        _, begin = np.unique(inner[inside], return_index=True)
        ring = np.full(len(rank), -1)
        ring[inside[begin]] = outer[inside[begin]]
        rings.append(ring)
    return rings


def _rings(nodes: int, labels: Longs, rank: Longs) -> Longs:
    """Keys of neighbours in the rings of those with one label, by rank."""
    order = np.lexsort((rank, labels))
    order = order[labels[order] >= 0]
    if not len(order):
        return np.zeros(0, np.int64)
    begin = np.searchsorted(labels[order], labels[order])
    size = sizes_of(labels)[order]
    at = np.arange(len(order)) - begin
    keys = [
        keys_of(order, order[begin + (at + step) % size], nodes)[size > step]
        for step in range(1, NEIGHBOURS + 1)
    ]
    return np.concatenate(keys)
