"""Reduce the measured pairs to one graph: one value for each pair of hosts, whatever its number of rails.

All functions work on whole columns. The order of the rows does not change the result.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from hyperscout_inference.latency.pairs import Floats, Longs, PairTable

MAX_US: Final = 1e7  # ten seconds: longer than any round trip in a network
FEW_ROWS: Final = 8
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Edges:
    """`a` < `b`: (edges,) hosts; `rtt_us`: (edges,). Each pair once, sorted by (a, b)."""

    hosts: int
    a: Longs
    b: Longs
    rtt_us: Floats

    def __len__(self) -> int:
        return len(self.a)

    def only(self, which: Flags) -> "Edges":
        """Return the selected edges; the hosts keep their numbers."""
        return Edges(self.hosts, self.a[which], self.b[which], self.rtt_us[which])

    def degree(self) -> Longs:
        """(hosts,) the number of edges of each host."""
        return np.bincount(self.a, minlength=self.hosts) + np.bincount(self.b, minlength=self.hosts)

    def rest_us(self, offset_us: Floats) -> Floats:
        """(edges,) each round trip without the own parts of its two hosts."""
        return self.rtt_us - offset_us[self.a] - offset_us[self.b]


def edges_of(pairs: PairTable) -> Edges:
    """Return one value for each pair: the median over its rails, each rail aligned with the others."""
    a, b = pairs.a.astype(np.int64), pairs.b.astype(np.int64)
    low, high = np.minimum(a, b), np.maximum(a, b)
    usable = np.isfinite(pairs.rtt_us) & (pairs.rtt_us > 0) & (pairs.rtt_us < MAX_US) & (low != high)
    key = (low * max(1, len(pairs.nodes)) + high)[usable]
    rtt_us, rail = pairs.rtt_us[usable].astype(np.float64), pairs.rail[usable]
    unique, where = np.unique(key, return_inverse=True)
    if len(unique) < len(key):
        rtt_us = rtt_us - _rail_levels(where, rail, rtt_us)[rail]
    hosts = len(pairs.nodes)
    return Edges(
        hosts, unique // max(1, hosts), unique % max(1, hosts), by_row(where, rtt_us, len(unique), 0.5)
    )


def _rail_levels(pair: Longs, rail: npt.NDArray[np.int32], rtt_us: Floats) -> Floats:
    """(rails,) how much higher each rail is than the one with most rows, over the pairs that both
    measured."""
    counts = np.bincount(rail)
    main = int(np.argmax(counts))
    reference = np.full(int(pair.max()) + 1, np.nan)
    reference[pair[rail == main]] = rtt_us[rail == main]
    above = rtt_us - reference[pair]
    levels = by_row(rail[np.isfinite(above)], above[np.isfinite(above)], len(counts), 0.5)
    return np.where(np.isfinite(levels), levels, 0.0)


def by_row(row: npt.NDArray[np.integer], value: Floats, rows: int, quantile: float) -> Floats:
    """(rows,) the quantile of each row's values, the lower of two candidates; NaN for an empty row."""
    result = np.full(rows, np.nan)
    if not len(row):
        return result
    if rows <= FEW_ROWS:
        for number in range(rows):
            some_values = value[row == number]
            if len(some_values):
                place = int(np.floor(quantile * (len(some_values) - 1)))
                result[number] = np.partition(some_values, place)[place]
        return result
    least = float(value.min())
    stride = 2.0 * (float(value.max()) - least) + 1.0
    # One sort of plain numbers is several times faster than a sort by two keys.
    ordered = np.sort(row * stride + (value - least))
    count = np.bincount(row, minlength=rows)
    first = np.cumsum(count) - count
    some = np.flatnonzero(count)
    picked = first[some] + np.floor(quantile * (count[some] - 1)).astype(np.int64)
    result[some] = ordered[picked] - some * stride + least
    return result


def row_widths(row: npt.NDArray[np.integer], value: Floats, rows: int, share: float) -> Floats:
    """(rows,) the width of the shortest interval with this share of a row's values; NaN for fewer than
    two."""
    result = np.full(rows, np.nan)
    if not len(row):
        return result
    least = float(value.min())
    stride = 2.0 * (float(value.max()) - least) + 1.0
    ordered = np.sort(row * stride + (value - least))
    count = np.bincount(row, minlength=rows)
    step = np.maximum(1, np.ceil(share * (count - 1)).astype(np.int64))
    index = np.arange(len(ordered))
    row_of = np.repeat(np.arange(rows), count)
    last = (np.cumsum(count) - 1)[row_of]
    reach = np.minimum(index + step[row_of], last)
    stretch = np.where(index + step[row_of] <= last, ordered[reach] - ordered, np.inf)
    some = np.flatnonzero(count > 1)
    result[some] = np.minimum.reduceat(stretch, (np.cumsum(count) - count)[some]) if len(some) else 0
    return result


def both_ways(edges: Edges, value: Floats, quantile: float) -> Floats:
    """(hosts,) the quantile over each host's edges."""
    return by_row(np.concatenate((edges.a, edges.b)), np.concatenate((value, value)), edges.hosts, quantile)
