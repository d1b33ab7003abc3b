"""Serves TopologyService: reads of the topology, and the approval of a held generation."""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import grpc
import grpc.aio
from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.finding_pb2 import Finding
from hyperscout_runtime.bounded_executor import BoundedExecutor, BusyError
from hyperscout_topology.proto import timestamp, topology_to_proto

from hyperscout_collector.decisions.publication.generations import GenerationNotHeldError
from hyperscout_collector.evidence.rows import Key
from hyperscout_collector.evidence.store import EvidenceStore, StoredFinding
from hyperscout_collector.history.errors import (
    BadHistoryRequestError,
    HistoryError,
    NotKeptError,
)
from hyperscout_collector.history.reader import time_ns
from hyperscout_collector.history.recorder import Recorder
from hyperscout_collector.serve.fanout.hub import Hub
from hyperscout_collector.serve.grpc.explain import UnknownNodeError, explain
from hyperscout_collector.serve.grpc.handlers import streaming, unary, watching
from hyperscout_collector.serve.grpc.measured import NodeReport
from hyperscout_collector.store.errors import StoreError
from hyperscout_collector.store.page_token import key_of, page_token

SERVICE = "hyperscout.v1.TopologyService"

_PAGE_FINDINGS = 1000
_MAX_PAGE_FINDINGS = 10_000
_MAX_PAGE_BYTES = 2 * 1024 * 1024  # below the default limit of gRPC clients, 4 MiB
_EVENT_LOG_CHARS = 256 * 1024
_THREADS = 2  # the threads share the interpreter lock with the event loop: more would only slow it down
_MAX_WAITING = 128
NO_HISTORY = "the collector stores no history: set history_max_days above 0"
_CODES: dict[type[HistoryError], grpc.StatusCode] = {
    BadHistoryRequestError: grpc.StatusCode.INVALID_ARGUMENT,
    NotKeptError: grpc.StatusCode.NOT_FOUND,
}
_Answer = TypeVar("_Answer")


class Backend(Protocol):
    """The part of the collector that the service uses. No method blocks."""

    @property
    def watchers(self) -> Hub: ...

    @property
    def store(self) -> EvidenceStore: ...

    @property
    def history(self) -> Recorder | None:
        """The reader of the history; None = no history is kept."""

    def status(self, *, omit_agents: bool = False) -> bytes:
        """An encoded GetStatusResponse."""

    def event_log(self) -> Iterator[str]:
        """The latest events of the state machines, as JSON lines."""

    def is_stale(self, seen_ns: int) -> bool: ...

    def evidence_of(self, nodes: Sequence[str]) -> list[Key]: ...

    def reports_of(self, nodes: Sequence[str]) -> list[NodeReport]: ...

    async def approve(self, generation: int) -> int:
        """Publish a held generation, and return its new number. Raises GenerationNotHeldError."""


