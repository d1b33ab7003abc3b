"""What all builders share: settings, clocks, and the signals by which components notify each other."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hyperscout_kubernetes.client import Fence, Kube
from hyperscout_runtime.clock import Clock
from hyperscout_runtime.event_log import EventLog
from hyperscout_runtime.signals import Signal
from hyperscout_topology.topology import Topology

from hyperscout_collector.app.build.lifecycle import Lifecycle
from hyperscout_collector.app.settings.settings import CollectorSettings
from hyperscout_collector.evidence.state import KeyChange
from hyperscout_collector.history.causes import Cause
from hyperscout_collector.ingest.streams import Connection
from hyperscout_collector.store.database import Damage


@dataclass(frozen=True, slots=True)
class Signals:
    """The builders subscribe each component to the signals that it needs.

    | signal | emitted by | subscribers |
    |---|---|---|
    | `connected`, `disconnected` | ingest: an agent's stream begins, ends | sweeps, seeds, measuring, NCCL |
    | `committed` | committer: changes of the evidence are on disk | all that follow the evidence |
    | `full_state` | committer, devices: a reporter has reported everything | pipeline, agents |
    | `inputs_changed` | links, measuring, blueprint: another input of inference changed | pipeline |
    | `cluster_changed` | Kubernetes watches: a node or a foreign HyperNode changed | pipeline, placing |
    | `published` | pipeline: a generation, with its cause | publishers, saver, placing, history |
    """

    connected: Signal[[Connection]] = field(default_factory=Signal)
    disconnected: Signal[[Connection]] = field(default_factory=Signal)
    committed: Signal[[Sequence[KeyChange]]] = field(default_factory=Signal)
    full_state: Signal[[str]] = field(default_factory=Signal)
    inputs_changed: Signal[[str]] = field(default_factory=Signal)
    cluster_changed: Signal[[]] = field(default_factory=Signal)
    published: Signal[[Topology, Cause]] = field(default_factory=Signal)


@dataclass(frozen=True, slots=True)
class Context:
    """`kube`: None = there is no API server. `clusters`: the clients of the other clusters, by name. `timer`:
    monotonic seconds. `fence`: permits writes."""

    settings: CollectorSettings
    kube: Kube | None
    clusters: Mapping[str, Kube] = field(default_factory=dict)
    clock: Clock = field(default_factory=Clock)
    timer: Callable[[], float] = time.perf_counter
    signals: Signals = field(default_factory=Signals)
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    event_logs: list[EventLog] = field(default_factory=list)
    damage: Damage = field(default_factory=Damage)
    fence: Fence = field(default_factory=Fence)

    @property
    def clock_ns(self) -> Callable[[], int]:
        """The process's time, Unix ns: for ages and deadlines."""
        return self.clock.now_ns

    def event_log(self, kind: str) -> EventLog:
        """A new log of a state machine, which `hyperscout status --event-log` writes."""
        self.event_logs.append(EventLog(kind))
        return self.event_logs[-1]
