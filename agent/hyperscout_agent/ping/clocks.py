"""The two clocks beside each other: a wall clock that is set shows as a change of their distance."""

import time
from dataclasses import dataclass

# Two readings of a quiet clock differ by less; a step by an NTP daemon is at least some times as much.
STEP_NS = 20_000
_TRIES = 4


@dataclass(frozen=True, slots=True)
class Reading:
    """`steady_ns`: CLOCK_MONOTONIC. `offset_ns`: CLOCK_REALTIME less that, read within `doubt_ns`."""

    steady_ns: int
    offset_ns: int
    doubt_ns: int

    def stepped_since(self, earlier: "Reading") -> bool:
        """Slewing (500 parts in a million at most) and an interruption while reading do not count."""
        passed_ns = self.steady_ns - earlier.steady_ns
        allowed_ns = STEP_NS + passed_ns // 1000 + self.doubt_ns + earlier.doubt_ns
        return abs(self.offset_ns - earlier.offset_ns) > allowed_ns


def read_clocks() -> Reading:
    """Read both as close to each other as can be had in a few tries."""
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
