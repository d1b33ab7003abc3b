"""Runs a call that may block in the kernel (sysfs of a faulty adapter) without blocking the agent.

Each call runs in its own daemon thread. A call that does not return blocks neither a pool nor the exit, as it
would in a BoundedExecutor. A probe repeats such a call, so the number of threads is bounded.
"""

import asyncio
import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_MOST = 32  # running calls of one name

_free = defaultdict[str, threading.Semaphore](lambda: threading.Semaphore(_MOST))  # by name


class BlockedError(Exception):
    """So many earlier calls have not returned that no further one is started."""


async def in_thread(work: Callable[[], T], name: str) -> T:
    """Return what `work` returns or raise what it raises. Cancelling does not end the thread.

    `name`: of the thread, and of what it reads. Raises BlockedError.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # None only where T has it

    def run() -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = work()
        except BaseException as caught:
            error = caught
        _free[name].release()
        with contextlib.suppress(RuntimeError):  # the loop may have closed in the meantime
            loop.call_soon_threadsafe(settle, result, error)

    if not _free[name].acquire(blocking=False):
        raise BlockedError(f"{_MOST} earlier calls ({name}) have not returned; it waits for one of them")
    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except BaseException:  # no further thread can be started
        _free[name].release()
        raise
    return await future
