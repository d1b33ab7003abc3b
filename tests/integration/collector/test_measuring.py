"""The whole collector has agents measure each other: learned from nothing, paused, off, wrong reports."""

import asyncio
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from hyperscout.v1 import measurement_pb2 as pb
from hyperscout.v1.measurement_pb2_grpc import MeasurementServiceStub
from hyperscout_collector.app.build.collector import Collector
from hyperscout_collector.app.measuring import measuring as shell
from hyperscout_collector.app.settings.settings import CollectorSettings
from hyperscout_collector.app.status.status import problems
from hyperscout_formats.facts.facts import LatencyPort, LatencyResult
from support.agent_stream import AgentStream
from support.collector_process import CHANNEL_OPTIONS
from support.collectors import collector_settings
from support.measuring_agent import LATENCY_PROBES, latency, measuring_agents
from support.waiting import eventually

NODES = [f"n{i:02}" for i in range(12)]


def leaf(node: str) -> int:
    return int(node[1:]) // 6


def rtt_us(node: str, peer: str) -> float:
    """Two leaves of six, and a little of its own for each pair, the same from both ends."""
    a, b = sorted((node, peer))
    own = (int(a[1:]) * 7 + int(b[1:]) * 3) % 5 * 0.02
    return (3.0 if leaf(a) == leaf(b) else 7.0) + own


def settings(folder: Path, **more: Any) -> CollectorSettings:
    """Frequent measurements; metrics are served."""
    quick = {"refresh_s": 1.0, "measure_probes_per_s": 2000.0, "measure_node_kbps": 10_000.0}
    return collector_settings(folder, **{"http_listen": "127.0.0.1:0", **quick, **more})


@asynccontextmanager
async def asking(collector: Collector) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(collector.address, options=CHANNEL_OPTIONS) as channel:
        yield MeasurementServiceStub(channel)


async def test_a_cluster_that_nothing_else_tells_of_is_learned(tmp_path: Path) -> None:
    async with Collector(settings(tmp_path)) as collector, asking(collector) as service:
        found = await service.GetMeasuring(pb.GetMeasuringRequest())
        assert (found.state, found.agents) == ("learning", 0)
        assert "fewer than two agents" in found.reason
        async with measuring_agents(collector.address, NODES, rtt_us) as agents:
            tables = collector.components.evidence.view.tables
            await eventually(lambda: len(tables.last) == 66)
            found = await service.GetMeasuring(pb.GetMeasuringRequest())
            assert (found.agents, found.pairs, found.disagreeing, found.failed) == (12, 66, 0, 0)
            assert found.probes >= 132  # and more as pairs are measured again
            assert found.reason == ""
            assert problems(collector.components) == []
            tasks = [task for agent in agents.values() for task in agent.tasks]
            assert len({task.key for task in tasks}) == len(tasks) / 2
            assert {len(task.key) for task in tasks} == {32}
            url = f"http://{collector.http_address}/metrics"
            text = await asyncio.to_thread(lambda: urllib.request.urlopen(url).read().decode())
            assert "hyperscout_collector_pairs 66\n" in text
            assert 'hyperscout_collector_measuring{state="off"} 0' in text


async def test_an_opaque_cluster_gets_its_tree_at_leisure(tmp_path: Path) -> None:
    async with (
        Collector(settings(tmp_path)) as collector,
        measuring_agents(collector.address, NODES, rtt_us),
    ):
        watchers = collector.components.publishing.watchers

        def leaves() -> list[list[str]]:
            return sorted(list(h.nodes) for h in watchers.current.topology.hypernodes if h.tier == 1)

        await eventually(lambda: leaves() == [NODES[:6], NODES[6:]])
        sources = {h.source for h in watchers.current.topology.hypernodes}
        assert sources == {"latency"}


async def test_nothing_is_inferred_at_each_burst(tmp_path: Path) -> None:
    """Round trips are no news: before `refresh_s` has passed, only the agents' first reports are."""
    async with (
        Collector(settings(tmp_path, refresh_s=3600.0)) as collector,
        measuring_agents(collector.address, NODES, rtt_us) as agents,
    ):
        pipeline = collector.components.inference.pipeline
        bursts = 4 * len(NODES)
        await eventually(lambda: sum(len(agent.tasks) for agent in agents.values()) > bursts)
        assert pipeline.inferences <= 2 * len(NODES)


