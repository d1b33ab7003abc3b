"""Threads for calls that take long: so many work at a time, so many wait, and who is gone waits no longer.

A caller that goes away cannot stop a thread. What it asked for counts until the thread is through with it, so
that nobody gets more of the machine by asking and hanging up; what had not begun never does.
"""

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_T = TypeVar("_T")


class BusyError(Exception):
    """Too many such calls already: later."""


class Lookers:
    """`threads` work at a time; `most` calls in all, those that wait among them. Belongs to an event loop."""

    def __init__(self, name: str, *, threads: int, most: int) -> None:
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
            self._through()
            raise

        def tell(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed by now
                loop.call_soon_threadsafe(self._through)

        running.add_done_callback(tell)
        return await asyncio.wrap_future(running)

    def close(self) -> None:
        """What has not begun never does."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _through(self) -> None:
        self.calls -= 1
        self._turns.release()
