"""Back-off for corrections of objects that another client keeps changing. Performs no I/O.

Two controllers that immediately undo each other's writes load the API server and stop jobs. A single manual
edit is corrected at once; repeated ones are corrected with increasing delay.
"""

from hyperscout_runtime.backoff import doubled_s

_AT_ONCE = 3  # corrections without delay
_BASE_S = 2.0
_CAP_S = 300.0
_FORGIVEN_AFTER_S = 600.0
_MAX_NAMES = 10_000


class Fights:
    """Counts corrections by object name. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._by_name: dict[str, tuple[int, float]] = {}  # number of corrections, time of the last one

    def wait_s(self, name: str, now_s: float) -> float:
        """Return the seconds to wait before the next correction; 0 if it may be sent now."""
        count, last_s = self._by_name.get(name, (0, 0.0))
        if count < _AT_ONCE or now_s - last_s > _FORGIVEN_AFTER_S:
            return 0.0
        patience_s = doubled_s(count - _AT_ONCE + 1, _BASE_S, _CAP_S)
        return max(0.0, last_s + patience_s - now_s)

    def corrected(self, name: str, now_s: float) -> int:
        """Record a correction. Returns the number of recent corrections of this object."""
        count, last_s = self._by_name.pop(name, (0, 0.0))
        count = 1 if now_s - last_s > _FORGIVEN_AFTER_S else count + 1
        self._by_name[name] = (count, now_s)
        while len(self._by_name) > _MAX_NAMES:
            del self._by_name[next(iter(self._by_name))]
        return count
