"""Watches tasks that run until they are cancelled, and reports a task that fails."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

_log = logging.getLogger(__name__)


def is_cancelled(task: "asyncio.Task[None] | None" = None) -> bool:
    """Return whether `task.cancel()` was called. Without an argument, this is about the current task.

    A CancelledError alone does not prove it: a library also raises it when its own future is cancelled.
    """
    found = task or asyncio.current_task()
    return found is not None and found.cancelling() > 0


async def run_checked(name: str, work: Awaitable[object]) -> None:
    """Await `work`. Raises RuntimeError if it ends by a CancelledError without a cancellation of this task.

    Otherwise such an end looks like a stop: an `asyncio.TaskGroup`, for example, lets its other tasks run on.
    """
    try:
        await work
    except asyncio.CancelledError as error:
        if is_cancelled():
            raise
        raise RuntimeError(f"{name} ended: a call in it was cancelled") from error


class TaskWatch:
    """Watches the tasks that are passed to `add`.

    `failed` is set when a task raises an exception. A CancelledError without a cancellation counts too.
    """

    def __init__(self) -> None:
        self.failed = asyncio.Event()
        self._failure: BaseException | None = None  # the first

    def add(self, task: "asyncio.Task[None]") -> None:
        task.add_done_callback(self._ended)

    def check(self) -> None:
        """Raise the exception of the first task that failed, if there is one."""
        if self._failure is not None:
            raise self._failure

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled():
            error = task.exception()
        elif is_cancelled(task):
            error = None
        else:
            error = RuntimeError(f"{task.get_name()} ended: a call in it was cancelled")
        if error is not None:
            _log.error("%s failed", task.get_name(), exc_info=error)
            self._failure = self._failure or error
            self.failed.set()


@asynccontextmanager
async def running(
    work: Coroutine[Any, Any, None], name: str, watch: TaskWatch | None = None
) -> AsyncIterator["asyncio.Task[None]"]:
    """Run a task beside the block, and cancel it at the end of the block."""
    task = asyncio.create_task(work, name=name)
    if watch is not None:
        watch.add(task)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
