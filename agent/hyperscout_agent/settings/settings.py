"""The agent's settings: from a YAML file, the environment (HYPERSCOUT_AGENT_...) and flags.

The setting `source` in the group `lldp` is HYPERSCOUT_AGENT_LLDP__SOURCE in the environment.
"""

import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path, PurePath
from typing import Annotated, Any, Final, Literal, TypeVar

from hyperscout_formats.text.reporters import (
    CLUSTER_FORM,
    CLUSTER_PATTERN,
    fabric_reporter,
    is_cluster,
    node_in,
    switch_reporter,
)
from hyperscout_runtime.connections import GRPC_PORT
from hyperscout_runtime.credentials import Credentials
from hyperscout_runtime.settings import ProcessSettings, load
from pydantic import BaseModel, Field, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import NoDecode, SettingsConfigDict

from hyperscout_agent.settings.fabric_settings import FabricGroup, SnmpSettings
from hyperscout_agent.settings.manager_settings import NetqSettings, NmxSettings, UfmSettings
from hyperscout_agent.settings.probe_settings import (
    SPLIT_COMMAS,
    AscendSettings,
    IbnetdiscoverSettings,
    IbqueryerrorsSettings,
    InfinibandSettings,
    LatencySettings,
    LldpSettings,
    MetricsSettings,
    NcclSettings,
    NodeGroup,
    NvlinkSettings,
    PodResourcesSettings,
    XgmiSettings,
)

_MAX_NAME_CHARS = 253  # of a reporter (RFC 1123)

_Group = TypeVar("_Group", bound=BaseModel)

# Former settings, which are accepted and ignored for one release.
RETIRED: Final[Mapping[str, str]] = {
    "infiniband.interval_s": "is a constant now (1 s)",
    "ibnetdiscover.max_output_bytes": "is a constant now (256 MiB)",
    "ibqueryerrors.interval_s": "is a constant now (300 s)",
    "ibqueryerrors.max_output_bytes": "is a constant now (64 MiB)",
    "nvlink.interval_s": "is a constant now (30 s)",
    "latency.publish_interval_s": "is a constant now (10 s)",
    "nccl.lock": "is a constant now (hyperscout-nccl)",
    "snmp.interval_s": "is a constant now (30 s; see snmp.max_interval_s)",
    "snmp.retries": "is a constant now (2)",
    "snmp.crawl_timeout_s": "is a constant now (900 s)",
    "ufm.interval_s": "is a constant now (60 s)",
    "ufm.max_answer_bytes": "is a constant now (1 GiB)",
    "netq.interval_s": "is a constant now (60 s)",
    "netq.max_answer_bytes": "is a constant now (64 MiB)",
    "nmx.interval_s": "is a constant now (60 s)",
    "nmx.max_answer_bytes": "is a constant now (256 MiB)",
}


