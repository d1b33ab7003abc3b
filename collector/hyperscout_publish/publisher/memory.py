"""Passes the topology to readers in this process, such as the API behind `hyperscout get hypernodes`."""

from collections.abc import Awaitable, Callable

from hyperscout_topology.topology import Topology

from hyperscout_publish.publisher.base import no_wake


class MemoryPublisher:
    """Passes each generation to `serve` (the API's watchers)."""

    name = "memory"
    wake: Callable[[], None] = staticmethod(no_wake)

    def __init__(self, serve: Callable[[Topology], Awaitable[None]]) -> None:
        self._serve = serve

    async def publish(self, topology: Topology) -> None:
        await self._serve(topology)
