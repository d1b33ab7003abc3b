"""The agent's settings: from a YAML file, the environment (HYPERSCOUT_AGENT_...) and flags, flags first.

A nested one is, in the environment, HYPERSCOUT_AGENT_LLDP__SOURCE. An unknown key is an error that names it:
a misspelt setting must not be a silent default.
"""

import os
import re
import shlex
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from hyperscout_formats.text.reporters import fabric_reporter, switch_reporter
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from pydantic_settings import SettingsError as PydanticSettingsError

from hyperscout_agent.runtime.credentials import Credentials
from hyperscout_agent.runtime.lldpd_tools import lldpcli_of
from hyperscout_agent.settings.fabric_settings import FabricGroup, SnmpSettings
from hyperscout_agent.settings.manager_settings import NetqSettings, NmxSettings, UfmSettings
from hyperscout_agent.settings.setting_texts import split_commas

_PREFIX = "HYPERSCOUT_AGENT_"
_MAX_FILE_BYTES = 1024 * 1024
_MAX_NAME_CHARS = 253  # of who reports (RFC 1123)


class SettingsError(ValueError):
    """The settings cannot be used; each line names a key and says what is wrong with it."""


def _split_words(value: object) -> object:
    return shlex.split(value) if isinstance(value, str) else value


def _checked_pattern(value: str | None) -> str | None:
    try:
        re.compile(value or "")
    except re.error as error:
        raise ValueError(f"no regular expression: {error}") from error
    return value


# In the environment and in flags these are plain text.
_Addresses = Annotated[tuple[str, ...], NoDecode, BeforeValidator(split_commas)]
_Command = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split_words)]


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LldpSettings(_Group):
    """The `lldp` probe."""

    enabled: bool = Field(default=True, description="Off where no Ethernet port is of interest.")
    source: Literal["auto", "listener", "lldpctl"] = Field(
        default="auto",
        description="auto: lldpctl where an lldpd runs when the agent starts, else our own listener.",
    )
    socket: Path = Field(
        default=Path("/run/hyperscout/lldp.sock"),
        description="Where the listener connects; in a pod, a volume that both containers share.",
    )
    spawn_listener: bool = Field(
        default=True,
        description="Start the listener as a child where the agent has CAP_NET_RAW; else wait for one.",
    )
    ports: str | None = Field(
        default=None,
        description="In place of the physical ports: a regular expression that the whole name matches "
        "(eth[0-3]). With a ^ before it the beginning of the name is enough: ^eth takes eth0 and eth10.",
    )
    interval_s: float = Field(
        default=30.0,
        ge=0.2,
        le=86_400,
        description="Seconds between looks; changes are looked at when they happen.",
    )
    lldpctl_command: _Command = Field(
        default=("lldpctl",),
        min_length=1,
        description="What comes before `-f json0`, for another path or socket.",
    )
    lldpcli_command: _Command = Field(
        default=(),
        description="Role switch: what comes before `-f json0 show interfaces`; empty: the former, by name.",
    )

    @field_validator("ports")
    @classmethod
    def _is_pattern(cls, value: str | None) -> str | None:
        return _checked_pattern(value)


class InfinibandSettings(_Group):
    """The `infiniband` probe."""

    enabled: bool = Field(default=True, description="Costs nothing on a host without RDMA devices.")
    root: Path = Field(
        default=Path("/sys/class/infiniband"),
        description="Another tree of files, for tests or a host's sysfs under /host.",
    )
    interval_s: float = Field(
        default=1.0,
        ge=0.2,
        le=86_400,
        description="Seconds between looks: how late a dead port is seen at worst.",
    )


class IbnetdiscoverSettings(_Group):
    """The `ibnetdiscover` probe; it runs only while the collector leases a sweep to this agent."""

    enabled: bool = Field(default=True, description="Off where the agent may not open /dev/infiniband/umad*.")
    command: _Command = Field(
        default=("ibnetdiscover",),
        min_length=1,
        description="The tool, for another path or a wrapper; -C and -P are added.",
    )
    timeout_s: float = Field(
        default=120.0,
        gt=0,
        le=3600,
        description="Seconds one sweep may take; 10,000 hosts took 5 s in a simulator.",
    )
    max_output_bytes: int = Field(
        default=256 * 1024 * 1024,
        ge=1024,
        description="Bytes of output; 65,536 hosts in three tiers are 44 MB.",
    )


