"""Lists the parts of a running collector for the modules that read all of them: status, metrics, the API."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hyperscout_gates.control.controller import Gates
from hyperscout_kubernetes.client import Kube
from hyperscout_mqtt.counters import MqttCounters
from hyperscout_publish.publisher.runner import PublisherRunner

from hyperscout_collector.app.fabric.blueprint_file import BlueprintFile
from hyperscout_collector.app.fabric.link_watch import LinkWatch
from hyperscout_collector.app.fabric.seeds import Seeds
from hyperscout_collector.app.fabric.sweeps import Sweeps
from hyperscout_collector.app.measuring.measuring import Measuring
from hyperscout_collector.app.measuring.nccl import NcclRuns
from hyperscout_collector.app.placing.placing import Placing
from hyperscout_collector.app.publication.pipeline import Pipeline
from hyperscout_collector.app.publication.saver import Saver
from hyperscout_collector.app.status.agent_table import AgentTable
from hyperscout_collector.evidence.committer import Committer
from hyperscout_collector.evidence.state import EvidenceState
from hyperscout_collector.evidence.store import Store
from hyperscout_collector.evidence.view import InputsView
from hyperscout_collector.history.recorder import Recorder
from hyperscout_collector.history.size import HistorySize
from hyperscout_collector.identity.reviews import Reviews
from hyperscout_collector.ingest.devices import Devices
from hyperscout_collector.ingest.streams import Streams
from hyperscout_collector.serve.grpc.watchers import Watchers
from hyperscout_collector.serve.http.counters import RestCounters


@dataclass(slots=True)
class Parts:
    """The parts of a running collector. Times are Unix ns. `load_problems`: errors while loading at start."""

    version: str
    started_ns: int
    stale_after_ns: int
    load_problems: Sequence[str]
    clock_ns: Callable[[], int]
    store: Store
    state: EvidenceState
    view: InputsView
    committer: Committer
    streams: Streams
    sweeps: Sweeps
    seeds: Seeds
    measuring: Measuring
    nccl: NcclRuns
    links: LinkWatch
    pipeline: Pipeline
    watchers: Watchers
    agents: AgentTable
    runner: PublisherRunner
    saver: Saver
    placing: Placing
    gates: Gates | None = None  # None: gangs do not use scheduling gates
    blueprint: BlueprintFile | None = None
    published_ns: int = 0
    generations: int = 0  # number published since the start
    reviews: Reviews | None = None  # None: no API server reviews callers
    kube: Kube | None = None  # None: no API server
    # None = switched off
    rest: RestCounters | None = None
    mqtt: MqttCounters | None = None
    devices: Devices | None = None  # devices that report by MQTT
    history: HistorySize | None = None
    recorder: Recorder | None = None

    @property
    def problems(self) -> list[str]:
        """Problems of the collector itself, as `hyperscout status` lists them."""
        found = list(self.load_problems)
        if self.committer.problem is not None:
            found.append(f"evidence is not written, and nothing is acknowledged: {self.committer.problem}")
        if self.saver.problem is not None:
            found.append(self.saver.problem)
        if self.recorder is not None and self.recorder.problem is not None:
            found.append(self.recorder.problem)
        if self.reviews is not None and self.reviews.problem is not None:
            found.append(self.reviews.problem)
        if self.blueprint is not None and self.blueprint.problem is not None:
            found.append(self.blueprint.problem)
        if self.measuring.problem is not None:
            found.append(self.measuring.problem)
        if (takeover := self.pipeline.takeover) is not None and takeover.active:
            found.append(f"took over, and infers nothing yet: waits for {takeover.waits_for()}")
        return [
            *found,
            *self.pipeline.problems,
            *self.placing.problems,
            *(self.gates.problems if self.gates is not None else ()),
            *self.runner.problems,
            *self.sweeps.problems,
        ]
