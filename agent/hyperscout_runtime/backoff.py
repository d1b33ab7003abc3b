"""Delays between attempts: each is twice as long as the one before it, up to a maximum. Pure.

No library is used: tenacity and backoff couple the delay to the call, sleep themselves and read their own
clock. The users here are state machines, streams and timers that count failures on their own.
"""

from dataclasses import dataclass
from typing import Protocol

from hyperscout_runtime.units import NS


class Uniform(Protocol):
    """The part of `random.Random` that a jitter needs. Pure packages must not import `random`."""

    def uniform(self, a: float, b: float, /) -> float: ...


def doubled_s(failures: int, base_s: float, cap_s: float) -> float:
    """Return the delay in seconds after this many failures in a row: 0 without a failure, then `base_s`."""
    return min(base_s * 2.0 ** min(failures - 1, 30), cap_s) if failures > 0 else 0.0


@dataclass(slots=True)
class Backoff:
    """Counts the failures of one action and returns a delay for each.

    `jitter`: the share of a delay that `rng` draws. 0.5 draws from half of the delay to all of it. 1.0 (full
    jitter) draws from zero and spreads thousands of clients best that lost the same server at one moment.
    """

    base_s: float
    cap_s: float
    rng: Uniform | None = None
    jitter: float = 0.5
    failures: int = 0

    def next_s(self, *, at_least_failures: int = 0) -> float:
        """Count a failure, and return the delay in seconds.

        `at_least_failures`: minimum failure count, for a server that asks for longer delays.
        """
        self.failures = max(self.failures + 1, at_least_failures)
        delay_s = doubled_s(self.failures, self.base_s, self.cap_s)
        return delay_s if self.rng is None else delay_s * self.rng.uniform(1.0 - self.jitter, 1.0)

    def reset(self) -> None:
        self.failures = 0


@dataclass(slots=True)
class RetryTime:
    """When one action may be tried again. Times are Unix ns, and the caller passes the current time."""

    backoff: Backoff
    until_ns: int = 0

    def failed(self, now_ns: int) -> None:
        self.until_ns = now_ns + round(self.backoff.next_s() * NS)
