"""Computes a burst's summary from its time stamps, with a minimum that is robust against outliers. Pure.

A round trip is the time between sending and receiving at this end, minus the residence at the peer (the
time between receiving and sending). So clocks of different hosts are not compared. Impossible samples,
and single samples far below the rest, are dropped with a reason.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

# Minimum number of kept samples, and maximum share of dropped ones, for a valid summary.
_MIN_SAMPLES = 3
_MIN_SHARE = 0.5
# The lowest samples are dropped when the gap to the next one exceeds `_LONELY_US`, and also exceeds
# `_LONELY_SPREADS` times the distance from that one to the median of the rest.
_LONELY_US = 1.0
_LONELY_SPREADS = 0.5
# Maximum share of a burst that can be dropped this way.
_LONELY_SHARE = 0.25
# Kernel stamps lie between this process's own clock readings. This is the tolerance for slewing.
_SLACK_NS = 2_000

STEPPED = "a clock stepped"
LIED = "residence longer than the round trip"
ALONE = "far below the rest"
UNKNOWN = "residence not reported"


@dataclass(frozen=True, slots=True)
class PingSample:
    """One answered ping, in nanoseconds.

    `gap_ns`: from sending to receiving. `residence_ns`: time at the peer; 0 = not reported. `at_most_ns`:
    upper bound of the gap by the monotonic clock. `stepped`: the wall clock stepped in the meantime.
    """

    gap_ns: int
    residence_ns: int
    at_most_ns: int
    stepped: bool = False


@dataclass(frozen=True, slots=True)
class Summary:
    """Round trips in microseconds, 0 with a `failure`. `dropped`: number of dropped samples by reason."""

    sent: int
    received: int
    min_us: float = 0.0
    median_us: float = 0.0
    jitter_us: float = 0.0
    failure: str = ""
    dropped: Mapping[str, int] = field(default_factory=dict)


def summary(sent: int, samples: Sequence[PingSample]) -> Summary:
    """Summarise a burst of `sent` pings, of which `samples` were answered."""
    if not samples:
        return Summary(sent, 0, failure="no answer")
    dropped: Counter[str] = Counter()
    round_trips_us = []
    for sample in samples:
        if fault := _fault(sample):
            dropped[fault] += 1
        else:
            round_trips_us.append((sample.gap_ns - sample.residence_ns) / 1000)
    round_trips_us.sort()
    kept_us = without_lonely(round_trips_us)
    if len(kept_us) < len(round_trips_us):
        dropped[ALONE] = len(round_trips_us) - len(kept_us)
    known = len(samples) - dropped[UNKNOWN]
    impossible = known - len(kept_us)
    if len(kept_us) < min(_MIN_SAMPLES, sent) or impossible > known * _MIN_SHARE:
        return Summary(sent, len(samples), failure=_failure(kept_us, dropped), dropped=dict(dropped))
    middle_us = median(kept_us)
    jitter_us = median(abs(one - middle_us) for one in kept_us)
    return Summary(sent, len(samples), kept_us[0], middle_us, jitter_us, dropped=dict(dropped))


def without_lonely(ascending_us: Sequence[float]) -> Sequence[float]:
    """Return the values without the lowest outliers."""
    most = int(len(ascending_us) * _LONELY_SHARE)
    for lonely in range(most, 0, -1):
        rest = ascending_us[lonely:]
        gap_us = rest[0] - ascending_us[lonely - 1]
        if gap_us > max(_LONELY_US, _LONELY_SPREADS * (median(rest) - rest[0])):
            return rest
    return ascending_us


def _fault(sample: PingSample) -> str:
    if sample.stepped or sample.gap_ns <= 0 or sample.gap_ns > sample.at_most_ns + _SLACK_NS:
        return STEPPED
    if sample.residence_ns <= 0:
        return UNKNOWN
    return LIED if sample.residence_ns >= sample.gap_ns else ""


def _failure(kept_us: Iterable[float], dropped: Mapping[str, int]) -> str:
    reasons = ", ".join(f"{reason} ({count})" for reason, count in sorted(dropped.items()))
    return reasons or f"only {len(list(kept_us))} answers"
