"""Small calculations that the repair search and its bounds share."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from hyperscout_placer.cluster.forest import Forest, Longs

_SUMS: Final = 10_000  # additions, and the largest sum, for `least_sum`


def width(forest: Forest, nodes: Sequence[int]) -> int:
    """The tier of the lowest common domain: 0 = one node, highest tier + 1 = no common domain."""
    if min(nodes) == max(nodes):
        return 0
    holder = forest.holder(nodes)
    return forest.top + 1 if holder is None else holder[0]


def least_sum(numbers: list[int], count: int, least: int) -> int:
    """The smallest sum of `count` of the numbers that is `least` or more.

    Returns `least`, a lower bound, where no such sum exists or where the calculation would take long.
    """
    if len(numbers) * count > _SUMS or max(numbers, default=0) * count > _SUMS:
        return least
    sums = [1, *[0] * count]  # bit s of element k is set if k of the numbers sum to s
    for number in numbers:
        for taken in range(count, 0, -1):
            sums[taken] |= sums[taken - 1] << number
    above = sums[count] >> least
    return least + (above & -above).bit_length() - 1 if above else least


def runs(start: Longs, stop: Longs) -> Longs:
    """All numbers of these runs, one run after the other."""
    lengths = stop - start
    ends = np.cumsum(lengths)
    shifts: Longs = np.repeat(start - (ends - lengths), lengths)
    return np.arange(len(shifts), dtype=np.int64) + shifts
