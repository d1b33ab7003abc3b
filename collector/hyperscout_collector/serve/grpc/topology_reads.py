"""Serves the methods of TopologyService that need only the published topology and the history.

The leader serves them, and standbys serve them from the topology that they follow.
"""

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol, TypeVar

import grpc
import grpc.aio
from hyperscout.v1 import topology_pb2 as pb
from hyperscout_runtime.bounded_executor import BoundedExecutor, BusyError
from hyperscout_topology.proto import topology_to_proto
from hyperscout_topology.topology import Topology

from hyperscout_collector.history.errors import (
    BadHistoryRequestError,
    HistoryError,
    NotKeptError,
)
from hyperscout_collector.history.reader import time_ns
from hyperscout_collector.serve.fanout.hub import Hub
from hyperscout_collector.serve.grpc.handlers import streaming, unary, watching

SERVICE = "hyperscout.v1.TopologyService"

_THREADS = 2  # the threads share the interpreter lock with the event loop: more would only slow it down
_MAX_WAITING = 128
NO_HISTORY = "the collector stores no history: set history_max_days above 0"
_CODES: dict[type[HistoryError], grpc.StatusCode] = {
    BadHistoryRequestError: grpc.StatusCode.INVALID_ARGUMENT,
    NotKeptError: grpc.StatusCode.NOT_FOUND,
}
_Answer = TypeVar("_Answer")


class History(Protocol):
    """What answers queries about earlier topologies. The methods block and raise HistoryError."""

    def events(self, request: pb.ListHistoryRequest) -> pb.ListHistoryResponse: ...

    def topology_at(self, at_ns: int) -> Topology: ...


class ReadBackend(Protocol):
    """The part of a replica that `TopologyReads` uses. No method blocks."""

    @property
    def watchers(self) -> Hub: ...

    @property
    def history(self) -> History | None:
        """The reader of the history; None = no history is kept."""


class TopologyReads:
    """The methods that every replica serves. Each topology is encoded once per generation."""

    def __init__(self, backend: ReadBackend) -> None:
        self._published = backend
        self._reads = BoundedExecutor("topology-reads", threads=_THREADS, most=_MAX_WAITING)
        # Reads of the store and the history: a slow disk must not delay reads from memory.
        self._disk_reads = BoundedExecutor("disk-reads", threads=_THREADS, most=_MAX_WAITING)

    def close(self) -> None:
        self._reads.close()
        self._disk_reads.close()

    def methods(self) -> dict[str, Any]:
        """The handlers by the name of the method."""
        return {
            "GetTopology": unary(self.get_topology, pb.GetTopologyRequest),
            "ListHistory": unary(self.list_history, pb.ListHistoryRequest),
            "WatchTopology": streaming(self.watch_topology, pb.WatchTopologyRequest),
        }

    async def get_topology(self, request: pb.GetTopologyRequest, context: Any) -> bytes:
        if not request.HasField("at"):
            current = self._published.watchers.current
            return await self._read(self._reads, context, current.get_response, request.omit_links)

        def then(history: History) -> bytes:
            topology = history.topology_at(time_ns(request.at))
            found = topology_to_proto(topology, omit_links=request.omit_links)
            return bytes(pb.GetTopologyResponse(topology=found).SerializeToString())

        return await self._of_history(then, context)

    async def watch_topology(self, request: pb.WatchTopologyRequest, context: Any) -> AsyncIterator[bytes]:
        watchers = self._published.watchers
        async with watching(watchers, context):
            channel = watchers.channel(request.omit_links)
            reader = channel.join()
            try:
                async with contextlib.aclosing(channel.messages(reader)) as messages:
                    async for message in messages:
                        if message is not None:
                            yield message
            finally:
                channel.leave(reader)

    async def list_history(self, request: pb.ListHistoryRequest, context: Any) -> pb.ListHistoryResponse:
        return await self._of_history(lambda history: history.events(request), context)

    async def _of_history(self, ask: Callable[[History], _Answer], context: Any) -> _Answer:
        if (history := self._published.history) is None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, NO_HISTORY)
            raise AssertionError("unreachable: abort raises")
        try:
            return await self._read(self._disk_reads, context, ask, history)
        except HistoryError as error:
            await context.abort(_CODES.get(type(error), grpc.StatusCode.UNAVAILABLE), str(error))
            raise  # never reached: abort raises

    async def _read(
        self, executor: BoundedExecutor, context: Any, work: Callable[..., _Answer], *args: object
    ) -> _Answer:
        """Run `work(*args)` in a thread and return its result. Aborts the call if too many reads wait."""
        try:
            return await executor(work, *args)
        except BusyError as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
            raise  # never reached: abort raises
