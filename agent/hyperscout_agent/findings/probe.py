"""Defines the probe interface and the observations that probes return.

A probe is a thin runner around a pure reader in `hyperscout_formats`. The scheduler limits the time and
the output of each probe and isolates its failures from other probes.
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

# node: each agent observes its own node. fabric: one agent observes the whole fabric. pair: the collector
# selects two agents.
Scope = Literal["node", "fabric", "pair"]
Payload = LldpPort | InfinibandPort | Sweep | Gpu | LatencyPort | NcclRun | SwitchPort | SwitchTable


class ProbeError(Exception):
    """The probe could not observe. The message gives the cause. Earlier findings stay in the store."""


@dataclass(frozen=True, slots=True)
class Sight:
    """The sample of one subject. `reason`: why there is no data, or why the subject could not be read."""

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
    """The result of one probe run, by subject ("eth0", "mlx5_0/1"). Subjects are not empty.

    `complete`: subjects missing from `sights` no longer exist. False when the run covered only some
    subjects. `bulks`: the texts that sweeps refer to by SHA-256. `trouble`: a problem of the run as a
    whole, although it returned samples; "" when there is none.
    """

    sights: Mapping[str, Sight] = field(default_factory=dict)
    complete: bool = True
    bulks: tuple[Bulk, ...] = ()
    trouble: str = ""


class Probe(Protocol):
    """Observes subjects of one kind."""

    @property
    def name(self) -> str:
        """The probe's name in lower case, as in FindingKey.probe."""

    @property
    def scope(self) -> Scope: ...

    @property
    def interval_s(self) -> float | None:
        """Seconds between the starts of two runs. None: the probe runs only when triggered."""

    @property
    def timeout_s(self) -> float:
        """Time limit of a run in seconds. A longer run is cancelled and counts as failed."""

    @property
    def max_findings(self) -> int:
        """Maximum number of subjects. Further subjects are dropped and reported in a failed finding."""

    async def observe(self) -> Observation:
        """Run once. Raises ProbeError when it cannot observe; any other exception counts as a crash."""