class AgentSettings(ProcessSettings):
    """All settings of the agent."""

    model_config = SettingsConfigDict(
        env_prefix="HYPERSCOUT_AGENT_",
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
    )

    node: str = Field(
        default_factory=socket.gethostname,
        min_length=1,
        max_length=_MAX_NAME_CHARS,
        description="Name under which this node reports; in Kubernetes the name of the Node.",
    )
    cluster: str = Field(
        default="",
        json_schema_extra={"pattern": f"^({CLUSTER_PATTERN})?$"},
        description='Cluster of this node, as the collector\'s setting `clusters` names it; "" = the '
        "collector's own cluster.",
    )
    role: Literal["node", "switch", "fabric"] = Field(
        default="node",
        description="switch: a switch that runs lldpd reports its own ports, as switch/NAME. fabric: the "
        "agent queries switches or their managers about all of their ports, as fabric/NAME.",
    )
    collectors: Annotated[tuple[str, ...], NoDecode, SPLIT_COMMAS] = Field(
        default=(f"127.0.0.1:{GRPC_PORT}",),
        min_length=1,
        max_length=16,
        description="host:port of each collector; the agent tries them in turn.",
    )
    insecure: bool = Field(
        default=False,
        description="Allow plaintext to a collector on another machine. Use it only on a trusted network.",
    )
    tls_ca: Path | None = Field(
        default=None,
        description="CA certificates (PEM) for the collector; turns TLS on. Read at each connection.",
    )
    tls_server_name: str = Field(
        default="",
        max_length=253,
        description="Name to expect in the collector's certificate, instead of the address.",
    )
    tls_cert: Path | None = Field(
        default=None,
        description="Client certificate (PEM, URI hyperscout://node/NAME), for the port that requires one.",
    )
    tls_key: Path | None = Field(default=None, description="Private key (PEM) of tls_cert.")
    token_file: Path | None = Field(
        default=None,
        description="File of the projected service-account token for the collector. Read at each stream.",
    )
    refresh_interval_s: float = Field(
        default=60.0,
        ge=1,
        le=3600,
        description="Seconds until an unchanged finding is reported again, by its name and time; below the "
        "collector's stale_after_s; raise it to send less.",
    )
    lldp: LldpSettings = Field(default_factory=LldpSettings)
    infiniband: InfinibandSettings = Field(default_factory=InfinibandSettings)
    ibnetdiscover: IbnetdiscoverSettings = Field(default_factory=IbnetdiscoverSettings)
    ibqueryerrors: IbqueryerrorsSettings = Field(default_factory=IbqueryerrorsSettings)
    nvlink: NvlinkSettings = Field(default_factory=NvlinkSettings)
    xgmi: XgmiSettings = Field(default_factory=XgmiSettings)
    ascend: AscendSettings = Field(default_factory=AscendSettings)
    latency: LatencySettings = Field(default_factory=LatencySettings)
    nccl: NcclSettings = Field(default_factory=NcclSettings)
    pod_resources: PodResourcesSettings = Field(default_factory=PodResourcesSettings)
    metrics: MetricsSettings = Field(default_factory=MetricsSettings)
    snmp: SnmpSettings = Field(default_factory=SnmpSettings)
    ufm: UfmSettings = Field(default_factory=UfmSettings)
    netq: NetqSettings = Field(default_factory=NetqSettings)
    nmx: NmxSettings = Field(default_factory=NmxSettings)

    @model_validator(mode="after")
    def _check_transport(self) -> "AgentSettings":
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key: give both or neither")
        if self.tls_ca is None and (self.tls_cert is not None or self.tls_server_name):
            raise ValueError("tls_cert and tls_server_name are for TLS: give tls_ca too")
        for target in self.collectors:
            self.credentials.check(target)
        return self

    @field_validator("node")
    @classmethod
    def _check_name(cls, value: str) -> str:
        if "/" in value:
            raise ValueError(f"{value!r} has a slash: expected a name without one")
        return value

    @field_validator("cluster")
    @classmethod
    def _check_cluster(cls, value: str) -> str:
        if value and not is_cluster(value):
            raise ValueError(f"{value!r}: expected {CLUSTER_FORM}")
        return value

    @model_validator(mode="after")
    def _check_role(self) -> "AgentSettings":
        problems = {"switch": _switch_problems, "fabric": _fabric_problems}.get(self.role)
        for problem in chain(_name_too_long(self), problems(self) if problems else ()):
            raise ValueError(problem)
        if self.cluster and self.role != "node":
            raise ValueError(
                f"cluster: has no effect with role {self.role}: a fabric may serve many clusters"
            )
        for name, group in self.fabric_groups.items():
            if group.on and self.role != "fabric":
                raise ValueError(f"{name}: needs role: fabric, so that its credentials are in one place")
        return self

    @property
    def reporter(self) -> str:
        """The reporter's name in findings: NODE, CLUSTER/NODE, switch/NAME or fabric/NAME."""
        return _REPORTERS[self.role](self.cluster, self.node)

    @property
    def fabric_groups(self) -> dict[str, FabricGroup]:
        """The settings of the probes of role fabric, by name."""
        return _groups(self, FabricGroup)

    @property
    def node_groups(self) -> dict[str, NodeGroup]:
        """The settings of the probes that run with role node only, by name."""
        return _groups(self, NodeGroup)

    @property
    def lldpcli(self) -> tuple[str, ...]:
        """The command that reads what this machine's lldpd announces."""
        return self.lldp.lldpcli_command or lldpcli_of(self.lldp.lldpctl_command) or ()

    @property
    def credentials(self) -> Credentials:
        """The credentials for connections to a collector."""
        return Credentials(
            self.tls_ca, self.tls_cert, self.tls_key, self.tls_server_name, self.token_file, self.insecure
        )


