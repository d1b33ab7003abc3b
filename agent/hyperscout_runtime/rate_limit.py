"""A token bucket. Pure: the caller passes the time.

No library is used: aiolimiter and pyrate-limiter wait themselves and read their own clock. Most users here
refuse what exceeds the rate instead of waiting, and state machines must not read a clock.
"""


class TokenBucket:
    """Gains `rate` tokens per unit of time and stores at most `capacity`.

    The caller chooses the unit of time and uses it everywhere: `rate` per second and times in seconds, for
    example. `tokens`: the stored tokens; the bucket starts full unless they are given.
    """

    __slots__ = ("_at", "capacity", "rate", "tokens")

    def __init__(self, rate: float, capacity: float, tokens: float | None = None) -> None:
        self.rate = rate
        self.capacity = capacity
        self.tokens = capacity if tokens is None else tokens
        self._at: float | None = None

    def earned(self, now: float) -> float:
        """Return the tokens that the time since the last call of another method adds."""
        return max(0.0, now - self._at) * self.rate if self._at is not None else 0.0

    def has(self, tokens: float, now: float, *, spare: float = 0.0) -> bool:
        """Return whether `tokens` can be taken so that `spare` tokens remain."""
        self.tokens = min(self.capacity, self.tokens + self.earned(now))
        self._at = now
        return self.tokens - tokens >= spare

    def take(self, tokens: float, now: float, *, spare: float = 0.0) -> bool:
        """Take `tokens` and return True, or return False if fewer than `spare` tokens would remain."""
        if not self.has(tokens, now, spare=spare):
            return False
        self.tokens -= tokens
        return True

    def charge(self, tokens: float, now: float) -> float:
        """Take `tokens` even if they are not stored yet. Returns the time until they are earned."""
        self.has(tokens, now)
        self.tokens -= tokens
        return max(0.0, -self.tokens / self.rate)
