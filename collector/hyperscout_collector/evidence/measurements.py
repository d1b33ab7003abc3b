"""Pairwise measurements: read once for all users, and kept for a while when an agent restarts.

Agents store results in memory only, and measuring again takes minutes. Without `PairGrace` an update of the
agents would make nodes not ready, or build a tree from half of the pairs. A restarted process does not move
its host. But moved hosts restart too, so kept results are dropped as soon as new ones are as many, or after
an hour at most. The planner does not see them: for the planner these pairs are unmeasured.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from hyperscout_formats.facts.facts import LatencyPort, LatencyResult
from hyperscout_inference.latency.pairs import NO_PAIRS, Clock, PairReader, PairTable
from hyperscout_runtime.units import NS

from hyperscout_collector.evidence.rows import Row

KEPT_NS: Final = 3600 * NS


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurements of one node's ports, and the clock of each port's measurement."""

    ports: tuple[LatencyPort, ...] = ()
    clocks: tuple[Clock, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.ports)


class PairTables:
    """Reads the measurements for inference, the planner and the API, each from its own thread.

    `last`: the result of the last read, for callers that only need its size.
    """

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


@dataclass(frozen=True, slots=True)
class _Kept:
    """`known`: the new results together with the kept ones."""

    known: Measured
    until_ns: int


class PairGrace:
    """Kept measurements by node. Times are Unix ns by the collector's clock."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}

    def touch(self, node: str, before: Measured | None, now: Measured, at_ns: int) -> None:
        """Record that the node reports `now` after it reported `before`."""
        kept = self._kept.get(node)
        restarted = before is not None and now is not before and _results(now) < _results(before)
        if (kept is None and not restarted) or (now is before and now):
            return
        self._kept.pop(node, None)
        until_ns = at_ns + KEPT_NS if restarted or kept is None else kept.until_ns
        known, more = _together(now, kept.known if kept else before or now)
        if more > _good(now) and at_ns < until_ns:
            self._kept[node] = _Kept(known, until_ns)

    def added_to(self, measured: Mapping[str, Measured], now_ns: int) -> dict[str, Measured]:
        """Returns `measured` with the kept results added."""
        found = dict(measured)
        for node, kept in list(self._kept.items()):
            if now_ns < kept.until_ns and node in found:
                found[node] = kept.known
            else:
                del self._kept[node]
        return found


def _together(now: Measured, before: Measured) -> tuple[Measured, int]:
    """Adds the results of `before` that are not measured again, at the same addresses.

    Returns them and their number.
    """
    old = {(port.interface, port.addresses): port.results for port in before.ports}
    ports: list[LatencyPort] = []
    count = 0
    for port in now.ports:
        measured_again = {_pair_of(x) for x in port.results if not x.failure}
        kept = {
            _pair_of(x): x
            for x in old.get((port.interface, port.addresses), ())
            if not x.failure and _pair_of(x) not in measured_again
        }
        count += len(kept)
        rest = [x for x in port.results if _pair_of(x) not in kept]
        ports.append(replace(port, results=(*rest, *kept.values())) if kept else port)
    return Measured(tuple(ports), now.clocks), count


def _pair_of(x: LatencyResult) -> tuple[str, str, str]:
    return x.peer, x.peer_interface, x.method


def _results(measured: Measured) -> int:
    """Number of results.

    A failed burst replaces the earlier result, so only a restarted agent reports fewer.
    """
    return sum(len(port.results) for port in measured.ports)


def _good(measured: Measured) -> int:
    return sum(not x.failure for port in measured.ports for x in port.results)