class IbqueryerrorsSettings(_Group):
    """The `ibqueryerrors` probe; it too runs only while the collector leases a sweep to this agent."""

    enabled: bool = Field(default=True, description="Off where another tool asks all ports already.")
    command: _Command = Field(
        default=("ibqueryerrors",),
        min_length=1,
        description="The tool, for another path or a wrapper; what it is asked is added.",
    )
    interval_s: float = Field(
        default=300.0,
        ge=30,
        le=1800,
        description="Seconds between looks; each port of the fabric answers once.",
    )
    timeout_s: float = Field(default=240.0, gt=0, le=3600, description="Seconds one look may take.")
    max_output_bytes: int = Field(
        default=64 * 1024 * 1024,
        ge=1024,
        description="Bytes of output; a line for each port that ever counted an error.",
    )


class NcclSettings(_Group):
    """The `nccl` probe; it runs only when the collector says so, on GPUs that are idle."""

    enabled: bool = Field(default=False, description="On where GPUs may be measured when a person says so.")
    all_reduce: _Command = Field(
        default=("all_reduce_perf",), min_length=1, description="The program of nccl-tests; flags are added."
    )
    sendrecv: _Command = Field(
        default=("sendrecv_perf",), min_length=1, description="The program of nccl-tests; flags are added."
    )
    library: str = Field(
        default="libnccl.so.2",
        min_length=1,
        description="NCCL, for runs between two nodes: a name or a path.",
    )
    cuda_library: str = Field(
        default="libcudart.so", min_length=1, description="The CUDA runtime: a name or a path."
    )
    timeout_s: float = Field(
        default=120.0, gt=0, le=3600, description="Seconds a run may take, whatever the collector says."
    )
    lock: str = Field(
        default="hyperscout-nccl",
        min_length=1,
        max_length=100,
        description="Name of the lock that all agents of a host share; another one only in tests.",
    )


class LatencySettings(_Group):
    """The `latency` probe; it sends and answers only what the collector asks for."""

    enabled: bool = Field(default=True, description="Off where nobody may measure this node.")
    interfaces: str | None = Field(
        default=None,
        description="Regular expression on interface names, in place of IPoIB, else the fastest ports.",
    )
    port: int = Field(
        default=0, ge=0, le=65_535, description="UDP port that answers, for a firewall; 0 takes any free one."
    )
    max_kbps: float = Field(
        default=200.0,
        ge=50,
        le=1_000_000,
        description="Thousands of bits a second of all that is sent to measure, whatever the collector asks.",
    )
    publish_interval_s: float = Field(
        default=10.0,
        ge=0.2,
        le=3600,
        description="Seconds between two findings; results in between wait, and come together.",
    )
    ib_send_lat: _Command = Field(
        default=("ib_send_lat",), min_length=1, description="perftest's latency test, for RDMA ports."
    )
    ib_send_bw: _Command = Field(
        default=("ib_send_bw",), description="perftest's bandwidth test; empty: bandwidth is not measured."
    )

    @field_validator("interfaces")
    @classmethod
    def _is_pattern(cls, value: str | None) -> str | None:
        return _checked_pattern(value)


class NvlinkSettings(_Group):
    """The `nvlink` probe."""

    enabled: bool = Field(default=True, description="Costs nothing on a host without NVIDIA GPUs.")
    interval_s: float = Field(
        default=30.0,
        ge=0.2,
        le=86_400,
        description="Seconds between looks: how late a dead NVLink is seen at worst.",
    )
    library: Path | None = Field(
        default=None,
        description="Another library in place of the driver's libnvidia-ml.so.1 (tests).",
    )


class MetricsSettings(_Group):
    """`/metrics` and `/healthz`, in plain HTTP."""

    host: str = Field(
        default="127.0.0.1", description="Address to listen on; metrics name ports and neighbours' probes."
    )
    port: int = Field(default=50053, ge=0, le=65_535, description="TCP port; 0 takes any free one.")


