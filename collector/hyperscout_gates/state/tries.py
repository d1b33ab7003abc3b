"""Back-off of failed actions, and rate limits of repeated messages."""

from dataclasses import dataclass, field

from hyperscout_runtime.backoff import doubled_s

_FIRST_S, _MOST_S = 1.0, 60.0
_REPEAT_S = 600.0


@dataclass(slots=True)
class Tries:
    """Delays a failed action by 1 s, and twice as long after each further failure, at most 60 s.

    The caller sets `now_s` with `begin`. `due_s` is the earliest time at which a requested action that is
    still delayed becomes allowed, or None. All times are seconds of the same clock.
    """

    now_s: float = 0.0
    due_s: float | None = None
    _failures: dict[str, int] = field(default_factory=dict)
    _not_before_s: dict[str, float] = field(default_factory=dict)
    _said: dict[str, tuple[str, float]] = field(default_factory=dict)

    def begin(self, now_s: float) -> None:
        self.now_s = now_s
        self.due_s = None

    def wake_at(self, at_s: float) -> None:
        self.due_s = at_s if self.due_s is None else min(self.due_s, at_s)

    def may(self, what: str) -> bool:
        at_s = self._not_before_s.get(what)
        if at_s is None or self.now_s >= at_s:
            return True
        self.wake_at(at_s)
        return False

    def failed(self, what: str, at_least_s: float = 0.0) -> None:
        failures = self._failures[what] = self._failures.get(what, 0) + 1
        wait_s = doubled_s(failures, _FIRST_S, _MOST_S)
        self.not_before(what, max(wait_s, at_least_s))

    def has_failed(self, what: str) -> bool:
        return what in self._failures

    def not_before(self, what: str, after_s: float) -> None:
        self._not_before_s[what] = self.now_s + after_s
        self.wake_at(self.now_s + after_s)

    def forgive(self, *what: str) -> None:
        for name in what:
            self._failures.pop(name, None)
            self._not_before_s.pop(name, None)

    def may_say(self, about: str, message: str, every_s: float) -> bool:
        """Return whether to report now: the same message after 10 minutes, another one after `every_s`."""
        before, at_s = self._said.get(about, ("", float("-inf")))
        if self.now_s < at_s + (_REPEAT_S if message == before else every_s):
            return False
        self._said[about] = (message, self.now_s)
        return True
