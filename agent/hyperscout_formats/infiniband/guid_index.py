"""Numbers GUIDs by first mention. Sorting a million GUIDs would take longer than reading them."""

from typing import Final

import numpy as np
import numpy.typing as npt

_MULTIPLIERS: Final = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F)
"""Odd multipliers for multiplicative hashing, one for each round."""


def first_mentions(
    guids: npt.NDArray[np.uint64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
    """Return (m,) the number of the GUID of each mention, and (n,) the GUIDs in order of first mention.

    This is a hash table without chains. In each round, every pending mention writes its index to the slot of
    its hash, in reverse order, so that the first mention is written last. Mentions that then find their own
    GUID in the slot are done. The others (another GUID has the slot) take part in the next round.
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
    if len(pending):  # few by chance, but crafted input can have any number
        _, at, inverse = np.unique(guids[pending], return_index=True, return_inverse=True)
        first[pending] = pending[at[inverse]]
    is_first = first == np.arange(size)
    number = np.cumsum(is_first) - 1
    return number[first], guids[is_first]
