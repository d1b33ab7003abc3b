"""Gives a cluster's publishers the part of each topology that is of the cluster."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from hyperscout_kubernetes.reflector import Reflector
from hyperscout_runtime.bounded_executor import BoundedExecutor
from hyperscout_runtime.errors import StartError
from hyperscout_topology.topology import Topology

from hyperscout_publish.clusters.cut import cut_to
from hyperscout_publish.publisher.base import Publisher, PublishError

_RECALL_S = 10.0


@dataclass(frozen=True, slots=True)
class Earlier:
    """What is published in a cluster at the start, and how much of it the first part may lack.

    `recall()`: the tree of the cluster's HyperNodes; raises StartError. More than `removal_share` of its
    nodes may only be missing `hold_s` seconds after it was read. `timer`: monotonic seconds.
    """

    recall: Callable[[], Awaitable[Topology | None]]
    removal_share: float
    hold_s: float
    timer: Callable[[], float] = time.monotonic


class ClusterPart:
    """The newest topology, cut to one cluster; "" = the collector's own. Its publishers share the result.

    `earlier`: None = what is published there is known at the start. The API server of another cluster may be
    away at the start. Nothing is published there until the collector has read what is published, and has the
    evidence of those nodes again.
    """

    def __init__(self, cluster: str, earlier: Earlier | None = None) -> None:
        self.cluster = cluster
        self._earlier = earlier
        self._before: frozenset[str] | None = None
        self._until_s = 0.0
        self._last: tuple[Topology, Topology] | None = None
        self._turn = asyncio.Lock()
        self._in_thread = BoundedExecutor(f"cut-{cluster}" if cluster else "cut")

    async def of(self, topology: Topology) -> Topology:
        """Return the cluster's part. Raises PublishError: it may not be published yet."""
        async with self._turn:
            if self._last is None or self._last[0] is not topology:
                self._last = topology, await self._in_thread(cut_to, topology, self.cluster)
            if self._earlier is not None:
                await self._check(self._earlier, self._last[1])
                self._earlier = None
            return self._last[1]

    async def _check(self, earlier: Earlier, part: Topology) -> None:
        if self._before is None:
            try:
                async with asyncio.timeout(_RECALL_S):
                    found = await earlier.recall()
            except TimeoutError as error:
                raise PublishError(
                    "the published HyperNodes cannot be read: no response: check the API server"
                ) from error
            except StartError as error:
                raise PublishError(str(error)) from error
            self._before = frozenset() if found is None else _nodes_of(found)
            self._until_s = earlier.timer() + earlier.hold_s
        there = _nodes_of(part)
        missing = len(self._before - there)
        is_much = missing > max(1, earlier.removal_share * len(self._before)) or (missing and not there)
        if is_much and earlier.timer() < self._until_s:
            raise PublishError(
                f"{missing} of {len(self._before)} nodes in published HyperNodes are in no domain: the "
                f"HyperNodes stay as they are until the nodes have evidence, or for {earlier.hold_s:g} s"
            )


def _nodes_of(topology: Topology) -> frozenset[str]:
    return frozenset(node for h in topology.hypernodes if not h.children for node in h.nodes)


class ClusterPublisher(Publisher):
    """Publishes in one cluster. Its name is CLUSTER/NAME, or NAME in the collector's own cluster.

    `watches`: a problem of one of them is a `notice`.
    """

    def __init__(self, publisher: Publisher, part: ClusterPart, watches: Collection[Reflector] = ()) -> None:
        super().__init__()
        self.cluster = part.cluster
        self.name = f"{part.cluster}/{publisher.name}" if part.cluster else publisher.name
        self._publisher = publisher
        self._part = part
        self._watches = watches
        publisher.wake.subscribe(self.wake)

    @property
    def notice(self) -> str | None:
        """The notice of the publisher, or the problem of a watch."""
        found: str | None = getattr(self._publisher, "notice", None)
        return found or next((x.problem for x in self._watches if x.problem is not None), None)

    async def publish(self, topology: Topology) -> None:
        """Publish the cluster's part. Raises PublishError."""
        await self._publisher.publish(await self._part.of(topology))
