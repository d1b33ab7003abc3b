"""Serves PlacementService: places gangs and keeps their reservations until they are released or expire.

A reservation is checked and made in one step on the event loop; for a large gang, a thread selects the nodes
first. Read-only calls run in a thread on a copy of the free resources. `identity.access` authorizes callers
first; a dry run needs only the verb "get".
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Protocol
from weakref import WeakValueDictionary

import grpc
import grpc.aio
from hyperscout.v1 import placement_pb2 as pb
from hyperscout_gates.control.queue import Queue
from hyperscout_placer.book.failed_nodes import after_clearing, after_report
from hyperscout_placer.book.placements import Placements
from hyperscout_placer.book.reservation import NoReservationError, NoRoomError, NotReadyError, Reservation
from hyperscout_placer.cluster.answer import Refusal
from hyperscout_placer.cluster.capacity import Mask
from hyperscout_placer.cluster.request import Request, RequestError
from hyperscout_placer.demands.node_masks import NodeMasks
from hyperscout_placer.messages.changes import check_repair, repair_message, resize_message
from hyperscout_placer.messages.placements import placement_message
from hyperscout_placer.messages.requests import request_of
from hyperscout_placer.repair.repair import Repair
from hyperscout_placer.repair.resize import Resized
from hyperscout_placer.solve.elastic import counts_for, counts_of, with_counts
from hyperscout_placer.solve.place import NO_MASKS
from hyperscout_runtime.bounded_executor import BoundedExecutor
from hyperscout_runtime.units import NS

from hyperscout_collector.serve.grpc import placement_queries as queries
from hyperscout_collector.serve.grpc.handlers import streaming, unary, watching, with_codes
from hyperscout_collector.serve.grpc.placement_bytes import PlacementBytes
from hyperscout_collector.serve.grpc.placement_checks import (
    API,
    CODES,
    NoPlanError,
    check_holder,
    check_name,
)
from hyperscout_collector.serve.grpc.placement_queries import Free
from hyperscout_collector.serve.grpc.placement_watchers import PlacementWatchers

SERVICE = "hyperscout.v1.PlacementService"
_MAX_EXPIRES_S = 10 * 366 * 86_400
_MAX_CANDIDATES = 1000
_MAX_MOVES = 100_000
_CANDIDATES, _MOVES = 10, 64
_THREADS = 2  # the threads share the interpreter lock with the event loop: more would only slow it down
_MAX_WAITING = 64  # calls per executor, running and waiting
_ATTEMPTS = 3  # of a repair, because the gang or the free resources can change meanwhile


class Book(Protocol):
    """The storage of reservations."""

    async def written(self) -> None:
        """Wait until all changes are on disk. Raises StoreError."""


class PlacementService:
    """`add_to(server)` registers the service. Call `close` after the last call has ended.

    `masks`: which nodes the roles of requests may use. `queue`: None = no gang ever waits.
    """

    def __init__(
        self,
        placements: Placements,
        watchers: PlacementWatchers,
        book: Book,
        masks: NodeMasks,
        *,
        clock_ns: Callable[[], int],
        queue: Queue | None,
    ) -> None:
        self._placements = placements
        self._masks = masks
        self._queue = queue
        self._watchers = watchers
        self._book = book
        self._clock_ns = clock_ns
        self._queries = BoundedExecutor("placement-queries", threads=_THREADS, most=_MAX_WAITING)
        # Separate executors: dry runs must not delay reservations or lists of reservations.
        self._decide = BoundedExecutor("placement-decisions", most=_MAX_WAITING)
        self._messages = BoundedExecutor("placement-messages", most=_MAX_WAITING)  # after a reservation
        self._list = BoundedExecutor("placement-lists", most=_MAX_WAITING)
        self._updates = BoundedExecutor("placement-updates", most=watchers.limit + 1)
        self._bytes = PlacementBytes()
        # One change of a gang at a time: each changes what the next one starts from.
        self._changes: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def add_to(self, server: grpc.aio.Server) -> None:
        handlers = {
            "Place": unary(self.answered("place"), pb.PlaceRequest),
            "ExplainPlacement": unary(self.answered("explain_placement"), pb.ExplainPlacementRequest),
            "Release": unary(self.answered("release"), pb.ReleaseRequest),
            "ListPlacements": unary(self.answered("list_placements"), pb.ListPlacementsRequest),
            "ListQueue": unary(self.answered("list_queue"), pb.ListQueueRequest),
            "Repair": unary(self.answered("repair"), pb.RepairRequest),
            "Resize": unary(self.answered("resize"), pb.ResizeRequest),
            "Improve": unary(self.answered("improve"), pb.ImproveRequest),
            "Defragment": unary(self.answered("defragment"), pb.DefragmentRequest),
            "WatchPlacements": streaming(self.watch_placements, pb.WatchPlacementsRequest),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))

    def answered(self, name: str) -> Callable[[Any, Any], Awaitable[Any]]:
        """A method by name; its errors abort the call with a gRPC code, also in a call over REST."""
        return with_codes(getattr(self, name), CODES)

    def close(self) -> None:
        for executor in (self._queries, self._decide, self._messages, self._list, self._updates):
            executor.close()

    # Reserving

    async def place(self, request: pb.PlaceRequest, context: Any) -> pb.PlaceResponse:
        placements = self._placements
        expires_ns = self._expires_ns(request)
        if request.gang or not request.dry_run:
            check_name(request.gang)
        asked, masks = await self._read(request, self._queries if request.dry_run else self._decide)
        forest = placements.capacity.forest
        if request.dry_run:
            capacity, trial = placements.trial(asked, masks)
            free = Free(capacity, placements.speeds)
            found, message = await self._queries(queries.tried, request.gang, asked, free, trial)
            placements.tried(found)
            return pb.PlaceResponse(placement=message)
        answer = await placements.decide(
            request.gang,
            asked,
            holder=API,
            masks=masks,
            expires_ns=expires_ns,
            in_thread=self._decide,
        )
        if isinstance(answer, Refusal):
            return pb.PlaceResponse(placement=placement_message(request.gang, asked, answer, forest))
        held, free = placements.held(request.gang), Free(placements.capacity, placements.speeds)
        try:
            message = await self._messages(queries.reserved, held, free)
            await self._book.written()
        except BaseException:
            # Undo a reservation that the caller does not receive: it disconnected, or the write failed.
            now = placements.get(held.gang)
            if now is not None and now.reserved_ns == held.reserved_ns:
                placements.release(held.gang)
            raise
        return pb.PlaceResponse(placement=message)

    async def release(self, request: pb.ReleaseRequest, context: Any) -> pb.ReleaseResponse:
        try:
            held = self._placements.held(request.gang)
        except NoReservationError:
            # A caller that repeats a call without an answer relies on this: no restart brings the gang back.
            await self._book.written()
            raise
        check_holder(held)
        self._placements.release(held.gang)
        await self._book.written()
        return pb.ReleaseResponse()

    async def repair(self, request: pb.RepairRequest, context: Any) -> pb.RepairResponse:
        new, cleared = frozenset(request.failed_nodes), frozenset(request.cleared_nodes)
        work = self._queries if request.dry_run else self._decide
        first = self._placements.held(request.gang)
        async with self._turn(request):
            held = self._same(first)
            if not request.dry_run:
                check_holder(held)
            check_repair(held, new, cleared, self._placements.capacity.forest.nodes)
            failed = after_clearing(after_report(held.failed, new, self._clock_ns()), cleared)
            if not request.dry_run:
                self._placements.set_failed(held.gang, failed)
            for _ in range(_ATTEMPTS):
                held = self._same(first)
                if request.dry_run:
                    held = replace(held, failed=failed)
                free = self._free(held.request)
                found = await work(queries.repaired, held, free)
                if request.dry_run or await self._has_changed(held, found):
                    answer = self._queries if request.dry_run else self._messages
                    return await answer(repair_message, held, found, free.capacity.forest, free.speeds)
        raise _busy(request.gang)

    async def resize(self, request: pb.ResizeRequest, context: Any) -> pb.ResizeResponse:
        work = self._queries if request.dry_run else self._decide
        first = self._placements.held(request.gang)
        async with self._turn(request):
            for _ in range(_ATTEMPTS):
                held = self._same(first)
                if not request.dry_run:
                    check_holder(held)
                counts, free = counts_for(held.request, request.workers), self._free(held.request)
                found = await work(queries.resized, held, counts, free, self._placements.drain)
                if request.dry_run or await self._has_changed(held, found):
                    answer = self._queries if request.dry_run else self._messages
                    return await answer(resize_message, held, found, free.capacity.forest, free.speeds)
        raise _busy(request.gang)

    def _turn(self, request: pb.RepairRequest | pb.ResizeRequest) -> AbstractAsyncContextManager[None]:
        """The turn of a change of a gang; a dry run needs none."""
        return nullcontext() if request.dry_run else self._changes.setdefault(request.gang, asyncio.Lock())

    def _same(self, first: Reservation) -> Reservation:
        """The reservation as it is now. Raises NoRoomError if it is another one of the same gang."""
        held = self._placements.held(first.gang)
        if (held.holder, held.reserved_ns) != (first.holder, first.reserved_ns):
            raise NoRoomError(f"gang {first.gang!r} was released and reserved again: try again")
        return held

    async def _has_changed(self, held: Reservation, found: Repair | Resized | Refusal) -> bool:
        """Apply what a thread has computed. Returns False if the state has changed since then."""
        if not isinstance(found, Refusal) and found.placement.nodes != held.placement.nodes:
            if self._placements.get(held.gang) is not held:
                return False
            try:
                if isinstance(found, Repair):
                    self._placements.move(held.gang, found.moves, found.placement)
                else:
                    # As it was requested: remembered nodes are avoided, and lower tiers used, only for now.
                    asked = with_counts(held.request, counts_of(found.request))
                    self._placements.resize(held.gang, asked, found.placement)
            except NoRoomError:
                return False
        await self._book.written()
        return True

    # Read-only calls

    async def explain_placement(
        self, request: pb.ExplainPlacementRequest, context: Any
    ) -> pb.ExplainPlacementResponse:
        placements = self._placements
        if request.HasField("request") == bool(request.gang):
            raise RequestError("request, gang: expected exactly one of them")
        if request.limit > _MAX_CANDIDATES:
            raise RequestError(f"limit: {request.limit}: expected at most {_MAX_CANDIDATES}")
        limit = request.limit or _CANDIDATES
        if request.gang:
            held = placements.held(request.gang)
            without, free = placements.without(held.gang), self._free(held.request)
            return await self._queries(queries.explained_held, held, without, free, limit)
        gang, asked = request.request.gang, request_of(request.request, placements.capacity.forest)
        free, drain = self._free(asked), placements.around(asked, 0)
        return await self._queries(queries.explained, gang, asked, free, limit, drain)

    async def list_placements(self, request: pb.ListPlacementsRequest, context: Any) -> bytes:
        return await self._list(self._bytes.list_response, self._by_name(), self._tiers())

    async def list_queue(self, request: pb.ListQueueRequest, context: Any) -> pb.ListQueueResponse:
        return pb.ListQueueResponse(gangs=() if self._queue is None else self._queue.turns.waiting())

    async def watch_placements(
        self, request: pb.WatchPlacementsRequest, context: Any
    ) -> AsyncIterator[bytes]:
        watchers = self._watchers
        async with watching(watchers, context):
            watcher = watchers.add()
            try:
                while True:
                    news = await watchers.next(watcher)
                    yield await self._updates(self._bytes.watch_response, news, self._tiers())
            finally:
                watchers.discard(watcher)

    async def improve(self, request: pb.ImproveRequest, context: Any) -> pb.ImproveResponse:
        held = self._placements.held(request.gang)
        return await self._queries(queries.improved, held, self._free(held.request))

    async def defragment(self, request: pb.DefragmentRequest, context: Any) -> pb.DefragmentResponse:
        if request.last:
            plan = None if self._queue is None else self._queue.plans.last
            if plan is None:
                raise NoPlanError(f"there is no plan: {self._why_no_plan()}")
            return plan
        most = request.most_moves or _MOVES
        if most > _MAX_MOVES:
            raise RequestError(f"most_moves: {most}: expected at most {_MAX_MOVES}")
        gang, asked = request.request.gang, request_of(request.request, self._placements.capacity.forest)
        if asked.clusters:
            raise RequestError("clusters: expected one: gangs are moved within a cluster")
        free, book = self._free(asked), self._by_name()
        masks_of = self._masks.now(free.capacity.forest).of
        return await self._queries(queries.defragmented, gang, asked, book, masks_of, free, most)

    # Helpers

    async def _read(
        self, request: pb.PlaceRequest, run: BoundedExecutor
    ) -> tuple[Request, Mapping[str, Mask]]:
        """A request for the current tiers, and its masks, which a thread computes."""
        for _ in range(_ATTEMPTS):
            forest = self._placements.capacity.forest
            asked = request_of(request, forest)
            masks = await run(self._masks.now(forest).of, asked) if asked.demands else NO_MASKS
            if self._placements.capacity.forest is forest:
                return asked, masks
        raise _busy(request.gang)

    def _why_no_plan(self) -> str:
        if self._queue is None:
            return "gates are off: set gates, and gates_defragment_every_s above 0"
        if not self._queue.plans.every_s:
            return "gates_defragment_every_s is 0: set it above 0 to plan on a schedule"
        return "no gang waited at the last look"

    def _free(self, request: Request) -> Free:
        """What is free now. A thread computes the masks: the caller chooses how long that takes."""
        capacity = self._placements.capacity_for(request).copy()
        masks = partial(self._masks.now(capacity.forest).of, request) if request.demands else dict
        return Free(capacity, self._placements.speeds, masks)

    def _by_name(self) -> list[Reservation]:
        return sorted(self._placements, key=lambda held: held.gang)

    def _tiers(self) -> int:
        """The number of tiers in the current hierarchy; 0 = there is no hierarchy."""
        try:
            return self._placements.capacity.forest.top
        except NotReadyError:
            return 0

    def _expires_ns(self, request: pb.PlaceRequest) -> int:
        if not request.HasField("expires_in"):
            return 0
        seconds = request.expires_in.seconds + request.expires_in.nanos / NS
        if not 0 < seconds <= _MAX_EXPIRES_S:
            raise RequestError(
                f"expires_in: {seconds:g} s: expected more than 0 s, at most {_MAX_EXPIRES_S} s"
            )
        return self._clock_ns() + int(seconds * NS)


def _busy(gang: str) -> NoRoomError:
    return NoRoomError(f"gang {gang!r} or the free nodes changed in {_ATTEMPTS} attempts: try again later")
