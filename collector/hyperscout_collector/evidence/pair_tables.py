"""What nodes measured of each other, read once for all who want it: inference, the planner, the API.

Each of them asks from a thread of its own, and hands over what the loop knew when it asked.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from hyperscout_formats.facts.facts import LatencyPort
from hyperscout_inference.latency.pairs import NO_PAIRS, Clock, PairReader, PairTable

from hyperscout_collector.evidence.rows import Row


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

    Agents repeat what they know each minute: that is not another measurement. If the clock was set meanwhile,
    the one that was there when it was told first is still the one that it was measured by.
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
        pairs = zip(found, before.ports, strict=True)
        if all(fact is port or fact == port for (fact, _), port in pairs):
            return before
    return Measured(tuple(fact for fact, _ in found), tuple(clock for _, clock in found))
