"""Computes exponential back-off delays with full jitter.

Full jitter is a uniform draw from zero to the limit. When thousands of agents lose the same collector at
the same moment, it spreads their reconnects better than a jittered step does.
"""

from random import Random


class Backoff:
    """Delays in seconds, each drawn uniformly from zero to a limit that doubles from `base_s` to `cap_s`."""

    def __init__(self, rng: Random, *, base_s: float, cap_s: float) -> None:
        self._rng = rng
        self._base_s = base_s
        self._cap_s = cap_s
        self._failures = 0

    def next_s(self, *, at_least_failures: int = 0) -> float:
        """Return the next delay in seconds.

        `at_least_failures`: minimum failure count, for an answer that asks for longer delays.
        """
        self._failures = max(self._failures + 1, at_least_failures)
        limit_s = min(self._cap_s, self._base_s * 2.0 ** min(self._failures - 1, 30))
        return self._rng.uniform(0.0, limit_s)

    def reset(self) -> None:
        self._failures = 0