class TopologyService:
    """`add_to(server)` registers the service. Each topology is encoded once per generation."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._reads = BoundedExecutor("topology-reads", threads=_THREADS, most=_MAX_WAITING)
        # Reads of the store and the history: a slow disk must not delay reads from memory.
        self._disk_reads = BoundedExecutor("disk-reads", threads=_THREADS, most=_MAX_WAITING)

    def close(self) -> None:
        self._reads.close()
        self._disk_reads.close()

    def add_to(self, server: grpc.aio.Server) -> None:
        handlers = {
            "GetTopology": unary(self.get_topology, pb.GetTopologyRequest),
            "Explain": unary(self.explain, pb.ExplainRequest),
            "ListFindings": unary(self.list_findings, pb.ListFindingsRequest),
            "ListHistory": unary(self.list_history, pb.ListHistoryRequest),
            "GetStatus": unary(self.get_status, pb.GetStatusRequest),
            "Approve": unary(self.approve, pb.ApproveRequest),
            "GetEventLog": streaming(self.get_event_log, pb.GetEventLogRequest),
            "WatchTopology": streaming(self.watch_topology, pb.WatchTopologyRequest),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))

    async def get_topology(self, request: pb.GetTopologyRequest, context: Any) -> bytes:
        if not request.HasField("at"):
            current = self._backend.watchers.current
            return await self._read(self._reads, context, current.get_response, request.omit_links)

        def then(history: Recorder) -> bytes:
            topology = history.topology_at(time_ns(request.at))
            found = topology_to_proto(topology, omit_links=request.omit_links)
            return bytes(pb.GetTopologyResponse(topology=found).SerializeToString())

        return await self._of_history(then, context)

    async def watch_topology(self, request: pb.WatchTopologyRequest, context: Any) -> AsyncIterator[bytes]:
        watchers = self._backend.watchers
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

    async def explain(self, request: pb.ExplainRequest, context: Any) -> pb.ExplainResponse:
        backend = self._backend
        nodes = (request.node_a, request.node_b)
        keys = backend.evidence_of(nodes)
        reports = backend.reports_of(nodes)
        topology = backend.watchers.current.topology
        try:
            return await self._read(self._reads, context, explain, topology, *nodes, keys, reports)
        except UnknownNodeError as error:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
            raise  # never reached: abort raises

    async def list_findings(self, request: pb.ListFindingsRequest, context: Any) -> pb.ListFindingsResponse:
        size = request.page_size or _PAGE_FINDINGS
        if size > _MAX_PAGE_FINDINGS:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"page_size: {size}: expected at most {_MAX_PAGE_FINDINGS} findings",
            )
        try:
            after = _after(request.page_token)
        except ValueError:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                "page_token: expected the next_page_token of an earlier page",
            )
            raise  # never reached: abort raises
        try:
            page = self._backend.store.page
            rows = await self._read(self._disk_reads, context, page, request.node, request.probe, after, size)
        except StoreError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
            raise  # never reached: abort raises
        response, size_bytes = pb.ListFindingsResponse(), 0
        for row in rows:
            if size_bytes and size_bytes + len(row.finding) > _MAX_PAGE_BYTES:
                break
            size_bytes += len(row.finding)
            response.findings.append(self._stored(row))
        if rows and (len(rows) == size or len(response.findings) < len(rows)):
            last = rows[len(response.findings) - 1]
            response.next_page_token = page_token([*last.key, last.rank])
        return response

    async def list_history(self, request: pb.ListHistoryRequest, context: Any) -> pb.ListHistoryResponse:
        return await self._of_history(lambda history: history.events(request), context)

    async def _of_history(self, ask: Callable[[Recorder], _Answer], context: Any) -> _Answer:
        if (history := self._backend.history) is None:
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

    async def get_status(self, request: pb.GetStatusRequest, context: Any) -> bytes:
        return self._backend.status(omit_agents=request.omit_agents)

    async def get_event_log(
        self, request: pb.GetEventLogRequest, context: Any
    ) -> AsyncIterator[pb.GetEventLogResponse]:
        lines = self._backend.event_log()
        while part := await self._read(self._disk_reads, context, _part, lines):
            yield pb.GetEventLogResponse(lines=part)

    async def approve(self, request: pb.ApproveRequest, context: Any) -> pb.ApproveResponse:
        try:
            return pb.ApproveResponse(generation=await self._backend.approve(request.generation))
        except GenerationNotHeldError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
            raise  # never reached: abort raises

    def _stored(self, row: StoredFinding) -> pb.StoredFinding:
        finding = Finding.FromString(row.finding)
        finding.observed_at.FromNanoseconds(row.observed_ns)
        return pb.StoredFinding(
            finding=finding,
            received_at=timestamp(row.received_ns),
            stale=self._backend.is_stale(row.observed_ns - row.offset_ns),
        )


def _part(lines: Iterator[str]) -> list[str]:
    """The next lines, together about `_EVENT_LOG_CHARS` characters; [] = there are no more."""
    part: list[str] = []
    chars = 0
    for line in lines:
        part.append(line)
        chars += len(line)  # the lines are ASCII
        if chars >= _EVENT_LOG_CHARS:
            break
    return part


def _after(token: str) -> tuple[Key, int] | None:
    """The key and rank in a page token; None = no token. Raises ValueError."""
    if not token:
        return None
    match key_of(token):
        case [str() as node, str() as probe, str() as subject, int() as rank] if 0 <= rank < 2**31:
            return Key(node, probe, subject), rank
    raise ValueError(token)
