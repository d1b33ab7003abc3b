"""A problem that counts only when it lasts: a cluster that has just started lacks everything for a while."""

import logging
from typing import Final

from hyperscout_runtime.units import NS

_log = logging.getLogger(__name__)

GRACE_S: Final = 120.0  # LLDP frames arrive every 30 s, a sweep of a large fabric takes a minute
REVIEW_S: Final = 30.0  # between reviews: 100,000 findings take 50 ms of the event loop


class LastingProblem:
    """The sentence about a state that has lasted `GRACE_S`, logged once for each such time.

    `text`: None = there is no problem, or it is too early to report one.
    """

    def __init__(self) -> None:
        self.text: str | None = None
        self._state: object = None
        self._due_ns = 0

    def is_due(self, state: object, now_ns: int) -> bool:
        """Whether to describe the state now (Unix ns). None = no problem; a changed state begins anew."""
        if state != self._state:
            self._state, self.text = state, None
            self._due_ns = now_ns + int(GRACE_S * NS)
        return state is not None and now_ns >= self._due_ns

    def describe(self, text: str, now_ns: int) -> bool:
        """Keep the sentence until the next review. Returns whether it is the first about this state."""
        is_new, self.text = self.text is None, text
        self._due_ns = now_ns + int(REVIEW_S * NS)
        if is_new:
            _log.warning("%s", text)
        return is_new