async def test_half_a_picture_is_not_published(tmp_path: Path) -> None:
    """Not while it learns, nor because a caller paused it meanwhile."""
    async with (
        Collector(settings(tmp_path, measure_probes_per_s=4.0)) as collector,
        asking(collector) as service,
        measuring_agents(collector.address, NODES, rtt_us),
    ):
        pipeline, tables = collector.components.inference.pipeline, collector.components.evidence.view.tables
        await eventually(lambda: len(tables.last) > 1)
        assert not collector.components.inference.measuring.has_measured_enough()
        await service.SetMeasuring(pb.SetMeasuringRequest(paused=True))
        assert not collector.components.inference.measuring.has_measured_enough()
        before = pipeline.inferences
        pipeline.infer_again()
        await eventually(lambda: pipeline.inferences > before)
        assert collector.components.publishing.watchers.current.topology.hypernodes == ()


async def test_a_pause_reaches_every_agent(tmp_path: Path) -> None:
    async with (
        Collector(settings(tmp_path)) as collector,
        asking(collector) as service,
        measuring_agents(collector.address, NODES, rtt_us) as agents,
    ):
        await eventually(lambda: any(agent.tasks for agent in agents.values()))
        await service.SetMeasuring(pb.SetMeasuringRequest(paused=True, reason="row 7"))
        await eventually(lambda: all(agent.stopped for agent in agents.values()))
        assert {why for agent in agents.values() for why in agent.stopped} == {"by anonymous: row 7"}
        told = sum(len(agent.tasks) for agent in agents.values())
        found = await service.GetMeasuring(pb.GetMeasuringRequest())
        assert (found.state, found.reason, found.in_flight) == ("paused", "by anonymous: row 7", 0)
        assert found.since.ToNanoseconds() > 0
        for _ in range(10):
            shell_tick(collector)
        assert sum(len(agent.tasks) for agent in agents.values()) == told
        await service.SetMeasuring(pb.SetMeasuringRequest(paused=False))
        await eventually(lambda: sum(len(agent.tasks) for agent in agents.values()) > told)
        assert (await service.GetMeasuring(pb.GetMeasuringRequest())).state != "paused"


def shell_tick(collector: Collector) -> None:
    collector.components.inference.measuring._handle(shell.Tick())


async def test_off_is_off(tmp_path: Path) -> None:
    async with (
        Collector(settings(tmp_path, measure=False)) as collector,
        asking(collector) as service,
        measuring_agents(collector.address, NODES[:3], rtt_us) as agents,
    ):
        await eventually(lambda: collector.components.evidence.state.node_count == 3)
        shell_tick(collector)
        found = await service.GetMeasuring(pb.GetMeasuringRequest())
        assert (found.state, found.reason) == ("off", "the setting `measure` is off")
        for paused in (True, False):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await service.SetMeasuring(pb.SetMeasuringRequest(paused=paused))
            assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert all(agent.tasks == [] for agent in agents.values())


async def test_only_a_node_that_runs_the_probe_takes_part(tmp_path: Path) -> None:
    async with (
        Collector(settings(tmp_path)) as collector,
        measuring_agents(collector.address, NODES[:2], rtt_us) as agents,
        measuring_agents(collector.address, NODES[2:4], rtt_us, probes=("lldp",)) as others,
    ):
        await eventually(lambda: len(collector.components.evidence.view.tables.last) == 1)
        assert all(agent.tasks == [] for agent in others.values())
        assert {task.peer for task in agents["n00"].tasks} == {"n01"}


