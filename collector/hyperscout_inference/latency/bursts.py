"""Compare the recent bursts of a pair with its earlier ones.

The last few bursts are *recent*. Their minimum counts, because a pair that is permanently slow or unsteady is
so in each burst. The bursts before those are *usual*.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from hyperscout_formats.facts.facts import LatencyResult

Floats = npt.NDArray[np.float64]

RECENT = 3  # bursts, including the newest one
MIN_USUAL = 3  # earlier bursts that are needed for a usual value
MAX_BURSTS = 64  # earlier bursts that are read
COUNTS = 6  # columns of a PairHistory
_MAX_US = 1e6


@dataclass(frozen=True, slots=True, eq=False)
class PairHistory:
    """Columns (pairs,), parallel to those of a `PairTable`. Times in microseconds.

    `recent_us`, `recent_jitter_us` (-1 = unknown): the minimum of the last `recent` bursts.
    `usual_us`, `usual_jitter_us`: medians of the `usual` bursts before them, 0 = too few bursts.
    """

    recent_us: Floats
    recent_jitter_us: Floats
    recent: Floats
    usual_us: Floats
    usual_jitter_us: Floats
    usual: Floats


def columns_of(results: Sequence[LatencyResult]) -> Floats:
    """Return (COUNTS, results), the columns of `PairHistory`, as one end measured them. Implausible bursts
    are skipped."""
    rtt_us = np.array([x.min_us for x in results], np.float64)
    jitter_us = np.array([x.jitter_us for x in results], np.float64)
    found = np.zeros((COUNTS, len(results)))
    found[0], found[2] = rtt_us, 1.0
    recent_jitter = np.where(_are_times(jitter_us), jitter_us, np.inf)
    bursts = [x.history[-MAX_BURSTS:] for x in results]
    row = np.repeat(np.arange(len(results)), [len(some) for some in bursts])
    if len(row):
        flat = [(b.min_us, b.jitter_us) for some in bursts for b in some]
        us, jitter = np.array(flat, np.float64).T
        good = _are_times(us) & (us > 0)
        row, us, jitter = row[good], us[good], jitter[good]
        count = np.bincount(row, minlength=len(results))
        from_end = np.cumsum(count)[row] - 1 - np.arange(len(row))
        last = from_end < RECENT - 1
        known = _are_times(jitter)
        np.minimum.at(found[0], row[last], us[last])
        np.minimum.at(recent_jitter, row[last & known], jitter[last & known])
        found[2] += np.minimum(count, RECENT - 1)
        before = np.maximum(count - (RECENT - 1), 0)
        usual = before >= MIN_USUAL
        middle, middle_jitter = (
            _medians(row[which], values[which], len(results))
            for which, values in ((~last, us), (~last & known, jitter))
        )
        found[3:, usual] = np.stack((middle, middle_jitter, before))[:, usual]
    found[1] = np.where(np.isfinite(recent_jitter), recent_jitter, -1.0)
    return found


def _medians(row: npt.NDArray[np.int64], values: Floats, rows: int) -> Floats:
    """(rows,) the median of each row's values; 0 for an empty row."""
    values = values[np.lexsort((values, row))]
    count = np.bincount(row, minlength=rows)
    end = np.cumsum(count)
    some = count > 0
    low, high = ((end - count + at)[some] for at in ((count - 1) // 2, count // 2))
    found = np.zeros(rows)
    found[some] = (values[low] + values[high]) / 2
    return found


def agreed_bursts(x: Floats, y: Floats) -> Floats:
    """Join both ends' rows (COUNTS, pairs): the longer time and the lower count. An unknown jitter of one end
    is ignored; usual times are 0 where one end has too few bursts."""
    both = np.maximum(x, y)
    both[[2, 5]] = np.minimum(x[[2, 5]], y[[2, 5]])
    both[3:5, both[5] == 0] = 0.0
    return both


def _are_times(us: Floats) -> npt.NDArray[np.bool_]:
    return (us >= 0) & (us <= _MAX_US)
