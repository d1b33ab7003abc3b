"""Holds the published generation, and sends each new one to the channels of gRPC."""

import logging
import threading
from functools import cached_property
from typing import Self

from hyperscout.v1 import topology_pb2 as pb
from hyperscout_publish.publisher.base import Publisher
from hyperscout_runtime.bounded_executor import BoundedExecutor
from hyperscout_runtime.errors import described
from hyperscout_runtime.signals import Signal
from hyperscout_topology.diff import Diff
from hyperscout_topology.gaps import gap_lines
from hyperscout_topology.problems import topology_problems
from hyperscout_topology.proto import delta_to_proto, topology_to_proto
from hyperscout_topology.topology import Topology

from hyperscout_collector.serve.fanout.channel import Channel, Form, WatchEndedError

_log = logging.getLogger(__name__)

MAX_DELTAS = 64  # that a slow reader may lag behind
_MAX_BYTES = 64 * 1024 * 1024
# The problems of fewer take about a millisecond.
_MANY_PARTS = 500  # HyperNodes and named nodes
_MANY_LINKS = 5_000  # which are looked at where there are several roots


class Generation:
    """A topology with its encoded answers. Each is encoded once, at its first use. Thread-safe."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._lock = threading.Lock()
        self._responses: dict[bool, bytes] = {}

    @cached_property
    def wrong(self) -> tuple[str, ...]:
        """The result of `problems.topology_problems`.

        It takes up to tens of ms, so `Hub` finds it in a thread if the topology is large.
        """
        return tuple(topology_problems(self.topology))

    @cached_property
    def tree_gaps(self) -> tuple[str, ...]:
        """The result of `gaps.gap_lines`, which `wrong` contains."""
        return gap_lines(self.topology)

    def get_response(self, omit_links: bool) -> bytes:
        """An encoded GetTopologyResponse. Blocks for seconds on a large topology: call it in a thread."""
        with self._lock:
            if omit_links not in self._responses:
                found = topology_to_proto(self.topology, omit_links=omit_links)
                self._responses[omit_links] = pb.GetTopologyResponse(topology=found).SerializeToString()
            return self._responses[omit_links]


class Hub(Publisher):
    """The published generation and its readers by gRPC. `limit`: readers at once.

    `published` is emitted on the event loop after each new generation.
    """

    name = "memory"

    def __init__(self, topology: Topology, limit: int = 1000) -> None:
        super().__init__()
        self.current = Generation(topology)
        self._limit = limit
        self._channels = {omit: Channel(_form(omit), self.current_topology) for omit in (False, True)}
        self.published: Signal[[]] = Signal()
        self._compute = BoundedExecutor("publish")

    def __len__(self) -> int:
        return sum(map(len, self._channels.values()))

    def current_topology(self) -> Topology:
        return self.current.topology

    @property
    def full(self) -> bool:
        return len(self) >= self._limit

    @property
    def resnapshots(self) -> int:
        """Times that a slow reader was sent a new snapshot, since the start."""
        return sum(channel.restarts_total for channel in self._channels.values())

    def channel(self, omit_links: bool) -> Channel:
        """The channel of encoded WatchTopologyResponses."""
        return self._channels[omit_links]

    @classmethod
    async def opened(cls, topology: Topology) -> Self:
        """Return a hub whose first generation, which may have been stored, is prepared for GetStatus."""
        hub = cls(topology)
        try:
            await hub._prepare(hub.current)
        except Exception as error:  # the topology was stored, so a start would fail again
            _log.exception("the stored topology is served, although it cannot be checked")
            hub.current.wrong = (f"the stored topology cannot be checked: {described(error)}",)
            hub.current.tree_gaps = ()
        return hub

    async def _prepare(self, generation: Generation) -> None:
        topology = generation.topology
        parts = len(topology.hypernodes) + len(topology.nodes_without_evidence)
        if parts < _MANY_PARTS and len(topology.links) < _MANY_LINKS:
            _ = generation.wrong, generation.tree_gaps
        else:
            await self._compute(lambda: (generation.wrong, generation.tree_gaps))

    async def publish(self, topology: Topology) -> None:
        """Make a topology the current generation and send its delta. Calls must not overlap."""
        new = Generation(topology)
        await self._prepare(new)
        self.current = new
        self.published()
        for channel in self._channels.values():
            await channel.advance(topology)

    def close(self, reason: str, leader: str | None = None) -> None:
        """End all watches, present and future ones."""
        for channel in self._channels.values():
            channel.close(WatchEndedError(reason, leader))

    def end_present(self, reason: str, leader: str | None) -> None:
        """End the present watches."""
        for channel in self._channels.values():
            channel.end_present(WatchEndedError(reason, leader))


def _form(omit_links: bool) -> Form:
    def snapshot(topology: Topology) -> tuple[bytes]:
        found = topology_to_proto(topology, omit_links=omit_links)
        return (pb.WatchTopologyResponse(snapshot=found).SerializeToString(),)

    def delta(diff: Diff) -> bytes:
        found = delta_to_proto(diff, omit_links=omit_links)
        return pb.WatchTopologyResponse(delta=found).SerializeToString()

    return Form(snapshot, delta, MAX_DELTAS, _MAX_BYTES)
