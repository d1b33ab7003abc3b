"""Returns memory to the system that glibc's malloc keeps free. Other C libraries are left as they are.

The full states of thousands of agents, and each inference after them, need memory for a moment. glibc keeps
most of it: for the next burst, and because blocks that stay lie between blocks that were freed.
"""

import asyncio
import ctypes
from typing import Any

from hyperscout_runtime.bounded_executor import BoundedExecutor

_M_ARENA_MAX = -8  # its number in malloc.h
_MAX_HEAPS = 2


def limit_heaps() -> None:
    """Let threads that start later share two heaps, see mallopt(3).

    By default there are up to eight for each processor, and no thread uses what another one left free.
    """
    if (mallopt := _function("mallopt")) is not None:
        mallopt(_M_ARENA_MAX, _MAX_HEAPS)


async def trim_heaps(every_s: float = 10.0) -> None:
    """Return free pages to the system every `every_s` seconds until cancelled, see malloc_trim(3).

    It takes about a millisecond for each 1,000 agents.
    """
    trim, in_thread = _function("malloc_trim"), BoundedExecutor("heaps")
    while trim is not None:
        await asyncio.sleep(every_s)
        await in_thread(trim, 0)


def _function(name: str) -> Any:
    """Return a function of the C library; None = it has no such function."""
    return getattr(ctypes.CDLL(None), name, None)
