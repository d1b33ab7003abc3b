"""The state of `pair_tasks`: agents, planned pairs and open tasks."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from hyperscout_formats.facts.facts import LatencyPort, LatencyResult

from hyperscout_collector.decisions.measuring.pair_routes import Place, Route, answers

UDP, RDMA = "udp", "rdma"


@dataclass(slots=True)
class Agent:
    """A connected agent, and when it may get another task."""

    ports: tuple[LatencyPort, ...] = ()
    busy_until_ns: int = 0  # its slot
    paid_until_ns: int = 0  # its share of traffic is used up until then
    debt_until_ns: int = 0  # half of its share pays for RDMA until then
    firsts: int = 0
    open: set[int] = field(default_factory=set)

    @property
    def places(self) -> list[tuple[object, ...]]:
        """The interfaces and addresses at which it answers."""
        return [(port.interface, port.addresses, port.udp_port, port.rdma_port) for port in self.ports]

    @property
    def can(self) -> bool:
        return any(answers(port) for port in self.ports)


@dataclass(slots=True)
class Work:
    """The remaining work on a planned pair."""

    a: str
    b: str
    todo: deque[Route] | None = None  # None = the rails are not computed yet


@dataclass(slots=True)
class End:
    """One end of a task, and what it has reported."""

    node: str
    place: Place
    peer: str
    peer_interface: str
    method: str
    before_ns: int | None  # time of its last reported burst when the task was assigned
    ok: bool | None = None  # None = nothing reported yet

    def result(self, ports: Sequence[LatencyPort]) -> LatencyResult | None:
        wanted = (self.peer, self.peer_interface, self.method)
        for port in ports:
            if port.interface == self.place.interface:
                for found in port.results:
                    if (found.peer, found.peer_interface, found.method) == wanted:
                        return found
        return None


@dataclass(slots=True)
class Task:
    """An assigned task. `rail`: see `rail_of`."""

    ends: tuple[End, End]
    rail: tuple[str, ...]
    until_ns: int


def rail_of(a: str, b: str, route: Route, method: str) -> tuple[str, ...]:
    """Returns the key under which a rail backs off; the same for both directions of a pair."""
    ends = sorted(((a, route.a.interface), (b, route.b.interface)))
    return (*ends[0], *ends[1], method)
