"""What hosts add to every round trip of theirs, by their clock speed, driver and firmware.

    round trip = way through the tier + own part of either host + noise

The parts are found by alternating medians: the tier's way from what is left without the parts, a host's part
from what is left without the ways. A median bears what noise and single slow paths add. Parts are relative:
half of the hosts add less than 0. A host with few pairs gets none: it cannot be told from its paths.
"""

from dataclasses import dataclass

import numpy as np

from hyperscout_inference.latency.pairs import Floats, Longs
from hyperscout_inference.measured.pair_rows import Bools, PairRows, medians

MIN_PAIRS = 4  # fewer could all be slow
MIN_GROUP = 8  # rows of a tier and rail, so that its median says something
_ROUNDS = 10
_STEP = 0.6  # of what is left: both ends of a row take their share of it


@dataclass(frozen=True, slots=True, eq=False)
class OwnParts:
    """`us`: (hosts,) own parts; `known`: (hosts,) those that have one. `way_us`: (rows,) the tier's way, NaN
    where too little was measured. `group`: (rows,) rows with the same one."""

    us: Floats
    known: Bools
    way_us: Floats
    group: Longs


def own_parts(rows: PairRows, us: Floats, hosts: int) -> OwnParts:
    """`us`: (rows,) round trips."""
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
    """Rows of one tier, kind and rail; of one tier and kind where a rail has few."""
    if not len(rows):
        return np.zeros(0, np.int64)
    kind = rows.layer * 4 + rows.kind
    rails = int(rows.rail.max()) + 2
    fine = kind * rails + rows.rail
    _, place, count = np.unique(fine, return_inverse=True, return_counts=True)
    key = np.where(count[place] >= 2 * MIN_GROUP, fine, kind * rails + rails - 1)
    return np.unique(key, return_inverse=True)[1].astype(np.int64)
