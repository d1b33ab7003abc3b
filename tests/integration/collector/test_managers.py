"""A real agent of role fabric, managers that answer as documented, and the whole collector: what they tell
becomes HyperNodes, what they lose stays, and no secret of theirs is anywhere."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hyperscout_agent.main import Agent
from hyperscout_agent.managers.client import ManagerProbe
from hyperscout_agent.settings.settings import load_settings as agent_settings
from hyperscout_collector.app.build.collector import Collector
from hyperscout_collector.evidence.rows import FAILED
from hyperscout_sim.fabric.shapes import clos2
from hyperscout_sim.readings.netq import netq_graph
from hyperscout_sim.readings.ufm import ufm_answers
from hyperscout_topology.topology import Topology
from support import managers
from support.collectors import collector_settings, nodes_by_tier
from support.managers import CHOSEN, PASSWORD, TOKEN, Manager, credentials, serving
from support.waiting import eventually

FABRIC = clos2(leaves=2, hosts_per_leaf=4, spines=2)
HOSTS = sorted(FABRIC.hosts)
WHOLE = {1: [HOSTS[:4], HOSTS[4:]], 2: [HOSTS]}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask the managers every second, not every minute."""
    monkeypatch.setattr(ManagerProbe, "interval_s", 1.0)


@asynccontextmanager
async def collecting(folder: Path, **more: Any) -> AsyncIterator[Collector]:
    async with Collector(collector_settings(folder, **more)) as collector:
        yield collector


@asynccontextmanager
async def asking(collector: Collector, folder: Path, **probes: Manager) -> AsyncIterator[Agent]:
    secrets = str(credentials(folder / "secret"))
    groups = {name: {"url": manager.url, "credentials": secrets} for name, manager in probes.items()}
    base = {"node": "mgr", "role": "fabric", "collectors": [collector.address], "metrics": {"port": 0}}
    agent = Agent(agent_settings(None, {**base, **groups}), Random(1))
    stop = asyncio.Event()
    task = asyncio.create_task(agent.run(stop))
    try:
        yield agent
    finally:
        stop.set()
        await task


async def until(collector: Collector, condition: Callable[[Topology], object]) -> Topology:
    def now() -> Topology:
        return collector.watchers.current.topology

    await eventually(
        lambda: condition(now()), lambda: "\n".join(map(str, (*now().hypernodes, *now().anomalies)))
    )
    return now()


def said(topology: Topology, kind: str, status: str = "True") -> list[str]:
    return [
        c.message for h in topology.hypernodes for c in h.conditions if (c.type, c.status) == (kind, status)
    ]


def failures(collector: Collector) -> dict[str, str]:
    return {
        row.key.probe: row.reason
        for row in collector.components.evidence.state.rows_of_node("fabric/mgr")
        if row.rank == FAILED
    }


async def test_a_ufms_fabric_its_cut_cable_and_its_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    manager = managers.ufm(ufm_answers(FABRIC))
    with serving(manager):
        async with collecting(tmp_path) as collector, asking(collector, tmp_path, ufm=manager) as agent:
            whole = await until(collector, lambda t: nodes_by_tier(t) == WHOLE)
            assert {link.sources for link in whole.links} == {("ufm",)}
            assert not said(whole, "Degraded")
            cut = next(c for c in FABRIC.cables if c.a == FABRIC.switches[0].guid)
            rest = replace(FABRIC, cables=tuple(c for c in FABRIC.cables if c != cut))
            manager.answers = managers.ufm(ufm_answers(rest)).answers
            (message,) = said(await until(collector, lambda t: said(t, "Degraded")), "Degraded")
            assert (
                f"{FABRIC.name_of(cut.a)}/p{cut.a_port} -> {FABRIC.name_of(cut.b)}/p{cut.b_port}" in message
            )
            assert "ufm" in message
            manager.answers = managers.ufm(ufm_answers(FABRIC)).answers
            await until(collector, lambda t: not said(t, "Degraded"))
            credentials(tmp_path / "secret", password="another-s3cret")
            await eventually(lambda: failures(collector))
            assert "rejected the user name and password" in failures(collector)["ufm"]
            assert nodes_by_tier(collector.watchers.current.topology) == WHOLE
            pages = agent.metrics.text()
    shown = caplog.text.encode() + pages
    for file in (tmp_path / "data").rglob("*"):
        shown += file.read_bytes() if file.is_file() else b""
    assert b"fabric/mgr" in shown
    assert not [x for x in (PASSWORD, "another-s3cret") if x.encode() in shown]


async def test_a_netqs_fabric(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0)
    manager = Manager(premises={7: "hall-1"}, graphs={7: netq_graph(FABRIC)})
    with serving(manager):
        async with collecting(tmp_path) as collector, asking(collector, tmp_path, netq=manager):
            whole = await until(collector, lambda t: nodes_by_tier(t) == WHOLE)
            assert {link.sources for link in whole.links} == {("netq",)}
            manager.graphs = {}
            await eventually(lambda: failures(collector))
            assert nodes_by_tier(collector.watchers.current.topology) == WHOLE
    assert not [x for x in (PASSWORD, TOKEN, CHOSEN) if x in caplog.text]


async def test_nvlink_domains_inside_a_ufms_fabric(tmp_path: Path) -> None:
    nodes = [
        {"ID": host, "Name": host, "DomainUUID": f"d-{n // 2}", "GpuIDList": []}
        for n, host in enumerate(HOSTS)
    ]
    ufm, nmx = managers.ufm(ufm_answers(FABRIC)), managers.nmx(nodes, [])
    with serving(ufm), serving(nmx):
        async with collecting(tmp_path) as collector, asking(collector, tmp_path, ufm=ufm, nmx=nmx):
            pairs = [HOSTS[n : n + 2] for n in range(0, 8, 2)]
            expected = {1: pairs, 2: WHOLE[1], 3: WHOLE[2]}
            found = await until(collector, lambda t: nodes_by_tier(t) == expected)
            assert {h.source for h in found.hypernodes if h.tier == 1} == {"nvlink"}
