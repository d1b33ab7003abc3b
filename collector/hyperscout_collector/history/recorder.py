"""Records the history, beside publication or before it.

With PostgreSQL a generation is published by the signal `recorded`, so that a leader that is killed has shown
nothing that its successors' history lacks. A record that takes too long does not hold up publication.

A few generations wait in a queue. If the queue or the disk is full, the newest two generations become one,
and the next event of a generation reports the missing ones. A failure here never stops the collector:
`problem` reports it, and the write is repeated. A generation with which the recorder raises another exception
than StoreError is dropped, and reported as missing too.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from hyperscout.v1 import topology_pb2 as pb
from hyperscout_runtime.bounded_executor import BoundedExecutor
from hyperscout_runtime.errors import described
from hyperscout_runtime.signals import Signal
from hyperscout_topology.diff import Diff
from hyperscout_topology.events import events
from hyperscout_topology.topology import Topology

from hyperscout_collector.history.causes import Cause
from hyperscout_collector.history.errors import HistoryError
from hyperscout_collector.history.opening import HistoryOpening
from hyperscout_collector.history.reader import HistoryReader
from hyperscout_collector.history.store import HistorySize, HistoryStore, Record
from hyperscout_collector.store.errors import StoreDamagedError, StoreError
from hyperscout_collector.store.writer import Priority, StoreWriter, WriteQueue

_log = logging.getLogger(__name__)

_MAX_WAITING = 16  # queued generations: each may have a million links
_PATIENCE_S = 15.0  # for a record before publication: more than one repetition of a write that failed


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A queued generation. `missed`: number of generations that it replaced.

    `only_if_other`: record it only if it differs from the last record, because it was published before.
    """

    topology: Topology
    at_ns: int
    cause: Cause
    missed: int = 0
    only_if_other: bool = False


