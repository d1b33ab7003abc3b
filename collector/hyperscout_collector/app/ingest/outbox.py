"""The messages to other replicas that wait, while the store does not answer."""

import asyncio
from collections.abc import Awaitable, Callable

from hyperscout_runtime.bounded_executor import BoundedExecutor

from hyperscout_collector.store.errors import StoreError
from hyperscout_collector.store.replicas import Message, ReplicaTables

_RETRY_S = 1.0
_AT_ONCE = 1000  # messages of one transaction


class Outbox:
    """Sends messages in their order, in threads of `in_thread`. Run `run` as a task.

    `limit`: messages that wait; the oldest gives way to a new one.
    """

    def __init__(
        self,
        tables: ReplicaTables,
        in_thread: BoundedExecutor,
        limit: int,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._tables = tables
        self._in_thread = in_thread
        self._limit = limit
        self._sleep = sleep
        self._waiting: list[Message] = []
        self._work = asyncio.Event()

    def put(self, message: Message) -> None:
        self._waiting.append(message)
        del self._waiting[: -self._limit]
        self._work.set()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            while some := self._waiting[:_AT_ONCE]:
                del self._waiting[: len(some)]
                try:
                    await self._in_thread(self._tables.send, some)
                except StoreError:
                    self._waiting[:0] = some
                    del self._waiting[: -self._limit]
                    await self._sleep(_RETRY_S)
