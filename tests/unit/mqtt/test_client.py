"""What our client does besides the library's."""

import asyncio

import pytest
from hyperscout_collector.mqtt.client import Access, Client, Secrets
from hyperscout_collector.mqtt.payloads import Outgoing
from hyperscout_collector.mqtt.topics import broker_of


async def test_who_is_told_to_end_ends_even_when_an_answer_comes_at_the_same_time() -> None:
    access = Access(broker_of("mqtt://127.0.0.1:1"), "one", 1)
    client = Client(access, Secrets(None, None), Outgoing("lab/collector", b"{}"), lambda *_: None)
    answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(client._wait_for(answer, None))
    await asyncio.sleep(0)
    answer.set_result(1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
