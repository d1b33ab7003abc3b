"""Threads for calls that block or take long, with a bound on the calls that run and on those that wait.

A caller that is cancelled cannot stop a thread. Its call counts until the thread is done with it, so repeated
requests that are cancelled gain no capacity. A call that has not begun is dropped.

Readers have executors of their own, and so has each part that publishes: no reader delays a publisher. The
default executor of asyncio is left to name resolution (`loop.getaddrinfo`), which the renewal of the Lease
needs; a linter rule bans `asyncio.to_thread`.
"""

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_T = TypeVar("_T")


class BusyError(Exception):
    """The executor has as many calls as it takes: try again later."""


class BoundedExecutor:
    """Runs `threads` calls at a time and takes `most` calls in all, waiting ones included.

    A part that makes one call at a time never gets BusyError. The threads start when they are needed, and end
    with `close` or when the executor is garbage-collected. Belongs to an event loop.
    """

    def __init__(self, name: str, *, threads: int = 1, most: int = 16) -> None:
        self.calls = 0
        self._most = most
        self._turns = asyncio.Semaphore(threads)
        self._threads = ThreadPoolExecutor(threads, name)

    async def __call__(self, work: Callable[..., _T], *args: object) -> _T:
        """What `work(*args)` returns or raises. Raises BusyError."""
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
        """Drop the calls that have not begun, and take no more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _done(self) -> None:
        self.calls -= 1
        self._turns.release()
