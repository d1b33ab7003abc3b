"""Packs costs that are compared part by part into as few integers as possible.

Each part has a bound, so it has a fixed number of bits and sums do not overflow into other parts. The costs
of most gangs fit into one word. Others take two or three, compared in order.
"""

from collections.abc import Sequence

import numpy as np

from hyperscout_placer.cluster.forest import Flags, Longs

_BITS = 60  # bits of a word, so that the sum of two words and NEVER fit
NEVER = 1 << 61  # in the first word: impossible


class Packing:
    """The layout of the parts.

    `bounds`: the maximum of each part's sum. `order`: the parts, the most important one first.
    """

    def __init__(self, bounds: Sequence[int], order: Sequence[int]) -> None:
        self._places: list[tuple[int, int, int]] = []  # word, shift, bits
        left = [0]
        for part in order:
            bits = int(bounds[part]).bit_length()
            if left[-1] + bits > _BITS:
                left.append(0)
            self._places.append((len(left) - 1, left[-1], bits))
            left[-1] += bits
        # The first part of a word is in its highest bits.
        self._places = [(word, left[word] - before - bits, bits) for word, before, bits in self._places]
        self._places = [self._places[order.index(part)] for part in range(len(bounds))]
        self.words = len(left)

    def place(self, part: int) -> tuple[int, int]:
        """The word of a part, and its shift in that word."""
        word, shift, _ = self._places[part]
        return word, shift

    def unpack(self, words: Longs) -> tuple[int, ...]:
        return tuple(
            int(words[word]) >> shift & ((1 << bits) - 1) if bits else 0 for word, shift, bits in self._places
        )


def less(a: Longs, b: Longs) -> Flags:
    """Where a < b. The words are the first axis: (words, ...)."""
    found: Flags = a[-1] < b[-1]
    for x, y in zip(a[-2::-1], b[-2::-1], strict=True):
        found = (x < y) | ((x == y) & found)
    return found


def keep_least(into: Longs, other: Longs) -> None:
    """Replace `into` by `other` where `other` is less. The words are the first axis."""
    if len(into) == 1:
        np.minimum(into, other, out=into)
    else:
        np.copyto(into, other, where=less(other, into))


def among_least(costs: Longs, most: int) -> Flags:
    """(children, units) whether a cost is one of the `most` least of the children; of equals, the earlier."""
    order = np.lexsort(costs[::-1], axis=0)[:most]
    found: Flags = np.zeros(costs.shape[1:], np.bool_)
    np.put_along_axis(found, order, True, axis=0)
    found &= costs[0] < NEVER
    return found
