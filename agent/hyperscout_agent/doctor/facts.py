"""What the doctor has to know: plain values, collected elsewhere, judged by `checks`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from hyperscout_formats.facts.facts import InfinibandPort

from hyperscout_agent.runtime.ports import PortState

Verdict = Literal["ok", "warning", "failed", "skipped"]
# How far it came on the way to a collector; each step needs those before it.
Stage = Literal["settings", "name", "connect", "tls", "identity", "standby", "greeted"]


@dataclass(frozen=True, slots=True)
class Check:
    """One answer. `why`: what was seen, in words; `todo`: what a person does next, "" where nothing."""

    name: str
    verdict: Verdict
    why: str
    todo: str = ""


@dataclass(frozen=True, slots=True)
class WithoutData:
    """A subject of a probe that gave nothing, or could not be seen."""

    probe: str
    subject: str
    outcome: str  # "nothing" or "failed"
    reason: str


@dataclass(frozen=True, slots=True)
class ProbeSeen:
    """A probe of the running agent. `success` of its last look; None = none has ended yet."""

    success: bool | None
    data: int = 0
    nothing: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class AgentSeen:
    """What the agent that runs here says of itself. `trouble`: why it says nothing, "" = it does."""

    address: str
    trouble: str = ""
    reporter: str = ""
    connected: bool = False
    probes: Mapping[str, ProbeSeen] = field(default_factory=dict)
    without_data: Sequence[WithoutData] = ()


@dataclass(frozen=True, slots=True)
class Program:
    """`path` "" = not found. `version`: what it says of itself, "" = nothing."""

    name: str
    path: str
    version: str = ""


@dataclass(frozen=True, slots=True)
class Device:
    """A file of /dev that a sweep opens."""

    path: str
    usable: bool


@dataclass(frozen=True, slots=True)
class HostSeen:
    """This host as this process sees it. `user`: the effective uid; `raw_socket`: may open one.

    `lldpd`: its control socket is there; `lldpctl_trouble`: why it does not answer, "" = it does or was not
    asked. `gpus`: NVIDIA's on the PCI bus, `nvml_trouble`: why NVML cannot be used. `socket_folder` is where
    the agent and its listener meet; `free_bytes` of it, None = it is not there.
    """

    user: int
    raw_socket: bool
    ports: Sequence[PortState] = ()
    infiniband: Sequence[InfinibandPort] = ()
    umad: Sequence[Device] = ()
    lldpd: bool = False
    lldpctl_trouble: str = ""
    gpus: int = 0
    nvml_trouble: str = ""
    programs: Mapping[str, Program] = field(default_factory=dict)
    socket_folder: str = ""
    socket_folder_writable: bool = True
    free_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class CollectorSeen:
    """How far it came with one collector. `detail`: what was said there; `code`: gRPC's, where it answered.

    `clock_offset_s`: this host's clock minus the collector's; None = it did not tell. `uncertain_s`: either
    way. `certificate_until_s`: Unix time until which the collector's certificate holds.
    """

    target: str
    stage: Stage
    detail: str = ""
    code: str = ""
    version: str = ""
    clock_offset_s: float | None = None
    uncertain_s: float = 0.0
    certificate_until_s: float | None = None


@dataclass(frozen=True, slots=True)
class TokenSeen:
    """The token's file. `trouble`: why it cannot be shown. `expires_s`: Unix time, None = it does not say."""

    path: str
    trouble: str = ""
    expires_s: float | None = None
