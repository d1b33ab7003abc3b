"""Keeps a domain for the first of the gangs that have waited long, so that smaller gangs do not starve it.

    refused and overdue -> choose a domain -> keep it -> placed, ended, or no domain holds the gang

One domain is kept at a time. Nothing about it is stored: the order follows from the pods, and the nodes that
are free in a kept domain make it the first choice of a new leader too.
"""

import logging
from collections.abc import Callable, Iterable

from hyperscout.v1 import placement_pb2 as pb
from hyperscout_formats.text.counts import count
from hyperscout_placer.book.placements import Placements
from hyperscout_runtime.rate_limit import TokenBucket
from hyperscout_runtime.units import NS

from hyperscout_gates.control.gang_record import GangRecord
from hyperscout_gates.control.placement_requests import PlacementRequests
from hyperscout_gates.state.events import Place, Say

_log = logging.getLogger(__name__)

_LOOK_EVERY_S = 60.0  # whether a domain can still hold the gang, or whether one can now
# A choice takes a tenth of a second in a large cluster. So many may follow each other, then one each time.
_CHOICES, _CHOOSE_EVERY_S = 8, 10.0


class Draining:
    """`record`: the gang for which a domain is kept. `begun`: number of gangs for which one was kept so far.

    `after_s`: how long a gang waits first; 0 = no domain is kept. `announce` reports to the users of a gang.
    """

    def __init__(
        self,
        placements: Placements,
        requests: PlacementRequests,
        after_s: float,
        clock_ns: Callable[[], int],
        announce: Callable[[GangRecord, Say], None],
    ) -> None:
        self.record: GangRecord | None = None
        self.begun = 0
        self._placements = placements
        self._requests = requests
        self._after_s = after_s
        self._clock_ns = clock_ns
        self._announce = announce
        self._since_s = self._looked_s = 0.0
        self._choices = TokenBucket(1 / _CHOOSE_EVERY_S, _CHOICES)

    def is_overdue(self, record: GangRecord) -> bool:
        since_s = record.machine.waits_since_s
        return bool(self._after_s) and self._now_s() >= since_s + self._after_s

    def may_use_kept(self, record: GangRecord) -> bool:
        """Whether the nodes that are kept are free for this gang: they are kept for it or for a later one."""
        return self.record is None or record.order <= self.record.order

    def refused(self, record: GangRecord) -> None:
        """The gang was tried and does not fit. Keep a domain for it if it is the first that is overdue."""
        now_s, first = self._now_s(), self.record
        if record.machine.plan is not None or not self.is_overdue(record):
            return
        if first is not None and first.order <= record.order:
            return
        if now_s < record.no_drain_until_s or not self._choices.take(1, now_s):
            return
        if not self._keep(record):
            record.no_drain_until_s = now_s + _LOOK_EVERY_S

    def look(self, waiting: Iterable[GangRecord]) -> bool:
        """Check the kept domain, and keep one for a gang that became overdue. Call it about once a second.

        Returns whether a domain was released.
        """
        released, now_s = self._check(), self._now_s()
        refused = [x for x in waiting if x.reason and x.machine.plan is None and x.no_drain_until_s <= now_s]
        if overdue := [x for x in refused if self.is_overdue(x)]:
            self.refused(min(overdue, key=lambda x: x.order))
        return released

    def left(self, record: GangRecord) -> bool:
        """The gang does not wait any more. Returns whether its domain was released."""
        if record is not self.record:
            return False
        self.record = self._placements.drain = None
        _log.info("%s: no domain is kept for it any more", record.machine.key)
        return True

    def _now_s(self) -> float:
        return self._clock_ns() / NS

    def kept(self) -> pb.KeptDomain | None:
        """Return what is kept now."""
        drain = self._placements.drain
        if drain is None:
            return None
        found = pb.KeptDomain(
            tier=drain.tier,
            hypernode=drain.hypernode,
            nodes=int(drain.kept.sum()),
            fits=drain.fits(self._placements.capacity_for(drain.request)),
            workers=drain.workers,
        )
        found.since.FromNanoseconds(int(self._since_s * NS))
        return found

    def _check(self) -> bool:
        """Choose the domain again when the topology is another one, and once a minute."""
        record, drain = self.record, self._placements.drain
        if record is None or drain is None or record.machine.gang is None:
            return False
        is_same = self._requests.is_current(drain.forest)
        if is_same and self._now_s() < self._looked_s + _LOOK_EVERY_S:
            return False
        return False if self._keep(record) else self.left(record)

    def _keep(self, record: GangRecord) -> bool:
        """Keep a domain for this gang. Returns False if no domain can hold it."""
        machine, before = record.machine, self._placements.drain
        if machine.gang is None:
            return False
        is_new = record is not self.record
        prefer = None if before is None or is_new else before.hypernode
        self._looked_s = self._now_s()
        asked = Place(machine.gang, frozenset(machine.refused))
        drain = self._requests.drain(asked, prefer, machine.priority)
        if drain is None:
            return False
        if is_new:
            self._since_s = self._looked_s
            self.begun += 1
        self.record, self._placements.drain = record, drain
        if is_new or before is None or before.hypernode != drain.hypernode:
            fits = drain.fits(self._placements.capacity_for(drain.request))
            now = f"{fits} of {drain.workers} workers fit there now"
            message = (
                f"{drain.where} is kept for this gang: {count(int(drain.kept.sum()), 'node')}, and {now}"
            )
            self._announce(record, Say("Normal", "Drains", message))
        return True
