"""Gives waiting gangs their turns to request nodes: in order, and each again when resources become free."""

import asyncio
from collections.abc import Callable, Iterable

from hyperscout.v1 import placement_pb2 as pb
from hyperscout_placer.cluster.request import size
from hyperscout_runtime.units import NS

from hyperscout_gates.control.draining import Draining
from hyperscout_gates.control.gang_record import GangRecord

_PLACE_FOR_S = 0.02  # then the event loop runs other tasks
_LONG_S = 10 * _PLACE_FOR_S
_UNREAD_S = 10.0  # how long gangs wait at the start for the owners of earlier ones


class Turns:
    """The gangs that request nodes. `give` gives a gang its turn. `timer`: monotonic seconds."""

    def __init__(
        self, give: Callable[[GangRecord], None], draining: Draining, timer: Callable[[], float]
    ) -> None:
        self._give = give
        self._draining = draining
        self._timer = timer
        self._waiting: dict[GangRecord, None] = {}
        self._unread: set[GangRecord] = set()
        self._unread_until_s = 0.0
        self._grown = 0  # incremented when resources may have become free
        self._work = asyncio.Event()

    def begin(self, records: Iterable[GangRecord]) -> None:
        """The controller starts with these gangs.

        If a domain was kept for one of them, a later gang must not take its nodes before the owner of that
        gang is read. So gangs without plan get no turn until then, or for `_UNREAD_S`.
        """
        records = [record for record in records if record.machine.plan is None]
        if any(map(self._draining.is_overdue, records)):
            self._unread.update(records)
            self._unread_until_s = self._timer() + _UNREAD_S

    def more_free(self) -> None:
        """Resources may have become free: all waiting gangs get another turn."""
        self._grown += 1
        self._work.set()

    def wait(self, record: GangRecord) -> None:
        record.put_in_order()
        self._waiting[record] = None
        self._was_read(record)
        if record.refused_at != self._grown:
            self._work.set()

    def discard(self, record: GangRecord) -> None:
        record.reason = ""
        self._waiting.pop(record, None)
        machine = record.machine
        over = record.left or record.parked_until_s is not None or machine.plan is not None
        if machine.reading and not over:
            return  # it still waits, and its owner is read again
        self._was_read(record)
        if self._draining.left(record):
            self.more_free()

    def refused(self, record: GangRecord, reason: str) -> None:
        """The gang does not fit. Its next turn comes when resources become free."""
        record.refused_at, record.reason = self._grown, reason
        self._draining.refused(record)

    def look(self) -> None:
        """Handle times: call it about once a second."""
        if self._unread and self._timer() >= self._unread_until_s:
            self._unread.clear()
            self._work.set()
        if self._draining.look(self._waiting):
            self.more_free()

    def first(self) -> GangRecord | None:
        """Return the first gang that was refused and is to be placed as a whole."""
        refused = [record for record in self._waiting if record.reason and record.machine.plan is None]
        return min(refused, key=lambda record: record.order, default=None)

    def waiting(self) -> list[pb.WaitingGang]:
        """Return the gangs that wait for nodes, in the order of their turns."""
        kept, found = self._draining.kept(), list[pb.WaitingGang]()
        for record in self._in_order():
            if (gang := record.machine.gang) is not None:
                one = pb.WaitingGang(
                    gang=gang.key,
                    holder=gang.kind,
                    priority=record.machine.priority,
                    workers=size(gang.request.gang),
                    reason=record.reason,
                    kept=kept if record is self._draining.record else None,
                )
                one.waits_since.FromNanoseconds(int(record.machine.waits_since_s * NS))
                found.append(one)
        return found

    async def run(self) -> None:
        """Give turns until cancelled: to gangs with lost nodes first, then by priority and arrival."""
        while True:
            await self._work.wait()
            self._work.clear()
            began_s = self._timer()
            for record in self._in_order():
                if self._unread and record.machine.plan is None:
                    break
                if record.refused_at != self._grown and record in self._waiting:
                    self._give(record)
                if (took_s := self._timer() - began_s) >= _PLACE_FOR_S:
                    # A gang with many roles takes up to a second. The Lease must be renewed between gangs.
                    await asyncio.sleep(took_s if took_s > _LONG_S else 0)
                    began_s = self._timer()

    def _in_order(self) -> list[GangRecord]:
        return sorted(self._waiting, key=lambda record: record.order)

    def _was_read(self, record: GangRecord) -> None:
        if record in self._unread:
            self._unread.discard(record)
            if not self._unread:
                self._work.set()
