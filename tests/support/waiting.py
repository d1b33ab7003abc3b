"""Waiting for what other tasks and threads do."""

import asyncio
from collections.abc import Callable

TIMEOUT_S = 240.0  # for a slow and busy machine; a test that passes does not wait for it


async def until(condition: Callable[[], object]) -> None:
    """Let tasks and threads run until `condition()` is true."""
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await asyncio.sleep(0)
