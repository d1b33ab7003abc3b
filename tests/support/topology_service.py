"""A TopologyService with behaviour: serves what a test gives it, and hangs or fails on request."""

import threading
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.topology_pb2_grpc import TopologyServiceServicer, add_TopologyServiceServicer_to_server
from hyperscout_topology.proto import topology_to_proto
from hyperscout_topology.topology import Topology


@dataclass
class FakeTopologyService(TopologyServiceServicer):
    """What the collector would say; `hang` makes every unary call wait until the server stops. `refuses`: the
    status of each call instead of an answer."""

    topology: Topology = field(default_factory=lambda: Topology(0))
    status: pb.GetStatusResponse = field(default_factory=pb.GetStatusResponse)
    explanation: pb.ExplainResponse | None = None
    findings: list[pb.StoredFinding] = field(default_factory=list)
    events: list[pb.WatchTopologyResponse] = field(default_factory=list)
    approved: list[int] = field(default_factory=list)
    event_log: list[str] | None = field(default_factory=list)  # None: refused
    held: int = 0
    hang: bool = False
    refuses: grpc.StatusCode | None = None
    asked_links: list[bool] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)
    address: str = ""

    def _maybe_hang(self) -> None:
        if self.hang:
            self.stopped.wait(30)

    def GetTopology(self, request: pb.GetTopologyRequest, context: Any) -> pb.GetTopologyResponse:  # noqa: N802
        if self.refuses is not None:
            context.abort(self.refuses, "a caller may not do this")
        self._maybe_hang()
        self.asked_links.append(not request.omit_links)
        topology = topology_to_proto(self.topology, omit_links=request.omit_links)
        return pb.GetTopologyResponse(topology=topology)

    def GetStatus(self, request: pb.GetStatusRequest, context: Any) -> pb.GetStatusResponse:  # noqa: N802
        self._maybe_hang()
        return self.status

    def Explain(self, request: pb.ExplainRequest, context: Any) -> pb.ExplainResponse:  # noqa: N802
        if self.explanation is None:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no node {request.node_a!r}")
        assert self.explanation is not None
        return self.explanation

    def ListFindings(self, request: pb.ListFindingsRequest, context: Any) -> pb.ListFindingsResponse:  # noqa: N802
        """One finding a page, so that a client that forgets to turn the page shows."""
        mine = [f for f in self.findings if request.node in {"", f.finding.key.node}]
        at = int(request.page_token or 0)
        token = str(at + 1) if at + 1 < len(mine) else ""
        return pb.ListFindingsResponse(findings=mine[at : at + 1], next_page_token=token)

    def WatchTopology(  # noqa: N802
        self, request: pb.WatchTopologyRequest, context: Any
    ) -> Iterator[pb.WatchTopologyResponse]:
        yield from self.events

    def GetEventLog(  # noqa: N802
        self, request: pb.GetEventLogRequest, context: Any
    ) -> Iterator[pb.GetEventLogResponse]:
        if self.event_log is None:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "needs the right to change")
        assert self.event_log is not None
        yield from (pb.GetEventLogResponse(lines=[line]) for line in self.event_log)

    def Approve(self, request: pb.ApproveRequest, context: Any) -> pb.ApproveResponse:  # noqa: N802
        if request.generation != self.held:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"generation {request.generation} is not held")
        self.approved.append(request.generation)
        return pb.ApproveResponse(generation=request.generation)


@contextmanager
def serving(service: FakeTopologyService) -> Iterator[FakeTopologyService]:
    """The service on a loopback port of its own; `service.address` says which."""
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    add_TopologyServiceServicer_to_server(service, server)
    service.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield service
    finally:
        service.stopped.set()
        server.stop(None).wait(10)
