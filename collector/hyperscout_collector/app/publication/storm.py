"""Recognises that many agents send their full states at once, as after a restart of the collector. Pure."""

from collections import deque

from hyperscout_runtime.units import NS

MANY = 20  # agents: a smaller cluster never waits
_WITHIN_NS = NS
# After a restart, agents find the collector again within 10 s, and most of them send their full states later
# than a second after it listens.
_RETURN_NS = 12 * NS
_PAUSE = 3  # how many times the duration of the last inference
_MOST_PAUSE_S = 10.0  # no reporter may delay a change longer


class Storm:
    """The times of the newest full states. Times are Unix ns."""

    def __init__(self) -> None:
        self._newest: deque[int] = deque(maxlen=MANY)
        self._began_ns: int | None = None

    def begin(self, now_ns: int) -> None:
        """Record that many agents are expected to send their full states from now on."""
        self._began_ns = now_ns

    def full_state(self, now_ns: int) -> None:
        """Record that an agent has sent its full state."""
        self._newest.append(now_ns)

    def is_on(self, now_ns: int) -> bool:
        """Whether agents are expected, or `MANY` have sent their full states within the last second."""
        if self._began_ns is not None and abs(now_ns - self._began_ns) < _RETURN_NS:
            return True
        return len(self._newest) == MANY and abs(now_ns - self._newest[0]) < _WITHIN_NS

    def end(self) -> None:
        """Record that no further full states are expected."""
        self._newest.clear()
        self._began_ns = None


def storm_pause_s(inference_s: float) -> float:
    """Return how long to wait for full states before the next inference. `inference_s`: of the last one."""
    return min(_PAUSE * inference_s, _MOST_PAUSE_S)
