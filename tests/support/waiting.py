"""Waiting for what other tasks, threads and processes do."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

TIMEOUT_S = 240.0  # for a slow and busy machine; a test that passes does not wait for it


What = str | Callable[[], object]  # for the error: what was expected, or what is there instead


async def until(condition: Callable[[], T], what: What = "", *, pause_s: float = 0.0) -> T:
    """Let tasks and threads run until `condition()` is true, and return its result."""

    async def looked() -> T:
        return condition()

    return await until_awaited(looked, what or str(condition), pause_s=pause_s)


async def until_awaited(condition: Callable[[], Awaitable[T]], what: What, *, pause_s: float = 0.0) -> T:
    """Like `until`, for a condition that is awaited."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while not (found := await condition()):
                await asyncio.sleep(pause_s)
            return found
    except TimeoutError:
        raise AssertionError(f"never seen: {what() if callable(what) else what}") from None


async def eventually(condition: Callable[[], T], what: What = "") -> T:
    """Like `until`, for what other processes do: it looks at most a hundred times a second."""
    return await until(condition, what, pause_s=0.01)


def until_seen(condition: Callable[[], T], what: What) -> T:
    """Like `until`, in a test without an event loop: it looks at most ten times a second."""
    give_up_s = time.monotonic() + TIMEOUT_S
    while not (found := condition()):
        assert time.monotonic() < give_up_s, f"never seen: {what() if callable(what) else what}"
        time.sleep(0.1)
    return found
