"""What agents measured before they restarted, and know no more.

Their results are in memory alone, and it takes minutes to measure anew: without this an update of the agents
would make nodes not ready, or a tree of half the pairs. Where hosts are does not change because a process
ended. But hosts that were moved restart too; so what is kept fades as soon as half is measured anew, or
after an hour at most, and who plans does not see it: to the planner it is unmeasured.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from hyperscout_formats.facts.facts import LatencyPort, LatencyResult

from hyperscout_collector.evidence.pair_tables import Measured

KEPT_NS: Final = 3600 * 1_000_000_000


@dataclass(frozen=True, slots=True)
class _Kept:
    """`known`: what is measured anew, and what was measured before."""

    known: Measured
    until_ns: int


class PairGrace:
    """By node. Times are Unix ns by our clock."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}

    def touch(self, node: str, before: Measured | None, now: Measured, at_ns: int) -> None:
        """The node says `now`, and said `before`."""
        kept = self._kept.get(node)
        restarted = before is not None and now is not before and _told(now) < _told(before)
        if (kept is None and not restarted) or (now is before and now):
            return
        self._kept.pop(node, None)
        until_ns = at_ns + KEPT_NS if restarted or kept is None else kept.until_ns
        known, more = _together(now, kept.known if kept else before or now)
        if more > _good(now) and at_ns < until_ns:
            self._kept[node] = _Kept(known, until_ns)

    def added_to(self, measured: Mapping[str, Measured], now_ns: int) -> dict[str, Measured]:
        """The same, and what is kept."""
        found = dict(measured)
        for node, kept in list(self._kept.items()):
            if now_ns < kept.until_ns and node in found:
                found[node] = kept.known
            else:
                del self._kept[node]
        return found


def _together(now: Measured, before: Measured) -> tuple[Measured, int]:
    """With those of before that are not measured anew, at the same places; and how many these are."""
    old = {(port.interface, port.addresses): port.results for port in before.ports}
    ports: list[LatencyPort] = []
    count = 0
    for port in now.ports:
        anew = {_whom(x) for x in port.results if not x.failure}
        kept = {
            _whom(x): x
            for x in old.get((port.interface, port.addresses), ())
            if not x.failure and _whom(x) not in anew
        }
        count += len(kept)
        rest = [x for x in port.results if _whom(x) not in kept]
        ports.append(replace(port, results=(*rest, *kept.values())) if kept else port)
    return Measured(tuple(ports), now.clocks), count


def _whom(x: LatencyResult) -> tuple[str, str, str]:
    return x.peer, x.peer_interface, x.method


def _told(measured: Measured) -> int:
    """A burst that failed takes the place of the one before: only who forgot tells less."""
    return sum(len(port.results) for port in measured.ports)


def _good(measured: Measured) -> int:
    return sum(not x.failure for port in measured.ports for x in port.results)
