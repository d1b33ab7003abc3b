"""The collector's settings: from a YAML file, the environment (HYPERSCOUT_COLLECTOR_...) and flags.

A time is in seconds if its name does not say otherwise. The description of each number gives a reason to
raise or to lower it.
"""

import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from hyperscout_mqtt.settings import MqttSettings, mqtt_problem
from hyperscout_runtime.connections import GRPC_PORT, HEALTH_PORT, REST_PORT, host_port, is_loopback
from hyperscout_runtime.settings import Pattern, ProcessSettings, load
from pydantic import AfterValidator, Field, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from hyperscout_collector.app.settings.estimator_settings import EstimatorSettings, estimator_problem
from hyperscout_collector.app.settings.label_settings import LabelSettings, label_problem
from hyperscout_collector.app.settings.publisher_settings import ObjectName, PublisherSettings
from hyperscout_collector.decisions.measuring.nccl_windows import parse_windows
from hyperscout_collector.history.settings import HistorySettings
from hyperscout_collector.store.settings import StoreSettings, store_problem

PREFIX = "HYPERSCOUT_COLLECTOR_"

# Former settings, which are accepted and ignored for one release.
RETIRED: Final[Mapping[str, str]] = {
    "lease_renew_deadline_s": "is a constant now (5/8 of lease_duration_s)",
    "lease_retry_s": "is a constant now (1/8 of lease_duration_s, at most 1 s)",
    "heartbeat_interval_s": "is a constant now (10 s)",
    "heartbeat_timeout_s": "is a constant now (35 s)",
    "first_settle_s": "is a constant now (settle_s, at most 2 s)",
    "quiet_s": "is a constant now (6 times hold_down_s)",
    "debounce_s": "is a constant now (0.05 s)",
    "link_window_s": "is a constant now (300 s)",
    "measure_pings": "is a constant now (16)",
    "rest_max_streams": "is a constant now (1000)",
}


def _certificate_name(text: str) -> str:
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError(f"{text!r}: expected a DNS name or an IP address, in ASCII")
    return text


CertificateName = Annotated[str, AfterValidator(_certificate_name)]


