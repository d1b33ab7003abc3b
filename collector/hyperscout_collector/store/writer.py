"""Writes evidence, reservations, topology and history in one thread.

With PostgreSQL, claims, messages and heartbeats of replicas (`replicas.py`) do not pass through it.

Each kind of data has a `WriteQueue`. Its owner puts batches into the queue and can wait until they are
durable. A queue is bounded: batches that wait are joined. The one thread runs one short transaction at a
time. Of the transactions that wait, it runs the one with the highest priority first, so evidence never waits
for more than one transaction of the history.

Nothing here depends on SQLite. A transaction is a blocking function that writes one batch completely or not
at all and raises StoreError. Another database implements `EvidenceStore`, `ReservationStore` and
`HistoryStore`, and uses the same queues.
"""

import asyncio
import heapq
import logging
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from enum import IntEnum
from functools import partial
from itertools import count
from typing import Any, Generic, TypeVar

from hyperscout_runtime.bounded_executor import ended
from hyperscout_runtime.errors import described

from hyperscout_collector.store.errors import StoreError

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
_B = TypeVar("_B")

_RETRY_S = 5.0  # between two attempts to write the same batch
_LONG_S = 60.0  # no statement takes longer, but COMMIT may: it waits for a synchronous standby
_MAX_WAIT_S = 20.0  # for a quiet moment, and after a long write


class Priority(IntEnum):
    """The order of transactions that wait: the lowest value first."""

    EVIDENCE = 0
    RESERVATIONS = 1
    TOPOLOGY = 2
    HISTORY = 3


_Job = tuple[Priority, int, "Future[Any]", Callable[[], Any]]


