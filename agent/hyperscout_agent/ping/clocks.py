"""Reads the wall clock and the monotonic clock together: a step of the wall clock changes their offset."""

import time
from dataclasses import dataclass

# Two readings of an undisturbed clock differ by less. A step by an NTP daemon is at least several times this.
STEP_NS = 20_000
_TRIES = 4


@dataclass(frozen=True, slots=True)
class Reading:
    """`steady_ns`: CLOCK_MONOTONIC. `offset_ns`: CLOCK_REALTIME minus CLOCK_MONOTONIC.

    `doubt_ns`: the time that the reading took.
    """

    steady_ns: int
    offset_ns: int
    doubt_ns: int

    def stepped_since(self, earlier: "Reading") -> bool:
        """Whether the wall clock stepped since an earlier reading.

        Slewing (500 parts in a million at most) and an interruption while reading do not count.
        """
        passed_ns = self.steady_ns - earlier.steady_ns
        allowed_ns = STEP_NS + passed_ns // 1000 + self.doubt_ns + earlier.doubt_ns
        return abs(self.offset_ns - earlier.offset_ns) > allowed_ns


def read_clocks() -> Reading:
    """Read both clocks; return the reading with the smallest `doubt_ns` of a few attempts."""
    best: Reading | None = None
    for _ in range(_TRIES):
        before_ns = time.monotonic_ns()
        wall_ns = time.time_ns()
        after_ns = time.monotonic_ns()
        reading = Reading(after_ns, wall_ns - (before_ns + after_ns) // 2, after_ns - before_ns)
        if best is None or reading.doubt_ns < best.doubt_ns:
            best = reading
        if reading.doubt_ns < 2_000:
            break
    assert best is not None  # noqa: S101 - there was at least one try
    return best
