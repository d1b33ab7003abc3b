"""The facts about sweep leases, and how events change the state of a lease."""

from dataclasses import dataclass
from typing import Final, Literal

from hyperscout_collector.decisions.fabric.sweep_events import SweepPort

MAX_PORTS = 64  # of one node; further ports are ignored
Place = tuple[str, str, int]  # node, device, port


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


LeaseName = Literal[
    "exploring",  # granted, and not swept yet: the fabric is unknown
    "inherited",  # granted, and not swept yet: it covers what its predecessor covered
    "swept",  # the last sweep was whole
    "partial",  # the last sweep was partial
    "failing",  # the last sweep failed or did not come
]

_ENDS = ("none",)
# How events change the state of one lease. "none": before it is granted, and after it has ended.
TRANSITIONS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "none": dict.fromkeys(
        ("AgentConnected", "PortsSeen", "SweepSeen", "SweepFailed", "Tick"), ("exploring", "inherited")
    ),
    "exploring": {
        "AgentConnected": _ENDS,
        "PortsSeen": _ENDS,
        "SweepSeen": ("swept", "partial", "inherited", "none"),
        "SweepFailed": ("failing",),
        "Tick": ("failing", "none"),
    },
    "inherited": {
        "AgentConnected": _ENDS,
        "PortsSeen": _ENDS,
        "SweepSeen": ("swept", "partial", "none"),
        "SweepFailed": ("failing",),
        "Tick": ("failing", "none"),
    },
    "swept": {
        "AgentConnected": _ENDS,
        "PortsSeen": _ENDS,
        "SweepSeen": ("partial", "none"),
        "SweepFailed": ("failing",),
        "Tick": ("failing", "none"),
    },
    "partial": {
        "AgentConnected": _ENDS,
        "PortsSeen": _ENDS,
        "SweepSeen": ("swept", "none"),
        "SweepFailed": _ENDS,
        "Tick": _ENDS,
    },
    "failing": {
        "AgentConnected": _ENDS,
        "PortsSeen": _ENDS,
        "SweepSeen": ("swept", "partial", "none"),
        "SweepFailed": _ENDS,
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
    swept_ns: int = 0
    partial: bool = False
    reason: str = ""
    bad: int = 0  # partial or failed sweeps in a row

    @property
    def state(self) -> LeaseName:
        if self.bad:
            return "partial" if self.partial else "failing"
        if self.swept_ns:
            return "swept"
        return "inherited" if self.covered else "exploring"

    @property
    def node(self) -> str:
        return self.place[0]

    @property
    def rank(self) -> tuple[bool, int]:
        """Of two leases on one fabric the lower rank stays: the one with full sweeps, then the older one."""
        return (not self.swept_ns or self.bad > 0, self.number)


@dataclass(frozen=True, slots=True)
class LeaseFacts:
    """All facts of `SweepLeases`, as plain data. `back_off`: port, failures, until when (Unix ns)."""

    settings: LeaseSettings
    epoch: int
    agents: dict[str, Agent]
    leases: list[Lease]
    back_off: list[tuple[Place, int, int]]
    uncovered: set[Place]
    count: int
