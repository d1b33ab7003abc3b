"""Recognises that many agents send their full states at once, as after a restart of the collector. Pure."""

from collections import deque

from hyperscout_runtime.units import NS

MANY = 20  # agents: a smaller cluster never waits
_WITHIN_NS = NS


class Storm:
    """The times of the newest full states. Times are Unix ns."""

    def __init__(self) -> None:
        self._newest: deque[int] = deque(maxlen=MANY)

    def begin(self, now_ns: int) -> None:
        """Record that many agents are expected to send their full states from now on."""
        self._newest.extend([now_ns] * MANY)

    def full_state(self, now_ns: int) -> None:
        """Record that an agent has sent its full state."""
        self._newest.append(now_ns)

    def is_on(self, now_ns: int) -> bool:
        """Whether `MANY` agents have sent their full states within the last second."""
        return len(self._newest) == MANY and abs(now_ns - self._newest[0]) < _WITHIN_NS

    def end(self) -> None:
        """Record that no further full states are expected."""
        self._newest.clear()
