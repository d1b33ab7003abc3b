"""On a real API server: NCCL runs on nodes that are cordoned or reserved, and ends when they are no longer.

Workers and what they load are those of `tests/integration/collector/test_nccl.py`.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from hyperscout_agent.probes.nccl import NcclCommands
from hyperscout_collector.app.build.collector import Collector
from hyperscout_collector.app.inference.cluster import RESERVED_LABEL
from hyperscout_collector.app.settings.settings import load_settings
from support.callers import refused
from support.kubernetes import Cluster
from support.nccl_agents import agents, gone, run, service, working
from support.real import require_real
from support.waiting import eventually

require_real("gcc")


@asynccontextmanager
async def collector(kube: Cluster, folder: Path) -> AsyncIterator[Collector]:
    flags: dict[str, Any] = {
        "listen": "127.0.0.1:0",
        "http_listen": "",
        "rest_listen": "",
        "data_dir": folder / "data",
        "kubernetes": "dry-run",
        "kubeconfig": kube.kubeconfig,
    }
    async with Collector(load_settings(flags=flags)) as running:
        yield running


async def until_free(running: Collector, *nodes: str) -> None:
    await eventually(lambda: all(running.components.inference.nccl.free(node) for node in nodes))


async def test_a_run_needs_cordoned_or_reserved_nodes(
    kube: Cluster, tmp_path: Path, stubs: NcclCommands, monkeypatch: pytest.MonkeyPatch
) -> None:
    kube.nodes(["node-a", "node-b"])
    async with (
        collector(kube, tmp_path) as running,
        agents(stubs, running.address, "node-a", "node-b", "node-c"),
        service(running.address) as stub,
    ):
        await eventually(lambda: running.components.inference.pipeline.inferences)
        code, details = await refused(run(stub, "node-a", "node-b"))
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert details.startswith("node-a: neither cordoned nor reserved: `kubectl cordon` it")
        code, details = await refused(run(stub, "node-c"))
        assert (code, "no such node" in details) == (grpc.StatusCode.FAILED_PRECONDITION, True)

        await kube.kubectl_async("cordon", "node-a")
        await kube.kubectl_async("label", "node", "node-b", f"{RESERVED_LABEL}=true")
        await until_free(running, "node-a", "node-b")
        assert (await run(stub, "node-a", "node-b")).ranks == 2

        monkeypatch.setenv("STUB_NCCL", "send:hang")
        call = asyncio.ensure_future(run(stub, "node-a", "node-b", timeout_s=60.0))
        pids = await working(2)
        await kube.kubectl_async("uncordon", "node-a")  # a job may come at any moment
        code, details = await refused(call)
        assert code is grpc.StatusCode.ABORTED
        assert details.startswith("node-a: neither cordoned nor reserved")
        await gone(pids)
