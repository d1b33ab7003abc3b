"""A collector with behaviours: a real gRPC server on a port of its own that stores what it is sent.

It does just what the contract says, and misbehaves on request: acks late, refuses, dies, is full.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
from hyperscout.v1.discovery_pb2 import (
    Ack,
    BulkChunk,
    FindingBatch,
    Hello,
    NcclId,
    Refusal,
    StreamFindingsRequest,
    StreamFindingsResponse,
    Welcome,
)
from hyperscout.v1.discovery_pb2_grpc import DiscoveryServiceServicer, add_DiscoveryServiceServicer_to_server
from hyperscout.v1.finding_pb2 import Finding

from support.waiting import TIMEOUT_S

Key = tuple[str, str, str]


@dataclass
class FakeCollector(DiscoveryServiceServicer):
    """Evidence by key, bulk texts by digest, and switches for its behaviour."""

    heartbeat_interval_s: float = 30.0
    refuse: Callable[[Finding], str | None] = lambda _finding: None
    on_batch: Callable[[FindingBatch], grpc.StatusCode | None] = lambda _batch: None  # a code ends the stream
    answer_hello: grpc.StatusCode | None = None  # a code instead of Welcome
    leader: str | None = None  # ends streams as a standby does that knows of this leader ("" = of none)
    bulk_held: list[bytes] = field(default_factory=list)

    evidence: dict[Key, Finding] = field(default_factory=dict)
    bulks: dict[bytes, bytes] = field(default_factory=dict)
    hellos: list[Hello] = field(default_factory=list)
    batches: list[FindingBatch] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)  # of every message, encoded
    chunks: list[BulkChunk] = field(default_factory=list)
    nccl_ids: list[NcclId] = field(default_factory=list)
    heartbeats: int = 0
    ended_streams: int = 0
    port: int = 0
    address: str = ""  # in place of a port: "unix:PATH"
    acks_held: bool = False

    def __post_init__(self) -> None:
        self._late: list[tuple[asyncio.Queue[StreamFindingsResponse], StreamFindingsResponse]] = []
        self._changed = asyncio.Condition()
        self._server: grpc.aio.Server | None = None
        self._down: asyncio.Queue[StreamFindingsResponse] | None = None

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> "FakeCollector":
        """Listen; after a stop, on the same port again."""
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        add_DiscoveryServiceServicer_to_server(self, server)  # type: ignore[no-untyped-call,unused-ignore]
        self.port = server.add_insecure_port(self.address or f"127.0.0.1:{self.port}")
        await server.start()
        self._server = server
        return self

    async def stop(self) -> None:
        """Go away without a word, as a killed process does."""
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    async def until(self, happened: Callable[[], Any]) -> None:
        """Wait until something of the above is so; fails after TIMEOUT_S."""
        async with asyncio.timeout(TIMEOUT_S), self._changed:
            await self._changed.wait_for(happened)

    def release_acks(self) -> None:
        """Send the acks that were held back, and hold no more."""
        self.acks_held = False
        self._release_acks()

    def _release_acks(self) -> None:
        while self._late and not self.acks_held:
            down, response = self._late.pop(0)
            down.put_nowait(response)

    async def send(self, response: StreamFindingsResponse) -> None:
        """Send a directive down the newest stream."""
        assert self._down is not None
        await self._down.put(response)

    async def StreamFindings(  # noqa: N802 - the contract's name
        self, request_iterator: AsyncIterator[StreamFindingsRequest], context: Any
    ) -> AsyncIterator[StreamFindingsResponse]:
        down: asyncio.Queue[StreamFindingsResponse] = asyncio.Queue()
        reader = asyncio.create_task(self._read(request_iterator, down))
        waiter: asyncio.Task[StreamFindingsResponse] | None = None
        try:
            while True:
                waiter = asyncio.create_task(down.get())
                await asyncio.wait((reader, waiter), return_when=asyncio.FIRST_COMPLETED)
                if waiter.done():
                    yield waiter.result()
                    continue
                if (code := reader.result()) is not None:
                    await context.abort(code, "as the test wants it", self._trailing())
                return
        finally:
            for task in (reader, waiter):
                if task is not None:
                    task.cancel()
            self.ended_streams += 1
            await self._tell()

    async def _read(
        self, requests: AsyncIterator[StreamFindingsRequest], down: asyncio.Queue[StreamFindingsResponse]
    ) -> grpc.StatusCode | None:
        seen: set[Key] | None = set()
        node = ""
        async for request in requests:
            self.sizes.append(request.ByteSize())
            kind = request.WhichOneof("message")
            if kind == "hello":
                self.hellos.append(request.hello)
                if self.leader is not None or self.answer_hello is not None:
                    await self._tell()
                    return self.answer_hello or grpc.StatusCode.UNAVAILABLE
                node = request.hello.node
                self._down = down
                down.put_nowait(
                    StreamFindingsResponse(
                        welcome=Welcome(
                            version="fake",
                            heartbeat_interval_s=self.heartbeat_interval_s,
                            bulk_held=self.bulk_held,
                        )
                    )
                )
            elif kind == "batch":
                self.batches.append(request.batch)
                await self._tell()
                if (code := self.on_batch(request.batch)) is not None:
                    return code
                refusals, seen = self._store(node, request.batch, seen)
                await self._tell()
                ack = Ack(sequence=request.batch.sequence, refusals=refusals)
                self._late.append((down, StreamFindingsResponse(ack=ack)))
                self._release_acks()
            elif kind == "chunk":
                self.chunks.append(request.chunk)
                if request.chunk.last:
                    mine = [chunk for chunk in self.chunks if chunk.sha256 == request.chunk.sha256]
                    start = max(i for i, chunk in enumerate(mine) if chunk.offset == 0)
                    self.bulks[request.chunk.sha256] = zlib.decompress(b"".join(c.data for c in mine[start:]))
            elif kind == "nccl_id":
                self.nccl_ids.append(request.nccl_id)
            elif kind == "heartbeat":
                self.heartbeats += 1
            await self._tell()
        return None

    def _store(
        self, node: str, batch: FindingBatch, seen: set[Key] | None
    ) -> tuple[list[Refusal], set[Key] | None]:
        refusals = []
        for finding in batch.findings:
            key = (finding.key.node, finding.key.probe, finding.key.subject)
            if reason := self.refuse(finding):
                refusals.append(Refusal(key=finding.key, reason=reason))
                continue
            self.evidence[key] = finding
            if seen is not None:
                seen.add(key)
        for gone in batch.removed:
            self.evidence.pop((gone.node, gone.probe, gone.subject), None)
        if batch.full_state_ends and seen is not None:
            for key in [key for key in self.evidence if key[0] == node and key not in seen]:
                del self.evidence[key]
            seen = None
        return refusals, seen

    def _trailing(self) -> tuple[tuple[str, str], ...]:
        return () if self.leader is None else (("hyperscout-leader", self.leader),)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()
