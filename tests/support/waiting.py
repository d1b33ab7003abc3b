"""Waiting for what other tasks and threads do."""

import asyncio
from collections.abc import Callable

TIMEOUT_S = 30.0  # of a machine that is busy with something else


async def until(condition: Callable[[], object]) -> None:
    """Let tasks and threads run until `condition()` is true."""
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await asyncio.sleep(0)