async def test_a_measurement_counts_only_from_the_node_itself(tmp_path: Path) -> None:
    """A pair that c makes up for a and b, and one whose other end says nothing."""
    made_up = LatencyPort(
        "ib0", ("10.0.0.9",), 4711, "", (LatencyResult("b", "ib0", "udp", 1, 16, 16, 1.0, 1.0, 0.1),)
    )
    from_c = LatencyPort(
        "ib0", ("10.0.0.9",), 4711, "", (LatencyResult("a", "ib0", "udp", 1, 16, 16, 1.0, 1.0, 0.1),)
    )
    now_ns = time.time_ns()
    async with (
        Collector(settings(tmp_path, measure=False)) as collector,
        AgentStream(collector.address, "c", probes=LATENCY_PROBES) as c,
    ):
        refusals = await c.store(
            latency("a", made_up, now_ns), latency("b", from_c, now_ns), latency("c", from_c, now_ns)
        )
        assert refusals == ["not a finding of c"] * 2
        view = collector.components.evidence.view
        assert set(view.measured()) == {"c"}
        assert len(view.tables.read(view.measured())) == 0


async def test_what_is_told_again_is_not_read_again(tmp_path: Path) -> None:
    result = LatencyResult("b", "ib0", "udp", 1, 16, 16, 1.0, 1.0, 0.1)
    port = LatencyPort("ib0", ("10.0.0.1",), 4711, "", (result,))
    async with (
        Collector(settings(tmp_path, measure=False)) as collector,
        AgentStream(collector.address, "a", probes=LATENCY_PROBES) as a,
    ):
        facts = []
        for udp_port in (1, 2):
            await a.store(latency("a", replace(port, udp_port=udp_port), time.time_ns()))
            (row,) = collector.components.evidence.state.rows_of_node("a")
            facts.append(row.fact)
        first, second = facts
        assert (first.udp_port, second.udp_port) == (1, 2)
        assert first.results[0] is second.results[0]


async def test_an_agent_that_restarted_is_asked_when_it_answers_again(tmp_path: Path) -> None:
    """No process answers any more where its last one did."""
    async with Collector(settings(tmp_path)) as collector:
        port = LatencyPort("ib0", ("10.0.0.1",), 4711)
        async with AgentStream(collector.address, "a", probes=LATENCY_PROBES, instance=1) as a:
            await a.store(latency("a", port, time.time_ns()), full=True)
            await eventually(lambda: collector.components.inference.measuring.report().agents == 1)
        await eventually(lambda: collector.components.inference.measuring.report().agents == 0)
        async with AgentStream(collector.address, "a", probes=LATENCY_PROBES, instance=1) as a:
            await eventually(
                lambda: collector.components.inference.measuring.report().agents == 1
            )  # a stream that broke
        await eventually(lambda: collector.components.inference.measuring.report().agents == 0)
        async with AgentStream(collector.address, "a", probes=LATENCY_PROBES, instance=2) as a:
            await a.heartbeat()
            assert collector.components.inference.measuring.report().agents == 0
            await a.store(latency("a", port, time.time_ns()))
            await eventually(lambda: collector.components.inference.measuring.report().agents == 1)


async def test_a_planner_that_fails_is_shown_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ArithmeticError("no such pair")

    async with Collector(settings(tmp_path)) as collector:
        tools = collector.components.inference.measuring._tools
        monkeypatch.setattr(collector.components.inference.measuring, "_tools", replace(tools, plan=broken))
        async with measuring_agents(collector.address, NODES[:3], rtt_us):
            await eventually(lambda: bool(problems(collector.components)))
            (problem,) = problems(collector.components)
            assert "planning fails: ArithmeticError('no such pair')" in problem
            assert collector.components.inference.measuring.report().reason == problem
            assert not collector.crashed.is_set()
            monkeypatch.setattr(collector.components.inference.measuring, "_tools", tools)
            await eventually(lambda: problems(collector.components) == [])


async def test_tasks_end_with_the_leader(tmp_path: Path) -> None:
    collector = Collector(settings(tmp_path))
    async with (
        collector,
        measuring_agents(collector.address, NODES[:4], rtt_us) as agents,
    ):
        await eventually(lambda: any(agent.tasks for agent in agents.values()))
        stopping = asyncio.create_task(collector.stop())
        for agent in agents.values():
            assert await agent.stream.call.code() is grpc.StatusCode.UNAVAILABLE
        await stopping
        assert collector.components.inference.measuring.report().in_flight == 0
