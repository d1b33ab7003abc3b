"""A pipeline on evidence in memory, whose inference can be made to raise."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

import pytest
from hyperscout.v1.finding_pb2 import Finding
from hyperscout_collector.app.inference import inference as inference_module
from hyperscout_collector.app.inference.cluster import NoCluster
from hyperscout_collector.app.inference.inference import Inference, InferenceSettings
from hyperscout_collector.app.publication.pipeline import Pipeline
from hyperscout_collector.decisions.publication.damping import DampingSettings
from hyperscout_collector.decisions.publication.generations import Generations, GenerationSettings
from hyperscout_collector.decisions.publication.takeover import Takeover
from hyperscout_collector.evidence.rows import row_of
from hyperscout_collector.evidence.state import EvidencePlan, EvidenceState
from hyperscout_collector.evidence.store import EvidenceStore
from hyperscout_collector.evidence.sweep_texts import SweepTexts
from hyperscout_collector.evidence.view import InputsView
from hyperscout_collector.history.causes import Cause
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions
from hyperscout_inference.hierarchy import infer_without_conditions
from hyperscout_topology.topology import Topology

from support.findings import T0, S, lldp
from support.waiting import TIMEOUT_S

POISON = "poison"  # the name of a port; inference raises where it is
HOSTS = [f"n{i}" for i in range(1, 9)]


def where(host: str) -> str:
    """The leaf of a host."""
    return f"leaf-{1 + (int(host[1:]) - 1) // 4}"


class Rig:
    """A pipeline on evidence in memory. `raises` decides from the inputs whether inference raises.

    `inference_s`: how long each inference seems to take.
    """

    def __init__(
        self,
        published: Topology | None = None,
        state: EvidenceState | None = None,
        takeover: Takeover | None = None,
        *,
        debounce_s: float = 0.0,
        inference_s: float = 0.0,
    ) -> None:
        self.now_ns = T0
        seconds = itertools.count(step=inference_s)
        self.state = state or EvidenceState()
        self.published = published
        self.raises: Callable[[FabricInputs], bool] = poisoned
        self.tried: list[FabricInputs] = []
        self.all_published: list[Topology] = []
        self.judged = 0  # how often the sweeps that are held were judged
        settings = GenerationSettings(DampingSettings(0.0, 0.0, 0.0), 0.0, 0.0, details_s=0.0)
        view = InputsView(self.state, 3000.0, T0)
        view.touch(self.state.nodes)
        self.pipeline = Pipeline(
            Inference(
                InferenceSettings(),
                SweepTexts(cast(EvidenceStore, None)),
                Generations(settings, published, T0),
                timer=lambda: next(seconds),
                takeover=takeover,
            ),
            view,
            NoCluster(),
            publish=self._publish,
            superseded=lambda looks: None,
            held=self._judge,
            inferred=lambda seconds: None,
            clock_ns=lambda: self.now_ns,
            debounce_s=debounce_s,
            refresh_s=30.0,
        )

    def _publish(self, topology: Topology, _cause: Cause) -> None:
        self.published = topology
        self.all_published.append(topology)

    def _judge(self, _sweeps: object) -> None:
        self.judged += 1

    def infer(
        self, inputs: FabricInputs, options: InferOptions, previous: Topology | None = None
    ) -> Topology:
        self.tried.append(inputs)
        if self.raises(inputs):
            raise ValueError("planted")
        return infer_without_conditions(inputs, options, previous)

    def put(self, *findings: Finding) -> None:
        plan = EvidencePlan(self.state, self.now_ns)
        for finding in findings:
            plan.upsert(row_of(finding, sent_ns=self.now_ns, received_ns=self.now_ns), b"")
        self.pipeline.follow(self.state.commit(plan))

    def report(self, host: str, port: str = "") -> None:
        found = lldp(host, "eth0", self.now_ns, neighbour=where(host), port=port or f"swp{host[1:]}")
        self.put(found)

    def pass_s(self, seconds: float) -> None:
        self.now_ns += int(seconds * S)
        self.pipeline.infer_again()

    def stale(self) -> set[str]:
        assert self.published is not None
        return {c.reason for h in self.published.hypernodes for c in h.conditions if c.type == "Stale"}

    def anomalies(self) -> list[str]:
        assert self.published is not None
        return [x.subject.name for x in self.published.anomalies if x.kind == "EvidenceSetAside"]

    def nodes(self) -> set[str]:
        found = self.published.hypernodes if self.published is not None else ()
        return {node for h in found for node in h.nodes}

    @property
    def set_aside(self) -> set[str]:
        return set(self.pipeline.failures.quarantine.errors)

    def has_port(self, port: str) -> bool:
        found = self.published.links if self.published is not None else ()
        return any(port in (x.a_port, x.b_port) for x in found)


def poisoned(inputs: FabricInputs) -> bool:
    heard = (n for ports in inputs.lldp.values() for port in ports for n in port.neighbours)
    return any(neighbour.port_id.startswith(POISON) for neighbour in heard)


@asynccontextmanager
async def running(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator["asyncio.Task[None]"]:
    """Runs the pipeline, which must not end by itself."""
    monkeypatch.setattr(inference_module, "infer_without_conditions", rig.infer)
    task = asyncio.create_task(rig.pipeline.run())
    try:
        yield task
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await rig.pipeline.close()


async def until(task: "asyncio.Task[None]", happens: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not happens():
            if task.done():
                task.result()
            await asyncio.sleep(0)
