"""Sends generations to watchers through bounded queues.

Each delta is computed and encoded once for all watchers. If a watcher is too slow, its unread deltas are
dropped, and its next message is a snapshot.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from hyperscout.v1 import topology_pb2 as pb
from hyperscout_runtime.bounded_executor import BoundedExecutor
from hyperscout_topology.delta import delta
from hyperscout_topology.objects import wrong_in
from hyperscout_topology.proto import topology_to_proto
from hyperscout_topology.topology import Topology

QUEUE_DELTAS = 64


class WatchEndedError(Exception):
    """The collector publishes no more generations.

    `leader`: address of the leader, where the caller can continue; "" = not known yet, None = there is none.
    """

    def __init__(self, reason: str, leader: str | None) -> None:
        super().__init__(reason)
        self.leader = leader


class Encoded:
    """One generation with its encoded messages. Each is encoded once, at its first use. Thread-safe."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._lock = threading.Lock()
        self._bytes: dict[tuple[str, bool], bytes] = {}

    @cached_property
    def wrong(self) -> tuple[str, ...]:
        """The result of `objects.wrong_in`.

        It takes up to tens of ms, so `Watchers.publish` computes it in a thread.
        """
        return tuple(wrong_in(self.topology))

    def get_response(self, omit_links: bool) -> bytes:
        """An encoded GetTopologyResponse. Blocks for seconds on a large topology: call it in a thread."""
        return self._once(
            ("get", omit_links), lambda: pb.GetTopologyResponse(topology=self._topology(omit_links))
        )

    def snapshot(self, omit_links: bool) -> bytes:
        """An encoded WatchTopologyResponse with the whole topology. Blocks as `get_response` does."""
        return self._once(
            ("watch", omit_links), lambda: pb.WatchTopologyResponse(snapshot=self._topology(omit_links))
        )

    def _topology(self, omit_links: bool) -> pb.Topology:
        return topology_to_proto(self.topology, omit_links=omit_links)

    def _once(
        self,
        key: tuple[str, bool],
        make: Callable[[], pb.GetTopologyResponse | pb.WatchTopologyResponse],
    ) -> bytes:
        with self._lock:
            if key not in self._bytes:
                self._bytes[key] = make().SerializeToString()
            return self._bytes[key]


@dataclass(slots=True, eq=False)
class Watcher:
    """One reader. `lagged`: its unread deltas were dropped, and its next message is a snapshot."""

    omit_links: bool
    lagged: bool = True
    queue: deque[bytes] = field(default_factory=deque)
    wake: asyncio.Event = field(default_factory=asyncio.Event)


class Watchers:
    """The published generation and its watchers. `limit`: watchers at once."""

    def __init__(self, topology: Topology, limit: int = 1000) -> None:
        self.current = Encoded(topology)
        self.resnapshots = 0  # times that a slow watcher was sent a new snapshot, since the start
        self._limit = limit
        self._watchers: set[Watcher] = set()
        self._told: list[Callable[[], None]] = []
        self._ended: WatchEndedError | None = None
        self._publishing = BoundedExecutor("watch-deltas")
        # One more than `limit`: a snapshot can outlast its watcher.
        self._snapshots = BoundedExecutor("watch-snapshots", most=limit + 1)

    def __len__(self) -> int:
        return len(self._watchers)

    @property
    def full(self) -> bool:
        return len(self._watchers) >= self._limit

    def add(self, omit_links: bool) -> Watcher:
        watcher = Watcher(omit_links)
        watcher.wake.set()
        self._watchers.add(watcher)
        return watcher

    def discard(self, watcher: Watcher) -> None:
        self._watchers.discard(watcher)

    def tell(self, told: Callable[[], None]) -> None:
        """Register a function that is called on the event loop after each new generation."""
        self._told.append(told)

    async def publish(self, topology: Topology) -> None:
        """Make a topology the current generation and queue its delta. Calls must not overlap."""
        old, new = self.current, Encoded(topology)
        wanted = {watcher.omit_links for watcher in self._watchers if not watcher.lagged}
        deltas = {
            omit: await self._publishing(_encoded_delta, old.topology, topology, omit) for omit in wanted
        }
        await self._publishing(lambda: new.wrong)
        self.current = new
        for told in self._told:
            told()
        for watcher in self._watchers:
            # A watcher that joined or lagged while the delta was made gets a snapshot of this generation.
            if watcher.lagged or watcher.omit_links not in deltas:
                watcher.lagged = True
            elif len(watcher.queue) >= QUEUE_DELTAS:
                watcher.queue.clear()
                watcher.lagged = True
                self.resnapshots += 1
            else:
                watcher.queue.append(deltas[watcher.omit_links])
            watcher.wake.set()

    def close(self, reason: str, leader: str | None = None) -> None:
        """End all watches, present and future ones."""
        self._ended = WatchEndedError(reason, leader)
        for watcher in self._watchers:
            watcher.wake.set()

    async def next(self, watcher: Watcher) -> bytes:
        """Wait for the next encoded message for this watcher and return it. Raises WatchEndedError."""
        while True:
            await watcher.wake.wait()
            if self._ended is not None:
                raise self._ended
            if watcher.lagged:
                watcher.lagged = False
                watcher.queue.clear()
                current = self.current
                snapshot = await self._snapshots(current.snapshot, watcher.omit_links)
                if self.current is current or watcher.queue:
                    return snapshot
                continue
            if watcher.queue:
                return watcher.queue.popleft()
            watcher.wake.clear()


def _encoded_delta(old: Topology, new: Topology, omit_links: bool) -> bytes:
    return pb.WatchTopologyResponse(delta=delta(old, new, omit_links=omit_links)).SerializeToString()
