"""Which link of a host changes when. No I/O, no clock."""

from collections import deque
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
