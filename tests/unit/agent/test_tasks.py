"""A service is restarted, however it ends."""

import asyncio
from random import Random

from hyperscout_agent.runtime.tasks import supervise
from support.waiting import TIMEOUT_S


async def test_a_service_in_which_a_call_is_cancelled_is_restarted() -> None:
    starts = 0
    twice = asyncio.Event()

    async def service() -> None:
        nonlocal starts
        starts += 1
        if starts == 2:
            twice.set()
        call: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        call.cancel()
        await call

    async def sleep(_: float) -> None:
        await asyncio.sleep(0)

    task = asyncio.create_task(supervise("thing", service, rng=Random(0), sleep=sleep))
    async with asyncio.timeout(TIMEOUT_S):
        await asyncio.wait([task, asyncio.create_task(twice.wait())], return_when=asyncio.FIRST_COMPLETED)
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
