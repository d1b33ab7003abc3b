"""Costs that are compared part by part, packed into as few integers as they need.

Each part has a bound, so it has a fixed number of bits and sums never spill over. Most gangs' costs fit into
one word; others take two or three, compared in order.
"""

from collections.abc import Sequence

import numpy as np

from hyperscout_placer.cluster.forest import Flags, Longs

_BITS = 60  # of a word: room for the sum of two, and for NEVER
NEVER = 1 << 61  # in the first word: cannot be done


class Packing:
    """`bounds`: the most that each part can come to in all, most important first."""

    def __init__(self, bounds: Sequence[int]) -> None:
        self._places: list[tuple[int, int, int]] = []  # word, shift, bits
        left = [0]
        for bound in bounds:
            bits = int(bound).bit_length()
            if left[-1] + bits > _BITS:
                left.append(0)
            self._places.append((len(left) - 1, left[-1], bits))
            left[-1] += bits
        # What comes first in a word is its highest part.
        self._places = [(word, left[word] - before - bits, bits) for word, before, bits in self._places]
        self.words = len(left)

    def place(self, part: int) -> tuple[int, int]:
        """The word of a part, and by how much it is shifted there."""
        word, shift, _ = self._places[part]
        return word, shift

    def unpack(self, words: Longs) -> tuple[int, ...]:
        return tuple(
            int(words[word]) >> shift & ((1 << bits) - 1) if bits else 0 for word, shift, bits in self._places
        )


def less(a: Longs, b: Longs) -> Flags:
    """Where a < b; words first: (words, ...)."""
    found: Flags = a[-1] < b[-1]
    for x, y in zip(a[-2::-1], b[-2::-1], strict=True):
        found = (x < y) | ((x == y) & found)
    return found


def keep_least(into: Longs, other: Longs) -> None:
    """Where `other` is less it takes the place; words first."""
    if len(into) == 1:
        np.minimum(into, other, out=into)
    else:
        np.copyto(into, other, where=less(other, into))
