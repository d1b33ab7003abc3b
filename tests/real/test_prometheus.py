"""The real Prometheus on a real collector and agent: dashboards show, planted faults make alerts fire."""

import asyncio
import json
import math
import re
import shutil
import subprocess
import urllib.request
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from hyperscout_sim.agents.player import Player
from hyperscout_sim.fabric.fabric import Cable
from hyperscout_sim.fabric.shapes import clos2
from kube.processes import free_port
from support.collector_process import CollectorProcess, collector_process
from support.collectors import playing
from support.kubernetes import Cluster
from support.live import agent_process
from support.measuring_agent import measuring_agents
from support.metric_families import FAMILIES
from support.mosquitto import Mosquitto, mosquitto
from support.prometheus import Prometheus, exporter, hasty_rules, job, prometheus
from support.real import ROOT, require_real, tool
from support.rest import ask
from support.waiting import TIMEOUT_S

require_real("prometheus", "mosquitto", "kubernetes")

FABRIC = clos2(leaves=2, hosts_per_leaf=4, spines=2)
MEASURED = [f"eth-{n}" for n in range(1, 7)]  # that no wire shows, but what they measure of each other
SELF = "real-1"  # where the real agent runs
DASHBOARDS = sorted((ROOT / "deploy" / "grafana").glob("*.json"))
QUICK = ("--settle-s", "1", "--hold-down-s", "0.1", "--restart-grace-s", "0", "--refresh-s", "1")
# What agents count only where they measure and ask switches; see test_metrics_lint.py.
_COLLECTOR = "hyperscout_collector_"
WITH_GATES = ("waiting_gangs", "longest_wait_", "kept_nodes", "drains_", "defragment_")
SELDOM = (
    "hyperscout_agent_latency_",
    "hyperscout_agent_snmp_",
    *(_COLLECTOR + name for name in ("cluster_", *WITH_GATES)),
)
FABRIC_ALERTS = (
    "HyperscoutHyperNodeDegraded",
    "HyperscoutSwitchMissing",
    "HyperscoutManyHyperNodesDegraded",
)


class World:
    """What runs, where its metrics are, and what can be broken in it."""

    def __init__(self, folder: Path) -> None:
        self.published = folder / "published" / "hypernodes.yaml"
        self.collector_at = f"127.0.0.1:{free_port()}"
        self.agent_at = f"127.0.0.1:{free_port()}"
        self.rest_at = f"127.0.0.1:{free_port()}"
        self.collector: CollectorProcess
        self.player: Player
        self.broker: Mosquitto
        self.prometheus: Prometheus


@asynccontextmanager
async def world(kube: Cluster, folder: Path) -> AsyncIterator[World]:
    found = World(folder)
    found.published.parent.mkdir()
    kube.nodes([*FABRIC.hosts, *MEASURED])
    async with AsyncExitStack() as stack:
        found.broker = await stack.enter_async_context(mosquitto(folder / "broker"))
        flags = ("--http-listen", found.collector_at, "--rest-listen", found.rest_at)
        flags = (*flags, "--publish-file", str(found.published), "--kubernetes", "publish")
        flags = (*flags, "--kubeconfig", str(kube.kubeconfig))
        flags = (*flags, "--mqtt-broker", f"mqtt://127.0.0.1:{found.broker.port}", *QUICK)
        process = collector_process(folder / "data", *flags)
        found.collector = await stack.enter_async_context(process)
        await stack.enter_async_context(real_agent(found, folder))
        await stack.enter_async_context(measured(found.collector.address))
        found.player = await stack.enter_async_context(
            playing(found.collector.address, FABRIC, refresh_interval_s=2)
        )
        others = await stack.enter_async_context(exporter(other_exporters()))
        jobs = (
            job(
                "hyperscout-collector",
                found.collector_at,
                honor_labels=True,
                relabel_configs=[named("host-7")],
            ),
            job("hyperscout-agent", found.agent_at, relabel_configs=[named(SELF)]),
            job("others", others, honor_labels=True),
        )
        running = prometheus(folder / "prometheus", jobs, hasty_rules())
        found.prometheus = await stack.enter_async_context(running)
        yield found


def named(node: str) -> dict[str, Any]:
    """As Kubernetes' targets have it: where the pod runs."""
    return {"target_label": "node", "replacement": node}


@asynccontextmanager
async def real_agent(found: World, folder: Path) -> AsyncIterator[None]:
    flags = ("--node", SELF, "--collector", found.collector.address, "--insecure")
    flags = (*flags, "--no-lldp-enabled", "--no-latency-enabled")
    async with agent_process(*flags, "--metrics-port", found.agent_at.rpartition(":")[2], cwd=folder):
        yield


@asynccontextmanager
async def measured(address: str) -> AsyncIterator[None]:
    def rtt_us(a: str, b: str) -> float:
        return 4.0 if leaf_of(a) == leaf_of(b) else 9.0

    async with measuring_agents(address, MEASURED, rtt_us, bandwidth_gbps=380.0):
        yield


def cable_of(host: str) -> Cable:
    (adapter,) = FABRIC.adapters_of()[host]
    return next(cable for cable in FABRIC.cables if cable.a == adapter.guid)


