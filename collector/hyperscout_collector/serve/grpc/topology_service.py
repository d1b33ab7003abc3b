"""Serves TopologyService at the leader: also what only the leader knows, such as evidence and status."""

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Protocol

import grpc
import grpc.aio
from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.finding_pb2 import Finding
from hyperscout_topology.proto import timestamp

from hyperscout_collector.decisions.publication.generations import GenerationNotHeldError
from hyperscout_collector.evidence.rows import Key
from hyperscout_collector.evidence.store import EvidenceStore, StoredFinding
from hyperscout_collector.serve.grpc.explain import UnknownNodeError, explain
from hyperscout_collector.serve.grpc.handlers import streaming, unary
from hyperscout_collector.serve.grpc.measured import NodeReport
from hyperscout_collector.serve.grpc.topology_reads import SERVICE, ReadBackend, TopologyReads
from hyperscout_collector.store.errors import StoreError
from hyperscout_collector.store.page_token import key_of, page_token

_PAGE_FINDINGS = 1000
_MAX_PAGE_FINDINGS = 10_000
_MAX_PAGE_BYTES = 2 * 1024 * 1024  # below the default limit of gRPC clients, 4 MiB
_EVENT_LOG_CHARS = 256 * 1024


class Backend(ReadBackend, Protocol):
    """The part of the leading collector that the service uses. No method blocks."""

    @property
    def store(self) -> EvidenceStore: ...

    def status(self, *, omit_agents: bool = False) -> bytes:
        """An encoded GetStatusResponse."""

    def event_log(self) -> Iterator[str]:
        """The latest events of the state machines, as JSON lines."""

    def is_stale(self, seen_ns: int) -> bool: ...

    def evidence_of(self, nodes: Sequence[str]) -> list[Key]: ...

    def reports_of(self, nodes: Sequence[str]) -> list[NodeReport]: ...

    async def approve(self, generation: int) -> int:
        """Publish a held generation, and return its new number. Raises GenerationNotHeldError."""


class TopologyService(TopologyReads):
    """`add_to(server)` registers the service."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._backend = backend

    def add_to(self, server: grpc.aio.Server) -> None:
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, self.methods()),))

    def methods(self) -> dict[str, Any]:
        return {
            **super().methods(),
            "Explain": unary(self.explain, pb.ExplainRequest),
            "ListFindings": unary(self.list_findings, pb.ListFindingsRequest),
            "GetStatus": unary(self.get_status, pb.GetStatusRequest),
            "Approve": unary(self.approve, pb.ApproveRequest),
            "GetEventLog": streaming(self.get_event_log, pb.GetEventLogRequest),
        }

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
