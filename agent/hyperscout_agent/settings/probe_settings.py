"""Settings of the probes that observe the agent's own machine."""

import shlex
from pathlib import Path
from typing import Annotated, Literal

from hyperscout_runtime.settings import Pattern
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_settings import NoDecode


def _split_commas(value: object) -> object:
    """Split "a, b" from the environment or a flag into a list."""
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


def _split_words(value: object) -> object:
    return shlex.split(value) if isinstance(value, str) else value


# A list, which may also be given as one text. Its input type is that of the chart's values.
SPLIT_COMMAS = BeforeValidator(_split_commas, json_schema_input_type=list[str] | str)
_Command = Annotated[
    tuple[str, ...], NoDecode, BeforeValidator(_split_words, json_schema_input_type=list[str] | str)
]


class Group(BaseModel):
    """Base of the settings of one probe."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class NodeGroup(Group):
    """Base of the settings of a probe that runs with role `node` only."""

    enabled: bool


class LldpSettings(Group):
    """The `lldp` probe."""

    enabled: bool = Field(default=True, description="Turn off on a node without Ethernet ports of interest.")
    source: Literal["auto", "listener", "lldpctl"] = Field(
        default="auto",
        description="auto: lldpctl if an lldpd runs when the agent starts, else the agent's own listener.",
    )
    socket: Path = Field(
        default=Path("/run/hyperscout/lldp.sock"),
        description="Socket of the listener; in a pod, on a volume that both containers share.",
    )
    spawn_listener: bool = Field(
        default=True,
        description="Start the listener as a child process if the agent has CAP_NET_RAW. Off: wait for one.",
    )
    ports: Pattern = Field(
        default=None,
        description="Regular expression for the port names, instead of all physical ports. It must match the "
        "whole name (eth[0-3]); with a leading ^ only the beginning: ^eth matches eth0 and eth10.",
    )
    interval_s: float = Field(
        default=30.0,
        ge=0.2,
        le=86_400,
        description="Seconds between reads of lldpd; carrier changes are seen at once. Lower it where a "
        "cable can be moved without a loss of carrier, as behind an optical switch.",
    )
    lldpctl_command: _Command = Field(
        default=("lldpctl",),
        min_length=1,
        description="Command before `-f json0`, for another path or socket.",
    )
    lldpcli_command: _Command = Field(
        default=(),
        description="Command before `-f json0 show interfaces`, for role switch. Empty: derived from "
        "lldpctl_command.",
    )


class InfinibandSettings(NodeGroup):
    """The `infiniband` probe."""

    enabled: bool = Field(default=True, description="The probe costs nothing on a host without RDMA devices.")
    root: Path = Field(
        default=Path("/sys/class/infiniband"),
        description="Folder of the devices, for a host's sysfs that is mounted elsewhere.",
    )


class IbnetdiscoverSettings(NodeGroup):
    """The `ibnetdiscover` probe. It runs only while the collector leases a sweep to this agent."""

    enabled: bool = Field(
        default=True, description="Turn off if the agent may not open /dev/infiniband/umad*."
    )
    command: _Command = Field(
        default=("ibnetdiscover",),
        min_length=1,
        description="Command, for another path or a wrapper; the agent adds -C and -P.",
    )
    timeout_s: float = Field(
        default=120.0,
        gt=0,
        le=3600,
        description="Maximum seconds of a sweep; raise it for a large fabric (10,000 hosts took 5 s in a "
        "simulator).",
    )


class IbqueryerrorsSettings(NodeGroup):
    """The `ibqueryerrors` probe. It runs only while the collector leases a sweep to this agent."""

    enabled: bool = Field(default=True, description="Turn off if another tool queries all ports already.")
    command: _Command = Field(
        default=("ibqueryerrors",),
        min_length=1,
        description="Command, for another path or a wrapper; the agent adds its options.",
    )
    timeout_s: float = Field(
        default=240.0, gt=0, le=3600, description="Maximum seconds of a run; raise it for a large fabric."
    )


class NvlinkSettings(NodeGroup):
    """The `nvlink` probe."""

    enabled: bool = Field(default=True, description="The probe costs nothing on a host without NVIDIA GPUs.")
    library: Path | None = Field(
        default=None,
        description="Path of the driver's libnvidia-ml.so.1, if the dynamic linker does not find it.",
    )


class XgmiSettings(NodeGroup):
    """The `xgmi` probe."""

    enabled: bool = Field(default=True, description="The probe costs nothing on a host without AMD GPUs.")
    read_errors: bool = Field(
        default=True,
        description="Read the errors of xGMI links every five minutes. Turn off if another program reads the "
        "files xgmi_error: the kernel clears an error when it is read.",
    )


class AscendSettings(NodeGroup):
    """The `ascend` probe."""

    enabled: bool = Field(default=True, description="The probe runs nothing on a host without Ascend NPUs.")
    npu_smi: _Command = Field(
        default=("npu-smi",), min_length=1, description="Command, for another path or a wrapper."
    )
    hccn_tool: _Command = Field(
        default=("/usr/local/Ascend/driver/tools/hccn_tool",),
        min_length=1,
        description="Command, for another path or a wrapper. Without it the states of network ports are "
        "unknown.",
    )


class LatencySettings(NodeGroup):
    """The `latency` probe. It sends and answers only in tasks of the collector."""

    enabled: bool = Field(default=True, description="Turn off if this node must not be measured.")
    interfaces: Pattern = Field(
        default=None,
        description="Regular expression for interface names. Default: IPoIB, else the fastest ports.",
    )
    port: int = Field(
        default=0,
        ge=0,
        le=65_535,
        description="UDP port that answers, for a firewall rule; 0 takes a free port.",
    )
    max_kbps: float = Field(
        default=200.0,
        ge=50,
        le=1_000_000,
        description="Limit in kbit/s for all measuring traffic that this node sends; lower it if measuring "
        "must not disturb a slow network.",
    )
    ib_send_lat: _Command = Field(
        default=("ib_send_lat",), min_length=1, description="perftest's latency test, for RDMA ports."
    )
    ib_send_bw: _Command = Field(
        default=("ib_send_bw",),
        description="perftest's bandwidth test. Empty: bandwidth is not measured.",
    )


class NcclSettings(NodeGroup):
    """The `nccl` probe. It runs only at the collector's request, on idle GPUs."""

    enabled: bool = Field(default=False, description="Turn on if the GPUs may be measured on request.")
    all_reduce: _Command = Field(
        default=("all_reduce_perf",), min_length=1, description="Program of nccl-tests; the agent adds flags."
    )
    sendrecv: _Command = Field(
        default=("sendrecv_perf",), min_length=1, description="Program of nccl-tests; the agent adds flags."
    )
    library: str = Field(
        default="libnccl.so.2",
        min_length=1,
        description="Name or path of NCCL, for runs between two nodes; set it if the dynamic linker does not "
        "find NCCL.",
    )
    cuda_library: str = Field(
        default="libcudart.so",
        min_length=1,
        description="Name or path of the CUDA runtime; set it if the dynamic linker does not find this name, "
        "as without the development package (libcudart.so.12).",
    )
    timeout_s: float = Field(
        default=120.0,
        gt=0,
        le=3600,
        description="Maximum seconds of a run on this node; raise it for slow links or large messages.",
    )


class PodResourcesSettings(NodeGroup):
    """The `pod_resources` probe."""

    enabled: bool = Field(
        default=False,
        description="Turn on to know the NUMA zones of devices; the agent needs access to the kubelet's "
        "socket.",
    )
    socket: Path = Field(
        default=Path("/var/lib/kubelet/pod-resources/kubelet.sock"),
        description="Socket of the kubelet's PodResources API, for another root folder of the kubelet.",
    )


class MetricsSettings(Group):
    """`/metrics` and `/healthz`, over plain HTTP."""

    host: str = Field(
        default="127.0.0.1", description="Listening address; the pages name ports and neighbours."
    )
    port: int = Field(default=50053, ge=0, le=65_535, description="TCP port; 0 takes a free port.")