class AgentSettings(BaseSettings):
    """Everything that can be set."""

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX,
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        nested_model_default_partial_update=True,
    )

    node: str = Field(
        default_factory=socket.gethostname,
        min_length=1,
        max_length=_MAX_NAME_CHARS,
        description="Name under which this node reports: in Kubernetes the node's name, else the host name.",
    )
    role: Literal["node", "switch", "fabric"] = Field(
        default="node",
        description="switch: this is a switch that runs lldpd; it reports its own ports, as switch/NAME. "
        "fabric: it asks switches, or who manages them, about all of their ports, as fabric/NAME.",
    )
    collectors: _Addresses = Field(
        default=("127.0.0.1:50051",),
        min_length=1,
        max_length=16,
        description="host:port of each collector, tried in turn.",
    )
    insecure: bool = Field(
        default=False,
        description="Allow plaintext to a collector on another machine: only on a network that is trusted.",
    )
    tls_ca: Path | None = Field(
        default=None,
        description="CA certificates (PEM) that sign the collector's; with it, TLS. Read at each connect.",
    )
    tls_server_name: str = Field(
        default="",
        max_length=253,
        description="Name to look for in the collector's certificate, in place of the address.",
    )
    tls_cert: Path | None = Field(
        default=None,
        description="Client certificate (PEM, URI hyperscout://node/NAME), for the port that demands one.",
    )
    tls_key: Path | None = Field(default=None, description="Its private key (PEM).")
    token_file: Path | None = Field(
        default=None,
        description="Projected service-account token to show to the collector; read at each stream.",
    )
    refresh_interval_s: float = Field(
        default=60.0,
        ge=1,
        le=3600,
        description="Seconds after which an unchanged finding is sent again, so that it stays fresh.",
    )
    lldp: LldpSettings = Field(default_factory=LldpSettings)
    infiniband: InfinibandSettings = Field(default_factory=InfinibandSettings)
    ibnetdiscover: IbnetdiscoverSettings = Field(default_factory=IbnetdiscoverSettings)
    ibqueryerrors: IbqueryerrorsSettings = Field(default_factory=IbqueryerrorsSettings)
    nvlink: NvlinkSettings = Field(default_factory=NvlinkSettings)
    latency: LatencySettings = Field(default_factory=LatencySettings)
    nccl: NcclSettings = Field(default_factory=NcclSettings)
    metrics: MetricsSettings = Field(default_factory=MetricsSettings)
    snmp: SnmpSettings = Field(default_factory=SnmpSettings)
    ufm: UfmSettings = Field(default_factory=UfmSettings)
    netq: NetqSettings = Field(default_factory=NetqSettings)
    nmx: NmxSettings = Field(default_factory=NmxSettings)

    @model_validator(mode="after")
    def _may_be_reached(self) -> "AgentSettings":
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key: give both or neither")
        if self.tls_ca is None and (self.tls_cert is not None or self.tls_server_name):
            raise ValueError("tls_cert and tls_server_name mean TLS: give tls_ca too")
        for target in self.collectors:
            self.credentials.check(target)
        return self

    @field_validator("node")
    @classmethod
    def _is_name(cls, value: str) -> str:
        if "/" in value:
            raise ValueError(f"{value!r} has a slash in it: nobody who reports is called so")
        return value

    @model_validator(mode="after")
    def _fits_its_role(self) -> "AgentSettings":
        troubles = {"switch": _troubles_of_a_switch, "fabric": _troubles_of_a_fabric}.get(self.role)
        for trouble in troubles(self) if troubles else ():
            raise ValueError(trouble)
        for name, group in self.fabric_groups.items():
            if group.on and self.role != "fabric":
                raise ValueError(
                    f"{name}: runs with role fabric alone, so that its credentials are in one place"
                )
        return self

    @property
    def reporter(self) -> str:
        """The name that findings go out under. Names of nodes have no slash."""
        return _REPORTERS[self.role](self.node)

    @property
    def fabric_groups(self) -> dict[str, FabricGroup]:
        """Settings of the probes that run with role fabric, by name."""
        return {
            name: group for name, _ in _fields(self) if isinstance(group := getattr(self, name), FabricGroup)
        }

    @property
    def lldpcli(self) -> tuple[str, ...]:
        """The command that asks lldpd what this machine announces."""
        return self.lldp.lldpcli_command or lldpcli_of(self.lldp.lldpctl_command) or ()

    @property
    def credentials(self) -> Credentials:
        """What is shown to a collector, and believed of it."""
        return Credentials(
            self.tls_ca, self.tls_cert, self.tls_key, self.tls_server_name, self.token_file, self.insecure
        )


