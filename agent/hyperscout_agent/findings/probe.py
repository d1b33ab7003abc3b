"""What a probe is, and what it gives back.

A probe is a thin runner around a pure reader in `hyperscout_formats`. It need not defend itself: the
scheduler bounds its time and its output, and keeps its troubles from the others.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from hyperscout.v1.finding_pb2 import (
    Gpu,
    InfinibandPort,
    LatencyPort,
    LldpPort,
    NcclRun,
    Outcome,
    Sweep,
    SwitchPort,
    SwitchTable,
)

from hyperscout_agent.findings.bulk import Bulk

# node: every agent, about itself. fabric: one agent for all. pair: two agents that the collector picks.
Scope = Literal["node", "fabric", "pair"]
Payload = LldpPort | InfinibandPort | Sweep | Gpu | LatencyPort | NcclRun | SwitchPort | SwitchTable


class ProbeError(Exception):
    """The probe could not look; says why in words a person can act on. What was known stays known."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What was seen of one subject. `reason` says why there is nothing, or why it could not be seen."""

    outcome: Outcome.ValueType
    payload: Payload | None = None
    reason: str = ""


def data(payload: Payload, reason: str = "") -> Sight:
    return Sight(Outcome.OUTCOME_DATA, payload, reason)


def nothing(reason: str, payload: Payload | None = None) -> Sight:
    return Sight(Outcome.OUTCOME_NOTHING, payload, reason)


def failed(reason: str, payload: Payload | None = None) -> Sight:
    return Sight(Outcome.OUTCOME_FAILED, payload, reason)


@dataclass(frozen=True, slots=True)
class Observation:
    """All that one look saw, by subject ("eth0", "mlx5_0/1"). No subject is empty.

    `complete`: subjects that are not in it are no more. A look that covers only a part says False.
    `bulks`: the texts that its sweeps name. `trouble`: what went wrong with the look as a whole, though
    it saw something.
    """

    sights: Mapping[str, Sight] = field(default_factory=dict)
    complete: bool = True
    bulks: tuple[Bulk, ...] = ()
    trouble: str = ""


class Probe(Protocol):
    """Looks at one kind of thing."""

    @property
    def name(self) -> str:
        """Lower case, as in FindingKey.probe."""

    @property
    def scope(self) -> Scope: ...

    @property
    def interval_s(self) -> float | None:
        """Seconds from the start of one look to the next; None = asleep until triggered."""

    @property
    def timeout_s(self) -> float:
        """A look that takes longer is cancelled and has failed."""

    @property
    def max_findings(self) -> int:
        """More subjects than this are a flood: the rest is dropped, and a failed finding says so."""

    async def observe(self) -> Observation:
        """Look once. Raises ProbeError when it cannot; anything else that is raised counts as a crash."""
