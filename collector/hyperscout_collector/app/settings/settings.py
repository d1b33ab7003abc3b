"""Settings of the collector: from a YAML file, the environment and flags, the later over the earlier.

Every setting says its unit and why one would change it. What is not a setting is an error, with its name.
"""

import os
import re
import shlex
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from hyperscout_inference.labels.cloud_labels import Keys, lists_of
from hyperscout_mqtt.settings import MqttSettings, about_mqtt
from hyperscout_mqtt.topics import Broker
from hyperscout_runtime.addresses import host_port, is_loopback
from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from hyperscout_collector.decisions.measuring.nccl_window import parse_windows
from hyperscout_collector.history.settings import HistorySettings
from hyperscout_collector.serve.http.settings import RestSettings

PREFIX = "HYPERSCOUT_COLLECTOR_"
_MAX_FILE_BYTES = 1024 * 1024


class SettingsError(ValueError):
    """Settings that cannot be used: where each came from, and what is wrong with it."""


class CollectorSettings(RestSettings, HistorySettings, MqttSettings, BaseSettings):
    """Times in seconds unless the name says otherwise."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="forbid", frozen=True, hide_input_in_errors=False
    )

    listen: str = Field(
        "127.0.0.1:50051",
        description='host:port of gRPC, for agents and readers; port 0 = any; "" = only `mtls_listen`',
    )
    insecure: bool = Field(
        False,
        description="allow gRPC beyond this machine in plaintext or without asking who calls: "
        "anyone who reaches the port can report",
    )
    tls_cert: Path | None = Field(
        None, description="certificate (chain, PEM) of this collector; looked at again when it is renewed"
    )
    tls_key: Path | None = Field(None, description="its private key (PEM)")
    mtls_listen: str = Field(
        "", description='host:port of a second gRPC port that demands client certificates; "" = none'
    )
    tls_client_ca: Path | None = Field(
        None, description="CA certificates (PEM) that sign the certificates which clients show there"
    )
    authenticate: Literal["none", "kubernetes"] = Field(
        "none", description="kubernetes: callers at `listen` show tokens, which the API server is asked about"
    )
    token_audience: str = Field(
        "hyperscout", min_length=1, max_length=253, description="audience that tokens must be for"
    )
    agent_service_account: str = Field(
        "", description='"namespace:name": with tokens of this service account agents report; "" = with none'
    )
    fabric_service_account: str = Field(
        "",
        description="the same for the one agent of role fabric, which reports under the account's name",
    )
    http_listen: str = Field(
        "127.0.0.1:50052",
        description='host:port of /healthz, /readyz and /metrics (plaintext, reads only); "" = none',
    )
    reflection: bool = Field(False, description="serve gRPC reflection, for grpcurl and the like")

    data_dir: Path = Field(
        Path("/var/lib/hyperscout"), description="folder of the evidence; on a disk that outlives the process"
    )
    evidence_max_mib: int = Field(
        4096, ge=1, description="MiB that the evidence may take: some 1 KiB a finding, and the sweeps' texts"
    )
    publish_file: str | None = Field(
        None, description='write HyperNodes as YAML to this file at each generation; "-" = standard output'
    )

    kubernetes: Literal["off", "dry-run", "publish"] = Field(
        "off", description="HyperNodes in a Kubernetes cluster; dry-run prints what would change"
    )
    kubeconfig: Path | None = Field(
        None, description="file that says which cluster, and as whom (default: that of the pod it runs in)"
    )
    node_selector: str = Field(
        "!node-role.kubernetes.io/control-plane",
        description='label selector of the cluster\'s nodes that belong into the hierarchy; "" = all',
    )
    node_labels: Literal["off", "dry-run", "on"] = Field(
        "off", description="label each node with its HyperNode of every tier; dry-run prints the changes"
    )
    kueue_topology: str = Field(
        "", description='name of a Kueue Topology to keep, with the tiers\' labels as its levels; "" = none'
    )
    taints: Literal["off", "dry-run", "on"] = Field(
        "off", description="taint nodes whose own links are degraded, so that gangs go elsewhere"
    )
    taint_share: float = Field(
        0.1, ge=0, le=1, description="share of the nodes that may be tainted at once; one node always may"
    )
    taint_after_s: float = Field(30.0, ge=0, description="a node is tainted when its trouble lasts this long")
    taint_clear_after_s: float = Field(
        300.0, ge=0, description="and cleared when it has been well for this long: a flapping link is not"
    )
    taint_uplink_share: float = Field(
        0.0,
        ge=0,
        le=1,
        description="share of a tier-1 domain's uplinks or switches that taints all its nodes when "
        "it is degraded; 0 = never",
    )
    gates: Literal["off", "dry-run", "on"] = Field(
        "off",
        description="place gangs whose pods wait behind the scheduling gate hyperscout.io/topology; dry-run "
        "prints where they would go",
    )
    gates_replace_after_s: float = Field(
        60.0, gt=0, description="pods that the scheduler cannot bind where they were placed are placed anew"
    )
    gates_hot_swap: bool = Field(
        True, description="pods of a failed node go next to their gang; off = they wait for their node"
    )
    slurm_tree_file: Path | None = Field(
        None, description="keep Slurm's topology.conf for topology/tree in this file"
    )
    slurm_block_file: Path | None = Field(None, description="the same for topology/block")
    slurm_yaml_file: Path | None = Field(None, description="the same as topology.yaml, tree and blocks")
    slurm_hook: str = Field(
        "", description="command to run after one of them has changed (no shell), as in scontrol reconfigure"
    )

    leader_election: bool = Field(
        False, description="several replicas: a Lease of the Kubernetes API elects the one that leads"
    )
    lease_namespace: str = Field("", description='namespace of the Lease; "" = that of the pod it runs in')
    lease_name: str = Field("hyperscout-collector", description="name of the Lease, the same for all of them")
    lease_duration_s: int = Field(
        8, ge=1, le=120, description="a leader that is not heard of for this long is followed by another"
    )
    lease_renew_deadline_s: float = Field(
        5.0, gt=0, description="a leader that could not renew for this long writes nothing to the cluster"
    )
    lease_retry_s: float = Field(1.0, gt=0, description="how often the Lease is looked at, or renewed")
    identity: str = Field(
        default_factory=socket.gethostname, description="name of this replica in the Lease, for people"
    )
    advertise: str = Field(
        "", description='host:port at which agents and replicas reach this one; "" = where it listens'
    )
    takeover_limit_s: float = Field(
        30.0, ge=0, description="a new leader waits this long at most for all agents before it infers anew"
    )
    peer_tls_ca: Path | None = Field(
        None, description="CA of the other replicas' certificates: with it a standby follows the leader"
    )
    peer_tls_server_name: str = Field(
        "", description='name in the other replicas\' certificates; "" = that of their address'
    )
    peer_token_file: Path | None = Field(
        None, description="token that a standby shows to the leader (of a reader: may get hypernodes)"
    )

    expected_nodes: tuple[str, ...] | None = Field(
        None, description="the cluster's nodes (default: every host found); those without evidence are listed"
    )
    expected_nodes_file: Path | None = Field(None, description="the same from a file, one a line")
    node_map: Path | None = Field(
        None, description="lines `[H-]<guid> <host>`: hosts of adapters that no agent reports"
    )
    cloud_labels: Annotated[tuple[Keys, ...], BeforeValidator(lists_of)] = Field(
        (),
        description="where hosts are that no wire shows: clouds (aws, gcp, oci, coreweave, kubernetes), "
        "or lists of keys of node labels, the farthest domain first",
    )
    compute_ports: str | None = Field(
        None, description="regular expression of the interfaces that shape the hierarchy (default: by kind)"
    )

    blueprint: Path | None = Field(
        None, description="file that says how it should be wired; looked at again when it is changed"
    )

    max_streams: int = Field(20_000, ge=1, description="agents at once; 42 KiB of memory each")
    heartbeat_interval_s: float = Field(10.0, gt=0, description="an agent with no news speaks this often")
    heartbeat_timeout_s: float = Field(35.0, gt=0, description="an agent that is silent this long is gone")
    stale_after_s: float = Field(
        300.0, gt=0, description="evidence older than this is marked stale; agents repeat theirs each minute"
    )
    restart_grace_s: float = Field(
        120.0, ge=0, description="an agent that has just started may take this long to see again what it saw"
    )
    debounce_s: float = Field(
        0.05, ge=0, description="changes that come within this are inferred together; adds to the latency"
    )
    refresh_s: float = Field(
        30.0, gt=0, description="evidence that only grew newer (ages) is inferred again this often at most"
    )

    settle_s: float = Field(
        10.0,
        ge=0,
        description="membership must stand still this long: re-parenting moves jobs, a link does not",
    )
    first_settle_s: float = Field(2.0, ge=0, description="the same while nothing is published yet")
    quiet_s: float = Field(
        60.0, ge=0, description="the first change of a link after this long goes out at once"
    )
    hold_down_s: float = Field(
        10.0, ge=0, description="further changes of it wait this long, longer each time"
    )
    removal_share: float = Field(
        0.2, gt=0, le=1, description="share of HyperNodes or nodes whose removal at once is held back"
    )
    hold_s: float = Field(
        600.0,
        ge=0,
        description="a held removal is applied when it lasts this long, or on `hyperscout approve`",
    )
    sweep_interval_s: float = Field(
        60.0,
        gt=0,
        description="how often each fabric is swept; a sweep of 10,000 hosts takes 5 s of one core",
    )

    link_errors_per_s: float = Field(
        0.1, ge=0, description="a link whose port counts more errors is named as erroring; 0 = never"
    )
    link_discards_per_s: float = Field(
        100.0, ge=0, description="the same of packets that a port drops; where none may be lost, set it low"
    )
    link_flaps_per_hour: float = Field(
        5.0, ge=0, description="a link that goes down this often in an hour is named as erroring; 0 = never"
    )
    link_window_s: float = Field(
        300.0,
        ge=60,
        le=86_400,
        description="errors and drops are counted over this time; agents tell each minute",
    )

    measure: bool = Field(
        True, description="have agents measure the latency between them; off = nobody sends or answers a ping"
    )
    measure_probes_per_s: float = Field(
        100.0, gt=0, le=100_000, description="bursts to one peer, in the whole cluster; each pair takes two"
    )
    measure_node_kbps: float = Field(
        200.0, gt=0, description="kbit/s of measuring that a node may see, out and in together"
    )
    measure_pings: int = Field(16, ge=4, le=256, description="pings of a burst")
    measure_reverify_s: float = Field(
        21_600.0, ge=60, description="a pair that was measured is measured again after this long"
    )

    nccl_window: str = Field(
        "",
        description='hours (UTC) in which NCCL runs on reserved or cordoned nodes, "Sun 02:00-04:00" or '
        '"daily 02:00-03:00", several with commas; "" = only on request',
    )

    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @field_validator("listen", "http_listen", "mtls_listen", "rest_listen")
    @classmethod
    def _address(cls, value: str) -> str:
        if value:
            host_port(value)
        return value

    @field_validator("advertise")
    @classmethod
    def _advertised(cls, value: str) -> str:
        host, _, port = value.rpartition(":")
        if ":" in host and not host.startswith("["):
            value = f"[{host}]:{port}"  # a pod's IPv6 address, put before ":port" by a manifest
        if value:
            host_port(value)
        return value

    @field_validator("agent_service_account", "fabric_service_account")
    @classmethod
    def _service_account(cls, value: str) -> str:
        if value and re.fullmatch(r"[a-z0-9-]{1,63}:[a-z0-9.-]{1,253}", value) is None:
            raise ValueError(f"{value!r} is not of the form namespace:name")
        return value

    @field_validator("nccl_window")
    @classmethod
    def _window(cls, value: str) -> str:
        parse_windows(value)
        return value

    @field_validator("compute_ports")
    @classmethod
    def _pattern(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                re.compile(value)
            except re.error as error:
                raise ValueError(f"not a regular expression: {error}") from error
        return value

    @model_validator(mode="after")
    def _together(self) -> "CollectorSettings":
        if self.heartbeat_timeout_s <= self.heartbeat_interval_s:
            raise ValueError("heartbeat_timeout_s must be more than heartbeat_interval_s")
        if not self.lease_retry_s < self.lease_renew_deadline_s < self.lease_duration_s:
            raise ValueError(
                "lease_retry_s, lease_renew_deadline_s and lease_duration_s: each must be more than the last"
            )
        if self.fabric_service_account and self.fabric_service_account == self.agent_service_account:
            raise ValueError("fabric_service_account: nodes' agents must have another account")
        if self.expected_nodes is not None and self.expected_nodes_file is not None:
            raise ValueError("expected_nodes and expected_nodes_file: give one of them")
        if problem := (
            _about_tls(self) or _about_callers(self) or _about_outputs(self) or self._about_mqtt()
        ):
            raise ValueError(problem)
        return self

    def _about_mqtt(self) -> str | None:
        def trusted(broker: Broker) -> bool:
            return self.insecure or is_loopback(broker.host)

        return about_mqtt(self, trusted=trusted)


def load_settings(file: Path | None = None, flags: Mapping[str, Any] | None = None) -> CollectorSettings:
    """Read the settings. A flag that is None was not given. Raises SettingsError."""
    known = CollectorSettings.model_fields
    unknown = sorted(
        name
        for name in os.environ
        if name.startswith(PREFIX) and name.removeprefix(PREFIX).lower() not in known
    )
    if unknown:
        raise SettingsError(f"environment: no such setting: {', '.join(unknown)}")
    from_file = _read(file) if file is not None else {}
    given = {name: value for name, value in (flags or {}).items() if value is not None}

    class Layered(CollectorSettings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return init_settings, env_settings, InitSettingsSource(settings_cls, from_file)

    try:
        found = Layered(**given)
    except ValidationError as error:
        lines = []
        for problem in error.errors():
            name = ".".join(map(str, problem["loc"])) or "settings"
            what = "no such setting" if problem["type"] == "extra_forbidden" else problem["msg"]
            lines.append(f"{_origin(name, given, file, from_file)}{name}: {what}")
        raise SettingsError("; ".join(lines)) from error
    except ValueError as error:  # pydantic-settings' own: an environment variable that is no JSON
        raise SettingsError(f"environment: {error}") from error
    return CollectorSettings.model_construct(**{name: getattr(found, name) for name in known})


def _origin(
    name: str,
    given: Mapping[str, Any],
    file: Path | None,
    read: Mapping[str, Any],
) -> str:
    top = name.split(".", maxsplit=1)[0]
    if top in given:
        return "flag "
    if PREFIX + top.upper() in os.environ:
        return "environment: "
    return f"{file}: " if top in read else ""


def _read(file: Path) -> dict[str, Any]:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise SettingsError(f"{file}: {error.strerror}") from error
    if len(data) > _MAX_FILE_BYTES:
        raise SettingsError(f"{file}: {len(data)} bytes are too many for settings")
    try:
        found = yaml.safe_load(data)
    except yaml.YAMLError as error:
        raise SettingsError(f"{file}: {error}") from error
    if found is None:
        return {}
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise SettingsError(f"{file}: expected `name: value` lines")
    return found


def _about_outputs(settings: CollectorSettings) -> str | None:
    """What is wrong with the settings of publishers, if anything."""
    asked = {
        "node_labels": settings.node_labels != "off",
        "taints": settings.taints != "off",
        "kueue_topology": bool(settings.kueue_topology),
        "gates": settings.gates != "off",
    }
    if settings.kubernetes == "off" and any(asked.values()):
        names = ", ".join(name for name, is_on in asked.items() if is_on)
        return f"{names}: nothing is written into a cluster while kubernetes is off"
    if settings.kubernetes == "off" and settings.cloud_labels:
        return "cloud_labels: labels of nodes are told by kubernetes, which is off"
    if settings.kubernetes == "off" and settings.nccl_window:
        return "nccl_window: which nodes are reserved or cordoned is told by kubernetes, which is off"
    name = settings.kueue_topology
    if name and re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", name) is None:
        return f"kueue_topology: {name!r} is no name for an object"
    try:
        hook = shlex.split(settings.slurm_hook)
    except ValueError as error:
        return f"slurm_hook: {error}"
    if hook and not (settings.slurm_tree_file or settings.slurm_block_file or settings.slurm_yaml_file):
        return "slurm_hook runs after a file has changed: set slurm_tree_file, _block_file or _yaml_file"
    return None


def _about_tls(settings: CollectorSettings) -> str | None:
    """What is wrong with the certificates and the ports that are set."""
    if (settings.tls_cert is None) != (settings.tls_key is None):
        return "tls_cert and tls_key: give both or neither"
    if settings.mtls_listen and (settings.tls_cert is None or settings.tls_client_ca is None):
        return "mtls_listen needs tls_cert, tls_key and tls_client_ca"
    if settings.tls_client_ca is not None and not (settings.mtls_listen or settings.rest_listen):
        return "tls_client_ca: client certificates are asked for at mtls_listen and rest_listen; set one"
    if settings.tls_client_ca is not None and settings.tls_cert is None:
        return "tls_client_ca needs tls_cert and tls_key: who shows a certificate is shown one"
    if not settings.listen and not settings.mtls_listen:
        return "listen: a collector must listen somewhere, at listen or at mtls_listen"
    return None


def _about_callers(settings: CollectorSettings) -> str | None:
    """What is wrong with who may reach the ports: beyond this machine nobody is unknown or unprotected."""
    return _about_port(settings, "listen", "gRPC") or _about_port(settings, "rest_listen", "HTTP")


def _about_port(settings: CollectorSettings, name: str, protocol: str) -> str | None:
    address = getattr(settings, name)
    if not address or is_loopback(host_port(address)[0]):
        return None
    plaintext = settings.tls_cert is None
    if plaintext and settings.authenticate != "none":
        return f"{name} {address}: tokens are never sent in the clear; give tls_cert and tls_key"
    if settings.authenticate != "none" or settings.insecure:
        return None
    if plaintext:
        return (
            f"{name} {address}: plaintext {protocol} is for this machine only (127.0.0.1, ::1); "
            "give tls_cert, tls_key and authenticate, or set insecure: true if the network is trusted"
        )
    if name == "rest_listen":
        if settings.tls_client_ca is not None:
            return None  # nobody comes in without a certificate then
        return (
            f"{name} {address}: anyone who reaches it could change things; set authenticate: kubernetes or "
            "tls_client_ca, or insecure: true if the network is trusted"
        )
    return (
        f"{name} {address}: anyone who reaches it could report; set authenticate: kubernetes, "
        'or listen: "" and mtls_listen, or insecure: true if the network is trusted'
    )
