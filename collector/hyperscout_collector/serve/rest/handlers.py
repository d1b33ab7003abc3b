"""Implements the operations of REST that only the leader has; `reads` has the others.

Each calls the matching gRPC service and returns its response as JSON.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

from hyperscout.v1 import measurement_pb2, placement_pb2, topology_pb2
from hyperscout_placer.messages.changes import repair_json, resize_json
from hyperscout_placer.messages.placements import explained_json, placement_json
from hyperscout_topology import objects
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from hyperscout_collector.identity.access import Access
from hyperscout_collector.identity.callers import Caller
from hyperscout_collector.serve.grpc.measurement_service import MeasurementService
from hyperscout_collector.serve.grpc.placement_service import PlacementService
from hyperscout_collector.serve.grpc.topology_service import Backend, TopologyService
from hyperscout_collector.serve.http.problems import Context
from hyperscout_collector.serve.rest.kinds import KINDS, passes
from hyperscout_collector.serve.rest.pages import page
from hyperscout_collector.serve.rest.reads import ReadHandlers, Values, page_of
from hyperscout_collector.serve.rest.responses import json_answer
from hyperscout_collector.serve.rest.stream import Stream

_T = TypeVar("_T")


class Handlers(ReadHandlers):
    """Has one method per operation, named like it. All raise ProblemError."""

    def __init__(
        self,
        backend: Backend,
        topology: TopologyService,
        placing: PlacementService,
        measuring: MeasurementService,
        stream: Stream,
        access: Access,
    ) -> None:
        super().__init__(backend, topology, stream, access)
        self._topology = topology
        self._placing = placing
        self._measuring = measuring

    # Evidence and status

    async def explain(self, request: Request, values: Values, _: Any, caller: Caller) -> Response:
        asked = topology_pb2.ExplainRequest(node_a=values["a"], node_b=values["b"])
        answer = await self._topology.explain(asked, Context())
        return json_answer(request, objects.plain(answer))

    async def list_findings(self, request: Request, values: Values, _: Any, caller: Caller) -> Response:
        asked = topology_pb2.ListFindingsRequest(
            node=values.get("node", ""),
            probe=values.get("probe", ""),
            page_token=values.get("pageToken", ""),
            page_size=values.get("pageSize", 0),
        )
        found = await self._topology.list_findings(asked, Context())
        generation = self._now().topology.generation

        def answer() -> Response:
            items = [objects.plain(one) for one in found.findings]
            return json_answer(request, page_of(items, found.next_page_token, generation))

        return await self._in_thread(answer)

    async def get_status(self, request: Request, values: Values, _: Any, caller: Caller) -> Response:
        asked = topology_pb2.GetStatusRequest(omit_agents=not values.get("agents", True))
        encoded = await self._topology.get_status(asked, Context())

        def answer() -> Response:
            return json_answer(request, objects.plain(topology_pb2.GetStatusResponse.FromString(encoded)))

        return await self._in_thread(answer)

    # Placements

    async def list_placements(self, request: Request, values: Values, _: Any, caller: Caller) -> Response:
        listed = await self._placing.list_placements(placement_pb2.ListPlacementsRequest(), Context())
        topology = self._now().topology

        def answer() -> Response:
            found = placement_pb2.ListPlacementsResponse.FromString(listed)
            kind = KINDS["placements"]
            rows = sorted(((kind.place(x), x) for x in map(placement_json, found.placements)), key=_first)
            items, token = page(rows, passes(kind, values, topology), values)
            return json_answer(request, page_of(items, token, topology.generation))

        return await self._in_thread(answer)

    async def get_queue(self, request: Request, values: Values, _: Any, caller: Caller) -> Response:
        found = await self._placing.answered("list_queue")(placement_pb2.ListQueueRequest(), Context())
        return await self._in_thread(lambda: json_answer(request, objects.plain(found)))

    async def place(
        self, request: Request, values: Values, message: placement_pb2.PlaceRequest, caller: Caller
    ) -> Response:
        answer = await self._placing.answered("place")(message, Context())
        return json_answer(request, placement_json(answer.placement))

    async def release(self, request: Request, values: Values, _: Any, caller: Caller) -> Response:
        asked = placement_pb2.ReleaseRequest(gang=values["gang"])
        await self._placing.answered("release")(asked, Context())
        return Response(status_code=204)

    async def explain_placement(
        self, request: Request, values: Values, message: placement_pb2.ExplainPlacementRequest, caller: Caller
    ) -> Response:
        found = await self._placing.answered("explain_placement")(message, Context())
        return await self._in_thread(lambda: json_answer(request, explained_json(found)))

    async def repair(
        self, request: Request, values: Values, message: placement_pb2.RepairRequest, caller: Caller
    ) -> Response:
        found = await self._placing.answered("repair")(message, Context())
        return json_answer(request, repair_json(found))

    async def resize(
        self, request: Request, values: Values, message: placement_pb2.ResizeRequest, caller: Caller
    ) -> Response:
        found = await self._placing.answered("resize")(message, Context())
        return json_answer(request, resize_json(found))

    # Measurements

    async def get_measuring(self, request: Request, values: Values, _: Any, caller: Caller) -> Response:
        asked = measurement_pb2.GetMeasuringRequest()
        return json_answer(request, objects.plain(await self._measuring.get_measuring(asked, Context())))

    async def set_measuring(
        self, request: Request, values: Values, message: measurement_pb2.SetMeasuringRequest, caller: Caller
    ) -> Response:
        await self._measuring.answered("set_measuring")(message, Context())
        return Response(status_code=204)

    async def run_nccl(
        self, request: Request, values: Values, message: measurement_pb2.RunNcclRequest, caller: Caller
    ) -> Response:
        run = self._measuring.answered("run_nccl")(message, Context())
        return json_answer(request, objects.plain(await _while_connected(request, run)))

    # Approval

    async def approve(
        self, request: Request, values: Values, message: topology_pb2.ApproveRequest, caller: Caller
    ) -> Response:
        return json_answer(request, objects.plain(await self._topology.approve(message, Context())))


async def _while_connected(request: Request, call: Awaitable[_T]) -> _T:
    """The result of a call that is cancelled when the client disconnects. Raises ClientDisconnect."""
    calling, gone = asyncio.ensure_future(call), asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait((calling, gone), return_when=asyncio.FIRST_COMPLETED)
        if not calling.done():
            raise ClientDisconnect
        return calling.result()
    finally:
        calling.cancel()
        gone.cancel()
        await asyncio.gather(calling, gone, return_exceptions=True)


def _first(row: Sequence[Any]) -> Any:
    return row[0]