_REPORTERS: Mapping[str, Callable[[str, str], str]] = {
    "node": node_in,
    "switch": lambda _, name: switch_reporter(name),
    "fabric": lambda _, name: fabric_reporter(name),
}


def _switch_problems(settings: AgentSettings) -> Iterator[str]:
    """Yield the problems of settings that have no effect, or cannot be met, on a switch."""
    for name in _unused(settings.node_groups):
        yield f"{name}: has no effect with role switch, where only the probe `switch` runs"
    if not settings.lldp.enabled:
        yield "lldp.enabled: expected true with role switch, which reports nothing else"
    if settings.lldp.source == "listener":
        yield "lldp.source: expected auto or lldpctl with role switch, which reads lldpd"
    if not settings.lldpcli:
        yield "lldp.lldpctl_command: does not name `lldpctl`: set lldp.lldpcli_command too"
    if settings.token_file is not None:
        yield "token_file: a switch has no token; give it a certificate (tls_cert, tls_key)"


def _fabric_problems(settings: AgentSettings) -> Iterator[str]:
    """Yield the problems of settings that have no effect with role fabric."""
    for name in _unused({"lldp": settings.lldp, **settings.node_groups}):
        yield f"{name}: has no effect with role fabric, which does not observe this machine"
    if not any(group.on for group in settings.fabric_groups.values()):
        yield f"role: fabric has no probe: set one of {', '.join(settings.fabric_groups)}"


def _name_too_long(settings: AgentSettings) -> Iterator[str]:
    most = _MAX_NAME_CHARS - (len(settings.reporter) - len(settings.node))
    if len(settings.node) > most:
        beside = f"cluster {settings.cluster}" if settings.cluster else f"role {settings.role}"
        yield f"node: expected at most {most} characters with {beside}"


def _unused(groups: Mapping[str, LldpSettings | NodeGroup]) -> Iterator[str]:
    """Yield the enabled groups with a setting that is not the default."""
    for name, group in groups.items():
        if group.enabled and any(getattr(group, key) != field.get_default() for key, field in _fields(group)):
            yield name


def _groups(settings: AgentSettings, kind: type[_Group]) -> dict[str, _Group]:
    return {
        name: group for name, _ in _fields(settings) if isinstance(group := getattr(settings, name), kind)
    }


def _fields(group: BaseModel) -> Iterable[tuple[str, FieldInfo]]:
    return type(group).model_fields.items()


def load_settings(file: Path | None = None, flags: Mapping[str, Any] | None = None) -> AgentSettings:
    """Read file and environment; flags (nested like the file) take precedence. Raises SettingsError."""
    return load(AgentSettings, file, flags, RETIRED)


def lldpcli_of(lldpctl: Sequence[str]) -> tuple[str, ...] | None:
    """Return the command with `lldpcli` in place of `lldpctl`, None when it contains no `lldpctl`.

    The two are one program of lldpd with two names.
    """
    words = [
        str(PurePath(word).with_name("lldpcli")) if PurePath(word).name == "lldpctl" else word
        for word in lldpctl
    ]
    return tuple(words) if words != list(lldpctl) else None
