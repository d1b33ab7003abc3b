"""What happens to sweep leases, and what is to be done about it: values between `leases` and the shell."""

from collections.abc import Set
from dataclasses import dataclass

SWEEP_PROBE = "ibnetdiscover"  # an agent that runs it may hold a lease


@dataclass(frozen=True, slots=True, order=True)
class SweepPort:
    """An active InfiniBand port. Its GUID is what a sweep sees of it.

    The port's, not the node's: the ports of one adapter may lie in different fabrics.
    """

    device: str
    port: int
    port_guid: int


@dataclass(frozen=True, slots=True)
class AgentConnected:
    """A stream began, for the first time or again; whatever was granted before it has lapsed."""

    node: str
    probes: Set[str]


@dataclass(frozen=True, slots=True)
class AgentGone:
    """The agent's last stream ended."""

    node: str


@dataclass(frozen=True, slots=True)
class PortsSeen:
    """All active InfiniBand ports of a node, each time they are reported."""

    node: str
    ports: tuple[SweepPort, ...]


@dataclass(frozen=True, slots=True)
class SweepSeen:
    """A sweep under a lease, also when it saw the same as before. `port_guids`: adapter ports it saw."""

    node: str
    lease_id: str
    port_guids: frozenset[int]
    partial: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SweepFailed:
    """The agent could not sweep."""

    node: str
    lease_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed. Wanted every few seconds."""


Event = AgentConnected | AgentGone | PortsSeen | SweepSeen | SweepFailed | Tick


@dataclass(frozen=True, slots=True)
class Grant:
    """Tell the node to sweep from this port, now and every interval. May repeat a lease it held before."""

    node: str
    lease_id: str
    device: str
    port: int
    interval_s: float


@dataclass(frozen=True, slots=True)
class Revoke:
    """Tell the node to stop."""

    node: str
    lease_id: str
    reason: str


Instruction = Grant | Revoke


@dataclass(frozen=True, slots=True)
class LeaseState:
    """A lease as people see it. `last_sweep_at_ns` 0 = none yet; `reason`: what was wrong with it."""

    lease_id: str
    node: str
    device: str
    port: int
    granted_at_ns: int
    last_sweep_at_ns: int
    partial: bool
    reason: str
