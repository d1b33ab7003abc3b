"""Selects the next collector address and the delay: configured targets in turn, and standbys' hints.

One of several collectors is the leader. The others are standbys and return the leader's address as a hint.
The agent follows a hint at once, but only a few times in a row: two collectors that point at each other are
tried no faster than an unreachable one. While a standby answers, a leader is expected within seconds, so
the delay stays short.

The leader's own address may be unreachable for an agent, for example a pod's address for a switch that
connects through a node's port. Then a configured target reaches the leader sometimes, and a hint that leads
nowhere costs seconds. So such a hint is followed only now and then. The same holds for a leader that shut
down: standbys name it until the next one is elected.
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import TypeVar

from hyperscout_runtime.backoff import Backoff

# Spreads ten thousand agents that lost one leader, so that they do not reach the next one at the same time.
_HINT_JITTER_S = 0.5
_STANDBY_CAP_S = 2.0
_MAX_HINTS = 3
_TRY_AGAIN = 8  # a hint to an avoided address is followed every eighth time
_MAX_ADDRESSES = 16
# Time for a connection: short, since the address may be that of a dead leader. It doubles with each silence
# of this address, because ten thousand agents that lost one leader connect to the next at once. It is long
# after the only address refused a connection: a collector that starts there then has too much to do.
_CONNECT_S = 2.0
_CONNECT_CAP_S = 10.0
# The longest delay after a refused connection. No collector listens there, so an attempt costs it nothing,
# and all agents are back within this time after it listens again.
_REFUSED_CAP_S = 10.0


_Number = TypeVar("_Number", int, float)


class Route:
    """`target` is the next address to try. The caller reports the result of each attempt."""

    def __init__(self, targets: Sequence[str], backoff: Backoff, rng: Random) -> None:
        self.target = targets[0]
        self._targets = tuple(targets)
        self._backoff = backoff
        # A back-off for refusals alone: they say nothing about the collector that listens later. If that one
        # is too busy to accept a connection in time, the delay is not one of the longest.
        self._refused = replace(backoff)
        self._rng = rng
        self._turn = 0
        self._hints = 0  # consecutive attempts that follow a hint
        self._connect_s: dict[str, float] = {}  # of addresses that were silent
        self._soon = 0  # remaining attempts with a short delay after a standby's answer
        self._avoided: dict[str, int] = {}  # hinted addresses that were silent or shut down: hints since then

    @property
    def connect_s(self) -> float:
        """The time that a connection to `target` may take."""
        return self._connect_s.get(self.target, _CONNECT_S)

    def greeted(self) -> None:
        """Record that `target` accepted the Hello and is the leader."""
        self._hints = self._soon = 0
        self._connect_s.pop(self.target, None)
        self._avoided.pop(self.target, None)

    def settled(self) -> None:
        """Record that the collector stored the full state. The next failure starts a new back-off."""
        self._backoff.reset()
        self._refused.reset()

    def failed(
        self,
        *,
        failures: int = 0,
        leader: str | None = None,
        silent: bool = False,
        left: bool = False,
        refused: bool = False,
    ) -> float:
        """Record the end of an attempt or stream, and select the next `target`. Returns seconds to wait.

        `failures`: minimum failure count of the back-off. `leader`: the leader's address from a standby, ""
        when it knows none, None when no standby answered. `silent`: the time for the connection passed.
        `left`: the leader ended the stream and named no other leader. `refused`: no program listens there.
        """
        if silent:
            _put(self._connect_s, self.target, min(2 * self.connect_s, _CONNECT_CAP_S))
        elif refused and (self.target,) == self._targets:
            _put(self._connect_s, self.target, _CONNECT_CAP_S)
        else:
            self._connect_s.pop(self.target, None)
        if left or (silent and self._hints):
            _put(self._avoided, self.target, 0)
        elif leader is not None:
            self._avoided.pop(self.target, None)  # it runs again
        failed_fast = leader is None and not silent
        if leader is not None:
            self._soon = 2 * (len(self._targets) + 1)  # one round over all targets, with hints
            self._backoff.reset()
            self._refused.reset()
            if leader in self._avoided:
                self._avoided[leader] += 1
                leader = "" if self._avoided[leader] % _TRY_AGAIN else leader
        elif self._hints and not failures and not silent:
            leader = self.target  # the hinted leader may be newly elected and not listening yet: try it again
        if leader and self._hints < _MAX_HINTS:
            self._hints += 1
            self.target = leader
            return self._rng.uniform(0.0, _HINT_JITTER_S)
        self._hints = 0
        self._turn += 1
        self.target = self._targets[self._turn % len(self._targets)]
        if self._soon and not failures:
            # The back-off does not count this attempt, because a new leader may need a while to listen.
            self._soon -= 1
            if left:
                return self._rng.uniform(0.0, _HINT_JITTER_S)
            if failed_fast and self._soon > len(self._targets):
                # A refused connection costs little. A replica refuses them for a moment as it begins to lead.
                return self._rng.uniform(0.5, 1.0) * _HINT_JITTER_S
            return self._rng.uniform(0.0, _STANDBY_CAP_S)
        if refused:
            # The limit itself is drawn, so that agents do not return together after it listens again.
            return min(self._refused.next_s(), self._rng.uniform(0.5, 1.0) * _REFUSED_CAP_S)
        self._refused.reset()
        return self._backoff.next_s(at_least_failures=failures)


def _put(known: dict[str, _Number], address: str, number: _Number) -> None:
    """Set the number of an address. Standbys may name any address, so the dictionary is bounded."""
    if address not in known and len(known) >= _MAX_ADDRESSES:
        known.clear()
    known[address] = number
