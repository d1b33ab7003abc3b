"""When a running gang is degraded for so long that it is to be moved, and how many moves an hour may hold."""

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

_HOUR_S = 3600.0

Action = Literal["off", "advise", "move"]


@dataclass(frozen=True, slots=True)
class DegradationSettings:
    """What to do with running gangs that use degraded links. `moves_per_hour`: gangs, not pods."""

    action: Action = "off"
    wait_s: float = 300.0
    moves_per_hour: int = 4
    hook_timeout_s: float = 120.0


@dataclass(slots=True)
class Watch:
    """The degraded links that one gang uses.

    `links`: their number. `planned`: their number when the gang was placed, which is accepted. `since_s`:
    when the number last rose above what was known; None if the gang is not worse than planned. `handled`: the
    number that was acted on already, so that each degradation is acted on once. `not_before_s`: until when
    nothing is done.
    """

    links: int = 0
    planned: int = 0
    since_s: float | None = None
    handled: int = 0
    not_before_s: float = 0.0

    def look(self, links: int, planned: int, now_s: float) -> None:
        """Record the numbers of now."""
        if links <= planned:
            self.since_s, self.handled = None, 0
        elif self.since_s is None or links > self.links or planned != self.planned:
            self.since_s = now_s
        self.links, self.planned = links, planned

    def is_due(self, wait_s: float, now_s: float) -> bool:
        if self.since_s is None or self.links <= self.handled:
            return False
        return now_s >= max(self.since_s + wait_s, self.not_before_s)


@dataclass(slots=True)
class Budget:
    """At most `most` moves of gangs within an hour."""

    most: int
    _at_s: deque[float] = field(default_factory=deque)

    def allows(self, now_s: float) -> bool:
        while self._at_s and not 0 <= now_s - self._at_s[0] < _HOUR_S:
            self._at_s.popleft()
        return len(self._at_s) < self.most

    def spend(self, now_s: float) -> None:
        self._at_s.append(now_s)
