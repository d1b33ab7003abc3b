"""MeasurementService over a real server: rights, refusals, and the name of the caller that is kept."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
import pytest
from hyperscout.v1 import measurement_pb2 as pb
from hyperscout.v1.finding_pb2 import NcclRun
from hyperscout.v1.measurement_pb2_grpc import MeasurementServiceStub
from hyperscout_collector.identity.access import Access, Gate
from hyperscout_collector.identity.callers import AccessError, Caller, NotAllowedError, Verb
from hyperscout_collector.serve.grpc.measurement_service import MeasurementService, NotNowError
from support.identities import Reader
from support.waiting import TIMEOUT_S

Code = grpc.StatusCode


@dataclass
class FakeMeasuring:
    told: list[str] = field(default_factory=list)
    refusal: str = ""

    def report(self) -> pb.GetMeasuringResponse:
        return pb.GetMeasuringResponse(state="learning", agents=3)

    def pause(self, reason: str) -> None:
        self.told.append(f"paused {reason}")

    def resume(self) -> None:
        if self.refusal:
            raise NotNowError(self.refusal)
        self.told.append("resumed")


class FakeNccl:
    async def run_nccl(self, request: pb.RunNcclRequest) -> NcclRun:
        return NcclRun(peer=request.nodes[-1], ranks=len(request.nodes))


class Ann(Access):
    async def admit(self, context: Any, verb: Verb) -> Caller:
        return Caller("admin", "ann")


@asynccontextmanager
async def serving(
    access: Access, measuring: FakeMeasuring, nccl: FakeNccl | None = None
) -> AsyncIterator[MeasurementServiceStub]:
    server = grpc.aio.server(interceptors=(Gate(access),))
    MeasurementService(measuring, nccl).add_to(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield MeasurementServiceStub(channel)
    finally:
        await server.stop(None)


async def ended(call: Callable[..., Any], request: Any) -> tuple[Code, str]:
    try:
        await call(request, timeout=TIMEOUT_S)
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    return Code.OK, ""


async def test_a_reader_may_look_and_no_more() -> None:
    measuring = FakeMeasuring()
    async with serving(Reader(), measuring, FakeNccl()) as service:
        found = await service.GetMeasuring(pb.GetMeasuringRequest())
        assert (found.state, found.agents) == ("learning", 3)
        for call, request in (
            (service.SetMeasuring, pb.SetMeasuringRequest(paused=True)),
            (service.RunNccl, pb.RunNcclRequest(nodes=["a"])),
        ):
            assert (await ended(call, request))[0] is Code.PERMISSION_DENIED
    assert measuring.told == []
    assert issubclass(NotAllowedError, AccessError)


async def test_the_caller_that_paused_it_is_kept_with_the_reason() -> None:
    measuring = FakeMeasuring()
    async with serving(Ann(), measuring) as service:
        await service.SetMeasuring(pb.SetMeasuringRequest(paused=True, reason="row 7"))
        await service.SetMeasuring(pb.SetMeasuringRequest(paused=True, reason="x" * 10_000))
        await service.SetMeasuring(pb.SetMeasuringRequest(paused=False))
    first, second, third = measuring.told
    assert first == "paused by admin ann: row 7"
    assert len(second) < 300
    assert third == "resumed"


async def test_a_refusal_is_told_in_its_own_words() -> None:
    async with serving(Ann(), FakeMeasuring(refusal="it is off")) as service:
        found = await ended(service.SetMeasuring, pb.SetMeasuringRequest(paused=False))
        missing = await ended(service.SetMeasuring, pb.SetMeasuringRequest(reason="row 7"))
    assert found == (Code.FAILED_PRECONDITION, "it is off")
    assert missing == (Code.INVALID_ARGUMENT, "paused: missing: expected true or false")


async def test_nccl_runs_where_there_is_a_runner() -> None:
    async with serving(Ann(), FakeMeasuring(), FakeNccl()) as service:
        found = await service.RunNccl(pb.RunNcclRequest(nodes=["a", "b"]))
        assert (found.run.peer, found.run.ranks) == ("b", 2)
    async with serving(Ann(), FakeMeasuring()) as service:
        assert (await ended(service.RunNccl, pb.RunNcclRequest(nodes=["a"])))[0] is Code.FAILED_PRECONDITION


@pytest.mark.parametrize(
    "request_",
    [
        pb.RunNcclRequest(),
        pb.RunNcclRequest(nodes=["a", "b", "c"]),
        pb.RunNcclRequest(nodes=["a", "a"]),
        pb.RunNcclRequest(nodes=[""]),
        pb.RunNcclRequest(nodes=["a"], sizes_bytes=range(100)),
        pb.RunNcclRequest(nodes=["a"], timeout_s=-1),
        pb.RunNcclRequest(nodes=["a"], timeout_s=float("nan")),
        pb.RunNcclRequest(nodes=["a"], timeout_s=float("inf")),
    ],
)
async def test_a_run_that_makes_no_sense_is_refused(request_: pb.RunNcclRequest) -> None:
    async with serving(Ann(), FakeMeasuring(), FakeNccl()) as service:
        code, words = await ended(service.RunNccl, request_)
    assert code is Code.INVALID_ARGUMENT
    assert words
