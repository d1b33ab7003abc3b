"""Neither blocked reads nor a blocked loop delay the Lease, and GetStatus reads no finding."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, NoReturn

import grpc
import pytest
from aiohttp import web
from hyperscout.v1 import topology_pb2 as pb
from hyperscout_collector.app.replica import process
from hyperscout_collector.app.replica.process import Replica
from hyperscout_collector.evidence.rows import Row
from hyperscout_collector.evidence.state import EvidenceState
from hyperscout_collector.serve.grpc.topology_service import TopologyService
from hyperscout_kubernetes.client import Kube, RateLimit
from hyperscout_kubernetes.election import LeaseTimes
from hyperscout_kubernetes.lease import Elector
from hyperscout_runtime.event_loops import loop_in_thread
from kubernetes.aio.client import Configuration
from support.collectors import collector_settings
from support.evidence_rows import all_rows
from support.rest_collector import played, rest_collector, status_of
from support.waiting import TIMEOUT_S, eventually

READS = 200
RENEWALS = 2
KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{{name: one, cluster: {{server: "{url}"}}}}]
contexts: [{{name: one, context: {{cluster: one, user: one}}}}]
current-context: one
users: [{{name: one, user: {{}}}}]
"""


class Leases:
    """An API server with one Lease. `url` has a host name, which the client must resolve."""

    def __init__(self) -> None:
        self.url = ""
        self.writes = 0
        self._kept: dict[str, Any] = {}

    async def get(self, request: web.Request) -> web.Response:
        return web.json_response(self._kept or {"reason": "NotFound"}, status=200 if self._kept else 404)

    async def write(self, request: web.Request) -> web.Response:
        self._kept.update(await request.json())
        self._kept["metadata"]["resourceVersion"] = "1"
        self.writes += 1
        return web.json_response(self._kept)


@asynccontextmanager
async def leases() -> AsyncIterator[Leases]:
    api, app = Leases(), web.Application()
    app.router.add_get("/{path:.*}", api.get)
    app.router.add_post("/{path:.*}", api.write)
    app.router.add_put("/{path:.*}", api.write)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        api.url = f"http://localhost:{runner.addresses[0][1]}"
        yield api
    finally:
        await runner.cleanup()


class Context:
    async def abort(self, code: grpc.StatusCode, details: str = "", metadata: Any = ()) -> NoReturn:
        raise RuntimeError(details)


async def test_blocked_reads_do_not_delay_the_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()

    def page(*_: object) -> list[Any]:
        assert go.wait(TIMEOUT_S)
        return []

    async with rest_collector(tmp_path) as collector, leases() as api:
        monkeypatch.setattr(collector.store, "page", page)
        service = TopologyService(collector)
        reads = [
            asyncio.create_task(service.list_findings(pb.ListFindingsRequest(), Context()))
            for _ in range(READS)
        ]
        configuration = Configuration()
        configuration.host = api.url
        limit = RateLimit(100, 100, clock=asyncio.get_running_loop().time)
        try:
            async with Kube(configuration, limit) as kube, asyncio.timeout(TIMEOUT_S / 2):
                elector = Elector(
                    *(kube, "ns", "lease"),
                    me="a_0",
                    address="127.0.0.1:1",
                    times=LeaseTimes(),
                    rng=Random(1),
                )
                running = asyncio.create_task(elector.run())
                await elector.until(lambda: elector.may_write)
                assert any(not read.done() for read in reads)
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
        finally:
            go.set()
            await asyncio.gather(*reads, return_exceptions=True)


class Leading:
    """A collector that begins at once, and does nothing."""

    begun = False

    def __init__(self, *_: object, **__: object) -> None:
        self.crashed = asyncio.Event()

    async def __aenter__(self) -> None:
        Leading.begun = True

    async def __aexit__(self, *_: object) -> None: ...

    highest = 0

    def leave(self, reason: str, leader: str) -> None: ...


async def test_a_loop_that_stands_still_does_not_delay_the_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "Collector", Leading)
    kubeconfig, stop = tmp_path / "kubeconfig", asyncio.Event()
    async with loop_in_thread("api") as thread, AsyncExitStack() as stack:
        api = await thread.run(stack.enter_async_context(leases()))
        kubeconfig.write_text(KUBECONFIG.format(url=api.url))
        settings = collector_settings(
            tmp_path, leader_election=True, lease_namespace="ns", kubeconfig=kubeconfig
        )
        running = asyncio.create_task(Replica(settings).run(stop))
        try:
            await eventually(lambda: Leading.begun)
            wanted, until_s = api.writes + RENEWALS, time.monotonic() + TIMEOUT_S
            while api.writes < wanted and time.monotonic() < until_s:
                time.sleep(0.01)
            assert api.writes >= wanted
        finally:
            stop.set()
            await running
            await thread.run(stack.aclose())


async def test_get_status_reads_no_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs on the event loop, and often: its counts are kept when the evidence changes."""

    def looked(*_: object) -> Iterator[Row]:
        raise AssertionError("GetStatus read the evidence")

    async with rest_collector(tmp_path) as collector, played(collector):
        findings = len(list(all_rows(collector.components.evidence.state)))
        for name in ("rows_of_node", "keys_of"):
            monkeypatch.setattr(EvidenceState, name, looked)
        found = status_of(collector)
        monkeypatch.undo()
        assert found.findings == sum(agent.findings for agent in found.agents) == findings > 0
