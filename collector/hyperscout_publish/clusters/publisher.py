"""Gives a cluster's publishers the part of each topology that is of the cluster."""

import asyncio

from hyperscout_runtime.bounded_executor import BoundedExecutor
from hyperscout_topology.topology import Topology

from hyperscout_publish.clusters.cut import cut_to
from hyperscout_publish.publisher.base import Publisher


class ClusterPart:
    """The newest topology, cut to one cluster; "" = the collector's own. Its publishers share the result.

    `is_known`: whether the cluster had nodes in a topology since the start. Before that its API server may
    have been away, and what is published there must stay.
    """

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self.is_known = False
        self._last: tuple[Topology, Topology] | None = None
        self._turn = asyncio.Lock()
        self._in_thread = BoundedExecutor(f"cut-{cluster}" if cluster else "cut")

    async def of(self, topology: Topology) -> Topology:
        async with self._turn:
            if self._last is None or self._last[0] is not topology:
                self._last = topology, await self._in_thread(cut_to, topology, self.cluster)
                self.is_known = self.is_known or bool(self._last[1].hypernodes)
            return self._last[1]


class ClusterPublisher(Publisher):
    """Publishes in one cluster. Its name is CLUSTER/NAME, or NAME in the collector's own cluster."""

    def __init__(self, publisher: Publisher, part: ClusterPart) -> None:
        super().__init__()
        self.cluster = part.cluster
        self.name = f"{part.cluster}/{publisher.name}" if part.cluster else publisher.name
        self._publisher = publisher
        self._part = part
        publisher.wake.subscribe(self.wake)

    @property
    def notice(self) -> str | None:
        """The notice of the publisher."""
        found: str | None = getattr(self._publisher, "notice", None)
        return found

    async def publish(self, topology: Topology) -> None:
        """Publish the cluster's part. Raises PublishError."""
        part = await self._part.of(topology)
        if self._part.is_known:
            await self._publisher.publish(part)
