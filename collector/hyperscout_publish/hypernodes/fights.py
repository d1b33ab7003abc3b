"""Patience with somebody who keeps undoing our writes: corrections come later each time. Pure.

Two controllers that each write at once what the other undid load the API server and stop jobs; one edit
by hand is put right at once.
"""

_AT_ONCE = 3  # corrections without delay
_BASE_S = 2.0
_CAP_S = 300.0
_FORGIVEN_AFTER_S = 600.0
_MAX_NAMES = 10_000


class Fights:
    """By name of the object. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._by_name: dict[str, tuple[int, float]] = {}  # corrections, when the last one was

    def wait_s(self, name: str, now_s: float) -> float:
        """How long to wait with the next correction; 0 = it may go out now."""
        count, last_s = self._by_name.get(name, (0, 0.0))
        if count < _AT_ONCE or now_s - last_s > _FORGIVEN_AFTER_S:
            return 0.0
        patience_s = min(_BASE_S * 2.0 ** min(count - _AT_ONCE, 20), _CAP_S)
        return max(0.0, last_s + patience_s - now_s)

    def corrected(self, name: str, now_s: float) -> int:
        """A correction went out. Returns how many there were lately."""
        count, last_s = self._by_name.pop(name, (0, 0.0))
        count = 1 if now_s - last_s > _FORGIVEN_AFTER_S else count + 1
        self._by_name[name] = (count, now_s)
        while len(self._by_name) > _MAX_NAMES:
            del self._by_name[next(iter(self._by_name))]
        return count
