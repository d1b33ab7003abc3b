"""What the pipeline does when inference raises. The exceptions are planted: `infer` is wrapped."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hyperscout_collector.app.inference import inference as inference_module
from hyperscout_inference.fabric.inputs import FabricInputs
from support.findings import S
from support.pipeline_rig import HOSTS, POISON, Rig, poisoned, running, until


@asynccontextmanager
async def inferring(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Rig, "asyncio.Task[None]"]]:
    """A rig whose evidence of all hosts is inferred."""
    rig = Rig()
    for host in HOSTS:
        rig.report(host)
    async with running(rig, monkeypatch) as task:
        await until(task, lambda: rig.nodes() == set(HOSTS))
        yield rig, task


@pytest.mark.parametrize("culprits", [("n3",), ("n3", "n8")])
async def test_the_evidence_of_culprits_is_set_aside_and_the_rest_goes_on(
    culprits: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with inferring(monkeypatch) as (rig, task):
        for host in HOSTS:
            rig.report(host, f"{POISON}{host}" if host in culprits else f"new{host}")
        await until(task, lambda: rig.has_port("newn1"))
        assert rig.set_aside == set(culprits)
        assert sorted(rig.anomalies()) == list(culprits)
        assert rig.nodes() == set(HOSTS), "their earlier evidence is used"
        assert rig.has_port("swp3")
        assert rig.pipeline.failures.present is None
        assert [culprit for culprit in culprits if culprit in str(rig.pipeline.problems)] == list(culprits)
        assert rig.published is not None
        (kind,) = {
            c.reason
            for h in rig.published.hypernodes
            for c in h.conditions
            if c.type == "Consistent" and c.status == "False"
        }
        assert kind == "EvidenceSetAside"
        rig.report("n1", "again")
        await until(task, lambda: rig.has_port("again"))
        assert rig.pipeline.failures.exceptions == 1


async def test_a_culprit_that_recovers_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    async with inferring(monkeypatch) as (rig, task):
        rig.report("n3", POISON)
        await until(task, lambda: rig.anomalies() == ["n3"])
        rig.pass_s(31)
        rig.report("n3", "better")
        await until(task, lambda: rig.has_port("better"))
        assert not rig.set_aside
        assert not rig.pipeline.problems
        await until(task, lambda: not rig.anomalies())


@pytest.mark.slow
async def test_a_culprit_that_reports_all_the_time_is_tried_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    async with inferring(monkeypatch) as (rig, task):
        rig.report("n3", POISON)
        await until(task, lambda: rig.anomalies() == ["n3"])
        rig.tried.clear()
        for i in range(20):
            done = rig.pipeline.inferences
            rig.report("n3", f"{POISON}-{i}")
            await until(task, lambda done=done: rig.pipeline.inferences > done)  # type: ignore[misc]
        assert not any(map(poisoned, rig.tried)), "before its wait is over it is not tried"
        rig.pass_s(31)
        await until(
            task, lambda: rig.pipeline.failures.exceptions == 2 and rig.pipeline.failures.present is None
        )
        tries = sum(map(poisoned, rig.tried))
        assert 0 < tries <= 3, "one suspect needs no search"
        assert rig.set_aside == {"n3"}
        rig.pass_s(31)
        done = rig.pipeline.inferences
        rig.report("n3", f"{POISON}-again")
        await until(task, lambda: rig.pipeline.inferences > done)
        assert sum(map(poisoned, rig.tried)) == tries, "the wait has doubled"


async def test_without_a_culprit_the_last_topology_stays_and_is_marked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with inferring(monkeypatch) as (rig, task):
        rig.raises = lambda inputs: True
        rig.report("n1", "new")
        await until(task, lambda: rig.stale() == {"InferenceFailed"})
        assert rig.nodes() == set(HOSTS)
        assert not rig.has_port("new")
        assert not rig.set_aside
        assert rig.pipeline.failures.present is not None
        (problem,) = rig.pipeline.problems
        assert "inference has failed since" in problem
        assert "ValueError: planted" in problem
        rig.tried.clear()
        for i in range(1, 6):
            rig.report("n1", f"new{i}")
            await until(task, lambda i=i: rig.pipeline.failures.exceptions == 1 + i)  # type: ignore[misc]
        assert len(rig.tried) == 5, "each change is tried once; a search is not repeated at once"
        rig.raises = poisoned
        rig.report("n1", "newer")
        await until(task, lambda: rig.has_port("newer") and rig.stale() == {"EvidenceFresh"})
        assert rig.pipeline.failures.present is None


async def test_a_failure_that_no_change_ends_is_tried_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    async with inferring(monkeypatch) as (rig, task):
        rig.raises = lambda inputs: True
        rig.report("n1", "new")
        await until(task, lambda: rig.stale() == {"InferenceFailed"})
        tries = len(rig.tried)
        retry_ns = rig.pipeline.failures.retry_ns
        assert retry_ns is not None
        rig.now_ns = retry_ns - 1
        for _ in range(2):  # the loop has ended its first turn when it begins the second
            rig.pipeline.cluster_changed()
            await until(task, lambda: not rig.pipeline._cluster_changed)
        assert len(rig.tried) == tries, "it waits"
        rig.raises = poisoned
        rig.now_ns = retry_ns
        rig.pipeline.cluster_changed()  # wakes the loop, and is no reason to infer
        await until(task, lambda: rig.has_port("new"))


async def test_an_exception_before_inference_with_evidence_that_is_due_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with inferring(monkeypatch) as (rig, task):
        rig.report("n3", POISON)
        await until(task, lambda: rig.anomalies() == ["n3"])
        snapshots: list[int] = []

        def raising(now_ns: int) -> None:
            snapshots.append(now_ns)
            raise ZeroDivisionError

        monkeypatch.setattr(rig.pipeline._view, "snapshot", raising)
        failures = rig.pipeline.failures
        assert failures.quarantine.next_due_ns is not None
        rig.now_ns = failures.quarantine.next_due_ns + S
        rig.pipeline.infer_again()
        await until(task, lambda: len(snapshots) > 0)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(snapshots) == 1
        assert failures.retry_ns is not None
        assert failures.retry_ns > rig.now_ns


async def test_it_starts_on_evidence_that_makes_inference_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Rig()
    for host in HOSTS:
        before.report(host)
    async with running(before, monkeypatch) as task:
        await until(task, lambda: before.nodes() == set(HOSTS))
    before.report("n3", POISON)
    rig = Rig(before.published, before.state)
    rig.report("n1", "new")
    async with running(rig, monkeypatch) as task:
        await until(task, lambda: rig.has_port("new"))
        assert rig.set_aside == {"n3"}
        assert rig.anomalies() == ["n3"]
        assert rig.nodes() == set(HOSTS)
        assert rig.published is not None
        assert not [x for x in rig.published.anomalies if x.kind == "MissingLink"], "it is not seen, not gone"


async def test_switches_that_only_a_culprit_shows_are_not_gone_after_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = Rig()
    hosts = [*HOSTS[:4], "n5"]  # n5 alone is on leaf-2
    for host in hosts:
        before.report(host)
    async with running(before, monkeypatch) as task:
        await until(task, lambda: before.nodes() == set(hosts))
    before.report("n5", POISON)
    rig = Rig(before.published, before.state)
    async with running(rig, monkeypatch) as task:
        await until(task, lambda: rig.stale() == {"InferenceFailed"})
        assert rig.set_aside == {"n5"}
        assert rig.published is not None
        assert len(rig.published.switches) == 2
        assert "n5" in str(rig.pipeline.failures)
        rig.pass_s(31)
        rig.report("n5", "better")
        await until(task, lambda: rig.has_port("better"))
        assert not rig.pipeline.problems


async def test_the_end_waits_for_inference_for_a_bounded_time_and_leaves_the_event_loop_free(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig()
    loop, begun, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def slow(inputs: FabricInputs) -> bool:
        loop.call_soon_threadsafe(begun.set)
        return not go_on.wait(20)

    rig.raises = slow
    monkeypatch.setattr(inference_module, "infer_without_conditions", rig.infer)
    task = asyncio.create_task(rig.pipeline.run())
    await begun.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await rig.pipeline.close(0.0)
    assert "its result is dropped" in caplog.text
    closing = asyncio.create_task(rig.pipeline.close())
    for _ in range(20):
        await asyncio.sleep(0)
    assert not closing.done()
    go_on.set()
    await closing
    assert caplog.text.count("its result is dropped") == 1


@pytest.mark.parametrize("part", ["snapshot", "labels"])
async def test_an_exception_before_inference_is_a_failure_of_inference(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig()
    for host in HOSTS:
        rig.report(host)

    def raising(*_: object) -> None:
        raise ValueError("planted")

    async with running(rig, monkeypatch) as task:
        await until(task, lambda: rig.nodes() == set(HOSTS))
        with monkeypatch.context() as patch:
            if part == "snapshot":
                patch.setattr(rig.pipeline._view, "snapshot", raising)
                rig.report("n1", "swp9")
            else:
                patch.setattr(rig.pipeline._inference, "with_labels", raising)
                rig.pipeline.cluster_changed()
            await until(task, lambda: rig.stale() == {"InferenceFailed"})
            assert "ValueError: planted" in rig.pipeline.problems[0]
        rig.pass_s(1.0)
        await until(task, lambda: rig.stale() == {"EvidenceFresh"})
        assert rig.pipeline.problems == []
