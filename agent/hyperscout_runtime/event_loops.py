"""Around event loops: a loop in a thread of its own, notices from other threads, many calls as one.

No library is used: each part is a few lines of asyncio.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any, TypeVar

_T = TypeVar("_T")


class LoopThread:
    """The loop. `run` is called on another loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    async def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run `work` in the thread, and return its result or raise its exception.

        A caller that is cancelled cancels the work, and does not wait for its end.
        """
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))


@asynccontextmanager
async def loop_in_thread(name: str) -> AsyncIterator[LoopThread]:
    """Run a loop in a thread called `name` during the block. The end of the block cancels its tasks, and
    waits for them."""
    began: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    ended: Future[None] = Future()

    async def until_stopped() -> None:
        stop = asyncio.Event()
        began.set_result((asyncio.get_running_loop(), stop))
        await stop.wait()

    def run() -> None:
        try:
            asyncio.run(until_stopped())
        finally:
            ended.set_result(None)

    threading.Thread(target=run, name=name, daemon=True).start()
    loop, stop = await asyncio.wrap_future(began)
    try:
        yield LoopThread(loop)
    finally:
        loop.call_soon_threadsafe(stop.set)
        await asyncio.wrap_future(ended)


class Notices:
    """Wakes those that wait on the loop that made it. `notify` may be called in any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def notify(self) -> None:
        self._loop.call_soon_threadsafe(self._wake)

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait until `happened` returns True. It is asked after each notice."""
        while not happened():
            await self._event.wait()

    def _wake(self) -> None:
        self._event.set()
        self._event = asyncio.Event()


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
