"""Which collector to try next, and when: targets in turn, and where a standby points.

Of several collectors one leads; the others say so and where it is. Such a hint is followed at once, but not
for ever: two collectors that point at each other are tried no faster than any that is away. While a standby
answers, a leader will be there within seconds, so nobody waits a minute for it.

A leader's own address may be out of reach for those who came by another way: a pod's, for a switch that came
by a node's port. Then the way that we came leads to the leader too, now and then, and the hint costs seconds.
"""

from collections.abc import Sequence
from random import Random

from hyperscout_agent.runtime.backoff import Backoff

# So that ten thousand agents that lost one leader do not come to the next in one instant.
_HINT_JITTER_S = 0.5
_STANDBY_CAP_S = 2.0
_MAX_HINTS = 3
_TRY_AGAIN = 8  # a hint that led into silence is followed every so many times
_MAX_SILENT = 16


class Route:
    """`target` is the one to try. Tell it what came of that; it says how long to wait before the next."""

    def __init__(self, targets: Sequence[str], backoff: Backoff, rng: Random) -> None:
        self.target = targets[0]
        self._targets = tuple(targets)
        self._backoff = backoff
        self._rng = rng
        self._turn = 0
        self._hints = 0  # attempts in a row that a hint led to
        self._soon = 0  # attempts for which a standby's answer still counts
        self._silent: dict[str, int] = {}  # hints that led into silence: how often they were given since

    def greeted(self) -> None:
        """It leads."""
        self._hints = self._soon = 0
        self._silent.pop(self.target, None)

    def settled(self) -> None:
        """It took all that we know: the next trouble is a new one."""
        self._backoff.reset()

    def failed(self, *, failures: int = 0, leader: str | None = None, silent: bool = False) -> float:
        """The attempt, or the stream, is over. Returns seconds to wait; `target` is the next one.

        `failures`: how far up the back-off starts. `leader`: what a standby said ("" = nobody leads), None
        where no standby spoke. `silent`: nobody answered at all, and that took long.
        """
        if silent and self._hints:
            if len(self._silent) >= _MAX_SILENT:
                self._silent.clear()
            self._silent[self.target] = 0
        if leader is not None:
            self._soon = 2 * (len(self._targets) + 1)  # the next round, hints included
            self._backoff.reset()
            if leader in self._silent:
                self._silent[leader] += 1
                leader = "" if self._silent[leader] % _TRY_AGAIN else leader
        elif self._hints and not failures and not silent:
            leader = self.target  # where a hint led us, nobody listens yet: it may have just been elected
        if leader and self._hints < _MAX_HINTS:
            self._hints += 1
            self.target = leader
            return self._rng.uniform(0.0, _HINT_JITTER_S)
        self._hints = 0
        self._turn += 1
        self.target = self._targets[self._turn % len(self._targets)]
        if self._soon and not failures:
            # Not counted: whoever takes over may need a while to listen, and the back-off has yet to begin.
            self._soon -= 1
            return self._rng.uniform(0.0, _STANDBY_CAP_S)
        return self._backoff.next_s(at_least_failures=failures)
