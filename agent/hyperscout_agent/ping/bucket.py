"""Limits the agent's measurement traffic, independently of the collector's requests.

The limit is a token bucket of bits that holds one second of its rate. Pings leave a part of the bucket to
answers, because a peer counts a missing answer as packet loss. Thread-safe.
"""

import threading
from collections.abc import Callable

_ANSWERS_SHARE = 0.25


class Bucket:
    """A thread-safe token bucket. `rate_kbps`: kbit/s. `clock`: monotonic seconds."""

    def __init__(self, rate_kbps: float, clock: Callable[[], float]) -> None:
        self.sent_bytes = 0
        self._rate = rate_kbps * 1000.0
        self._bits = self._rate
        self._debt = 0.0
        self._clock = clock
        self._at_s = clock()
        self._lock = threading.Lock()

    @property
    def most_bytes(self) -> int:
        """Maximum number of bytes that pings can take at once."""
        return int(self._rate * (1 - _ANSWERS_SHARE) / 8)

    def wait_s(self, size_bytes: int) -> float:
        """Return the seconds until pings can take `size_bytes` at once. 0 means now."""
        with self._lock:
            self._fill()
            lacking = size_bytes * 8 + self._rate * _ANSWERS_SHARE - self._bits
            flow = self._rate / 2 if self._debt > 0 else self._rate
            return max(0.0, lacking / flow)

    def take(self, size_bytes: int, *, answer: bool = False) -> bool:
        """Take `size_bytes` and return True, or return False if they may not be sent now."""
        with self._lock:
            self._fill()
            floor = 0.0 if answer else self._rate * _ANSWERS_SHARE
            if self._bits - size_bytes * 8 < floor:
                return False
            self._bits -= size_bytes * 8
            self.sent_bytes += size_bytes
            return True

    def borrow(self, size_bytes: int) -> bool:
        """Take more than the bucket holds, for a bandwidth test. Returns False while a debt exists.

        Half of the rate repays the debt.
        """
        with self._lock:
            self._fill()
            if self._debt > 0:
                return False
            self._debt += size_bytes * 8
            self.sent_bytes += size_bytes
            return True

    def _fill(self) -> None:
        now_s = self._clock()
        flow = max(0.0, now_s - self._at_s) * self._rate
        self._at_s = now_s
        if self._debt > 0:
            paid = min(self._debt, flow / 2)
            self._debt -= paid
            flow -= paid
        self._bits = min(self._rate, self._bits + flow)
