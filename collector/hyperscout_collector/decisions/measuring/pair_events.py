"""What happens where agents measure each other, and what they are told: values between `pair_tasks` and the
shell."""

from collections.abc import Sequence, Set
from dataclasses import dataclass, field

from hyperscout_formats.facts.facts import LatencyPort

MEASURE_PROBE = "latency"  # an agent that runs it can take part


@dataclass(frozen=True, slots=True)
class AgentConnected:
    """A stream of an agent that can measure began; whatever it was told before has lapsed."""

    node: str


@dataclass(frozen=True, slots=True)
class AgentGone:
    """The agent's last stream ended."""

    node: str


@dataclass(frozen=True, slots=True)
class PortsSeen:
    """All that a connected agent says of its interfaces: where it answers, and what it measured."""

    node: str
    ports: tuple[LatencyPort, ...]


@dataclass(frozen=True, slots=True)
class Planned:
    """Pairs to measure next, in this order, in place of what is left of those before.

    `learning`: some of them are not measured yet, and nothing but latency tells where their nodes are.
    `representatives`: nodes that stand for their domains, and measure by RDMA too.
    """

    wishes: Sequence[tuple[str, str]]
    learning: bool
    representatives: Set[str] = frozenset()


@dataclass(frozen=True, slots=True)
class HierarchyChanged:
    """What is to be verified is not what it was."""


@dataclass(frozen=True, slots=True)
class Paused:
    """Somebody wants all of it to end, now."""

    reason: str


@dataclass(frozen=True, slots=True)
class Resumed:
    """It may go on."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed. Wanted several times a second."""


Event = AgentConnected | AgentGone | PortsSeen | Planned | HierarchyChanged | Paused | Resumed | Tick


@dataclass(frozen=True, slots=True)
class Assign:
    """Tell the node to measure: `PairTask` of discovery.proto, field by field."""

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
    """Tell the node to drop all tasks."""

    node: str
    reason: str


Instruction = Assign | Stop


@dataclass(frozen=True, slots=True)
class PlanWanted:
    """Nodes that can be measured now, sorted, and how many pairs of them are wanted at most."""

    nodes: tuple[str, ...]
    limit: int
