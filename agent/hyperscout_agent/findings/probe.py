"""Defines the probe interface: what a probe returns, what it gets from the agent, and how it is connected.

A probe is a thin runner around a pure reader in `hyperscout_formats`. The scheduler limits the time and
the output of each probe and isolates its failures from other probes.
"""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from google.protobuf.message import Message
from hyperscout.v1.discovery_pb2 import StreamFindingsRequest
from hyperscout.v1.finding_pb2 import Finding, Outcome

from hyperscout_agent.findings.bulk import Bulk
from hyperscout_agent.settings.settings import AgentSettings

# node: each agent observes its own node. fabric: one agent observes the whole fabric. pair: the collector
# selects two agents.
Scope = Literal["node", "fabric", "pair"]
Service = Callable[[], Awaitable[None]]

_PAYLOAD_FIELDS = {
    payload.message_type.full_name: payload.name
    for payload in Finding.DESCRIPTOR.oneofs_by_name["payload"].fields
    if payload.message_type is not None
}


class ProbeError(Exception):
    """The probe could not observe. The message gives the cause. Earlier findings stay in the store."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The sample of one subject.

    `payload`: a message of one of the types in `Finding.payload`. `reason`: why there is no data, or why the
    subject could not be read.
    """

    outcome: Outcome.ValueType
    payload: Message | None = None
    reason: str = ""


def data(payload: Message, reason: str = "") -> Sample:
    return Sample(Outcome.OUTCOME_DATA, payload, reason)


def nothing(reason: str, payload: Message | None = None) -> Sample:
    return Sample(Outcome.OUTCOME_NOTHING, payload, reason)


def failed(reason: str, payload: Message | None = None) -> Sample:
    return Sample(Outcome.OUTCOME_FAILED, payload, reason)


def payload_field(payload: Message) -> str:
    """Return the field of `Finding.payload` for a message. Raises ValueError when there is none."""
    name = payload.DESCRIPTOR.full_name
    if name not in _PAYLOAD_FIELDS:
        raise ValueError(f"Finding.payload has no field of type {name}: add one to finding.proto")
    return _PAYLOAD_FIELDS[name]


@dataclass(frozen=True, slots=True)
class Observation:
    """The result of one probe run, by subject ("eth0", "mlx5_0/1"). Subjects are not empty.

    `complete`: subjects missing from `samples` no longer exist. False when the run covered only some
    subjects. `bulks`: the texts that sweeps refer to by SHA-256. `trouble`: a problem of the run as a
    whole, although it returned samples; "" when there is none.
    """

    samples: Mapping[str, Sample] = field(default_factory=dict)
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


@dataclass(frozen=True, slots=True)
class ProbeContext:
    """What the `build` function of a probe's module gets from the agent.

    `trigger`: makes the scheduler run the probe now. `send`: sends a message to the collector; without a
    stream the message is dropped. `now_ns`: the process's time, Unix ns.
    """

    settings: AgentSettings
    trigger: Callable[[], None]
    send: Callable[[StreamFindingsRequest], None]
    sysfs: Path = Path("/sys")
    now_ns: Callable[[], int] = time.time_ns


@dataclass(frozen=True, slots=True)
class ProbeParts:
    """What the `build` function of a probe's module returns: a probe and its connections to the agent.

    `probe`: None when the probe is off and only rejects directives. `services`: coroutines that run beside
    the probe and are restarted when they end. `directives`: handlers of the collector's messages, by field
    of `StreamFindingsResponse.message`. `stream_ended`: called when a stream to a collector ends. `metrics`:
    returns the probe's own metrics in Prometheus text format. No callback may block.
    """

    probe: Probe | None
    services: Mapping[str, Service] = field(default_factory=dict)
    directives: Mapping[str, Callable[[Any], None]] = field(default_factory=dict)
    stream_ended: Callable[[], None] | None = None
    metrics: Callable[[], Iterable[str]] | None = None
