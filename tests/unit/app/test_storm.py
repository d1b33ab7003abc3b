"""Inference waits while many agents send their full states."""

import asyncio

import pytest
from hyperscout_collector.app.publication import pipeline
from hyperscout_collector.app.publication.storm import MANY, Storm
from support.findings import T0, S
from support.pipeline_rig import HOSTS, Rig, running, until

MANY_AGENTS = [f"agent-{i}" for i in range(MANY)]


@pytest.mark.parametrize(
    ("times_s", "now_s", "is_on"),
    [
        pytest.param([0.0] * (MANY - 1), 0.0, False, id="few"),
        pytest.param([0.0] * MANY, 0.9, True, id="many at once"),
        pytest.param([0.0] * MANY, 1.0, False, id="a second later"),
        pytest.param([0.1 * i for i in range(2 * MANY)], 0.1 * 2 * MANY, False, id="ten a second"),
        pytest.param([0.02 * i for i in range(10 * MANY)], 0.02 * 10 * MANY, True, id="fifty a second"),
        pytest.param([0.0] * MANY, -5.0, False, id="a clock that was set back"),
    ],
)
def test_a_storm(times_s: list[float], now_s: float, *, is_on: bool) -> None:
    storm = Storm()
    for at_s in times_s:
        storm.full_state(T0 + round(at_s * S))
    assert storm.is_on(T0 + round(now_s * S)) is is_on


@pytest.fixture
async def published(monkeypatch: pytest.MonkeyPatch) -> Rig:
    """A pipeline that has published a tree."""
    monkeypatch.setattr(pipeline, "LOOK_S", 0.0)
    before = Rig()
    for host in HOSTS:
        before.report(host)
    async with running(before, monkeypatch) as task:
        await until(task, lambda: before.nodes() == set(HOSTS))
    return before


async def _quiet(rig: Rig) -> bool:
    """Whether no inference begins."""
    before = len(rig.tried)
    for _ in range(100):
        await asyncio.sleep(0)
    return len(rig.tried) == before


async def test_inference_waits_until_the_storm_is_over(
    published: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "_STORM_LOOKS", 1_000_000)
    rig = Rig(published.published, published.state)
    async with running(rig, monkeypatch) as task:
        await until(task, lambda: len(rig.tried) == 1)
        for agent in MANY_AGENTS:
            rig.pipeline.full_state(agent)
        rig.report("n1", "swp40")
        assert await _quiet(rig)
        rig.now_ns += 2 * S
        await until(task, lambda: rig.has_port("swp40"))


async def test_inference_waits_after_a_start_with_many_agents(
    published: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "_STORM_LOOKS", 1_000_000)
    for i in range(MANY):
        published.report(f"n{20 + i}")
    rig = Rig(published.published, published.state)
    async with running(rig, monkeypatch) as task:
        assert await _quiet(rig)
        rig.now_ns += 11 * S
        assert await _quiet(rig)
        rig.now_ns += 2 * S
        await until(task, lambda: len(rig.tried) == 1)


async def test_all_waits_together_are_bounded(published: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "_STORM_LOOKS", 200)
    rig = Rig(published.published, published.state)
    for agent in MANY_AGENTS:
        rig.pipeline.full_state(agent)
    async with running(rig, monkeypatch) as task:
        assert await _quiet(rig)
        await until(task, lambda: len(rig.tried) == 1)
        rig.report("n1", "swp40")  # the storm goes on
        await until(task, lambda: rig.has_port("swp40"))
    assert rig.pipeline._storm_looks == 0, "nothing waits from now on"


async def test_the_first_generation_waits_for_no_storm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "_STORM_LOOKS", 1_000_000)
    rig = Rig()
    for host in HOSTS:
        rig.report(host)
    for agent in MANY_AGENTS:
        rig.pipeline.full_state(agent)
    async with running(rig, monkeypatch) as task:
        await until(task, lambda: rig.nodes() == set(HOSTS))


async def test_a_long_storm_leaves_most_of_the_time_to_full_states(
    published: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "_STORM_LOOKS", 0)
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def at_once(seconds: float) -> None:
        if seconds:
            pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", at_once)
    monkeypatch.setattr(pipeline, "LOOK_S", 4.0)
    rig = Rig(published.published, published.state, debounce_s=0.5, inference_s=7.0)
    async with running(rig, monkeypatch) as task:
        await until(task, lambda: len(rig.tried) == 1)
        rig.report("n1", "swp40")
        await until(task, lambda: rig.has_port("swp40"))
        for agent in MANY_AGENTS:
            rig.pipeline.full_state(agent)
        rig.report("n1", "swp41")
        await until(task, lambda: rig.has_port("swp41"))
        rig.now_ns += 2 * S
        rig.report("n1", "swp42")
        await until(task, lambda: rig.has_port("swp42"))
    assert pauses == [0.5, 0.5, 0.5, 4.0, 4.0, 1.5, 0.5], "three times as long as inference, 10 s at most"


async def test_a_storm_that_ends_ends_its_pause(published: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "_STORM_LOOKS", 0)
    rig = Rig(published.published, published.state, debounce_s=0.001, inference_s=7.0)
    sleep, pauses = asyncio.sleep, 0

    async def at_once(seconds: float) -> None:
        nonlocal pauses
        pauses += seconds > 0
        rig.now_ns += 2 * S if pauses == 3 else 0
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", at_once)
    monkeypatch.setattr(pipeline, "LOOK_S", 0.1)
    async with running(rig, monkeypatch) as task:
        await until(task, lambda: len(rig.tried) == 1)
        for agent in MANY_AGENTS:
            rig.pipeline.full_state(agent)
        rig.report("n1", "swp40")
        await until(task, lambda: rig.has_port("swp40"))
    assert pauses == 3
