"""Many calls are one, and the next ones are one again."""

import asyncio

from hyperscout_runtime.event_loops import Debouncer
from support.waiting import TIMEOUT_S


async def test_once_for_many_calls_and_again_for_the_next() -> None:
    acted: list[int] = []
    debounced = Debouncer(lambda: acted.append(1), 0.0)
    for expected in (1, 2):
        debounced()
        debounced()
        assert len(acted) == expected - 1
        async with asyncio.timeout(TIMEOUT_S):
            while len(acted) < expected:
                await asyncio.sleep(0)
    assert len(acted) == 2
