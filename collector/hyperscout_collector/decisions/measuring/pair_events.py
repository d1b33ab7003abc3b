"""The events and instructions of the pairwise measurements."""

from collections.abc import Sequence, Set
from dataclasses import dataclass, field

from hyperscout_formats.facts.facts import LatencyPort

MEASURE_PROBE = "latency"  # an agent that runs this probe can take part


@dataclass(frozen=True, slots=True)
class AgentConnected:
    """A stream of an agent that can measure started. Earlier instructions have lapsed."""

    node: str


@dataclass(frozen=True, slots=True)
class AgentGone:
    """The agent's last stream ended."""

    node: str


@dataclass(frozen=True, slots=True)
class PortsSeen:
    """All interfaces of a connected agent: where it answers, and what it measured."""

    node: str
    ports: tuple[LatencyPort, ...]


@dataclass(frozen=True, slots=True)
class Planned:
    """Pairs to measure next, in this order. They replace the remaining pairs of the plan before.

    `learning`: some pairs are not measured yet, and only latency shows where their nodes are.
    `representatives`: nodes that represent their domains; they also measure by RDMA.
    """

    wishes: Sequence[tuple[str, str]]
    learning: bool
    representatives: Set[str] = frozenset()


@dataclass(frozen=True, slots=True)
class HierarchyChanged:
    """The hierarchy to verify has changed."""


@dataclass(frozen=True, slots=True)
class Paused:
    """An operator or client pauses all measurements, now."""

    reason: str


@dataclass(frozen=True, slots=True)
class Resumed:
    """Measurements may continue."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed. Must be sent several times per second."""


Event = AgentConnected | AgentGone | PortsSeen | Planned | HierarchyChanged | Paused | Resumed | Tick


@dataclass(frozen=True, slots=True)
class Assign:
    """The node must measure: `PairTask` of discovery.proto, field by field."""

    node: str
    task_id: int
    peer: str
    interface: str
    address: str
    peer_interface: str
    peer_address: str
    peer_port: int
    key: bytes = field(repr=False)
    method: str
    pings: int
    first: bool
    expires_s: float


@dataclass(frozen=True, slots=True)
class Stop:
    """The node must drop all tasks."""

    node: str
    reason: str


Instruction = Assign | Stop


@dataclass(frozen=True, slots=True)
class PlanWanted:
    """A request for a plan: the nodes that can be measured now, sorted, and the largest number of pairs."""

    nodes: tuple[str, ...]
    limit: int
