"""When inference begins, in a cluster that has little to say."""

import asyncio
import gc
from typing import cast

import pytest
from hyperscout_collector.app.inference.cluster import ClusterView
from hyperscout_collector.app.inference.inference import Inference, InferenceSettings, uncollected
from hyperscout_collector.app.publication.pipeline import Pipeline
from hyperscout_collector.decisions.publication.generations import Generations, GenerationSettings
from hyperscout_collector.evidence.state import EvidenceState
from hyperscout_collector.evidence.sweep_texts import SweepTexts
from hyperscout_collector.evidence.view import InputsView
from support.waiting import TIMEOUT_S


class Empty:
    """A cluster of which the first list comes in late, and is empty: nobody is told of any node."""

    is_known = False

    def view(self) -> ClusterView:
        return ClusterView({})


async def test_a_cluster_without_nodes_is_no_reason_never_to_be_ready() -> None:
    cluster = Empty()
    inferred = asyncio.Event()
    work = Pipeline(
        Inference(
            InferenceSettings(),
            cast(SweepTexts, None),
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
