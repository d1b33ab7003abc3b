"""The waiting gangs: their turns, the domain that is kept for one of them, and plans to make one fit."""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from hyperscout_placer.book.placements import Placements

from hyperscout_gates.control.defragmenting import Defragmenting
from hyperscout_gates.control.draining import Draining
from hyperscout_gates.control.gang_record import GangRecord
from hyperscout_gates.control.placement_requests import PlacementRequests
from hyperscout_gates.control.reports import Reports
from hyperscout_gates.control.turns import Turns
from hyperscout_gates.state.gang_state import GateSettings


class Queue:
    """The parts of the queue.

    `records`: all gangs of pods. `services` run until cancelled. `give`: as in `Turns`.
    """

    def __init__(
        self,
        placements: Placements,
        requests: PlacementRequests,
        records: Iterable[GangRecord],
        settings: GateSettings,
        reports: Reports,
        give: Callable[[GangRecord], None],
        clock_ns: Callable[[], int],
        timer: Callable[[], float],
    ) -> None:
        after_s = 0.0 if reports.dry_run else settings.drain_after_s
        self.draining = Draining(placements, requests, after_s, clock_ns, reports.announce)
        self.turns = Turns(give, self.draining, timer)
        every_s, most = settings.defragment_every_s, settings.defragment_most_moves
        self.plans = Defragmenting(placements, requests, records, self.turns.first, every_s, most, clock_ns)

    @property
    def services(self) -> Mapping[str, Callable[[], Coroutine[Any, Any, None]]]:
        plans = {"gate-plans": self.plans.run} if self.plans.every_s else {}
        return {"gate-turns": self.turns.run, **plans}
