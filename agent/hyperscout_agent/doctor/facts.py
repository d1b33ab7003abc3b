"""Defines the plain values that the doctor collects and `checks` judges."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from hyperscout_formats.facts.facts import InfinibandPort

from hyperscout_agent.runtime.ports import PortState

Verdict = Literal["ok", "warning", "failed", "skipped"]
# The last stage reached on the way to a collector. Each stage requires the earlier ones.
Stage = Literal["settings", "name", "connect", "tls", "identity", "standby", "greeted"]


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check. `why`: the observation in words. `todo`: the operator's next step, or ""."""

    name: str
    verdict: Verdict
    why: str
    todo: str = ""


@dataclass(frozen=True, slots=True)
class WithoutData:
    """A subject without data: the probe found nothing there, or could not read it."""

    probe: str
    subject: str
    outcome: str  # "nothing" or "failed"
    reason: str


@dataclass(frozen=True, slots=True)
class ProbeSeen:
    """A probe of the running agent, with the number of subjects for each outcome.

    `success`: result of the last run. None means that no run has ended yet.
    """

    success: bool | None
    data: int = 0
    nothing: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class AgentSeen:
    """The state that the agent on this host reports. `trouble`: why there is no report, or ""."""

    address: str
    trouble: str = ""
    reporter: str = ""
    connected: bool = False
    probes: Mapping[str, ProbeSeen] = field(default_factory=dict)
    without_data: Sequence[WithoutData] = ()


@dataclass(frozen=True, slots=True)
class Program:
    """An external tool. `path`: "" when not found. `version`: the version that it prints, or ""."""

    name: str
    path: str
    version: str = ""


@dataclass(frozen=True, slots=True)
class Device:
    """A device file that a sweep opens. `usable`: this process may read and write it."""

    path: str
    usable: bool


@dataclass(frozen=True, slots=True)
class HostSeen:
    """The state of this host, read with the permissions of this process.

    `user`: the effective uid. `raw_socket`: this process may open raw sockets. `listener`: an LLDP listener
    is connected to the agent's socket, None when the kernel does not tell. `lldpd`: lldpd's control socket
    exists. `lldpctl_trouble`: why lldpd does not answer, "" when it answers or was not queried.
    `gpus`: number of NVIDIA GPUs on the PCI bus. `nvml_trouble`: why NVML is unusable, or "".
    `socket_folder`: the folder of the socket between the agent and its listener. `free_bytes`: free bytes
    in that folder's file system, None when the folder does not exist.
    """

    user: int
    raw_socket: bool
    listener: bool | None = False
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
    """The last stage reached with one collector.

    `detail`: the error or status text of that stage. `code`: the name of the gRPC status code, or "".
    `clock_offset_s`: this host's clock minus the collector's clock, None when the collector reported no
    time. `uncertain_s`: uncertainty of the offset, plus or minus. `certificate_until_s`: expiry of the
    collector's certificate, in Unix time.
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
    """The token file. `trouble`: why it is unusable, or "". `expires_s`: Unix time, None when unknown."""

    path: str
    trouble: str = ""
    expires_s: float | None = None
