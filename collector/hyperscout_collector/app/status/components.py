"""The components of a running collector, grouped by their place in the flow of data."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hyperscout_gates.control.controller import Gates
from hyperscout_kubernetes.client import Kube
from hyperscout_placer.demands.node_masks import NodeMasks
from hyperscout_publish.mqtt.publisher import MqttPublisher
from hyperscout_publish.publisher.runner import PublisherRunner
from hyperscout_runtime.clock import Clock
from hyperscout_runtime.event_log import EventLog

from hyperscout_collector.app.inference.blueprint_file import BlueprintFile
from hyperscout_collector.app.inference.cluster import Cluster
from hyperscout_collector.app.ingest.evidence_cleanup import EvidenceCleanup
from hyperscout_collector.app.ingest.link_monitor import LinkMonitor
from hyperscout_collector.app.ingest.other_replicas import OtherReplicas
from hyperscout_collector.app.ingest.seeds import Seeds
from hyperscout_collector.app.ingest.sweeps import Sweeps
from hyperscout_collector.app.measuring.measuring import Measuring
from hyperscout_collector.app.measuring.nccl import NcclRuns
from hyperscout_collector.app.measuring.nccl_schedule import NcclSchedule
from hyperscout_collector.app.placing.placing import Placing
from hyperscout_collector.app.publication.pipeline import Pipeline
from hyperscout_collector.app.publication.saver import Saver
from hyperscout_collector.app.status.agent_table import AgentTable
from hyperscout_collector.app.status.no_hypernodes import NoHyperNodes
from hyperscout_collector.evidence.committer import Committer
from hyperscout_collector.evidence.guard import EvidenceGuard
from hyperscout_collector.evidence.state import EvidenceState
from hyperscout_collector.evidence.store import EvidenceStore
from hyperscout_collector.evidence.sweep_texts import SweepTexts
from hyperscout_collector.evidence.view import InputsView
from hyperscout_collector.history.recorder import Recorder
from hyperscout_collector.identity.access import Access
from hyperscout_collector.identity.reviews import Reviews
from hyperscout_collector.ingest.devices import Devices
from hyperscout_collector.ingest.streams import Streams
from hyperscout_collector.serve.fanout.hub import Hub
from hyperscout_collector.serve.http.counters import RestCounters
from hyperscout_collector.store.database import Damage
from hyperscout_collector.store.writer import StoreWriter

Service = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Evidence:
    store: EvidenceStore
    writer: StoreWriter
    state: EvidenceState
    guard: EvidenceGuard
    view: InputsView
    texts: SweepTexts
    committer: Committer
    cleanup: EvidenceCleanup


@dataclass(frozen=True, slots=True)
class Ingest:
    """`devices`: those that report by MQTT; None = the settings name none."""

    streams: Streams
    sweeps: Sweeps
    seeds: Seeds
    agents: AgentTable
    devices: Devices | None


@dataclass(frozen=True, slots=True)
class Inferring:
    """Inference, and what adds to its inputs. `blueprint`: None = the settings name none."""

    pipeline: Pipeline
    links: LinkMonitor
    blueprint: BlueprintFile | None
    measuring: Measuring
    nccl: NcclRuns
    nccl_schedule: NcclSchedule


@dataclass(frozen=True, slots=True)
class Publishing:
    """What receives generations. None = switched off. `services` run beside the publishers, by name."""

    cluster: Cluster
    watchers: Hub
    runner: PublisherRunner
    services: Mapping[str, Service]
    saver: Saver
    placing: Placing
    masks: NodeMasks
    gates: Gates | None
    mqtt: MqttPublisher | None
    recorder: Recorder | None


@dataclass(frozen=True, slots=True)
class Callers:
    """Authentication of callers. `reviews`: by cluster, "" = the collector's own; empty = tokens are not
    reviewed. `kubes`: the clients of the API servers, by cluster too. `rest`: None = REST is off.
    """

    access: Access
    reviews: Mapping[str, Reviews]
    rest: RestCounters | None
    kubes: Mapping[str, Kube]


@dataclass(frozen=True, slots=True)
class Components:
    """All components. Times are Unix ns. `load_problems`: errors while loading at start."""

    version: str
    started_ns: int
    stale_after_ns: int
    load_problems: Sequence[str]
    clock: Clock
    evidence: Evidence
    ingest: Ingest
    inference: Inferring
    publishing: Publishing
    others: OtherReplicas | None  # None = no other replica takes streams
    no_hypernodes: NoHyperNodes
    callers: Callers
    event_logs: Sequence[EventLog]
    damage: Damage

    @property
    def clock_ns(self) -> Callable[[], int]:
        """The process's time, Unix ns."""
        return self.clock.now_ns
