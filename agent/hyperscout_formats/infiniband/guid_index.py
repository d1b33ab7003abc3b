"""Numbers GUIDs by first mention. Sorting a million of them would cost more than reading them."""

from typing import Final

import numpy as np
import numpy.typing as npt

_MULTIPLIERS: Final = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F)
"""Odd numbers for multiplicative hashing, one a round."""


def first_mentions(
    guids: npt.NDArray[np.uint64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
    """(m,) number of each mention's GUID, and (n,) the GUIDs in order of first mention.

    A hash table without chains: all mentions write their place at their hash, the first one last; those
    that then find their own GUID there are done, the others (another GUID has the place) go another round.
    """
    size = len(guids)
    bits = max(8, size.bit_length())
    first = np.empty(size, np.int32)
    table = np.empty(1 << bits, np.int32)
    pending = np.arange(size, dtype=np.int32)
    for multiplier in _MULTIPLIERS:
        mine = guids[pending]
        place = (mine * np.uint64(multiplier)) >> np.uint64(64 - bits)
        table[place[::-1]] = pending[::-1]
        found = table[place]
        same = guids[found] == mine
        first[pending[same]] = found[same]
        pending = pending[~same]
    if len(pending):  # few by chance, any number by intent
        _, at, inverse = np.unique(guids[pending], return_index=True, return_inverse=True)
        first[pending] = pending[at[inverse]]
    is_first = first == np.arange(size)
    number = np.cumsum(is_first) - 1
    return number[first], guids[is_first]
