"""Runs blocking or long calls in threads, and bounds the number of running and waiting calls.

A cancelled caller cannot stop a thread. Its call counts until the thread has finished it, so repeated
requests that are cancelled gain no capacity. A call that has not begun is dropped.

Readers have their own executors, and so has each publisher: a reader cannot delay a publisher. The default
executor of asyncio is reserved for name resolution (`loop.getaddrinfo`), which the renewal of the Lease
needs. A linter rule bans `asyncio.to_thread`.

No library is used: anyio's limiter bounds the running calls, but not the waiting ones.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

_T = TypeVar("_T")


async def ended(calls: Iterable["Future[Any]"], timeout_s: float | None = None) -> bool:
    """Wait for calls in threads, at most `timeout_s` seconds. Returns whether all of them have ended.

    It does not block the event loop. The results of late calls are dropped.
    """
    waiting = [asyncio.wrap_future(call) for call in tuple(calls)]
    if not waiting:
        return True
    _, late = await asyncio.wait(waiting, timeout=timeout_s)
    for call in late:
        call.cancel()
    return not late


class BusyError(Exception):
    """The executor has no capacity for another call: try again later."""


class BoundedExecutor:
    """Runs `threads` calls at a time and accepts `most` calls in total, including waiting ones.

    A single caller that awaits each call before the next never gets BusyError. The threads start when they
    are needed. They end with `close`, or when the executor is garbage-collected. An executor belongs to one
    event loop.
    """

    def __init__(self, name: str, *, threads: int = 1, most: int = 16) -> None:
        self.calls = 0
        self._most = most
        self._turns = asyncio.Semaphore(threads)
        self._threads = ThreadPoolExecutor(threads, name)

    async def __call__(self, work: Callable[..., _T], *args: object) -> _T:
        """Run `work(*args)` in a thread, and return its result or raise its exception. Raises BusyError."""
        if self.calls >= self._most:
            raise BusyError(f"{self.calls} such calls are waiting already: try again later")
        self.calls += 1
        try:
            await self._turns.acquire()
        except BaseException:
            self.calls -= 1
            raise
        loop = asyncio.get_running_loop()
        try:
            running = self._threads.submit(work, *args)
        except BaseException:
            self._done()
            raise

        def tell(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._done)

        running.add_done_callback(tell)
        return await asyncio.wrap_future(running)

    def close(self) -> None:
        """Drop the calls that have not begun, and accept no more calls."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _done(self) -> None:
        self.calls -= 1
        self._turns.release()
