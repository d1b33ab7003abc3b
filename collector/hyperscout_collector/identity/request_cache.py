"""Caches the answers to requests, up to a limit. Concurrent calls for one key share one request."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from hyperscout_collector.identity.callers import BusyError

T = TypeVar("T")


class RequestCache(Generic[T]):
    """A cache of at most `limit` answers; the least recently used are evicted first.

    `max_asked`: maximum number of requests in progress. `clock`: returns seconds.
    """

    def __init__(self, limit: int, max_asked: int, clock: Callable[[], float]) -> None:
        self._limit = limit
        self._max_asked = max_asked
        self._clock = clock
        self._kept: OrderedDict[bytes, tuple[T, float]] = OrderedDict()
        self._asked: dict[bytes, asyncio.Task[T]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    async def get(self, key: bytes, ask: Callable[[], Awaitable[tuple[T, float]]]) -> T:
        """Returns the cached answer for `key`, or calls `ask`, which returns (answer, lifetime in seconds).

        An exception of `ask` reaches all waiting callers and is not cached. Raises BusyError if too many
        requests are in progress.
        """
        if (kept := self._kept.get(key)) is not None:
            if self._clock() < kept[1]:
                self._kept.move_to_end(key)
                return kept[0]
            del self._kept[key]
        task = self._asked.get(key)
        if task is None:
            if len(self._asked) >= self._max_asked:
                raise BusyError(f"{len(self._asked)} credential checks are in progress: try again later")
            task = asyncio.create_task(self._ask(key, ask), name="identity")
            self._asked[key] = task
            task.add_done_callback(lambda done: self._done(key, done))
        # Cancelling one waiting caller must not cancel the request for the others.
        return await asyncio.shield(task)

    async def _ask(self, key: bytes, ask: Callable[[], Awaitable[tuple[T, float]]]) -> T:
        answer, lifetime_s = await ask()
        if lifetime_s > 0:
            self._kept[key] = answer, self._clock() + lifetime_s
            while len(self._kept) > self._limit:
                self._kept.popitem(last=False)
        return answer

    def _done(self, key: bytes, task: "asyncio.Task[T]") -> None:
        self._asked.pop(key, None)
        if not task.cancelled():
            task.exception()  # marks the exception as retrieved also if no caller waits for it

    async def close(self) -> None:
        """Cancel all requests in progress and wait for them."""
        tasks = list(self._asked.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
