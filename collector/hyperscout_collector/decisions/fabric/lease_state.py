"""The facts about sweep leases, and how events change the state of a lease."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Final, Literal

from hyperscout_runtime.backoff import Backoff, RetryTime
from hyperscout_runtime.units import NS

from hyperscout_collector.decisions.fabric.sweep_events import LeaseState, Place, SweepPort

MAX_PORTS = 64  # of one node; further ports are ignored
_ASK_S = 10.0  # between the first two of several requests
_MOST_KNOWN = 4  # half of a fabric that lost its other half still knows that one


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """Settings of the leases. Times in seconds."""

    interval_s: float = 60.0  # between the sweeps of a fabric; ibnetdiscover takes 5 s at 10,000 hosts
    grace_s: float = 30.0  # an agent that reconnects within this time keeps its lease
    silence_s: float = 300.0  # silence this long counts as a failure; more than interval plus timeout
    back_off_s: float = 60.0  # of a port that failed; doubles with each failure
    back_off_max_s: float = 3600.0
    failures: int = 2  # in a row, before a lease moves; one partial sweep suffices
    exploring: int = 2  # concurrent leases without a first sweep: they may all be in one fabric
    leases: int = 64  # most leases: fabrics, planes, and rails that are fabrics of their own
    agents: int = 100_000  # most agents in memory; those that disconnected first are forgotten first

    @property
    def return_s(self) -> float:
        """How long a port that was swept before waits for the next sweep of its fabric."""
        return 2 * self.interval_s

    def backoff(self, failures: int = 0) -> Backoff:
        return Backoff(self.back_off_s, self.back_off_max_s, failures=failures)


LeaseName = Literal[
    "exploring",  # granted, and not swept yet: the fabric is unknown
    "inherited",  # granted, and not swept yet: it covers what its predecessor covered
    "swept",  # the last sweep was whole
    "partial",  # the last sweep was partial
    "failing",  # the last sweep failed, did not come, or changes so much that it may be false
]

_ENDS = ("none",)
# How events change the state of one lease. "none": before it is granted, and after it has ended.
TRANSITIONS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "none": {
        **dict.fromkeys(
            ("AgentConnected", "PortsSeen", "SweepSeen", "SweepFailed"), ("exploring", "inherited")
        ),
        "SweepHeld": ("inherited",),
        "Tick": ("exploring", "inherited"),
    },
    "exploring": {
        "AgentConnected": _ENDS,
        "PortsSeen": _ENDS,
        "SweepSeen": ("swept", "partial", "inherited", "none"),
        "SweepFailed": ("failing",),
        "SweepHeld": ("failing",),
        "Tick": ("failing", "none"),
    },
    "inherited": {
        "AgentConnected": _ENDS,
        "PortsSeen": _ENDS,
        "SweepSeen": ("swept", "partial", "none"),
        "SweepFailed": ("failing",),
        "SweepHeld": ("failing", "none"),
        "Tick": ("failing", "none"),
    },
    "swept": {
        "AgentConnected": _ENDS,
        "PortsSeen": _ENDS,
        "SweepSeen": ("partial", "none"),
        "SweepFailed": ("failing",),
        "SweepHeld": ("failing", "none"),
        "Tick": ("failing", "none"),
    },
    "partial": {
        "AgentConnected": _ENDS,
        "PortsSeen": _ENDS,
        "SweepSeen": ("swept", "none"),
        "SweepFailed": _ENDS,
        "SweepHeld": ("failing", "none"),
        "Tick": _ENDS,
    },
    "failing": {
        "AgentConnected": _ENDS,
        "PortsSeen": _ENDS,
        "SweepSeen": ("swept", "partial", "none"),
        "SweepFailed": _ENDS,
        "SweepHeld": _ENDS,
        "Tick": _ENDS,
    },
}


@dataclass(frozen=True, slots=True)
class Agent:
    """`gone_ns`: when its last stream ended, Unix ns."""

    connected: bool = False
    capable: bool = False
    gone_ns: int = 0
    ports: tuple[SweepPort, ...] = ()


@dataclass(slots=True)
class Lease:
    """A granted lease."""

    number: int
    lease_id: str
    place: Place
    guid: int
    granted_ns: int
    heard_ns: int  # time of the last sweep or failure
    covered: frozenset[int]  # GUIDs that the lease covers; at first those of its predecessor
    full: frozenset[int]  # GUIDs of the last full sweep
    moves: int  # unsuccessful moves in a row
    known: frozenset[int] = frozenset()  # GUIDs of ports in earlier whole sweeps of the fabric
    swept_ns: int = 0
    partial: bool = False
    reason: str = ""
    asked_ns: int = 0  # time of the last request to sweep ahead of time, or to confirm a first sweep
    asks: int = 0  # such requests in a row
    is_wanted: bool = False  # a sweep is to be requested as soon as it may be
    bad: int = 0  # partial, failed or accused sweeps in a row
    good_since_ns: int = 0  # time of the first of the whole sweeps in a row, 0 = the last was bad
    is_provisional: bool = False  # its port is in no published cable of its node
    is_first: bool = False  # its fabric was never published, and no other node has swept it
    confirms: bool = False  # granted after the first sweep of another node

    @property
    def state(self) -> LeaseName:
        if self.bad:
            return "partial" if self.partial else "failing"
        if self.swept_ns:
            return "swept"
        return "inherited" if self.covered else "exploring"

    @property
    def node(self) -> str:
        return self.place.node

    @property
    def rank(self) -> tuple[bool, bool, int, int]:
        """Of two leases on one fabric the lower rank stays: the one of a published port, then the one with
        the longer record of whole sweeps, then the older one."""
        return (self.is_provisional, not self.good_since_ns, self.good_since_ns, self.number)

    def shown(self, *, is_unconfirmed: bool) -> LeaseState:
        unconfirmed = bool(self.swept_ns) and is_unconfirmed
        return LeaseState(
            self.lease_id,
            *self.place,
            self.granted_ns,
            self.swept_ns,
            self.partial,
            self.reason,
            unconfirmed,
        )

    def may_ask(self, now_ns: int, interval_s: float) -> bool:
        """Whether a sweep may be requested ahead of time. The wait doubles with each request in a row, up to
        the interval of the sweeps: ports may flap for ever, and agents may lie."""
        wait_s = min(_ASK_S * (1 << max(min(self.asks, 9) - 1, 0)), max(interval_s, _ASK_S))
        return now_ns - self.asked_ns >= wait_s * NS

    def ask(self, now_ns: int, interval_s: float) -> None:
        """Record a request."""
        is_in_row = now_ns - self.asked_ns < 2 * max(interval_s, _ASK_S) * NS
        self.asks = self.asks + 1 if is_in_row else 1
        self.asked_ns, self.is_wanted = now_ns, False

    def is_alone(
        self, agents: Mapping[str, Agent], gone_ns: int, inside: Collection[int] | None = None
    ) -> bool:
        """Whether no other agent can confirm its sweeps. Agents that disconnected before `gone_ns` (Unix ns)
        cannot.

        `inside`: the GUIDs of the ports that can. None = any port: what a sweep covers is its holder's word.
        """
        return not any(
            (agent.connected or agent.gone_ns > gone_ns)
            and agent.capable
            and name != self.node
            and any(inside is None or port.port_guid in inside for port in agent.ports)
            for name, agent in agents.items()
        )


def remembered(known: frozenset[int], seen: frozenset[int]) -> frozenset[int]:
    """Return the GUIDs of earlier whole sweeps with those of a new one. Beyond `_MOST_KNOWN` times as many as
    it has, the earlier ones are forgotten."""
    # Mostly one of them contains the other and is returned itself: with 10,000 hosts a set takes megabytes.
    if known <= seen:
        return seen
    both = known if seen <= known else known | seen
    return both if len(both) <= _MOST_KNOWN * len(seen) else seen


@dataclass(slots=True)
class OpenPorts:
    """Ports of connected, capable agents that no lease covers.

    `unknown`: ports whose fabric is to be explored. `returned`: since when (Unix ns) a port is open that an
    earlier sweep under a present lease contained. Its cable was probably out for a moment: it is not explored
    before that lease has swept again, or `limit_ns` has passed.
    """

    unknown: set[Place] = field(default_factory=set)
    returned: dict[Place, int] = field(default_factory=dict)

    def all(self) -> list[Place]:
        return sorted(self.unknown | self.returned.keys())

    def discard(self, places: Iterable[Place]) -> None:
        for place in places:
            self.unknown.discard(place)
            self.returned.pop(place, None)

    def concerned(self, agents: Mapping[str, Agent], guids: Set[int]) -> list[str]:
        """Return the nodes to look at after leases began or ceased to cover these GUIDs: those with one of
        them, or with a port that waits for a sweep."""
        waiting = {place.node for place in self.returned}
        return [
            name
            for name, agent in agents.items()
            if name in waiting or not guids.isdisjoint([port.port_guid for port in agent.ports])
        ]

    def look_at(
        self, node: str, agent: Agent, leases: Collection[Lease], now_ns: int, limit_ns: int
    ) -> list[Lease]:
        """Update the ports of a node. Returns the leases that must sweep again."""
        asked = []
        taken = {lease.place for lease in leases if lease.node == node}
        for port in agent.ports:
            place, guid = port.at(node), port.port_guid
            is_open = agent.connected and agent.capable and place not in taken
            if not is_open or any(guid in lease.covered for lease in leases):
                self.discard([place])
            elif place not in self.unknown:
                since_ns = self.returned.setdefault(place, now_ns)
                lease = next((x for x in leases if guid in x.known and x.swept_ns <= since_ns), None)
                if lease is not None and now_ns - since_ns < limit_ns:
                    asked.append(lease)
                else:
                    self.discard([place])
                    self.unknown.add(place)
        return asked


@dataclass(frozen=True, slots=True)
class LeaseFacts:
    """All facts of `SweepLeases`, as plain data. `back_off`: port, failures, until when (Unix ns)."""

    settings: LeaseSettings
    epoch: int
    agents: dict[str, Agent]
    leases: list[Lease]
    back_off: list[tuple[Place, int, int]]
    open: OpenPorts
    count: int


def best_place(
    places: Iterable[Place],
    avoid: Set[str],
    leases: Collection[Lease],
    back_off: Mapping[Place, RetryTime],
    now_ns: int,
) -> Place | None:
    """Return the best usable port: other node or device first, then few failures, few leases."""
    taken = {lease.place for lease in leases}
    busy: dict[str, int] = {}
    for node, _, _ in taken:
        busy[node] = busy.get(node, 0) + 1

    def usable() -> Iterator[tuple[bool, int, int, Place]]:
        for place in places:
            retry = back_off.get(place)
            if place not in taken and (retry is None or retry.until_ns <= now_ns):
                failures = retry.backoff.failures if retry else 0
                yield (place.node in avoid or place.device in avoid, failures, busy.get(place.node, 0), place)

    best = min(usable(), default=None)
    return best[-1] if best else None
