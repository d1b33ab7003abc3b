"""Combines many calls into one.

No library is used: the whole is one timer of the event loop.
"""

import asyncio
from collections.abc import Callable


class Debouncer:
    """Calls `act` once, `delay_s` seconds after the first of many calls. Belongs to one event loop."""

    def __init__(self, act: Callable[[], None], delay_s: float) -> None:
        self._act = act
        self._delay_s = delay_s
        self._due: asyncio.TimerHandle | None = None

    def __call__(self) -> None:
        if self._due is None:
            self._due = asyncio.get_running_loop().call_later(self._delay_s, self._run)

    def _run(self) -> None:
        self._due = None
        self._act()
