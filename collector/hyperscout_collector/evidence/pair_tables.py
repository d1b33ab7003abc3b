"""What nodes measured of each other, read once for all who want it: inference, the planner, the API.

Each of them asks from a thread of its own, and hands over what the loop knew when it asked.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from hyperscout_formats.facts import LatencyPort

from hyperscout_collector.evidence.rows import SAME_CLOCK_NS, Row
from hyperscout_collector.latency.pairs import NO_PAIRS, Clock, PairReader, PairTable


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of one node's ports, and by which clock: one for each port."""

    ports: tuple[LatencyPort, ...] = ()
    clocks: tuple[Clock, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.ports)


class PairTables:
    """Thread-safe. `last`: what was read last, for those who only want to know how much there is."""

    def __init__(self) -> None:
        self.last: PairTable = NO_PAIRS
        self._reader = PairReader()
        self._lock = threading.Lock()

    def read(self, measured: Mapping[str, Measured]) -> PairTable:
        """What both ends agree upon. Costs next to nothing when nothing has changed."""
        with self._lock:
            self.last = self._reader.read(
                {node: one.ports for node, one in measured.items()},
                {node: one.clocks for node, one in measured.items()},
            )
            return self.last


def measured_by(rows: list[Row], before: Measured | None) -> Measured:
    """What these findings of one node tell. The same object as `before` where they tell nothing else.

    Agents repeat what they know each minute: that is not another measurement, nor is a clock that seems to be
    some ms off because a batch was slower on its way here.
    """
    found = sorted(
        (
            (row.fact, Clock(row.offset_ns, row.observed_ns))
            for row in rows
            if isinstance(row.fact, LatencyPort)
        ),
        key=lambda one: one[0].interface,
    )
    if before is not None and len(before.ports) == len(found):
        same = all(
            abs(clock.offset_ns - known.offset_ns) <= SAME_CLOCK_NS and (fact is port or fact == port)
            for (fact, clock), port, known in zip(found, before.ports, before.clocks, strict=True)
        )
        if same:
            return before
    return Measured(tuple(fact for fact, _ in found), tuple(clock for _, clock in found))
