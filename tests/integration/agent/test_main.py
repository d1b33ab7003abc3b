"""A whole agent in this process: probes on trees of files, findings at a collector, pages, a clean end."""

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest
from hyperscout.v1.discovery_pb2 import MeasureNccl, StreamFindingsResponse, SweepLease, SweepRevoke
from hyperscout.v1.finding_pb2 import Outcome
from hyperscout_agent.main import Agent, run
from hyperscout_agent.runtime.tasks import supervise
from hyperscout_agent.settings.settings import AgentSettings, load_settings
from hyperscout_runtime.health_server import serving
from support.fake_collector import FakeCollector
from support.waiting import TIMEOUT_S, until


def port_files(root: Path, state: str) -> None:
    for path, text in {
        "node_guid": "a088:c203:00aa:0001",
        "ports/1/state": state,
        "ports/1/link_layer": "InfiniBand",
        "ports/1/gids/0": "fe80:0000:0000:0000:a088:c203:00aa:0002",
    }.items():
        target = root / "mlx5_0" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


def settings_for(folder: Path, collector: FakeCollector, **more: object) -> AgentSettings:
    tool = folder / "ibnetdiscover"
    tool.write_text(
        '#!/bin/sh\nprintf \'Switch\\t40 "S-1"\\n[1]\\t"H-1"[1]\\nCa\\t1 "H-1"\\n[1](2)\\t"S-1"[1]\\n\'\n'
    )
    tool.chmod(0o755)
    errors = folder / "ibqueryerrors"
    errors.write_text("#!/bin/sh\necho '## Summary: 2 nodes checked'\n")
    errors.chmod(0o755)
    given = {
        "node": "n1",
        "collectors": [collector.target],
        "lldp": {"enabled": False},
        "nvlink": {"enabled": False},
        "xgmi": {"enabled": False},
        "ascend": {"enabled": False},
        "infiniband": {"root": str(folder / "ib")},
        "ibnetdiscover": {"command": [str(tool)]},
        "ibqueryerrors": {"command": [str(errors)]},
        "latency": {"enabled": False},
        "metrics": {"port": 0},
    }
    return load_settings(None, {**given, **more})


@pytest.fixture
async def collector() -> AsyncIterator[FakeCollector]:
    fake = await FakeCollector().start()
    yield fake
    await fake.stop()


@contextlib.asynccontextmanager
async def running(settings: AgentSettings) -> AsyncIterator[Agent]:
    agent = Agent(settings, Random(1))
    stop = asyncio.Event()
    task = asyncio.create_task(agent.run(stop))
    try:
        yield agent
        assert not task.done()
    finally:
        stop.set()
        async with asyncio.timeout(TIMEOUT_S):
            await task


async def test_a_dead_port_reaches_the_collector(tmp_path: Path, collector: FakeCollector) -> None:
    port_files(tmp_path / "ib", "4: ACTIVE")
    async with running(settings_for(tmp_path, collector)):
        key = ("n1", "infiniband", "mlx5_0/1")
        await collector.until(lambda: key in collector.evidence)
        assert collector.evidence[key].infiniband.state == "ACTIVE"
        port_files(tmp_path / "ib", "1: DOWN")
        await collector.until(lambda: collector.evidence[key].infiniband.state == "DOWN")
        assert list(collector.hellos[0].probes) == ["infiniband", "ibnetdiscover", "ibqueryerrors"]


async def test_a_leased_sweep_and_its_text(tmp_path: Path, collector: FakeCollector) -> None:
    port_files(tmp_path / "ib", "4: ACTIVE")
    async with running(settings_for(tmp_path, collector)) as agent:
        await collector.until(lambda: collector.batches)
        assert ("n1", "ibnetdiscover", "mlx5_0/1") not in collector.evidence, "not without a lease"
        lease = SweepLease(lease_id="L1", device="mlx5_0", port=1, interval_s=60)
        await collector.send(StreamFindingsResponse(lease=lease))
        await collector.until(lambda: ("n1", "ibnetdiscover", "mlx5_0/1") in collector.evidence)
        finding = collector.evidence["n1", "ibnetdiscover", "mlx5_0/1"]
        assert finding.outcome == Outcome.OUTCOME_DATA, finding.reason
        assert (finding.sweep.partial, finding.sweep.lease_id) == (False, "L1")
        assert finding.sweep.port_guid == 0xA088C20300AA0002
        assert collector.bulks[finding.sweep.sha256].startswith(b"Switch\t40")
        await collector.until(lambda: ("n1", "ibqueryerrors", "mlx5_0/1") in collector.evidence)
        counted = collector.evidence["n1", "ibqueryerrors", "mlx5_0/1"]
        assert collector.bulks[counted.sweep.sha256].startswith(b"## Summary"), "under the same lease"
        await collector.send(StreamFindingsResponse(revoke=SweepRevoke(lease_id="L1")))
        await until(lambda: agent.scheduler._runners["ibnetdiscover"].probe.interval_s is None)
        await collector.until(lambda: ("n1", "ibqueryerrors", "mlx5_0/1") not in collector.evidence)