class Recorder:
    """Records the history with `writer`, and reads it. Call `offer` on the loop.

    The first read or write calls `opening`. Call `close` after `StoreWriter.close`. `recorded` is emitted for
    generations of `record_first`, the newest last.
    """

    def __init__(self, opening: HistoryOpening, now_ns: Callable[[], int], writer: StoreWriter) -> None:
        self.size = HistorySize()
        self.recorded = Signal[[Topology, Cause]]()
        self.queue: WriteQueue[_Waiting] = WriteQueue(
            writer,
            Priority.HISTORY,
            "the history is not written",
            self._write,
            join=_joined,
            limit=_MAX_WAITING,
        )
        self._opening = opening
        self._now_ns = now_ns
        self._store: HistoryStore | None = None
        self._reader: HistoryReader | None = None
        self._lock = threading.Lock()  # of opening and closing
        self._in_thread = BoundedExecutor("history-encoder")
        self._emitted = 0  # number of the generation with which `recorded` was emitted last
        self._late: dict[int, asyncio.TimerHandle] = {}  # by generation that waits for `recorded`
        self._damaged = ""
        self._dropped = ""  # the exception of the generation that was dropped last
        self._dropped_count = 0  # generations since the last record

    @property
    def problem(self) -> str | None:
        """Why the history is incomplete or not written; None = it is fine."""
        return "; ".join(filter(None, (self._damaged, self._dropped, self.queue.problem))) or None

    # Reading: both block, up to some hundred ms for an old topology, and raise HistoryError

    def events(self, request: pb.ListHistoryRequest) -> pb.ListHistoryResponse:
        return self._open_reader().events(request)

    def topology_at(self, at_ns: int) -> Topology:
        return self._open_reader().topology_at(at_ns)

    def _open_reader(self) -> HistoryReader:
        try:
            return self._open()[1]
        except StoreError as error:
            raise HistoryError(f"the history cannot be read: {error}") from error

    # Writing

    def resume(self, before: Topology, cause: Cause) -> None:
        """Record what was published before this process started, if the last record differs.

        It may have a new number, see `app.publication.saver`.
        """
        self._emitted = before.generation
        self.queue.put(_Waiting(before, self._now_ns(), cause, only_if_other=True))

    def offer(self, topology: Topology, cause: Cause) -> None:
        """Queue a generation that is published now."""
        self.queue.put(_Waiting(topology, self._now_ns(), cause))

    def record_first(self, topology: Topology, cause: Cause) -> None:
        """Queue a generation to be published by `recorded`: once it is durable, or `_PATIENCE_S` later."""
        self.offer(topology, cause)
        later = asyncio.get_running_loop().call_later(_PATIENCE_S, self._emit, topology, cause)
        self._late[topology.generation] = later

    async def caught_up(self) -> None:
        """Wait until what was queued up to now is durable, at most `_PATIENCE_S`. Never raises."""
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                await self.queue.written()

    def _emit(self, topology: Topology, cause: Cause) -> None:
        for number in [number for number in self._late if number <= topology.generation]:
            self._late.pop(number).cancel()
        if topology.generation > self._emitted:
            self._emitted = topology.generation
            self.recorded(topology, cause)

    async def close(self) -> None:
        """Wait until the history is not in use, and close it. Never raises; the caller bounds the wait.

        What was not recorded is not published any more.
        """
        while self._late:
            self._late.popitem()[1].cancel()
        await self._in_thread(self._close)

    def _close(self) -> None:
        with self._lock:
            if self._reader is not None:
                self._reader.close()
            if self._store is not None:
                self._store.close()
            self._reader = self._store = None

    async def _write(self, waiting: _Waiting) -> bool:
        is_recorded = await self._record(waiting)
        self._emit(waiting.topology, waiting.cause)  # also if it was dropped
        return is_recorded

    async def _record(self, waiting: _Waiting) -> bool:
        """Record one generation. The writer's thread does not encode it, because that can take seconds."""
        try:
            store, record = await self._in_thread(self._encode, waiting)
            if record is None:
                return False
            while await self.queue.in_thread(store.delete_oldest, record.at_ns, record.need_bytes):
                pass  # a transaction each, so that evidence can be written between two of them
            await self.queue.in_thread(store.add, record)
        except StoreError as error:
            self.size.write_failures_total += 1
            if isinstance(error, StoreDamagedError):
                await self._in_thread(self._close)  # the next attempt moves the damaged file aside
            raise
        except Exception as error:
            self._drop(waiting, error)
            return False
        self._dropped, self._dropped_count = "", 0
        return True

    def _drop(self, waiting: _Waiting, error: Exception) -> None:
        self.size.write_failures_total += 1
        self._dropped_count += waiting.missed + 1
        generation = waiting.topology.generation
        if not self._dropped:
            _log.error("generation %d is not recorded in the history", generation, exc_info=error)
        self._dropped = f"generation {generation} is not recorded in the history: {described(error)}"

    def _encode(self, waiting: _Waiting) -> tuple[HistoryStore, Record | None]:
        store, _ = self._open()
        store.check()  # opening it does not, if the process before has closed it
        self._damaged = store.problem or self._damaged
        newest = store.newest
        if newest is not None:
            # Also an earlier write that was cancelled or had no answer may have been committed.
            is_there = newest.generation == waiting.topology.generation
            if waiting.only_if_other and is_there:
                is_there = not events(Diff(newest, waiting.topology))
            if is_there:
                return store, None
        missed = waiting.missed + self._dropped_count
        return store, store.encode(waiting.at_ns, waiting.topology, waiting.cause, missed)

    def _open(self) -> tuple[HistoryStore, HistoryReader]:
        """Open the history if it is not open. Blocks and raises StoreError."""
        with self._lock:
            if self._store is None or self._reader is None:
                self._store, self._reader = self._opening(self.size)
                self._damaged = self._store.problem or self._damaged
            return self._store, self._reader


def _joined(old: _Waiting, new: _Waiting) -> _Waiting:
    return _Waiting(new.topology, new.at_ns, old.cause.joined(new.cause), old.missed + new.missed + 1)