_REPORTERS: Mapping[str, Callable[[str], str]] = {
    "node": str,
    "switch": switch_reporter,
    "fabric": fabric_reporter,
}


def _troubles_of_a_switch(settings: AgentSettings) -> Iterator[str]:
    """What somebody set that does nothing, or is not to be had, on a switch."""
    yield from _name_too_long(settings)
    for name in _set_in_vain(settings, ("infiniband", "ibnetdiscover", "nvlink", "latency", "nccl")):
        yield f"{name}: is of no use with role switch, where only the probe `switch` runs"
    if not settings.lldp.enabled:
        yield "lldp.enabled: with role switch there is nothing else to report"
    if settings.lldp.source == "listener":
        yield "lldp.source: with role switch lldpd is asked (auto or lldpctl), not our own listener"
    if not settings.lldpcli:
        yield "lldp.lldpctl_command: no `lldpctl` in it to take `lldpcli` from: set lldp.lldpcli_command too"
    if settings.token_file is not None:
        yield "token_file: a token is a node's; a switch shows a certificate (tls_cert, tls_key)"


def _troubles_of_a_fabric(settings: AgentSettings) -> Iterator[str]:
    """The same where whole fabrics are looked at from outside."""
    yield from _name_too_long(settings)
    for name in _set_in_vain(settings, ("lldp", "infiniband", "ibnetdiscover", "nvlink", "latency", "nccl")):
        yield f"{name}: is of no use with role fabric, where nothing of this machine is looked at"
    if not any(group.on for group in settings.fabric_groups.values()):
        yield f"role: fabric has nothing to do: set one of {', '.join(settings.fabric_groups)}"


def _name_too_long(settings: AgentSettings) -> Iterator[str]:
    room = _MAX_NAME_CHARS - (len(settings.reporter) - len(settings.node))
    if len(settings.node) > room:
        yield f"node: the name has at most {room} characters with role {settings.role}"


def _set_in_vain(settings: AgentSettings, groups: Iterable[str]) -> Iterator[str]:
    """Which of these have a setting that is not the default."""
    for name in groups:
        group = getattr(settings, name)
        if group.enabled and any(getattr(group, key) != field.get_default() for key, field in _fields(group)):
            yield name


def _fields(group: BaseModel) -> Iterable[tuple[str, FieldInfo]]:
    return type(group).model_fields.items()


def load_settings(
    file: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> AgentSettings:
    """Read file and environment; flags (nested like the file) go before both. Raises SettingsError."""
    from_file = _read_file(file) if file is not None else {}
    _check_names(os.environ if environment is None else environment)

    class Loaded(AgentSettings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return init_settings, env_settings, InitSettingsSource(settings_cls, init_kwargs=from_file)

    try:
        return Loaded(**(flags or {}))
    except ValidationError as error:
        raise SettingsError("\n".join(_sentence(one, file) for one in error.errors())) from error
    except PydanticSettingsError as error:
        raise SettingsError(str(error)) from error


def _read_file(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as stream:
            text = stream.read(_MAX_FILE_BYTES + 1)
        if len(text) > _MAX_FILE_BYTES:
            raise SettingsError(f"{file}: larger than {_MAX_FILE_BYTES} bytes")
        content = yaml.safe_load(text)
    except OSError as error:
        raise SettingsError(f"{file}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: not YAML: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise SettingsError(f"{file}: expected `key: value` lines")
    return {str(key): value for key, value in content.items()}


def _check_names(environment: Mapping[str, str]) -> None:
    """Variables that look like ours and name no setting."""
    for name in environment:
        if not name.startswith(_PREFIX):
            continue
        key = name.removeprefix(_PREFIX).split("__")[0].lower()
        if key not in AgentSettings.model_fields:
            raise SettingsError(f"{name}: no such setting: {key}")


def _sentence(error: ErrorDetails, file: Path | None) -> str:
    """One line for one error: the key as it is written in the file, and what is wrong with it."""
    key = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return f"{key}: no such setting" + (f" (in {file}, the environment or a flag)" if file else "")
    message = error["msg"].removeprefix("Value error, ")
    return f"{key}: {message}" if key else message
