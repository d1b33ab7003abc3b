"""Which link of a host changes when, and how late each change is seen. No I/O, no clock."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from hyperscout_sim.fabric.fabric import Cable, SimFabric

QUIET_S = 120.0  # a link that changes again sooner may be damped as a flapping one


@dataclass(frozen=True, slots=True)
class Change:
    """A link goes down or returns; `link` is an index into `host_links`."""

    link: int
    down: bool


def host_links(fabric: SimFabric) -> tuple[Cable, ...]:
    """The cables of hosts, in the order of the fabric."""
    hosts = fabric.node_map()
    return tuple(cable for cable in fabric.cables if cable.a in hosts)


class LinkSchedule:
    """Chooses the next change: the link that is down longest returns, otherwise another one goes down.

    Each link changes at most once in `QUIET_S`. The order is a fixed shuffle, so that changes are far from
    each other in the fabric.
    """

    def __init__(self, links: int) -> None:
        order = list(range(links))
        Random(0).shuffle(order)  # noqa: S311 - the same order in each run
        self._up = deque((link, float("-inf")) for link in order)  # with the time of its last change
        self._down: deque[tuple[int, float]] = deque()

    def next(self, now_s: float) -> Change | None:
        """The change to make now. None = no link may change yet."""
        for queue, other, down in ((self._down, self._up, False), (self._up, self._down, True)):
            if queue and now_s - queue[0][1] >= QUIET_S:
                link, _ = queue.popleft()
                other.append((link, now_s))
                return Change(link, down)
        return None


@dataclass(frozen=True, slots=True)
class Stamped:
    """A change with the time at which it was made or seen, by the monotonic clock of the machine."""

    at_ns: int
    change: Change


def latencies(made: Sequence[Stamped], seen: Sequence[Stamped]) -> list[float | None]:
    """For each change, the seconds until it was first seen. None = it was not seen.

    Both are in the order of time. What is seen after the next change of the same link belongs to that one.
    """
    seen_of: dict[Change, deque[int]] = {}
    for one in seen:
        seen_of.setdefault(one.change, deque()).append(one.at_ns)
    next_ns: dict[int, int] = {}
    limits: list[int | None] = []
    for one in reversed(made):
        limits.append(next_ns.get(one.change.link))
        next_ns[one.change.link] = one.at_ns
    found: list[float | None] = []
    for one, limit_ns in zip(made, reversed(limits), strict=True):
        times = seen_of.get(one.change, deque())
        while times and times[0] < one.at_ns:
            times.popleft()
        is_seen = bool(times) and (limit_ns is None or times[0] < limit_ns)
        found.append((times.popleft() - one.at_ns) / 1e9 if is_seen else None)
    return found
