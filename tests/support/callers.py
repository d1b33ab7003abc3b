"""Calls under an identity: how a collector ends a stream, and how it answers a reader."""

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.discovery_pb2 import Hello
from hyperscout.v1.topology_pb2_grpc import TopologyServiceStub

from support.agent_stream import AgentStream
from support.identities import show
from support.waiting import TIMEOUT_S

OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))
Code = grpc.StatusCode
# gRPC's client reports this when the server ends a stream while the client writes; the true status is lost.
_LOST = "Internal error from Core"


async def said(address: str, credentials: grpc.ChannelCredentials | None, node: str, **more: Any) -> Any:
    """How a collector ends a stream that says Hello for a node."""
    while True:
        stream = AgentStream(address, node, hello=False, credentials=credentials, **more)
        async with stream:
            await stream.send(hello=Hello(node=node, instance=1))
            ended = await stream.ended()
        if ended[1] != _LOST:
            return ended


async def asked(
    address: str, credentials: grpc.ChannelCredentials | None, ask: str = "status", token: str = ""
) -> tuple[Code, str]:
    """How a reader's call ends."""
    while (ended := await _asked(address, credentials, ask, token))[1] == _LOST:
        pass
    return ended


async def refused(call: Awaitable[Any]) -> tuple[Code, str]:
    """Status and details of a call that must fail."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details() or ""


async def _asked(
    address: str, credentials: grpc.ChannelCredentials | None, ask: str, token: str
) -> tuple[Code, str]:
    options = OPTIONS
    channel = (
        grpc.aio.insecure_channel(address, options=options)
        if credentials is None
        else grpc.aio.secure_channel(address, credentials, options=options)
    )
    metadata = show(token) if token else ()
    async with channel:
        service: Any = TopologyServiceStub(channel)
        calls: dict[str, Callable[[], Any]] = {
            "status": lambda: service.GetStatus(pb.GetStatusRequest(), timeout=TIMEOUT_S, metadata=metadata),
            "approve": lambda: service.Approve(
                pb.ApproveRequest(generation=99), timeout=TIMEOUT_S, metadata=metadata
            ),
            "health": lambda: health_pb2_grpc.HealthStub(channel).Check(  # type: ignore[no-untyped-call]
                health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S
            ),
        }
        try:
            if ask == "watch":
                call = service.WatchTopology(pb.WatchTopologyRequest(), timeout=TIMEOUT_S, metadata=metadata)
                assert await call.read() != grpc.aio.EOF
                call.cancel()
            elif ask == "reflection":
                stub = reflection_pb2_grpc.ServerReflectionStub(channel)  # type: ignore[no-untyped-call]
                request = reflection_pb2.ServerReflectionRequest(list_services="")
                call = stub.ServerReflectionInfo(iter([request]), timeout=TIMEOUT_S, metadata=metadata)
                assert await call.read() != grpc.aio.EOF
            else:
                await calls[ask]()
        except grpc.aio.AioRpcError as error:
            return error.code(), error.details() or ""
        return Code.OK, ""
