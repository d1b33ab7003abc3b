"""A pod that claims to be another node: refused by what the API server says of its token, counted, logged."""

import asyncio
import logging
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hyperscout_agent.main import Agent
from hyperscout_agent.settings.settings import load_settings as load_agent
from hyperscout_collector.app.build.collector import Collector
from hyperscout_collector.app.settings.settings import load_settings
from support.agent_stream import AgentStream
from support.callers import Code, said
from support.findings import lldp
from support.identities import AGENTS, AUDIENCE, Family, show
from support.kubernetes import Cluster
from support.waiting import TIMEOUT_S, eventually

NAMESPACE, AGENT = AGENTS.split(":")
ASK = [{"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]}]
TRIES = 25
REFUSED = 'hyperscout_collector_refused_total{reason="another_name"}'


@asynccontextmanager
async def collector(cluster: Cluster, folder: Path, family: Family) -> AsyncIterator[Collector]:
    flags: dict[str, Any] = {
        "listen": "127.0.0.1:0",
        "http_listen": "127.0.0.1:0",
        "rest_listen": "",
        "data_dir": folder / "data",
        "tls_cert": family.server.cert,
        "tls_key": family.server.key,
        "authenticate": "kubernetes",
        "agent_service_account": AGENTS,
        "kubeconfig": cluster.kubeconfig_of("collector", NAMESPACE),
    }
    async with Collector(load_settings(flags=flags)) as running:
        yield running


async def metric(running: Collector, name: str) -> float:
    def text() -> str:
        with urllib.request.urlopen(f"http://{running.http_address}/metrics", timeout=TIMEOUT_S) as page:
            return str(page.read().decode())

    lines = (await asyncio.to_thread(text)).splitlines()
    return float(next(line.removeprefix(name) for line in lines if line.startswith(name)))


def lines_about(caplog: pytest.LogCaptureFixture, *names: str) -> list[str]:
    """What the collector's own log says at its usual level that has all of these in it."""
    of_collector = [r for r in caplog.records if not r.name.startswith("hyperscout_agent")]
    said = [r.getMessage() for r in of_collector if r.levelno >= logging.INFO]
    return [line for line in said if all(name in line for name in names)]


async def test_a_pod_that_claims_to_be_another_node(
    kube: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two pods with real bound tokens; the one on gpu-1 shows its own and says that it is gpu-2."""
    caplog.set_level(logging.INFO)
    family = Family(tmp_path)
    kube.grant("collector", ASK, NAMESPACE)
    kube.nodes(["gpu-1", "gpu-2"])
    tokens = {}
    for node in ("gpu-1", "gpu-2"):
        pod = kube.pod_on(node, AGENT, NAMESPACE)
        tokens[node] = kube.token(AGENT, NAMESPACE, AUDIENCE, pod=pod)
    tls, token_file = family.channel(), tmp_path / "token"
    token_file.write_text(tokens["gpu-1"])
    async with collector(kube, tmp_path, family) as running:
        assert await metric(running, REFUSED) == 0
        honest = AgentStream(running.address, "gpu-2", credentials=tls, metadata=show(tokens["gpu-2"]))
        async with honest:
            assert await honest.store(lldp("gpu-2", "eth0")) == []

            # The real agent, with only its setting `node` changed.
            off = ("lldp", "infiniband", "ibnetdiscover", "nvlink", "latency")
            liar: dict[str, Any] = {name: {"enabled": False} for name in off}
            liar |= {"node": "gpu-2", "collectors": [running.address], "metrics": {"port": 0}}
            liar |= {"tls_ca": str(family.ca), "token_file": str(token_file)}
            agent = Agent(load_agent(None, liar), Random(1))
            stop = asyncio.Event()
            task = asyncio.create_task(agent.run(stop))
            await eventually(lambda: agent.uplink.stats.failures)
            stop.set()
            await task
            assert agent.uplink.stats.sessions == 0
            assert await metric(running, REFUSED) == 1
            [line] = lines_about(caplog, "refused")
            assert "node 'gpu-1'" in line
            assert "'gpu-2'" in line

            # And a caller that does not wait between tries, nor keep to one name.
            for i in range(TRIES):
                name = "gpu-2" if i % 2 else f"gpu-{i}"
                code, _ = await said(running.address, tls, name, metadata=show(tokens["gpu-1"]))
                assert code is Code.PERMISSION_DENIED
            assert await metric(running, REFUSED) == 1 + TRIES
            assert len(lines_about(caplog, "gpu-1")) == 1, caplog.text

            # Another caller, from the same address: the credentials tell them apart.
            await said(running.address, tls, "gpu-7", metadata=show(tokens["gpu-2"]))
            assert len(lines_about(caplog, "refused", "node 'gpu-2'", "'gpu-7'")) == 1, caplog.text

            # The one whose name was used has noticed nothing, and what it said stands.
            assert await honest.store(lldp("gpu-2", "eth1")) == []
            assert await metric(running, "hyperscout_collector_agents") == 1
            assert set(running.components.evidence.state.nodes) == {"gpu-2"}
    for token in tokens.values():
        assert token[-20:] not in caplog.text
