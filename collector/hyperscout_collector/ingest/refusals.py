"""Counts and logs reporters that are refused because of their identity, without flooding the log.

A refused reporter retries forever: a misconfigured agent at its own pace, an attacker as fast as the network
permits and under any number of names. Neither can choose the owner of its credentials or its address. Log
lines are therefore limited by these.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable

_log = logging.getLogger(__name__)

AGAIN_S = 600.0  # seconds between two lines for the same reason and the same reporter
MAX_LINES = 20  # per minute, for all reporters
_MINUTE_S = 60.0
_MAX_KNOWN = 4096  # pairs of reason and reporter that are remembered
_MAX_CHARS = 500


class LineLimit:
    """Limits the lines of a log: one for each pair of cause and peer in `AGAIN_S`, and `MAX_LINES` a minute.

    `clock`: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._logged_s: dict[tuple[str, str], float] = {}
        self._minute_s = -_MINUTE_S
        self._lines = 0
        self._not_logged = 0

    def more(self, cause: str, peer: str) -> str | None:
        """Returns what to add to a line now: how many were left out before it. None = leave it out."""
        key = cause, peer
        now_s = self._clock()
        if now_s - self._minute_s >= _MINUTE_S:
            self._minute_s, self._lines = now_s, 0
        if self._lines >= MAX_LINES or now_s - self._logged_s.get(key, -AGAIN_S) < AGAIN_S:
            self._not_logged += 1
            return None
        self._logged_s.pop(key, None)
        while len(self._logged_s) >= _MAX_KNOWN:
            del self._logged_s[next(iter(self._logged_s))]  # the pair that was logged longest ago
        self._logged_s[key] = now_s
        self._lines += 1
        since = f" ({self._not_logged} more since the last such line)" if self._not_logged else ""
        self._not_logged = 0
        return since


class Refusals:
    """`counts`: refusals by reason since the start. `clock`: monotonic seconds."""

    def __init__(self, counts: Counter[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._counts = counts
        self._lines = LineLimit(clock)

    def note(self, reason: str, peer: str, claimed: str, why: str, identity: str = "") -> None:
        """Count a refusal, and log it unless a limit is reached.

        `peer`: gRPC's name of the other end ("ipv4:10.0.0.7:41234"), which many reporters share behind
        address translation. `claimed`: the name that the reporter claims. `identity`: the authenticated
        identity, if there is one.
        """
        self._counts[reason] += 1
        since = self._lines.more(reason, identity or host_of(peer))
        if since is not None:
            _log.warning("refused: %s, which calls itself %r: %s%s", peer, claimed, why[:_MAX_CHARS], since)


def host_of(peer: str) -> str:
    """The address in gRPC's name of the other end, without its port."""
    return peer.rpartition(":")[0] or peer
