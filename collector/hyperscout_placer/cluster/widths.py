"""How far apart the ranks of each group of a gang are."""

from collections.abc import Iterator, Sequence

import numpy as np

from hyperscout_placer.cluster.forest import Forest, Longs
from hyperscout_placer.cluster.request import Group, size


def widths_of(forest: Forest, gang: Group, nodes: Sequence[int]) -> tuple[int, ...]:
    """By group inside the gang, in the order of the request: the tier of the widest of its copies.

    A copy on one node has 0, one without a common domain the highest tier + 1. `nodes`: by rank.
    """
    return tuple(_width(forest, runs) for runs in _runs(gang, np.asarray(nodes, np.int64)[None, :]))


def _runs(group: Group, inside: Longs) -> Iterator[Longs]:
    """For each group inside: (its copies, workers of one) nodes. `inside`: those of the group around."""
    at = 0
    for part in group.parts:
        if isinstance(part, Group):
            one = size(part) // part.count
            runs = inside[:, at : at + size(part)].reshape(-1, one)
            yield runs
            yield from _runs(part, runs)
        at += size(part)


def _width(forest: Forest, runs: Longs) -> int:
    low, high = runs.min(axis=1), runs.max(axis=1)  # a domain is a run of nodes
    for tier in range(forest.top + 1):
        if np.array_equal(forest.domain_of(tier, low), forest.domain_of(tier, high)):
            return tier
    return forest.top + 1
