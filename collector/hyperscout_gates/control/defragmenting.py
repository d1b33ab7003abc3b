"""Plans on a schedule which workers to move so that the first waiting gang fits. It moves nothing.

A plan is advice. The collector cannot carry it out: it does not know when the holder of a reservation has
moved its workers, and a running pod moves only by being deleted.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from hyperscout.v1 import placement_pb2 as pb
from hyperscout_formats.text.counts import count, first_few
from hyperscout_placer.book.placements import Placements
from hyperscout_placer.book.reservation import NotReadyError, Reservation, running_gangs
from hyperscout_placer.cluster.capacity import Mask
from hyperscout_placer.cluster.request import RequestError
from hyperscout_placer.messages.changes import defragment_message
from hyperscout_placer.repair.defrag import defragment
from hyperscout_placer.solve.elastic import at_least
from hyperscout_runtime.bounded_executor import BoundedExecutor

from hyperscout_gates.control.gang_record import GangRecord
from hyperscout_gates.control.placement_requests import PlacementRequests
from hyperscout_gates.state.events import Place

_log = logging.getLogger(__name__)

_SHOWN = 10  # moves in a log line


class Defragmenting:
    """`last`: the newest plan; None = no gang waited. `plans`, `refusals`: numbers since the start.

    `records`: all gangs of pods. `first`: returns the waiting gang to plan for. `every_s`: seconds between
    two plans; 0 = never plan. `most_moves`: most workers that a plan moves.
    """

    def __init__(
        self,
        placements: Placements,
        requests: PlacementRequests,
        records: Iterable[GangRecord],
        first: Callable[[], GangRecord | None],
        every_s: float,
        most_moves: int,
        clock_ns: Callable[[], int],
    ) -> None:
        self.last: pb.DefragmentResponse | None = None
        self.plans = self.refusals = 0
        self._placements = placements
        self._requests = requests
        self._records = records
        self._first = first
        self._most_moves = most_moves
        self._clock_ns = clock_ns
        self.every_s = every_s
        self._in_thread = BoundedExecutor("defragment")

    async def run(self) -> None:
        """Plan until cancelled."""
        while True:
            await asyncio.sleep(self.every_s)
            try:
                await self.plan()
            except (NotReadyError, RequestError) as error:
                _log.info("no plan to defragment: %s", error)

    async def plan(self) -> None:
        """Make one plan. Raises NotReadyError, RequestError."""
        record = self._first()
        if record is None or record.machine.gang is None:
            self.last = None
            return
        asked = Place(record.machine.gang, frozenset(record.machine.refused))
        asked_for, masks = self._requests.constrained(asked)
        request = at_least(asked_for)
        capacity = self._placements.capacity_for(request).copy()
        speeds = self._placements.speeds
        known = {x.name: x.templates for x in self._records if x.name}

        def masks_of(held: Reservation) -> Mapping[str, Mask]:
            return self._requests.masks_for(known.get(held.gang, {}), held.request)

        gangs = running_gangs(self._placements, capacity.forest, masks_of)

        def plan() -> pb.DefragmentResponse:
            plan = defragment(capacity, request, gangs, masks, most_moves=self._most_moves)
            return defragment_message(record.machine.key, request, plan, capacity.forest, speeds)

        found = await self._in_thread(plan)
        found.planned_at.FromNanoseconds(self._clock_ns())
        self.last = found
        if not found.placement.placed:
            self.refusals += 1
            _log.info("%s: no plan to defragment: %s", record.machine.key, found.placement.reason)
            return
        self.plans += 1
        moves = [
            f"{one.gang} rank {step.rank}: {step.source} -> {step.target}"
            for one in found.gangs
            for step in one.moves
        ]
        what = f"fits when {count(found.moved, 'worker')} of {count(len(found.gangs), 'gang')} move"
        _log.info("%s: %s (dry run): %s", record.machine.key, what, first_few(moves, _SHOWN))
