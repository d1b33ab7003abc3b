"""Many reads that block do not delay the Lease, and GetStatus reads no finding."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, NoReturn

import grpc
import pytest
from aiohttp import web
from hyperscout.v1 import topology_pb2 as pb
from hyperscout_collector.evidence.rows import Row
from hyperscout_collector.evidence.state import EvidenceState
from hyperscout_collector.serve.grpc.topology_service import TopologyService
from hyperscout_kubernetes.client import Kube, RateLimit
from hyperscout_kubernetes.election import LeaseTimes
from hyperscout_kubernetes.lease import Elector
from kubernetes.aio.client import Configuration
from support.evidence_rows import all_rows
from support.rest_collector import played, rest_collector, status_of
from support.waiting import TIMEOUT_S

READS = 200


@asynccontextmanager
async def leases() -> AsyncIterator[str]:
    """An API server with one Lease. Its URL has a host name, which the client must resolve."""
    kept: dict[str, Any] = {}

    async def get(request: web.Request) -> web.Response:
        return web.json_response(kept or {"reason": "NotFound"}, status=200 if kept else 404)

    async def write(request: web.Request) -> web.Response:
        kept.update(await request.json())
        kept["metadata"]["resourceVersion"] = "1"
        return web.json_response(kept)

    app = web.Application()
    app.router.add_get("/{path:.*}", get)
    app.router.add_post("/{path:.*}", write)
    app.router.add_put("/{path:.*}", write)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://localhost:{runner.addresses[0][1]}"
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

    async with rest_collector(tmp_path) as collector, leases() as url:
        monkeypatch.setattr(collector.store, "page", page)
        service = TopologyService(collector)
        reads = [
            asyncio.create_task(service.list_findings(pb.ListFindingsRequest(), Context()))
            for _ in range(READS)
        ]
        configuration = Configuration()
        configuration.host = url
        limit = RateLimit(100, 100, clock=asyncio.get_running_loop().time)
        try:
            async with Kube(configuration, limit) as kube, asyncio.timeout(TIMEOUT_S / 2):
                elector = Elector(
                    *(kube, "ns", "lease"),
                    identity="a",
                    token="0",
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
