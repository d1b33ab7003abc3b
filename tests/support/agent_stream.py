"""One agent's stream by hand, message by message: for what the real uplink would never send."""

import asyncio
import contextlib
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio
from hyperscout.v1.discovery_pb2 import (
    BulkChunk,
    FindingBatch,
    Heartbeat,
    Hello,
    StreamFindingsRequest,
    StreamFindingsResponse,
)
from hyperscout.v1.discovery_pb2_grpc import DiscoveryServiceStub
from hyperscout.v1.finding_pb2 import Finding, FindingKey

from support.findings import stamp
from support.waiting import TIMEOUT_S

_HEARTBEAT_S = 10.0  # the collector ends a stream that is silent for 35 s


class AgentStream:
    """`async with AgentStream(address, "n1") as agent:` greets, and sends heartbeats."""

    def __init__(
        self,
        address: str,
        node: str,
        *,
        instance: int = 1,
        hello: bool = True,
        probes: Sequence[str] = ("lldp",),
        credentials: grpc.ChannelCredentials | None = None,
        metadata: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.node = node
        self.instance = instance
        self.probes = probes
        self._hello = hello
        self._address = address
        self._sequence = 0
        self._credentials = credentials
        self._metadata = tuple(metadata)
        self._writing = asyncio.Lock()
        self._beating: asyncio.Task[None] | None = None
        self.welcome: Any = None

    async def __aenter__(self) -> Self:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
        if self._credentials is None:
            self._channel = grpc.aio.insecure_channel(self._address, options=options)
        else:
            self._channel = grpc.aio.secure_channel(self._address, self._credentials, options=options)
        self.call: Any = DiscoveryServiceStub(self._channel).StreamFindings(metadata=self._metadata)
        if self._hello:
            await self.send(
                hello=Hello(node=self.node, version="test", probes=self.probes, instance=self.instance)
            )
            self.welcome = (await self.read()).welcome
            self._beating = asyncio.create_task(self._beat())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
        self.call.cancel()
        await self._channel.close()

    async def send(self, **message: Any) -> None:
        # A stream that has ended says so when it is read.
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            async with asyncio.timeout(TIMEOUT_S), self._writing:
                await self.call.write(StreamFindingsRequest(**message))

    async def read(self) -> StreamFindingsResponse:
        found = None
        with contextlib.suppress(grpc.aio.AioRpcError):
            async with asyncio.timeout(TIMEOUT_S):
                found = await self.call.read()
        if not isinstance(found, StreamFindingsResponse):
            code, details = await self.ended()
            raise AssertionError(f"the stream ended: {code}: {details}")  # noqa: TRY004
        return found

    async def batch(
        self,
        *findings: Finding,
        removed: Sequence[FindingKey] = (),
        full: bool = False,
        sent_ns: int | None = None,
        sequence: int | None = None,
    ) -> int:
        self._sequence = self._sequence + 1 if sequence is None else sequence
        await self.send(
            batch=FindingBatch(
                sequence=self._sequence,
                findings=findings,
                removed=removed,
                full_state_ends=full,
                sent_at=None if sent_ns is None else stamp(sent_ns),
            )
        )
        return self._sequence

    async def store(self, *findings: Finding, **more: Any) -> list[str]:
        """Send a batch and wait for its ack; returns why findings were refused."""
        sequence = await self.batch(*findings, **more)
        return await self.acked(sequence)

    async def acked(self, sequence: int) -> list[str]:
        refusals: list[str] = []
        while True:
            answer = await self.read()
            refusals += [refusal.reason for refusal in answer.ack.refusals]
            if answer.ack.sequence >= sequence:
                return refusals

    async def bulk(self, sha256: bytes, compressed: bytes, piece: int = 1 << 19) -> None:
        for offset in range(0, max(len(compressed), 1), piece):
            data = compressed[offset : offset + piece]
            last = offset + piece >= len(compressed)
            await self.send(chunk=BulkChunk(sha256=sha256, offset=offset, data=data, last=last))

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(_HEARTBEAT_S)
            await self.heartbeat()

    async def heartbeat(self) -> None:
        await self.send(heartbeat=Heartbeat())

    async def ended(self) -> tuple[grpc.StatusCode, str]:
        """How the collector ended the stream."""
        async with asyncio.timeout(TIMEOUT_S):
            with contextlib.suppress(grpc.aio.AioRpcError):
                while isinstance(await self.call.read(), StreamFindingsResponse):
                    pass
            return await self.call.code(), await self.call.details()
