"""A PlacementService with behaviour: keeps what is reserved, and refuses as the collector does."""

from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from hyperscout.v1 import placement_pb2 as pb
from hyperscout.v1.placement_pb2_grpc import (
    PlacementServiceServicer,
    add_PlacementServiceServicer_to_server,
)
from hyperscout.v1.topology_pb2_grpc import add_TopologyServiceServicer_to_server

from support.topology_service import FakeTopologyService


def placed(gang: str, *nodes: str, **more: Any) -> pb.Placement:
    """On these nodes by rank, in leaf-a of `two_leaves`."""
    fields = {
        "placed": True,
        "tier": 1,
        "hypernode": "leaf-a",
        "domains": {1: 1, 2: 1},
        "nodes": len(set(nodes)),
        "cost": pb.PlacementCost(top=1, nodes=len(set(nodes)), fragmentation=[0, 0]),
        "exact": True,
    }
    ranks = [pb.Assignment(rank=rank, node=node, role="worker") for rank, node in enumerate(nodes)]
    return pb.Placement(gang=gang, assignments=ranks, **(fields | more))


def refused(reason: str = "no leaf has room") -> pb.Placement:
    return pb.Placement(placed=False, reason=reason, exact=True)


@dataclass
class FakePlacementService(PlacementServiceServicer):
    """`answer` is what it places; `error`: a status and words with which every call ends."""

    answer: pb.Placement = field(default_factory=lambda: placed("", "n01", "n02"))
    held: dict[str, pb.Placement] = field(default_factory=dict)
    explanation: pb.ExplainPlacementResponse = field(default_factory=pb.ExplainPlacementResponse)
    repaired: pb.RepairResponse = field(default_factory=pb.RepairResponse)
    resized: pb.ResizeResponse = field(default_factory=pb.ResizeResponse)
    improved: pb.ImproveResponse = field(default_factory=pb.ImproveResponse)
    plan: pb.DefragmentResponse = field(default_factory=pb.DefragmentResponse)
    waiting: list[pb.WaitingGang] = field(default_factory=list)
    events: list[pb.WatchPlacementsResponse] = field(default_factory=list)
    error: tuple[grpc.StatusCode, str] | None = None
    asked: list[Any] = field(default_factory=list)
    address: str = ""

    def _take(self, request: Any, context: Any) -> None:
        self.asked.append(request)
        if self.error is not None:
            context.abort(*self.error)

    def _held(self, gang: str, context: Any) -> None:
        if gang not in self.held:
            context.abort(grpc.StatusCode.NOT_FOUND, f"gang {gang!r} holds nothing")

    def Place(self, request: pb.PlaceRequest, context: Any) -> pb.PlaceResponse:  # noqa: N802
        self._take(request, context)
        answer = pb.Placement()
        answer.CopyFrom(self.answer)
        answer.gang = request.gang
        if not request.dry_run and answer.placed:
            answer.reserved_at.GetCurrentTime()
            if request.HasField("expires_in"):
                ns = answer.reserved_at.ToNanoseconds() + request.expires_in.ToNanoseconds()
                answer.expires_at.FromNanoseconds(ns)
            self.held[request.gang] = answer
        return pb.PlaceResponse(placement=answer)

    def ExplainPlacement(  # noqa: N802
        self, request: pb.ExplainPlacementRequest, context: Any
    ) -> pb.ExplainPlacementResponse:
        self._take(request, context)
        if request.gang:
            self._held(request.gang, context)
        return self.explanation

    def Release(self, request: pb.ReleaseRequest, context: Any) -> pb.ReleaseResponse:  # noqa: N802
        self._take(request, context)
        self._held(request.gang, context)
        del self.held[request.gang]
        return pb.ReleaseResponse()

    def ListPlacements(  # noqa: N802
        self, request: pb.ListPlacementsRequest, context: Any
    ) -> pb.ListPlacementsResponse:
        self._take(request, context)
        return pb.ListPlacementsResponse(placements=self.held.values())

    def ListQueue(self, request: pb.ListQueueRequest, context: Any) -> pb.ListQueueResponse:  # noqa: N802
        self._take(request, context)
        return pb.ListQueueResponse(gangs=self.waiting)

    def WatchPlacements(  # noqa: N802
        self, request: pb.WatchPlacementsRequest, context: Any
    ) -> Iterator[pb.WatchPlacementsResponse]:
        self._take(request, context)
        yield from self.events

    def Repair(self, request: pb.RepairRequest, context: Any) -> pb.RepairResponse:  # noqa: N802
        self._take(request, context)
        self._held(request.gang, context)
        return self.repaired

    def Resize(self, request: pb.ResizeRequest, context: Any) -> pb.ResizeResponse:  # noqa: N802
        self._take(request, context)
        self._held(request.gang, context)
        return self.resized

    def Improve(self, request: pb.ImproveRequest, context: Any) -> pb.ImproveResponse:  # noqa: N802
        self._take(request, context)
        self._held(request.gang, context)
        return self.improved

    def Defragment(self, request: pb.DefragmentRequest, context: Any) -> pb.DefragmentResponse:  # noqa: N802
        self._take(request, context)
        return self.plan


@contextmanager
def serving_placements(
    service: FakePlacementService, topology: FakeTopologyService
) -> Iterator[FakePlacementService]:
    """Both services on a loopback port of their own; `service.address` says which."""
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    add_PlacementServiceServicer_to_server(service, server)
    add_TopologyServiceServicer_to_server(topology, server)
    service.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield service
    finally:
        server.stop(None).wait(10)
