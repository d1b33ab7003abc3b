"""Choose the pairs to measure again, without end, because a known hierarchy may change.

Neighbours in each innermost domain form rings, and so do representatives of sibling domains. They show when a
host or a domain has moved. A learnt hierarchy rests on other pairs, too; these are measured again as well.
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
    """Return keys of pairs that were not measured since `until_ns`, the oldest first.

    `never` (a wired hierarchy): they alternate with ring pairs that were never measured. Otherwise (a learnt
    hierarchy) they alternate with all other pairs that were not measured since then: old values would keep a
    host that moved at its former place.
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
    """Return the keys that were measured before `until_ns`, the oldest first."""
    old = (when >= 0) & (when < until_ns)
    return np.asarray(keys[old][np.argsort(when[old], kind="stable")])


def _in_turn(x: Longs, y: Longs) -> Longs:
    """Return the two columns alternately, then the rest of the longer one."""
    both = np.concatenate((np.arange(len(x)) * 2, np.arange(len(y)) * 2 + 1))
    return np.concatenate((x, y))[np.argsort(both, kind="stable")]


def _sides(domains: Sequence[Longs], rank: Longs) -> list[Longs]:
    """Return the rings: the hosts of each innermost domain; for each domain above, one representative of each
    domain within it (-1 = in no ring)."""
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
    """Return keys of neighbours in the rings: nodes with the same label, by rank."""
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
