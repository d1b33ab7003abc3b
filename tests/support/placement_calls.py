"""Calls of a collector's PlacementService."""

from hyperscout.v1 import placement_pb2 as pb
from hyperscout.v1.placement_pb2_grpc import PlacementServiceStub

from support.collector_process import channel_to
from support.placing import request
from support.waiting import TIMEOUT_S


async def reserved(address: str, gang: str) -> list[str]:
    """Reserve nodes for three workers. Returns the nodes."""
    async with channel_to(address) as channel:
        placed = await PlacementServiceStub(channel).Place(request(3, gang=gang), timeout=TIMEOUT_S)
    assert placed.placement.placed
    return [x.node for x in placed.placement.assignments]


async def reservations(address: str) -> dict[str, list[str]]:
    """The nodes of each gang."""
    async with channel_to(address) as channel:
        answer = await PlacementServiceStub(channel).ListPlacements(
            pb.ListPlacementsRequest(), timeout=TIMEOUT_S
        )
    return {x.gang: [y.node for y in x.assignments] for x in answer.placements}
