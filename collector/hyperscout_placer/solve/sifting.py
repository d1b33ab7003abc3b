"""Excludes children of a domain that no best placement uses, and bounds the units of the other children.

A cost compares the number of used children first and the number of used grandchildren second. Both have
bounds that are cheap to compute. For every number v, l grandchildren hold at most l v and what each holds
above v. For one child, there is a most that its grandchildren hold above v; for k children, this is at most
the sum of the k largest. That bounds the number of grandchildren from below, and the units of the other
children beside one child from above. A child is excluded if the units are too few for each number of its own
children. For each other child, the bound gives the smallest and the largest number of units.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from hyperscout_placer.cluster.forest import Longs

MAX_HELD: Final = 3 * 10**6  # entries (children times grandchildren) of a table that is still sifted
MAX_VALUES: Final = 32  # numbers v
_NONE: Final = -(1 << 40)  # units of an impossible entry


@dataclass(frozen=True, slots=True)
class Window:
    """A child, and the units it may hold if it is used.

    `held`: (l,) the most units with l of its own children; empty = not known.
    """

    index: int
    least: int
    most: int
    held: Longs


def values_to(most: int) -> list[int]:
    """The numbers from 1 to `most`, or `MAX_VALUES` of them, the largest first."""
    found: list[int] = np.unique(np.linspace(most, 1, min(most, MAX_VALUES), dtype=np.int64)).tolist()
    return found[::-1]


def choosable(fits: Longs, wanted: int) -> tuple[Longs, int, int]:
    """The children that may be one of the fewest that fit `wanted` units.

    Also returns the number of these fewest, and the most units that fit in all but one of them.
    """
    sums = np.cumsum(-np.sort(-fits))
    used = int(np.searchsorted(sums, wanted)) + 1
    others = int(sums[used - 2]) if used > 1 else 0
    return np.flatnonzero(fits >= max(1, wanted - others)), used, others


def whole(start: int, fits: Longs, may: Longs) -> list[Window]:
    """Windows of children about which only the fit is known."""
    return [Window(start + i, 1, int(fits[i]), fits[:0]) for i in may.tolist()]


def sifted(
    start: int, fits: Longs, child: Longs, child_stop: Longs, inside: Longs, ratio: int, wanted: int
) -> tuple[list[Window], int, int, int]:
    """Windows of the children that may be used; the number of used children; of used grandchildren.

    Of the latter there are two numbers: a lower bound, and a number that is enough.

    `fits`: (children,) units that fit; the first child is number `start`. `child`, `child_stop`: the run of
    each child's own children in `inside`, the units that fit there. `ratio` of these units make one of a
    child's.
    """
    may, used, others = choosable(fits, wanted)
    widest = int((child_stop - child)[may].max())
    if len(may) * widest > MAX_HELD:
        return whole(start, fits, may), used, 0, wanted * ratio  # too many to sift
    held = _held(np.minimum(fits, wanted)[may], child[may], child_stop[may], inside, ratio)
    own = np.arange(held.shape[1])
    fewest, enough, limits = 0, held.size, []
    before = np.zeros(len(may), np.int64)
    for v in values_to(min(int(inside[child[0] : child_stop[-1]].max()), wanted * ratio)):
        more = held * ratio - v * own
        taken = len(own) - 1 - more[:, ::-1].argmax(axis=1)
        excess = more[np.arange(len(may)), taken]
        largest = np.argsort(-excess, kind="stable")[:used]
        sums = excess[largest].cumsum()
        bound = -((int(sums[-1]) - wanted * ratio) // v)
        fewest = max(fewest, bound)
        enough = min(enough, _enough(held[largest], before[largest], taken[largest], wanted))
        limits.append((v, int(sums[-1] - excess[largest[-1]])))
        before = taken
        if bound < fewest and enough < held.size:
            break  # the bounds rise with smaller numbers, then fall
    left = np.maximum(enough - own, 0)  # for the other children, beside so many of its own
    for v, sum_ in limits:
        others = np.minimum(others, (v * left + sum_) // ratio)
    spare = held + others - wanted
    fine = (spare >= 0) & (own > 0) & (own <= enough)
    least = np.where(fine, held - spare, wanted).min(axis=1)
    most = np.where(fine, held, 0).max(axis=1)
    found = [
        Window(start + int(may[i]), max(1, int(least[i])), int(most[i]), held[i][held[i] >= 0])
        for i in np.flatnonzero(most).tolist()
    ]
    return found, used, fewest, enough


def _held(most: Longs, child: Longs, child_stop: Longs, inside: Longs, ratio: int) -> Longs:
    """(children, l): the most units with l of one's own children; `_NONE` beyond their number.

    `most`: (children,) the most units in all.
    """
    at = child[:, None] + np.arange(int((child_stop - child).max()))
    sizes = np.where(at < child_stop[:, None], inside[np.minimum(at, len(inside) - 1)], 0)
    sizes = -np.sort(-sizes, axis=1)
    held = np.zeros((len(at), at.shape[1] + 1), np.int64)
    np.cumsum(sizes, axis=1, out=held[:, 1:])
    held //= ratio
    np.minimum(held, most[:, None], out=held)
    # A grandchild that adds nothing is no choice.
    held[:, 1:][sizes == 0] = _NONE
    return held


def _enough(held: Longs, least: Longs, most: Longs, wanted: int) -> int:
    """A number of own children with which these children together hold enough; the largest number: not found.

    Of their own children they use `least`, and `most` from the first child on until the units are enough.
    """
    at = np.arange(len(held))
    low, high = held[at, least], held[at, most]
    sums = low.sum() + np.cumsum(high - low)
    last = int(np.searchsorted(sums, wanted))
    if last == len(held):
        return held.size
    rest = wanted - int(sums[last] - high[last])
    return int(most[:last].sum() + least[last + 1 :].sum() + np.argmax(held[last] >= rest))
