"""Messages to other replicas keep their order, and the newest ones, while the store does not answer."""

import asyncio
from unittest.mock import Mock

from hyperscout_collector.app.ingest.outbox import Outbox
from hyperscout_collector.store.errors import StoreError
from hyperscout_collector.store.replicas import DIRECTIVE, Message, ReplicaTables
from hyperscout_runtime.bounded_executor import BoundedExecutor
from support.waiting import until


def message(number: int) -> Message:
    return Message("b", 1, "n1", number, DIRECTIVE, b"")


async def test_messages_wait_for_the_store() -> None:
    tables = Mock(ReplicaTables)
    tables.send.side_effect = [StoreError("away"), None]
    outbox: Outbox

    async def pause(pause_s: float) -> None:
        outbox.put(message(4))  # one more than fits

    outbox = Outbox(tables, BoundedExecutor("test"), 3, sleep=pause)
    for number in range(1, 4):
        outbox.put(message(number))
    task = asyncio.create_task(outbox.run())
    await until(lambda: tables.send.call_count == 2)
    task.cancel()
    first, second = (call.args[0] for call in tables.send.call_args_list)
    assert first == [message(1), message(2), message(3)]
    assert second == [message(2), message(3), message(4)]