class StoreWriter:
    """The thread that writes, and the queues that use it.

    Run `run` as a task. At the end cancel that task, then call `close`. `timer`: seconds, monotonic.
    """

    def __init__(self, timer: Callable[[], float] = time.monotonic) -> None:
        self._timer = timer
        self._began_s: float | None = None  # of the transaction that runs; None = none does
        self.queues: list[WriteQueue[Any]] = []
        self._jobs: list[_Job] = []  # a heap
        self._lock = threading.Lock()
        self._numbers = count()
        self._calls: set[Future[None]] = set()
        # No BoundedExecutor, which keeps the order of arrival: a call here runs the most urgent job.
        self._thread = ThreadPoolExecutor(1, "store-writer")

    @property
    def problem(self) -> str | None:
        """Why nothing is written now; None = the last transaction ended, or runs for a short time."""
        began_s = self._began_s
        if began_s is None or self._timer() - began_s < _LONG_S:
            return None
        return (
            f"a transaction of the store has run for more than {_LONG_S:.0f} s, and nothing else is stored: "
            "check the disk, or PostgreSQL with its synchronous standbys"
        )

    async def run(self) -> None:
        """Write what is put into the queues, until cancelled."""
        tasks = [asyncio.create_task(queue.run()) for queue in self.queues]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def flush(self) -> None:
        """Write all batches that wait now. A batch that cannot be written keeps waiting."""
        for queue in self.queues:
            await queue.flush()

    async def close(self) -> None:
        """Wait for the running transaction, and end the thread. Never raises; the caller bounds the wait."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        await ended(self._calls)

    async def in_thread(self, priority: Priority, work: Callable[..., _T], *args: object) -> _T:
        """Run a transaction, and return its result or raise its exception.

        When the caller is cancelled, a waiting transaction is dropped, and a running one is finished first. A
        second cancellation ends the wait for it.
        """
        done: Future[_T] = Future()
        with self._lock:
            job: _Job = (priority, next(self._numbers), done, partial(work, *args))
            heapq.heappush(self._jobs, job)
        call = self._thread.submit(self._run_first)
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        result = asyncio.wrap_future(done)
        try:
            return await asyncio.shield(result)
        except asyncio.CancelledError:
            if not done.cancel():
                await asyncio.wait([result])
            raise

    def _run_first(self) -> None:
        with self._lock:
            _, _, done, work = heapq.heappop(self._jobs)
        if not done.set_running_or_notify_cancel():
            return  # the caller was cancelled
        self._began_s = self._timer()
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)
        finally:
            self._began_s = None


class WriteQueue(Generic[_B]):
    """Batches of one kind that wait to be written.

    `write` makes one batch durable by transactions in `in_thread`. It returns whether there was something to
    write, and raises StoreError if nothing was written. `label` begins the message about a failure, as "the
    history is not written".

    From `limit` waiting batches on, `join` makes one batch of the newest waiting batch and a new one; it
    returns None if both must wait. `repeat`: a batch that failed is written again after a pause; otherwise it
    is dropped, because its sender repeats it. `settle_s`: a batch is written when no newer one has come for
    this time. `share`: the largest share of time that writing takes.

    `problem`: why the last batch is not written; None = it is. `failures`: number of failed writes.
    """

    def __init__(
        self,
        writer: StoreWriter,
        priority: Priority,
        label: str,
        write: Callable[[_B], Awaitable[bool]],
        *,
        join: Callable[[_B, _B], _B | None],
        limit: int = 1,
        repeat: bool = True,
        settle_s: float = 0.0,
        share: float = 1.0,
    ) -> None:
        self.problem: str | None = None
        self.failures = 0
        self._writer = writer
        self._priority = priority
        self._label = label
        self._write = write
        self._join = join
        self._limit = limit
        self._repeat = repeat
        self._settle_s = settle_s
        self._rest = 1 / share - 1
        self._waiting: deque[_B] = deque()
        self._waiters: list[asyncio.Future[None]] = []
        self._work = asyncio.Event()
        self._due: asyncio.TimerHandle | None = None  # sets `_work`
        self._turn = asyncio.Lock()
        writer.queues.append(self)

    def put(self, batch: _B, *, within_s: float = 0.0) -> None:
        """Add a batch, or join it with the newest one that waits.

        `within_s`: how long it may wait for others. A batch that may not wait ends the wait of all.
        """
        self._waiting.append(batch)
        self._shorten()
        if not within_s:
            self._work.set()
            return
        loop = asyncio.get_running_loop()
        at_s = loop.time() + within_s
        if self._due is None or at_s < self._due.when():
            if self._due is not None:
                self._due.cancel()
            self._due = loop.call_at(at_s, self._wait_is_over)

    def _wait_is_over(self) -> None:
        self._due = None
        self._work.set()

    async def written(self) -> None:
        """Wait until all batches up to now are durable. Raises StoreError if a write fails."""
        if self._waiting or self._turn.locked():
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            self._work.set()
            await waiter

    async def in_thread(self, work: Callable[..., _T], *args: object) -> _T:
        """Run a transaction in the writer's thread with the priority of this queue."""
        return await self._writer.in_thread(self._priority, work, *args)

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._work.wait()
            if self._settle_s:
                await self._settled()
            self._work.clear()
            began_s = time.monotonic()
            if not await self.flush():
                await asyncio.sleep(_RETRY_S)
                self._work.set()
            elif self._rest:
                await asyncio.sleep(min((time.monotonic() - began_s) * self._rest, _MAX_WAIT_S))

    async def flush(self) -> bool:
        """Write all waiting batches. Returns False where a batch failed and has to be written again."""
        async with self._turn:
            while self._waiting:
                batch = self._waiting.popleft()
                # With the last batch, all waiters wait for this batch or an earlier one.
                waiters = [] if self._waiting else self._take_waiters()
                try:
                    wrote = await self._write(batch)
                except StoreError as error:
                    if not self._repeat:
                        waiters += self._take_waiters()  # they wait for the dropped batch too
                    self._failed(error)
                    _fail(waiters, f"{self._label}: {error}")
                    if self._repeat:
                        self._put_back(batch)
                        return False
                except BaseException as error:
                    self._waiters += waiters
                    if self._repeat:
                        self._put_back(batch)
                    else:
                        is_stop = isinstance(error, asyncio.CancelledError)
                        why = (
                            "the collector is stopping"
                            if is_stop
                            else f"an internal error: {described(error)}"
                        )
                        _fail(self._take_waiters(), f"{self._label}: {why}")
                    raise
                else:
                    self._succeeded(waiters, wrote)
            self._succeeded(self._take_waiters(), False)  # they came while the last batch was written
        return True

    async def _settled(self) -> None:
        """Wait until no newer batch has come for `settle_s`, but no longer than `_MAX_WAIT_S`."""
        end_s = time.monotonic() + _MAX_WAIT_S
        while self._work.is_set() and time.monotonic() < end_s:
            self._work.clear()
            await asyncio.sleep(self._settle_s)

    def _take_waiters(self) -> "list[asyncio.Future[None]]":
        waiters, self._waiters = self._waiters, []
        return waiters

    def _put_back(self, batch: _B) -> None:
        self._waiting.appendleft(batch)
        self._shorten()

    def _shorten(self) -> None:
        if len(self._waiting) > self._limit:
            joined = self._join(self._waiting[-2], self._waiting[-1])
            if joined is not None:
                self._waiting.pop()
                self._waiting[-1] = joined

    def _succeeded(self, waiters: list["asyncio.Future[None]"], wrote: bool) -> None:
        if wrote and self.problem is not None:
            _log.warning("written again after a failure: %s", self.problem)
            self.problem = None
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _failed(self, error: StoreError) -> None:
        self.failures += 1
        problem = f"{self._label}: {error}"
        if problem != self.problem:
            _log.error("%s", problem)
        self.problem = problem


def _fail(waiters: Sequence["asyncio.Future[None]"], problem: str) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_exception(StoreError(problem))
