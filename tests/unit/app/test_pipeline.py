"""When inference begins, in a cluster that has little to say."""

import asyncio
import gc
import threading
from typing import Any, cast

import pytest
from hyperscout_collector.app.inference import inference as inference_module
from hyperscout_collector.app.inference.cluster import ClusterView
from hyperscout_collector.app.inference.inference import Inference, InferenceSettings, uncollected
from hyperscout_collector.app.publication.pipeline import Pipeline
from hyperscout_collector.decisions.publication.generations import Generations, GenerationSettings
from hyperscout_collector.decisions.publication.takeover import Takeover
from hyperscout_collector.evidence.snapshot import Resolved, resolve
from hyperscout_collector.evidence.state import EvidenceState
from hyperscout_collector.evidence.store import EvidenceStore
from hyperscout_collector.evidence.sweep_texts import SweepTexts
from hyperscout_collector.evidence.view import InputsView
from support.findings import T0
from support.pipeline_rig import HOSTS, Rig, running, until
from support.waiting import TIMEOUT_S


class Empty:
    """A cluster of which the first list comes in late, and is empty: no reader is told of any node."""

    is_known = False

    def view(self) -> ClusterView:
        return ClusterView({})


async def test_a_cluster_without_nodes_is_no_reason_never_to_be_ready() -> None:
    cluster = Empty()
    inferred = asyncio.Event()
    work = Pipeline(
        Inference(
            InferenceSettings(),
            SweepTexts(cast(EvidenceStore, None)),
            Generations(GenerationSettings(), None, 0),
            timer=lambda: 0.0,
        ),
        InputsView(EvidenceState(), 300.0, 0),
        cluster,
        publish=lambda topology, cause: None,
        superseded=lambda looks: None,
        inferred=lambda seconds: inferred.set(),
        clock_ns=lambda: 1,
        debounce_s=0.0,
        refresh_s=30.0,
    )
    task = asyncio.create_task(work.run())
    for _ in range(5):
        await asyncio.sleep(0)
    cluster.is_known = True
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await inferred.wait()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await work.close()


async def test_a_full_state_that_comes_during_an_inference_counts_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The evidence of a take-over's last agent is not in the snapshot that inference has begun with."""
    before = Rig()
    for host in HOSTS:
        before.report(host)
    async with running(before, monkeypatch) as task:
        await until(task, lambda: before.nodes() == set(HOSTS))
    published = before.published
    assert published is not None
    rig = Rig(published, takeover=Takeover(published, 30.0, T0, stale_after_s=3000.0))
    *early, last = HOSTS
    for host in early:
        rig.report(host)
        rig.pipeline.full_state(host)
    loop, came = asyncio.get_running_loop(), threading.Event()

    def comes() -> None:
        rig.report(last)
        rig.pipeline.full_state(last)
        came.set()

    def resolve_meanwhile(*arguments: Any) -> Resolved:
        if not came.is_set():
            loop.call_soon_threadsafe(comes)
            assert came.wait(TIMEOUT_S)
        return resolve(*arguments)

    monkeypatch.setattr(inference_module, "resolve", resolve_meanwhile)
    async with running(rig, monkeypatch) as task:
        await until(task, lambda: len(rig.tried) > 0)
        assert set(rig.tried[0].lldp) == set(HOSTS)
        rig.report("n1", "new")
        await until(task, lambda: rig.has_port("new"))
    assert not [x for topology in rig.all_published for x in topology.anomalies if x.subject.name == last]


def test_no_garbage_is_looked_for_while_inference_runs_and_it_is_afterwards() -> None:
    """Whatever becomes of it; and it stays as it was set."""

    @uncollected()
    def fails() -> None:
        assert not gc.isenabled()
        raise ValueError("as it may")

    assert gc.isenabled()
    for _ in range(2):
        with pytest.raises(ValueError, match="as it may"):
            fails()
        assert gc.isenabled()
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


async def test_a_take_over_that_waits_for_a_sweep_judges_those_that_are_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only so is another node asked to confirm the sweep that it waits for."""
    before = Rig()
    before.report("n1")
    async with running(before, monkeypatch) as task:
        await until(task, lambda: before.nodes() == {"n1"})
    published = before.published
    assert published is not None
    rig = Rig(published, takeover=Takeover(published, 30.0, T0, stale_after_s=3000.0))
    async with running(rig, monkeypatch) as task:
        await until(task, lambda: rig.judged > 0)
        assert rig.tried == [], "it infers nothing yet"
