"""Reads the pairwise measurements once for all users: inference, the planner and the API.

Each of them reads from its own thread, and passes in what the event loop knew at that time.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from hyperscout_formats.facts.facts import LatencyPort
from hyperscout_inference.latency.pairs import NO_PAIRS, Clock, PairReader, PairTable

from hyperscout_collector.evidence.rows import Row


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurements of one node's ports, and the clock of each port's measurement."""

    ports: tuple[LatencyPort, ...] = ()
    clocks: tuple[Clock, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.ports)


class PairTables:
    """Thread-safe. `last`: the result of the last read, for callers that only need its size."""

    def __init__(self) -> None:
        self.last: PairTable = NO_PAIRS
        self._reader = PairReader()
        self._lock = threading.Lock()

    def read(self, measured: Mapping[str, Measured]) -> PairTable:
        """Returns the measurements on which both ends agree. Cheap when nothing has changed."""
        with self._lock:
            self.last = self._reader.read(
                {node: one.ports for node, one in measured.items()},
                {node: one.clocks for node, one in measured.items()},
            )
            return self.last


def measured_by(rows: list[Row], before: Measured | None) -> Measured:
    """Returns the measurements in these findings of one node; `before` itself where they are unchanged.

    Agents repeat their results each minute, which is no new measurement. If the agent's clock was set
    meanwhile, a result keeps the clock with which it was reported first.
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
