"""What glibc keeps free is returned to the system."""

import asyncio
import contextlib
from pathlib import Path

from hyperscout_collector.app.replica.heaps import trim_heaps
from support.waiting import until

_MIB = 1 << 20


def resident() -> int:
    """Bytes of this process in memory."""
    fields = Path("/proc/self/status").read_text().partition("VmRSS:")[2].split()
    return int(fields[0]) << 10


async def test_pages_between_blocks_that_stay_are_returned() -> None:
    blocks = [bytes(16 << 10) for _ in range(4000)]
    del blocks[::2]
    before = resident()
    task = asyncio.create_task(trim_heaps(0.0))
    await until(lambda: resident() < before - 20 * _MIB)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert len(blocks) == 2000
