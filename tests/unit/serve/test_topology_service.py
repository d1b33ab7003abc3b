"""Reads that block are bounded, and delay nothing that publishes."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn, cast

import grpc
import pytest
from hyperscout.v1 import topology_pb2 as pb
from hyperscout_collector.serve.fanout.hub import Hub
from hyperscout_collector.serve.grpc.topology_service import Backend, TopologyService
from hyperscout_collector.serve.http.problems import Context as RestContext
from hyperscout_collector.serve.http.problems import ProblemError
from hyperscout_publish.file.publisher import FilePublisher
from hyperscout_publish.slurm.publisher import SlurmFilesPublisher
from support.topologies import two_leaves
from support.waiting import TIMEOUT_S

READS = 200  # more than are taken at once
KINDS = 3


class RefusedError(Exception):
    pass


class Context:
    async def abort(self, code: grpc.StatusCode, details: str = "", metadata: Any = ()) -> NoReturn:
        raise RefusedError(code)


class SlowBackend:
    """Every read blocks until `go`."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.watchers = Hub(two_leaves())
        self.watchers.current.get_response = self._blocked  # type: ignore[method-assign]
        self.store = self.history = self

    def page(self, *_: object) -> list[Any]:
        assert self.go.wait(TIMEOUT_S)
        return []

    def events(self, request: pb.ListHistoryRequest) -> pb.ListHistoryResponse:
        assert self.go.wait(TIMEOUT_S)
        return pb.ListHistoryResponse()

    def _blocked(self, omit_links: bool) -> bytes:
        assert self.go.wait(TIMEOUT_S)
        return b""


def reads(service: TopologyService, context: Any) -> list[asyncio.Task[Any]]:
    """As many of each of the KINDS, in turn."""
    calls = [
        call
        for _ in range(READS)
        for call in (
            service.get_topology(pb.GetTopologyRequest(), context),
            service.list_findings(pb.ListFindingsRequest(), context),
            service.list_history(pb.ListHistoryRequest(), context),
        )
    ]
    return [asyncio.create_task(call) for call in calls]


@asynccontextmanager
async def blocked(context: Any) -> AsyncIterator[tuple[SlowBackend, list[asyncio.Task[Any]]]]:
    backend = SlowBackend()
    service = TopologyService(cast(Backend, backend))
    tasks = reads(service, context)
    for _ in range(3):
        await asyncio.sleep(0)  # all that are taken are in threads, or wait for one
    try:
        yield backend, tasks
    finally:
        backend.go.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        service.close()


async def test_blocked_reads_delay_no_publisher(tmp_path: Path) -> None:
    async with blocked(Context()) as (backend, tasks), asyncio.timeout(TIMEOUT_S):
        files = {"tree": tmp_path / "topology.conf"}
        channel = backend.watchers.channel(omit_links=True)
        messages = channel.messages(channel.join())
        await anext(messages)
        for publish in (
            FilePublisher(str(tmp_path / "hypernodes.yaml")).publish,
            SlurmFilesPublisher(files).publish,
            backend.watchers.publish,
        ):
            await publish(two_leaves())
        assert await anext(messages)
        await asyncio.get_running_loop().getaddrinfo("127.0.0.1", 443)  # as the Lease's connection does
        assert not backend.go.is_set()
        assert any(not task.done() for task in tasks)


async def test_a_read_beyond_the_bound_is_refused() -> None:
    async with blocked(Context()) as (backend, tasks):
        refused = [task for task in tasks if task.done()]
        for kind in range(KINDS):
            assert 0 < sum(task.done() for task in tasks[kind::KINDS]) < READS
        assert {str(task.exception()) for task in refused} == {str(grpc.StatusCode.RESOURCE_EXHAUSTED)}
        backend.go.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(isinstance(answer, RefusedError) for answer in answers) == len(refused)


async def test_rest_says_when_to_try_again() -> None:
    async with blocked(RestContext()) as (_, tasks):
        problem = next(task.exception() for task in tasks if task.done())
        assert isinstance(problem, ProblemError)
        assert (problem.status, problem.word) == (429, "busy")


@pytest.mark.parametrize("omit", [True, False])
async def test_agents_are_left_out_on_request(omit: bool) -> None:
    class Asked:
        def status(self, *, omit_agents: bool) -> bytes:
            return b"without" if omit_agents else b"with"

    service = TopologyService(cast(Backend, Asked()))
    found = await service.get_status(pb.GetStatusRequest(omit_agents=omit), Context())
    assert found == (b"without" if omit else b"with")
    service.close()


async def test_an_event_log_comes_in_parts() -> None:
    backend = SlowBackend()
    lines = [f"{number}" * 100_000 for number in range(7)]
    backend.event_log = lambda: iter(lines)  # type: ignore[attr-defined]
    service = TopologyService(cast(Backend, backend))
    parts = [list(x.lines) async for x in service.get_event_log(pb.GetEventLogRequest(), Context())]
    assert [len(part) for part in parts] == [3, 3, 1]
    assert [line for part in parts for line in part] == lines
    service.close()
