"""The events and instructions of the sweep leases."""

from collections.abc import Set
from dataclasses import dataclass, field
from typing import NamedTuple

SWEEP_PROBE = "ibnetdiscover"  # an agent that runs this probe may get a lease


class Place(NamedTuple):
    """A port of a node."""

    node: str
    device: str
    port: int


@dataclass(frozen=True, slots=True, order=True)
class SweepPort:
    """An active InfiniBand port. Sweeps identify it by its port GUID.

    The GUID is the port's, not the node's: the ports of one adapter may be in different fabrics.
    """

    device: str
    port: int
    port_guid: int

    def at(self, node: str) -> Place:
        return Place(node, self.device, self.port)


@dataclass(frozen=True, slots=True)
class AgentConnected:
    """A stream started, for the first time or again. Earlier grants have lapsed."""

    node: str
    probes: Set[str]


@dataclass(frozen=True, slots=True)
class AgentGone:
    """The agent's last stream ended."""

    node: str


@dataclass(frozen=True, slots=True)
class PortsSeen:
    """All active InfiniBand ports of a node. Sent with each report."""

    node: str
    ports: tuple[SweepPort, ...]


@dataclass(frozen=True, slots=True)
class SweepSeen:
    """A sweep under a lease, also if it is equal to the one before.

    `port_guids`: adapter ports in the sweep. `known`: the leases whose port is in a published cable of their
    node. The others are provisional. None = unchanged.
    """

    node: str
    lease_id: str
    port_guids: frozenset[int]
    partial: bool = False
    reason: str = ""
    known: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class SweepFailed:
    """The agent could not sweep."""

    node: str
    lease_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class SweepHeld:
    """A sweep waits for the sweep of another node.

    `is_first`: it counts, but its fabric was never published. `is_accused`: it changes so much that it may be
    false.
    """

    node: str
    lease_id: str
    reason: str
    is_first: bool = False
    is_accused: bool = False


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed. Must be sent every few seconds."""


Event = AgentConnected | AgentGone | PortsSeen | SweepSeen | SweepFailed | SweepHeld | Tick


@dataclass(frozen=True, slots=True)
class Grant:
    """The node must sweep from this port, now and at every interval.

    `is_repeated`: the node had the lease before; it connects again, or must sweep ahead of its time.
    """

    node: str
    lease_id: str
    device: str
    port: int
    interval_s: float
    is_repeated: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Revoke:
    """The node must stop sweeping under this lease."""

    node: str
    lease_id: str
    reason: str


Instruction = Grant | Revoke


@dataclass(frozen=True, slots=True)
class LeaseState:
    """A lease for display. `last_sweep_at_ns`: 0 = no sweep yet. `reason`: the last problem. `unconfirmed`:
    no other node has swept the fabric, or can."""

    lease_id: str
    node: str
    device: str
    port: int
    granted_at_ns: int
    last_sweep_at_ns: int
    partial: bool
    reason: str
    unconfirmed: bool