@pytest.mark.parametrize("enabled", [True, False])
async def test_nccl_runs_only_where_it_is_on(tmp_path: Path, collector: FakeCollector, enabled: bool) -> None:
    nvlink = {"library": str(tmp_path / "none.so")}  # as on a host without GPUs
    nccl = {"enabled": enabled, "lock": f"hyperscout-test-{os.getpid()}"}
    async with running(settings_for(tmp_path, collector, nccl=nccl, nvlink=nvlink)):
        await collector.until(lambda: collector.hellos)
        assert ("nccl" in collector.hellos[0].probes) == enabled
        task = MeasureNccl(task_id=7, rank=0, ranks=2, peer="n2")
        await collector.send(StreamFindingsResponse(measure_nccl=task))
        await collector.until(lambda: collector.nccl_ids)
        (answer,) = collector.nccl_ids
        assert answer.task_id == 7
        if not enabled:
            assert answer.failure == "the nccl probe is off on this node (nccl.enabled)"
            return
        key = ("n1", "nccl", "n2")
        await collector.until(lambda: key in collector.evidence)
        assert collector.evidence[key].outcome == Outcome.OUTCOME_NOTHING
        assert answer.failure == "no NVIDIA driver on this host"


async def get(port: int, path: str, method: str = "GET") -> tuple[str, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    async with asyncio.timeout(TIMEOUT_S):
        answer = (await reader.read()).decode()
    writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    return head.splitlines()[0], body


async def test_pages(tmp_path: Path, collector: FakeCollector, caplog: pytest.LogCaptureFixture) -> None:
    began_s = time.time()
    caplog.set_level(logging.INFO)
    port_files(tmp_path / "ib", "4: ACTIVE")
    async with running(settings_for(tmp_path, collector)) as agent:
        await collector.until(lambda: collector.evidence)
        await until(lambda: not agent.store.dirty)
        port = int(
            next(r.getMessage() for r in caplog.records if "metrics at" in r.getMessage())
            .split(":")[2]
            .split("/")[0]
        )
        assert await get(port, "/healthz") == ("HTTP/1.1 200 OK", "ok, connected\n")
        assert await get(port, "/readyz") == ("HTTP/1.1 200 OK", "ok, connected\n")
        status, text = await get(port, "/metrics?x=1")
        assert status == "HTTP/1.1 200 OK"
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        assert values['hyperscout_agent_probe_success{probe="infiniband"}'] == "1"
        assert values['hyperscout_agent_probe_runs_total{probe="infiniband",outcome="data"}'] == "1"
        assert float(values['hyperscout_agent_probe_duration_seconds{probe="infiniband"}']) >= 0
        succeeded_s = values['hyperscout_agent_probe_last_success_timestamp_seconds{probe="infiniband"}']
        assert int(began_s) <= float(succeeded_s) <= time.time()
        assert float(values["process_cpu_seconds_total"]) > 0
        assert 'hyperscout_agent_probe_success{probe="ibnetdiscover"}' not in values, "it has not looked yet"
        assert values["hyperscout_agent_uplink_connected"] == "1"
        assert values["hyperscout_agent_findings"] == "1"
        assert values["hyperscout_agent_findings_dirty"] == "0"
        uplink = "hyperscout_agent_uplink"
        assert values[f"{uplink}_findings_sent_total"] == values[f"{uplink}_findings_acked_total"] == "1"
        assert values[f"{uplink}_batches_sent_total"] == values[f"{uplink}_batches_acked_total"] != "0"
        assert (await get(port, "/other"))[0] == "HTTP/1.1 404 Not Found"
        assert (await get(port, "/metrics", "POST"))[0] == "HTTP/1.1 405 Method Not Allowed"
        assert (await get(port, "/metrics", "HEAD"))[1] == ""


async def test_an_agent_is_ready_once_a_collector_has_greeted_it(
    tmp_path: Path, collector: FakeCollector
) -> None:
    agent = Agent(settings_for(tmp_path, collector), Random(1))
    async with serving("127.0.0.1", 0, {"/readyz": agent._ready, "/healthz": agent._health}) as port:
        status, words = await get(port, "/readyz")
        assert (status, words) == (
            "HTTP/1.1 503 Service Unavailable",
            "not ready: no collector has accepted this agent yet\n",
        )
        assert await get(port, "/healthz") == ("HTTP/1.1 200 OK", "ok, not connected\n")
        agent.uplink.stats.sessions = 1
        assert await get(port, "/readyz") == ("HTTP/1.1 200 OK", "ok, not connected\n")


async def test_a_taken_port_is_a_clear_end(
    tmp_path: Path, collector: FakeCollector, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_for(tmp_path, collector, metrics={"port": collector.port})
    assert await run(settings) == 1
    assert str(collector.port) in caplog.text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signals_end_it_cleanly(tmp_path: Path, collector: FakeCollector, number: int) -> None:
    task = asyncio.create_task(run(settings_for(tmp_path, collector)))
    await collector.until(lambda: collector.batches)
    os.kill(os.getpid(), number)
    async with asyncio.timeout(TIMEOUT_S):
        assert await task == 0
    await collector.until(lambda: collector.ended_streams == 1)


async def test_services_that_break_are_started_again(caplog: pytest.LogCaptureFixture) -> None:
    endings: list[BaseException | None] = [OSError("no such socket"), ValueError("a defect"), None]
    enough = asyncio.Event()
    slept: list[float] = []

    async def service() -> None:
        if not endings:
            enough.set()
            await asyncio.Event().wait()
        ending = endings.pop(0)
        if ending is not None:
            raise ExceptionGroup("in a task group", [ending])  # type: ignore[list-item]

    async def sleep(delay_s: float) -> None:
        slept.append(delay_s)

    class Upper(Random):
        def uniform(self, a: float, b: float) -> float:
            return b

    task = asyncio.create_task(supervise("thing", service, rng=Upper(), sleep=sleep))
    async with asyncio.timeout(TIMEOUT_S):
        await enough.wait()
    task.cancel()
    assert slept == [1.0, 2.0, 4.0]
    assert "thing: no such socket" in caplog.text
    assert "thing: crashed" in caplog.text
    assert "thing: ended" in caplog.text
