"""What nodes measured of each other, in columns: one row for each pair of nodes and each of its rails.

Each pair is measured from both ends. What the two ends say of one pair must agree, or it is dropped: an end
whose clock stepped, or that lies about its own time, makes nobody seem near.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from hyperscout_formats.facts import LatencyPort

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class PairTable:
    """`a`, `b`: (pairs,) index into `nodes`, a < b; sorted by (a, b, rail). Times in microseconds.

    `rtt_us`: robust minimum of the round trip. `jitter_us`: -1 = unknown. `bandwidth_gbps`: 0 = not measured.
    `at_ns`: Unix ns of the newest burst by the collector's clock, 0 = unknown. `samples`: pings answered.
    """

    nodes: Sequence[str]  # sorted
    rails: Sequence[str]  # sorted
    a: Ints
    b: Ints
    rail: Ints
    rtt_us: Floats
    jitter_us: Floats
    bandwidth_gbps: Floats
    samples: Ints
    at_ns: Longs
    disagreeing: int = 0  # pairs that were dropped because their ends do not agree

    def __len__(self) -> int:
        return len(self.a)


def _empty() -> PairTable:
    ints, floats = np.zeros(0, np.int32), np.zeros(0, np.float64)
    return PairTable((), (), ints, ints, ints, floats, floats, floats, ints, np.zeros(0, np.int64))


NO_PAIRS = _empty()


def pairs_of(ports: Mapping[str, Sequence[LatencyPort]]) -> PairTable:
    """What both ends agree upon. Keys of `ports` are node names.

    Left out: a pair that only one end has measured yet, and one whose ends differ by more than noise does.
    """
    if not ports:
        return NO_PAIRS
    raise NotImplementedError
