"""Excludes children of a domain that no best placement uses, and bounds the units of the other children.

A cost compares the number of used children first and the number of used grandchildren second. Both are cheap
to compute: a child that uses n of its grandchildren holds at most as many units as the n largest of them. A
table has the largest number of units for each pair (children, grandchildren). The least pair that holds all
units is a lower bound of both numbers. A child is excluded if no choice of that size contains it. For each
other child the same table gives the smallest and the largest number of units.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from hyperscout_placer.cluster.forest import Longs
from hyperscout_placer.solve.work import Work

MAX_HELD: Final = 3 * 10**6  # entries (children times grandchildren) of a table that is still sifted
_AT_ONCE: Final = 10**6  # sums in memory
_NONE: Final = -(1 << 40)  # units of an impossible entry


@dataclass(frozen=True, slots=True)
class Window:
    """A child, and the units it may hold if it is used. Children with different `look`s differ."""

    index: int
    least: int
    most: int
    look: bytes


def choosable(fits: Longs, wanted: int) -> tuple[Longs, int, Longs]:
    """The children that may be one of the fewest that fit `wanted` units.

    Also returns the number of these fewest, and the positions of the largest children in the first result.
    """
    order = np.argsort(-fits, kind="stable")
    sums = np.cumsum(fits[order])
    used = int(np.searchsorted(sums, wanted)) + 1
    # What is left for one child beside the largest others.
    least = wanted - (int(sums[used - 2]) if used > 1 else 0)
    may = np.flatnonzero(fits >= max(least, 1))
    return may, used, np.searchsorted(may, order[:used])


def whole(start: int, fits: Longs, may: Longs) -> list[Window]:
    """Windows of children about which only the fit is known."""
    return [Window(start + i, 1, int(fits[i]), fits[i].tobytes()) for i in may.tolist()]


def sifted(
    start: int,
    fits: Longs,
    child: Longs,
    child_stop: Longs,
    inside: Longs,
    ratio: int,
    wanted: int,
    work: Work,
) -> tuple[list[Window], int, int]:
    """Windows of the children that may be used, and the numbers of used children and grandchildren.

    `fits`: (children,) units that fit; the first child is number `start`. `child`, `child_stop`: the run of
    each child's own children in `inside`, the units that fit there. `ratio` of these units make one of a
    child's.
    """
    may, used, largest = choosable(fits, wanted)
    widest = int((child_stop - child)[may].max())
    if len(may) * widest > MAX_HELD:
        return whole(start, fits, may), used, 0  # too many to sift; 0 is the lower bound
    held = _held(fits, child, child_stop, inside, ratio, wanted, may, widest)
    most = _enough(held, largest, wanted)
    work.spend(held.size * used * most)
    reached = _reached(held, used, most)
    grandchildren = int(np.argmax(reached[used] >= wanted))
    # The most that the other children can hold with the remaining grandchildren; an upper bound, as they may
    # count this child as well.
    others = reached[used - 1, grandchildren - 1 :: -1] if grandchildren else reached[used - 1, :0]
    rows = held[:, 1 : len(others) + 1]
    spare = rows + others[: rows.shape[1]] - wanted
    found = []
    for i in np.flatnonzero((spare >= 0).any(axis=1)).tolist():
        fine = spare[i] >= 0
        low = int((rows[i] - spare[i])[fine].min())
        found.append(Window(start + int(may[i]), max(1, low), int(rows[i][fine].max()), held[i].tobytes()))
    return found, used, grandchildren


def _held(
    fits: Longs,
    child: Longs,
    child_stop: Longs,
    inside: Longs,
    ratio: int,
    wanted: int,
    may: Longs,
    widest: int,
) -> Longs:
    """(children that may, l): the most units with l of one's own children; `_NONE` beyond their number.

    `widest`: the largest number of own children.
    """
    at = child[may][:, None] + np.arange(widest)
    there = at < child_stop[may][:, None]
    sizes = np.where(there, inside[np.minimum(at, len(inside) - 1)], 0)
    sizes = -np.sort(-sizes, axis=1)
    held = np.zeros((len(may), widest + 1), np.int64)
    np.cumsum(sizes, axis=1, out=held[:, 1:])
    held //= ratio
    np.minimum(held, np.minimum(fits[may], wanted)[:, None], out=held)
    # A grandchild that adds nothing is no choice.
    held[:, 1:][sizes == 0] = _NONE
    return held


def _enough(held: Longs, largest: Longs, wanted: int) -> int:
    """A number of grandchildren that is enough: those of the largest children, one after the other."""
    found = 0
    for row in held[largest]:
        take = min(wanted, int(row.max()))
        found += int(np.argmax(row >= take))
        wanted -= take
    return found


def _reached(held: Longs, used: int, most: int) -> Longs:
    """(used + 1, most + 1): the most units with exactly that many children and grandchildren."""
    wide = held.shape[1] - 1
    found = np.full((used + 1, most + 1), _NONE, np.int64)
    found[0, 0] = 0
    padded = np.full((used, wide + most), _NONE, np.int64)
    before = sliding_window_view(padded, wide, axis=1)[:, 1:, ::-1]  # (used, most, j) -> j + 1 fewer
    block = min(most, _AT_ONCE // (used * wide) + 1)
    sums = np.empty((used, block, wide), np.int64)
    for row in held:
        padded[:, wide:] = found[:-1, :-1]
        for i in range(0, most, block):
            part = found[1:, i + 1 : i + 1 + block]
            np.add(before[:, i : i + block], row[1:], out=sums[:, : part.shape[1]])
            np.maximum(part, sums[:, : part.shape[1]].max(axis=2), out=part)
    return found
