"""Who was refused for what they are, for people: each one counted, and said without flooding the log.

Whoever is refused tries again, for ever: an agent with a wrong setting at its own pace, somebody with worse
in mind as fast as the network lets them, under as many names as they like. Whose credentials they show, or
else their address, is what they cannot choose: lines go by that.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable

_log = logging.getLogger(__name__)

AGAIN_S = 600.0  # the same of the same one is said this often
MAX_LINES = 20  # a minute, of everybody
_MINUTE_S = 60.0
_MAX_KNOWN = 4096  # who, and for what reason: remembered
_MAX_CHARS = 500


class Refusals:
    """`counts`: by reason, since the start. `clock`: monotonic seconds."""

    def __init__(self, counts: Counter[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._counts = counts
        self._clock = clock
        self._said_s: dict[tuple[str, str], float] = {}
        self._minute_s = -_MINUTE_S
        self._lines = 0
        self._unsaid = 0

    def note(self, reason: str, peer: str, claimed: str, why: str, who: str = "") -> None:
        """`peer`: gRPC's name for the other end ("ipv4:10.0.0.7:41234"), behind which may be many where
        addresses are translated; `claimed`: what it calls itself; `who`: who it is, where that is proved."""
        self._counts[reason] += 1
        key = reason, who or peer.rpartition(":")[0] or peer
        now_s = self._clock()
        if now_s - self._minute_s >= _MINUTE_S:
            self._minute_s, self._lines = now_s, 0
        if self._lines >= MAX_LINES or now_s - self._said_s.get(key, -AGAIN_S) < AGAIN_S:
            self._unsaid += 1
            return
        self._said_s.pop(key, None)
        while len(self._said_s) >= _MAX_KNOWN:
            del self._said_s[next(iter(self._said_s))]  # the one that was said longest ago
        self._said_s[key] = now_s
        self._lines += 1
        since = f" ({self._unsaid} more since the last such line)" if self._unsaid else ""
        self._unsaid = 0
        _log.warning("refused: %s, which calls itself %r: %s%s", peer, claimed, why[:_MAX_CHARS], since)