def leaf_of(node: str) -> str:
    return f"leaf-{int(node[-1]) % 2}"


def other_exporters() -> str:
    """What DCGM and the node exporter say of the same hosts."""
    lines = []
    for number, host in enumerate(FABRIC.hosts):
        gpu = f'{{gpu="0",Hostname="{host}"}}'
        lines += [f"{name}{gpu} {number + 1}" for name in ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED")]
        lines += [f"DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL{gpu} {number + 1}"]
        lines += [f'node_network_receive_bytes_total{{device="eth0",instance="{host}:9100"}} 1e6']
    return "\n".join((*lines, ""))


# What is asked


def queries() -> dict[str, list[str]]:
    """By dashboard, as Grafana sends them, but for `$hypernode`."""
    found = {}
    for path in DASHBOARDS:
        panels = json.loads(path.read_text())["panels"]
        exprs = [target["expr"] for panel in panels for target in panel.get("targets", ())]
        found[path.stem] = [expr.replace("$__rate_interval", "2m") for expr in exprs]
    return found


def examples() -> list[str]:
    """The queries of docs/metrics.md."""
    page = (ROOT / "docs" / "metrics.md").read_text()
    return re.findall(r"^```promql\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


async def says_something(asked: Prometheus, expr: str, hypernodes: list[str]) -> bool:
    """Whether a query returns a figure; of one domain it need not be any domain."""
    for name in hypernodes if "$hypernode" in expr else [""]:
        answer = await asked.query(expr.replace("$hypernode", name))
        if any(not math.isnan(float(series["value"][1])) for series in answer):
            return True
    return False


def fetched(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=TIMEOUT_S) as page:
        return str(page.read().decode())


def lint(page: str) -> str:
    """What `promtool check metrics` has against a page; "" = nothing."""
    promtool = tool("promtool")
    assert promtool is not None
    done = subprocess.run(
        [promtool, "check", "metrics"], input=page, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def shown(pages: list[str]) -> set[str]:
    """Names of our families in pages, with figures or without."""
    return {name for page in pages for name in re.findall(r"^# TYPE (hyperscout_\w+)", page, re.MULTILINE)}


async def test_dashboards_show_and_alerts_fire(kube: Cluster, tmp_path: Path) -> None:
    async with world(kube, tmp_path) as now:
        asked = now.prometheus
        await all_is_well(now)
        await a_cable_and_a_switch(now)
        await everything_shows(now)
        now.broker.kill()
        shutil.rmtree(now.published.parent)  # what is published next cannot be written
        now.player.restore(cable_of("node-0001"))
        await asked.until_fires("HyperscoutMqttDown", "HyperscoutPublisherFailing")
        for host in FABRIC.hosts[2:]:
            await now.player.kill(host)
        await asked.until_fires("HyperscoutAgentsGone")
        now.collector.kill()
        await asked.until_fires("HyperscoutNoLeader", "HyperscoutAgentDisconnected")


async def all_is_well(now: World) -> None:
    """The tree stands, all agents are connected and measured, and nothing fires."""
    asked = now.prometheus
    assert (await ask(now.rest_at, "/v1/hypernodes/absent")).status == 404
    for expr in (
        'count(hyperscout_collector_hypernode_nodes{tier="1"}) == 4',
        "hyperscout_collector_latency_seconds",
        "hyperscout_collector_bandwidth_bytes_per_second",
        f"hyperscout_collector_agents == {len(FABRIC.hosts) + len(MEASURED) + 1}",
        "hyperscout_agent_uplink_connected == 1",
        "hyperscout_collector_published_generation == on () group_left () hyperscout_collector_generation",
        'sum(hyperscout_collector_kubernetes_writes_total{outcome="written"}) > 0',
        "hyperscout_collector_mqtt_connected == 1",
        "absent(ALERTS)",
    ):
        await asked.until(expr)
    pages = [await asyncio.to_thread(fetched, at) for at in (now.collector_at, now.agent_at)]
    assert [lint(page) for page in pages] == ["", ""]
    assert {f.name for f in FAMILIES if not f.name.startswith(SELDOM)} == shown(pages)


async def a_cable_and_a_switch(now: World) -> None:
    for host in ("node-0001", "node-0008"):
        now.player.cut(cable_of(host))
    now.player.pull(FABRIC.switches[-1].guid)
    await now.prometheus.until_fires(*FABRIC_ALERTS)
    assert (await ask(now.rest_at, "/v1/hypernodes/absent")).status == 404


async def everything_shows(now: World) -> None:
    """Every panel has something to show, and so has every example of the docs."""
    asked = now.prometheus
    hypernodes: list[str] = await asked.ask("label/hypernode/values")
    shown = {**queries(), "docs/metrics.md": examples()}
    assert all(shown.values())
    await asked.until('rate(hyperscout_collector_rest_requests_total{status="4xx"}[2m]) > 0')
    silent = [
        f"{where}: {expr}"
        for where, exprs in shown.items()
        for expr in exprs
        if not await says_something(asked, expr, hypernodes)
    ]
    assert silent == []
