"""Gives waiting gangs their turns to request nodes: in order, and each again when resources become free."""

import asyncio
from collections.abc import Callable

from hyperscout_gates.control.gang_record import GangRecord

_PLACE_FOR_S = 0.02  # then the event loop runs other tasks
_LONG_S = 10 * _PLACE_FOR_S


class Turns:
    """The gangs that request nodes. `give` gives a gang its turn. `timer`: monotonic seconds."""

    def __init__(self, give: Callable[[GangRecord], None], timer: Callable[[], float]) -> None:
        self._give = give
        self._timer = timer
        self._waiting: dict[GangRecord, None] = {}
        self._grown = 0  # incremented when resources may have become free
        self._work = asyncio.Event()

    def more_free(self) -> None:
        """Resources may have become free: all waiting gangs get another turn."""
        self._grown += 1
        self._work.set()

    def wait(self, record: GangRecord) -> None:
        self._waiting[record] = None
        if record.refused_at != self._grown:
            self._work.set()

    def discard(self, record: GangRecord) -> None:
        self._waiting.pop(record, None)

    def refused(self, record: GangRecord) -> None:
        """The gang does not fit. Its next turn comes when resources become free."""
        record.refused_at = self._grown

    async def run(self) -> None:
        """Give turns until cancelled: to gangs with lost nodes first, then in the order of arrival."""
        while True:
            await self._work.wait()
            self._work.clear()
            waiting = list(self._waiting)
            waiting.sort(key=lambda x: (x.machine.plan is None, x.machine.waits_since_s, x.machine.key))
            began_s = self._timer()
            for record in waiting:
                if record.refused_at != self._grown and record in self._waiting:
                    self._give(record)
                if (took_s := self._timer() - began_s) >= _PLACE_FOR_S:
                    # A gang with many roles takes up to a second. The Lease must be renewed between gangs.
                    await asyncio.sleep(took_s if took_s > _LONG_S else 0)
                    began_s = self._timer()
