"""Find the steps of a fabric in one dimension: where round trips cluster, and the gaps between.

A smoothed histogram shows hills. A valley counts if it is well below both of its hills. The result is only a
proposal: a tier is kept if domains explain it (see `domains.py`).
"""

from itertools import pairwise
from typing import Final

import numpy as np

from hyperscout_inference.latency.pairs import Floats

FINEST_US: Final = 0.04  # cables of one tier differ by this much
VALLEY: Final = 0.75  # highest valley, as a share of the lower of its two hills
MAX_BINS: Final = 20_000
SHARE: Final = 0.2  # of all values: the shortest interval with this share is the width of a hill


def width(values: Floats) -> float:
    """Return the width of a hill: the shortest interval that contains a fifth of all values."""
    ordered = np.sort(values)
    step = max(1, int(SHARE * len(ordered)))
    if len(ordered) <= step:
        return FINEST_US
    return max(FINEST_US, float((ordered[step:] - ordered[:-step]).min()))


def gaps(values: Floats, smooth: float, support: int) -> tuple[Floats, Floats]:
    """Return the hills and the gaps between them, ascending: one gap fewer than hills.

    `smooth`: standard deviation of the smoothing. `support`: values that a hill needs.
    """
    if not len(values):
        return np.zeros(0), np.zeros(0)
    low, high = (float(v) for v in np.quantile(values, (0.0005, 0.9995)))
    bin_us = max(smooth / 4, (high - low) / MAX_BINS)
    edges = np.arange(low - 6 * smooth, high + 6 * smooth + bin_us, bin_us)
    counts, _ = np.histogram(values, edges)
    reach = int(np.ceil(4 * smooth / bin_us))
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) * bin_us / smooth) ** 2)
    density = np.convolve(counts, kernel / kernel.sum(), mode="same")
    centre = (edges[:-1] + edges[1:]) / 2
    rises = np.diff(density)
    peak = np.flatnonzero((np.r_[1.0, rises] > 0) & (np.r_[rises, -1.0] <= 0)).tolist()
    if not peak:
        return np.array([float(np.median(values))]), np.zeros(0)
    valleys = [_lowest(density, p, q) for p, q in pairwise(peak)]
    total = np.r_[0, np.cumsum(counts)]
    while valleys:
        depth = [
            density[v] / max(min(density[p], density[q]), 1e-12)
            for v, p, q in zip(valleys, peak, peak[1:], strict=False)
        ]
        bound = [0, *valleys, len(counts)]
        mass = [total[e] - total[s] for s, e in pairwise(bound)]
        shallow = int(np.argmax(depth))
        if depth[shallow] > VALLEY:
            gone = shallow if density[peak[shallow]] < density[peak[shallow + 1]] else shallow + 1
            valley = shallow
        elif min(mass) < support:
            gone = int(np.argmin(mass))
            beside = [v for v in (gone - 1, gone) if 0 <= v < len(valleys)]
            valley = max(beside, key=lambda v: depth[v])
        else:
            break
        del peak[gone], valleys[valley]
    return centre[peak], centre[valleys]


def _lowest(density: Floats, first: int, last: int) -> int:
    """Return the middle of the lowest stretch between two bins."""
    part = density[first : last + 1]
    lowest = np.flatnonzero(part <= part.min() + 1e-9 * part.max())
    return first + int(lowest[len(lowest) // 2])


def aligned(values: Floats, known: Floats) -> tuple[Floats, Floats]:
    """Return the known hills, shifted by one constant to fit the values best, and the cuts between them.

    The values and the known hills differ by a constant, because they come from different measurements. A
    small shift is likelier than a large one.
    """
    found, _ = gaps(values, 0.6 * width(values), max(3, len(values) // 1000))
    cap = max(FINEST_US, float(np.diff(known).min()) / 2 if len(known) > 1 else 1.0)
    sample = np.quantile(values, np.linspace(0, 1, 1000))
    moves = (found[:, None] - known[None, :]).ravel()
    off = [np.abs(sample[:, None] - known - move).min(axis=1) for move in moves]
    cost = [float(np.minimum(o, cap).mean()) + 0.05 * abs(move) for o, move in zip(off, moves, strict=True)]
    hills = known + moves[int(np.argmin(cost))]
    return hills, (hills[1:] + hills[:-1]) / 2
