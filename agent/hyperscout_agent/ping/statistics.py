"""From the time stamps of one burst to its numbers (pure): a minimum that one impossible sample does not
fool.

A round trip is what passed here between sending and receiving, less what passed at the peer between
receiving and sending: no two clocks are compared. What cannot be, or stands alone far below the rest, is
dropped with a reason.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

# A burst of which less than this is left says nothing.
_MIN_SAMPLES = 3
_MIN_SHARE = 0.5
# A lowest sample is doubted when it stands this far off the second lowest, and farther than that one stands
# from the middle of the rest.
_LONELY_US = 1.0
_LONELY_SPREADS = 0.5
# At most this share of a burst can be lonely ones.
_LONELY_SHARE = 0.25
# Kernel stamps lie between our own looks at the clock; this is what slewing may make of it.
_SLACK_NS = 2_000

STEPPED = "a clock stepped"
LIED = "residence longer than the round trip"
ALONE = "far below the rest"
UNKNOWN = "residence not told"


@dataclass(frozen=True, slots=True)
class Sample:
    """One answered ping, in nanoseconds. `gap_ns`: from sending to receiving. `residence_ns`: at the peer;
    0 = it was not told. `at_most_ns`: what the steady clock says that the gap can be at most. `stepped`:
    the wall clock moved against the steady one meanwhile."""

    gap_ns: int
    residence_ns: int
    at_most_ns: int
    stepped: bool = False


@dataclass(frozen=True, slots=True)
class Summary:
    """Round trips in microseconds; 0 with a `failure`. `dropped`: samples by reason."""

    sent: int
    received: int
    min_us: float = 0.0
    median_us: float = 0.0
    jitter_us: float = 0.0
    failure: str = ""
    dropped: Mapping[str, int] = field(default_factory=dict)


def summary(sent: int, samples: Sequence[Sample]) -> Summary:
    """The numbers of a burst of `sent` pings, of which `samples` were answered."""
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
    told = len(samples) - dropped[UNKNOWN]
    impossible = told - len(kept_us)
    if len(kept_us) < min(_MIN_SAMPLES, sent) or impossible > told * _MIN_SHARE:
        return Summary(sent, len(samples), failure=_failure(kept_us, dropped), dropped=dict(dropped))
    middle_us = median(kept_us)
    jitter_us = median(abs(one - middle_us) for one in kept_us)
    return Summary(sent, len(samples), kept_us[0], middle_us, jitter_us, dropped=dict(dropped))


def without_lonely(ascending_us: Sequence[float]) -> Sequence[float]:
    """Without the lowest ones that nothing near them bears out."""
    most = int(len(ascending_us) * _LONELY_SHARE)
    for lonely in range(most, 0, -1):
        rest = ascending_us[lonely:]
        gap_us = rest[0] - ascending_us[lonely - 1]
        if gap_us > max(_LONELY_US, _LONELY_SPREADS * (median(rest) - rest[0])):
            return rest
    return ascending_us


def _fault(sample: Sample) -> str:
    if sample.stepped or sample.gap_ns <= 0 or sample.gap_ns > sample.at_most_ns + _SLACK_NS:
        return STEPPED
    if sample.residence_ns <= 0:
        return UNKNOWN
    return LIED if sample.residence_ns >= sample.gap_ns else ""


def _failure(kept_us: Iterable[float], dropped: Mapping[str, int]) -> str:
    reasons = ", ".join(f"{reason} ({count})" for reason, count in sorted(dropped.items()))
    return reasons or f"only {len(list(kept_us))} answers"
