"""Waits for an event or a time-out. Tests replace this function to control time."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

# Returns when the event is set or the seconds have passed (None = no time-out). Does not raise TimeoutError.
Wait = Callable[[asyncio.Event, float | None], Awaitable[None]]


async def wait(event: asyncio.Event, timeout_s: float | None) -> None:
    """Wait by the event loop's clock."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
