"""Waiting for something or for time to pass: one seam, so that tests own the time."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

# Returns when the event is set or the seconds have passed (None = for ever). Never raises TimeoutError.
Wait = Callable[[asyncio.Event, float | None], Awaitable[None]]


async def wait(event: asyncio.Event, timeout_s: float | None) -> None:
    """The real one, by the loop's clock."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
