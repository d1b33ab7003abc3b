"""Estimate what each host adds to all its round trips: clock speed, driver and firmware.

    round trip = way through the tier + own part of either host + noise

The parts come from alternating medians: the tier's way from what is left without the parts, and a host's part
from what is left without the ways. A median tolerates noise and single slow paths. Parts are relative: half
of the hosts add less than 0. A host with few pairs gets no part, because it cannot be separated from its
paths.
"""

from dataclasses import dataclass

import numpy as np

from hyperscout_inference.latency.pairs import Floats, Longs
from hyperscout_inference.measured.pair_rows import Bools, PairRows, medians

MIN_PAIRS = 4  # with fewer, all of a host's pairs may be slow
MIN_GROUP = 8  # rows of a tier and rail that are needed for a median
_ROUNDS = 10
_STEP = 0.6  # share of the remainder that is applied: both ends of a row take part


@dataclass(frozen=True, slots=True, eq=False)
class OwnParts:
    """`us`: (hosts,) own parts; `known`: (hosts,) whether a host has one. `way_us`: (rows,) the tier's way,
    NaN where too little was measured. `group`: (rows,) the group that shares the way."""

    us: Floats
    known: Bools
    way_us: Floats
    group: Longs


def own_parts(rows: PairRows, us: Floats, hosts: int) -> OwnParts:
    """Return own parts and ways. `us`: (rows,) round trips."""
    group = groups_of(rows)
    count = int(group.max(initial=-1)) + 1
    ends = np.concatenate([rows.a, rows.b])
    known = np.bincount(ends, minlength=hosts) >= MIN_PAIRS
    own = np.zeros(hosts)
    way, size = medians(group, us, count)
    for _ in range(_ROUNDS if len(rows) else 0):
        left = us - way[group] - own[rows.a] - own[rows.b]
        step, _ = medians(ends, np.concatenate([left, left]), hosts)
        own[known] += _STEP * step[known]
        own[known] -= np.median(own[known]) if known.any() else 0.0
        way, _ = medians(group, us - own[rows.a] - own[rows.b], count)
    way[size < MIN_GROUP] = np.nan
    return OwnParts(own, known, way[group], group)


def groups_of(rows: PairRows) -> Longs:
    """(rows,) groups by tier, kind and rail; by tier and kind where a rail has few rows."""
    if not len(rows):
        return np.zeros(0, np.int64)
    kind = rows.layer * 4 + rows.kind
    rails = int(rows.rail.max()) + 2
    fine = kind * rails + rows.rail
    _, place, count = np.unique(fine, return_inverse=True, return_counts=True)
    key = np.where(count[place] >= 2 * MIN_GROUP, fine, kind * rails + rails - 1)
    return np.unique(key, return_inverse=True)[1].astype(np.int64)
