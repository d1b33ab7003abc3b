"""Limits the agent's measurement traffic, independently of the collector's requests.

The limit is a token bucket of bits that holds one second of its rate. Pings leave a part of the bucket to
answers, because a peer counts a missing answer as packet loss. Thread-safe.
"""

import threading
from collections.abc import Callable

from hyperscout_runtime.rate_limit import TokenBucket

_ANSWERS_SHARE = 0.25


class Bucket:
    """A thread-safe token bucket. `rate_kbps`: kbit/s. `clock`: monotonic seconds."""

    def __init__(self, rate_kbps: float, clock: Callable[[], float]) -> None:
        self.sent_bytes = 0
        self._bits = TokenBucket(rate_kbps * 1000.0, rate_kbps * 1000.0)
        self._for_answers = self._bits.capacity * _ANSWERS_SHARE
        self._debt = 0.0
        self._clock = clock
        self._lock = threading.Lock()

    @property
    def most_bytes(self) -> int:
        """Maximum number of bytes that pings can take at once."""
        return int((self._bits.capacity - self._for_answers) / 8)

    def wait_s(self, size_bytes: int) -> float:
        """Return the seconds until pings can take `size_bytes` at once. 0 means now."""
        with self._lock:
            self._bits.has(0, self._repay())
            lacking = size_bytes * 8 + self._for_answers - self._bits.tokens
            return max(0.0, lacking / (self._bits.rate / (2 if self._debt > 0 else 1)))

    def take(self, size_bytes: int, *, answer: bool = False) -> bool:
        """Take `size_bytes` and return True, or return False if they may not be sent now."""
        with self._lock:
            spare = 0.0 if answer else self._for_answers
            taken = self._bits.take(size_bytes * 8, self._repay(), spare=spare)
            self.sent_bytes += size_bytes * taken
            return taken

    def borrow(self, size_bytes: int) -> bool:
        """Take more than the bucket holds, for a bandwidth test. Returns False while a debt exists.

        Half of the rate repays the debt.
        """
        with self._lock:
            self._bits.has(0, self._repay())
            if self._debt > 0:
                return False
            self._debt += size_bytes * 8
            self.sent_bytes += size_bytes
            return True

    def _repay(self) -> float:
        """Repay the debt from what the bucket is about to gain. Returns the time, in seconds."""
        now_s = self._clock()
        paid = min(self._debt, self._bits.earned(now_s) / 2)
        self._debt -= paid
        self._bits.tokens -= paid
        return now_s
