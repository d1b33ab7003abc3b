"""Generations to everyone who watches: the published picture, encoded once, and bounded queues.

A delta is made and encoded once, however many watch. A watcher that is too slow to take them all is not
waited for: what it has not read is dropped, and it begins anew with a snapshot.
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
    """Nothing more is published here. `leader`: where to go on ("" = not known yet), None = nowhere."""

    def __init__(self, reason: str, leader: str | None) -> None:
        super().__init__(reason)
        self.leader = leader


class Encoded:
    """One generation with its encoded messages, each made once and only when asked for. Thread-safe."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._lock = threading.Lock()
        self._bytes: dict[tuple[str, bool], bytes] = {}

    @cached_property
    def wrong(self) -> tuple[str, ...]:
        """As `objects.wrong_in`. It may take tens of ms, so `Watchers.publish` computes it in a thread."""
        return tuple(wrong_in(self.topology))

    def get_response(self, omit_links: bool) -> bytes:
        """An encoded GetTopologyResponse. Blocks for seconds on a large picture: for a thread."""
        return self._once(
            ("get", omit_links), lambda: pb.GetTopologyResponse(topology=self._topology(omit_links))
        )

    def snapshot(self, omit_links: bool) -> bytes:
        """An encoded WatchTopologyResponse with the whole picture. For a thread, likewise."""
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
    """One reader. `lagged`: what it had not read was dropped, a snapshot is next."""

    omit_links: bool
    lagged: bool = True
    queue: deque[bytes] = field(default_factory=deque)
    wake: asyncio.Event = field(default_factory=asyncio.Event)


class Watchers:
    """The published generation and who follows it. `limit`: how many may watch at once."""

    def __init__(self, topology: Topology, limit: int = 1000) -> None:
        self.current = Encoded(topology)
        self.resnapshots = 0  # watchers that were too slow, since the start
        self._limit = limit
        self._watchers: set[Watcher] = set()
        self._told: list[Callable[[], None]] = []
        self._ended: WatchEndedError | None = None
        self._publishing = BoundedExecutor("watch-deltas")
        self._snapshots = BoundedExecutor("watch-snapshots", most=limit + 1)  # one may outlive its watcher

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
        """Call that, on the loop, whenever there is another generation."""
        self._told.append(told)

    async def publish(self, topology: Topology) -> None:
        """Make it the current generation and queue its delta. Calls must not overlap."""
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
            # Who came, or fell behind, while the delta was made gets a snapshot of this very generation.
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
        """End all watches, and those that come."""
        self._ended = WatchEndedError(reason, leader)
        for watcher in self._watchers:
            watcher.wake.set()

    async def next(self, watcher: Watcher) -> bytes:
        """The next message for this watcher, encoded; waits for one. Raises WatchEndedError."""
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