class CollectorSettings(
    PublisherSettings,
    LabelSettings,
    StoreSettings,
    HistorySettings,
    MqttSettings,
    EstimatorSettings,
    ProcessSettings,
):
    """All settings of the collector. Times are in seconds if the name does not say otherwise."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True, allow_inf_nan=False)

    listen: str = Field(
        f"127.0.0.1:{GRPC_PORT}",
        description='host:port of gRPC for agents and readers; port 0 = any free port; "" = only mtls_listen',
    )
    insecure: bool = Field(
        False,
        description="allow gRPC and HTTP beyond this machine in plaintext or without authentication; every "
        "client that reaches the port can then report findings",
    )
    tls_cert: Path | None = Field(
        None, description="certificate chain (PEM) of this collector; read again after a renewal"
    )
    tls_key: Path | None = Field(None, description="private key (PEM) of tls_cert")
    tls_issuer_cert: Path | None = Field(
        None,
        description="CA certificate (PEM) from which the collector issues tls_cert itself, and renews it",
    )
    tls_issuer_key: Path | None = Field(None, description="private key (PEM) of tls_issuer_cert")
    tls_names: tuple[CertificateName, ...] = Field(
        (), description="DNS names and IP addresses in the certificate that the collector issues"
    )
    mtls_listen: str = Field(
        "", description='host:port of a second gRPC port that requires client certificates; "" = none'
    )
    tls_client_ca: Path | None = Field(
        None, description="CA certificates (PEM) that sign the client certificates"
    )
    authenticate: Literal["none", "kubernetes"] = Field(
        "none", description="kubernetes: callers at listen send tokens, which the API server reviews"
    )
    token_audience: str = Field(
        "hyperscout", min_length=1, max_length=253, description="audience that tokens must be issued for"
    )
    agent_service_account: str = Field(
        "", description='"namespace:name" of the service account whose tokens may report; "" = none'
    )
    fabric_service_account: str = Field(
        "",
        description='"namespace:name" of the service account of the agent with role fabric, which reports '
        'under the name of the account; "" = none',
    )
    http_listen: str = Field(
        f"127.0.0.1:{HEALTH_PORT}",
        description='host:port of /healthz, /readyz and /metrics (plaintext, read-only); "" = none',
    )
    rest_listen: str = Field(
        f"127.0.0.1:{REST_PORT}",
        description='host:port of REST and the map, with the TLS and authentication of listen; "" = none',
    )
    rest_hosts: tuple[str, ...] = Field(
        (),
        description="host names that browsers may use without authentication (default: those of this "
        "machine); other names are refused, so that a page of another site cannot read",
    )
    reflection: bool = Field(False, description="serve gRPC reflection, for tools such as grpcurl")

    data_dir: Path = Field(
        Path("/var/lib/hyperscout"), description="folder of the evidence; on a disk that outlives the process"
    )
    evidence_max_mib: int = Field(
        4096,
        ge=1,
        description="maximum MiB of the evidence; a finding takes about 1 KiB, plus the sweeps. Raise it if "
        "the status says that it is full",
    )

    leader_election: bool = Field(
        False,
        description="run several replicas; a Lease of the Kubernetes API elects the leader (or a lock in "
        "`store` if neither `kubernetes` nor `authenticate` needs the API), and the others serve reads of "
        "its topology",
    )
    lease_namespace: ObjectName = Field(
        "", description='namespace of the Lease; "" = the namespace of the pod'
    )
    lease_name: ObjectName = Field(
        "hyperscout-collector", min_length=1, description="name of the Lease, the same in all replicas"
    )
    lease_duration_s: int = Field(
        8,
        ge=1,
        le=120,
        description="a replica takes over if the leader does not renew for this long; raise it for a slow "
        "API server or store. The leader stops writing if it cannot renew for 5/8 of it",
    )
    identity: str = Field(default_factory=socket.gethostname, description="name of this replica in the Lease")
    advertise: str = Field(
        "", description='host:port at which agents and replicas reach this replica; "" = that of listen'
    )
    takeover_limit_s: float = Field(
        30.0,
        ge=0,
        description="maximum wait of a new leader for complete evidence, a third of it for one missing "
        "agent; raise it if agents need longer to reconnect",
    )
    peer_tls_ca: Path | None = Field(
        None, description="CA of the other replicas' certificates; a standby needs it to follow the leader"
    )
    peer_tls_server_name: str = Field(
        "", description='name in the other replicas\' certificates; "" = the name in their address'
    )
    peer_token_file: Path | None = Field(
        None, description="token of a standby at the leader; its account needs the right to get hypernodes"
    )

    expected_nodes: tuple[str, ...] | None = Field(
        None,
        description="nodes of the cluster (default: every host found); those without evidence are reported",
    )
    expected_nodes_file: Path | None = Field(
        None, description="file of the expected_nodes, one a line; the collector reads it only at its start"
    )
    node_map: Path | None = Field(
        None,
        description="file with lines `[H-]<guid> <host>`: hosts of adapters that no agent reports; "
        "`[S-]<guid> <name>` names a switch",
    )
    compute_ports: Pattern = Field(
        None,
        description="regular expression of the interfaces that shape the hierarchy (default: by their kind)",
    )
    blueprint: Path | None = Field(None, description="file of the expected wiring; read again after a change")

    max_streams: int = Field(
        20_000,
        ge=1,
        description="maximum number of connected agents; each takes 42 KiB of memory. Raise it for a larger "
        "cluster",
    )
    stale_after_s: float = Field(
        300.0,
        gt=0,
        description="age at which evidence is marked as stale. Lower it to learn earlier of silent agents, "
        "but not below twice the agents' refresh_interval_s and snmp.max_interval_s",
    )
    restart_grace_s: float = Field(
        120.0,
        ge=0,
        description="time for a restarted agent to see again what it saw before; raise it if switches send "
        "LLDP less often than once a minute",
    )
    refresh_s: float = Field(
        30.0,
        gt=0,
        description="minimum interval between inferences when only timestamps changed; raise it to save CPU",
    )

    settle_s: float = Field(
        10.0,
        ge=0,
        description="membership must be unchanged for this long before it is published (for the first "
        "generation 2 s are enough); raise it if nodes of a rack start at different times",
    )
    hold_down_s: float = Field(
        10.0,
        ge=0,
        description="delay of further changes of a flapping link; it doubles whenever the link goes or comes "
        "back. A change of a link that was unchanged for 6 times this long is published at once. Lower it to "
        "publish changes sooner",
    )
    removal_share: float = Field(
        0.2,
        gt=0,
        le=1,
        description="share of HyperNodes or nodes above which a removal is held; raise it for a small "
        "cluster, where one rack is a large share",
    )
    hold_s: float = Field(
        600.0,
        ge=0,
        description="a held removal is applied after this long, or on `hyperscout approve`; raise it above "
        "the time that your switches and fabric managers take to reboot",
    )
    sweep_interval_s: float = Field(
        60.0,
        gt=0,
        description="interval between sweeps of a fabric; raise it to save CPU: a sweep of 10,000 hosts "
        "takes 5 s of one core",
    )

    link_errors_per_s: float = Field(
        0.1,
        ge=0,
        description="errors per second from which a port's link is reported; 0 = never. Raise it if healthy "
        "links of the fabric exceed it",
    )
    link_discards_per_s: float = Field(
        100.0,
        ge=0,
        description="dropped packets per second from which a port's link is reported; 0 = never. Lower it "
        "for a lossless network",
    )
    link_flaps_per_hour: float = Field(
        5.0,
        ge=0,
        description="flaps per hour from which a link is reported; 0 = never. Raise it if hosts of the "
        "cluster reboot often",
    )

    measure: bool = Field(True, description="let agents measure the latency between them")
    measure_probes_per_s: float = Field(
        100.0,
        gt=0,
        le=100_000,
        description="bursts per second in the cluster; a pair takes two bursts. Raise it to measure a large "
        "cluster sooner",
    )
    measure_node_kbps: float = Field(
        200.0,
        gt=0,
        description="limit in kbit/s for the measuring traffic of a node, both directions together; lower it "
        "if measuring must not disturb a slow network",
    )
    measure_reverify_s: float = Field(
        21_600.0,
        ge=60,
        description="time until a measured pair is measured again; lower it to find links that become slow "
        "sooner, at the cost of more traffic",
    )
    nccl_window: str = Field(
        "",
        description='hours (UTC) in which NCCL runs on reserved or cordoned nodes, "Sun 02:00-04:00" or '
        '"daily 02:00-03:00", several with commas; "" = only on request',
    )

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="lowest level of log lines"
    )

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
            raise ValueError(f"{value!r}: expected namespace:name")
        return value

    @field_validator("nccl_window")
    @classmethod
    def _window(cls, value: str) -> str:
        parse_windows(value)
        return value

    @model_validator(mode="after")
    def _check_together(self) -> "CollectorSettings":
        if self.fabric_service_account and self.fabric_service_account == self.agent_service_account:
            raise ValueError("fabric_service_account: expected another account than agent_service_account")
        if self.kubernetes == "off" and not self.clusters and self.nccl_window:
            raise ValueError(
                "nccl_window: set kubernetes too, which reads which nodes are reserved or cordoned"
            )
        if self.expected_nodes is not None and self.expected_nodes_file is not None:
            raise ValueError("expected_nodes and expected_nodes_file: give one of them")
        problem = (
            _tls_problem(self)
            or _port_problem(self, "listen", "gRPC")
            or _port_problem(self, "rest_listen", "HTTP")
            or label_problem(
                self, self.node_label_keys, reads_nodes=self.kubernetes != "off" or bool(self.clusters)
            )
            or estimator_problem(self, self.clusters, trusted=self.insecure or self.tls_client_ca is not None)
            or store_problem(self, insecure=self.insecure)
            or mqtt_problem(self, trusted=lambda broker: self.insecure or is_loopback(broker.host))
        )
        if problem:
            raise ValueError(problem)
        return self


def load_settings(file: Path | None = None, flags: Mapping[str, Any] | None = None) -> CollectorSettings:
    """Read file and environment; flags take precedence, and None is no flag. Raises SettingsError."""
    return load(CollectorSettings, file, flags, RETIRED)


def _tls_problem(settings: CollectorSettings) -> str | None:
    """Return the first problem of certificates and ports."""
    if (settings.tls_cert is None) != (settings.tls_key is None):
        return "tls_cert and tls_key: give both or neither"
    if (settings.tls_issuer_cert is None) != (settings.tls_issuer_key is None):
        return "tls_issuer_cert and tls_issuer_key: give both or neither"
    if settings.tls_issuer_cert is not None and (settings.tls_cert is None or not settings.tls_names):
        return "tls_issuer_cert needs tls_cert and tls_key, the files to write, and tls_names"
    if settings.mtls_listen and (settings.tls_cert is None or settings.tls_client_ca is None):
        return "mtls_listen needs tls_cert, tls_key and tls_client_ca"
    ports = settings.mtls_listen, settings.rest_listen, settings.estimator_listen
    if settings.tls_client_ca is not None and not any(ports):
        return "tls_client_ca: applies to mtls_listen, rest_listen and estimator_listen; set one of them"
    if settings.tls_client_ca is not None and settings.tls_cert is None:
        return "tls_client_ca needs tls_cert and tls_key"
    if not settings.listen and not settings.mtls_listen:
        return "listen: expected an address in listen or mtls_listen"
    return None


def _port_problem(settings: CollectorSettings, name: str, protocol: str) -> str | None:
    """Return the first problem of a port beyond this machine, which needs encryption and authentication."""
    address = getattr(settings, name)
    if not address or is_loopback(host_port(address)[0]):
        return None
    plaintext = settings.tls_cert is None
    if plaintext and settings.authenticate != "none":
        return f"{name} {address}: tokens need an encrypted connection; give tls_cert and tls_key"
    if settings.authenticate != "none" or settings.insecure:
        return None
    if plaintext:
        return (
            f"{name} {address}: plaintext {protocol} is allowed on this machine only (127.0.0.1, ::1); "
            "give tls_cert, tls_key and authenticate, or set insecure: true on a trusted network"
        )
    if name == "rest_listen":
        if settings.tls_client_ca is not None:
            return None  # the server then requires a client certificate
        return (
            f"{name} {address}: every client could change things; set authenticate: kubernetes or "
            "tls_client_ca, or insecure: true on a trusted network"
        )
    return (
        f"{name} {address}: every client could report; set authenticate: kubernetes, "
        'or listen: "" and mtls_listen, or insecure: true on a trusted network'
    )
