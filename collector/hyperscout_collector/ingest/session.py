"""Handles the messages of one agent's stream after its Hello, and decides when findings count as stored.

Messages are processed in their order of arrival. A batch that names a missing text blocks itself and the
batches behind it until the text arrives. Acks therefore stay cumulative, and no finding replaces an older one
before its text is readable.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import grpc
from hyperscout.v1.discovery_pb2 import (
    BulkChunk,
    FindingBatch,
    NcclId,
    NeedBulk,
    Refusal,
    StreamFindingsRequest,
    StreamFindingsResponse,
)
from hyperscout.v1.finding_pb2 import FindingKey
from hyperscout_formats.facts.clean_message import clean
from hyperscout_formats.facts.shared_fields import one_copy
from hyperscout_formats.text.counts import count
from hyperscout_formats.text.errors import FormatError
from hyperscout_formats.text.reporters import is_fabric
from hyperscout_runtime.units import NS

from hyperscout_collector.evidence.committer import (
    Committer,
    FullState,
    OverloadedError,
    Refused,
    Submission,
)
from hyperscout_collector.evidence.rows import MAX_NAME_CHARS, Key, Row, SweepFact
from hyperscout_collector.evidence.state import COUNTING_PROBE, AgentRow, Bulk, EvidenceState
from hyperscout_collector.ingest.bulk import BulkAssembly, BulkError, BulkLimits
from hyperscout_collector.ingest.intake import (
    MAX_BATCH_BYTES,
    MAX_BATCH_FINDINGS,
    Intake,
    SweepGate,
    texts_of,
)
from hyperscout_collector.ingest.streams import AgentStream, StreamEndedError, Streams
from hyperscout_collector.store.errors import StoreError, StoreFullError

_MAX_HELD_BATCHES = 16  # behind a missing text; an agent has fewer in flight
_MAX_UNSTORED_BATCHES = 64
_MAX_WAITING_MEMORY = 64 * 1024 * 1024  # of the decoded batches that wait for a text, or to be stored
# Keys until the end of the full state; an agent has 4096, and may remove some and add others meanwhile.
_MAX_KEYS = 4 * 4096
# Texts that a batch names, and received texts that no finding names yet. An agent has two probes of up to
# 64 subjects, and a subject has up to two texts (whole and partial).
_MAX_TEXTS = 256
_MAX_ASKED = 64  # texts at once; the queue to the agent has space for 256 messages
_TEXT_TIMEOUT_S = 60.0

# Reads a text in a thread and caches the result: (digest, text, source, format). Raises FormatError.
TextReader = Callable[[bytes, bytes, str, str], object]
# Handles an agent's message about an NCCL run: (node, message). Must not block.
TakeId = Callable[[str, NcclId], None]


@dataclass(slots=True)
class _Batch:
    """A checked batch. `texts`: digests that its findings name."""

    sequence: int
    rows: list[tuple[Row, bytes]]
    renewed: list[Row]
    removed: list[Key]
    refused: list[Refused]
    full_state: FullState | None
    texts: set[bytes]
    cost_bytes: int
    memory_bytes: int
    came_ns: int


@dataclass(slots=True)
class Session:
    """Handles one stream's messages. Raises StreamEndedError when the stream must end."""

    stream: AgentStream
    state: EvidenceState
    committer: Committer
    gate: SweepGate
    read_text: TextReader
    in_thread: Callable[[Callable[[], Bulk]], Awaitable[Bulk]]
    clock_ns: Callable[[], int]
    limits: BulkLimits
    streams: Streams
    take_id: TakeId
    _sequence: int = field(default=0, init=False)
    # Keys since Hello; None = the full state has ended.
    _seen: set[Key] | None = field(default_factory=set, init=False)
    # Lists, since most are empty: an empty set takes 216 bytes, and an empty deque 760.
    _held: list[_Batch] = field(default_factory=list, init=False)
    _assembly: BulkAssembly | None = field(default=None, init=False)
    # Complete, and not yet decompressed.
    _texts: dict[bytes, BulkAssembly] = field(default_factory=dict, init=False)
    _asked: list[bytes] = field(default_factory=list, init=False)
    _intake: Intake = field(init=False)
    # With the memory of each.
    _unstored: "list[tuple[asyncio.Future[list[Refused]], int]]" = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        counters, lines = self.streams.counters, self.streams.refused_findings
        self._intake = Intake(self.stream.node, self.state, self.gate, counters, lines)

    async def take(self, request: StreamFindingsRequest) -> None:
        """Handle one message."""
        now_ns = self.clock_ns()
        size_bytes = request.ByteSize()  # protobuf encodes the message for it
        self.streams.counters.bytes += size_bytes
        kind = request.WhichOneof("message")
        if kind != "batch":  # it contains the agent's time, which is recorded with it
            self.streams.heard(self.stream, now_ns)
        match kind:
            case "batch":
                await self._take_batch(request.batch, size_bytes, now_ns)
            case "chunk":
                await self._take_chunk(request.chunk)
            case "nccl_id":
                clean(request.nccl_id)
                self.take_id(self.stream.node, request.nccl_id)
            case "heartbeat":
                pass
            case "hello":
                raise StreamEndedError(grpc.StatusCode.INVALID_ARGUMENT, "a second Hello")
            case _:
                pass  # an unknown message of a newer agent
        if self._held and now_ns - self._held[0].came_ns > _TEXT_TIMEOUT_S * NS:
            raise StreamEndedError(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"the text that a finding names did not arrive within {_TEXT_TIMEOUT_S:g} s",
            )

    # Batches

    async def _take_batch(self, batch: FindingBatch, size_bytes: int, now_ns: int) -> None:
        """`size_bytes`: of the message that contains the batch, a few bytes more than the batch."""
        if batch.sequence != self._sequence + 1:
            raise StreamEndedError(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"received batch {batch.sequence}, expected batch {self._sequence + 1}",
            )
        self._sequence = batch.sequence
        if size_bytes > MAX_BATCH_BYTES and batch.ByteSize() > MAX_BATCH_BYTES:
            raise StreamEndedError(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"a batch of {batch.ByteSize()} bytes; a batch has at most {MAX_BATCH_BYTES}",
            )
        size = len(batch.findings) + len(batch.unchanged) + len(batch.removed)
        if size > MAX_BATCH_FINDINGS:
            raise StreamEndedError(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"a batch of {size} findings and removed keys; a batch has at most {MAX_BATCH_FINDINGS}",
            )
        held_bytes = sum(one.memory_bytes for one in self._held)
        if len(self._held) >= _MAX_HELD_BATCHES or held_bytes > _MAX_WAITING_MEMORY:
            raise StreamEndedError(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{len(self._held)} batches wait for a text; send the text first",
            )
        self._held.append(await self._checked(batch, size_bytes, now_ns))
        await self._release()

    async def _checked(self, batch: FindingBatch, size_bytes: int, now_ns: int) -> _Batch:
        found = await self._intake.check(batch, now_ns)
        self.streams.heard(self.stream, now_ns, found.offset_ns)
        if found.not_held:
            raise StreamEndedError(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"the collector does not hold {count(len(found.not_held), 'finding')} "
                "that the batch names as unchanged: connect again, and send all findings",
            )
        if self._seen is not None:
            self._seen |= found.named
            if len(self._seen) > _MAX_KEYS:
                raise StreamEndedError(
                    grpc.StatusCode.INVALID_ARGUMENT, f"a full state of more than {_MAX_KEYS} findings"
                )
        full_state = None
        if batch.full_state_ends:
            if self._seen is None:
                raise StreamEndedError(grpc.StatusCode.INVALID_ARGUMENT, "a second end of the full state")
            node, hello = self.stream.node, self.stream.hello
            agent = AgentRow(node, hello.instance, one_copy(hello.version))
            full_state = FullState(agent, frozenset(self._seen))
            self._seen = None
        texts = texts_of(found.rows)
        if len(texts) > _MAX_TEXTS:
            raise StreamEndedError(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"a batch that names {len(texts)} texts; a batch names at most {_MAX_TEXTS}",
            )
        return _Batch(
            batch.sequence,
            found.rows,
            found.renewed,
            found.removed,
            found.refused,
            full_state,
            texts,
            size_bytes,
            found.memory_bytes,
            now_ns,
        )

    async def _release(self) -> None:
        """Submit the batches that have all their texts, in order."""
        while self._held:
            missing = [digest for digest in sorted(self._held[0].texts) if not self._is_here(digest)]
            if missing:
                for digest in missing:
                    if digest in self._asked or len(self._asked) >= _MAX_ASKED:
                        continue
                    self._asked.append(digest)
                    self.stream.tell(StreamFindingsResponse(need_bulk=NeedBulk(sha256=digest)))
                return
            await self._hand_over(self._held.pop(0))

    def _is_here(self, digest: bytes) -> bool:
        return digest in self._texts or self.state.holds_bulk(digest)

    async def _hand_over(self, batch: _Batch) -> None:
        bulks: list[Bulk] = []
        for digest in sorted(batch.texts):
            if (assembly := self._texts.pop(digest, None)) is None:
                continue  # the text is already stored
            facts = [row.fact for row, _ in batch.rows if row.sha256 == digest]
            found = await self._read(assembly, next(x.format for x in facts if isinstance(x, SweepFact)))
            if isinstance(found, Bulk):
                bulks.append(found)
                continue
            for row, _ in batch.rows:
                if isinstance(row.fact, SweepFact) and row.sha256 == digest:
                    batch.refused.append(Refused(row.key, f"its text: {found}"))
                    if row.key.probe != COUNTING_PROBE:  # a counting probe sweeps no fabric
                        self.gate.unreadable(row.key.node, row.fact.lease_id, found)
            batch.rows = [pair for pair in batch.rows if pair[0].sha256 != digest]
        cost = batch.cost_bytes + sum(len(bulk.compressed) for bulk in bulks)
        submission = Submission(
            batch.rows, batch.renewed, bulks, batch.removed, full_state=batch.full_state, cost_bytes=cost
        )
        while self._unstored and (
            len(self._unstored) >= _MAX_UNSTORED_BATCHES
            or sum(size for _, size in self._unstored) + batch.memory_bytes > _MAX_WAITING_MEMORY
        ):
            await asyncio.wait((self._unstored[0][0],))
            self._drop_stored()
        try:
            stored = await self.committer.submit(submission)
        except OverloadedError as error:
            raise StreamEndedError(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error)) from error
        self._drop_stored()
        self._unstored.append((stored, batch.memory_bytes))
        stored.add_done_callback(lambda done: self._stored(done, batch.sequence, batch.refused))

    def _drop_stored(self) -> None:
        while self._unstored and self._unstored[0][0].done():
            self._unstored.pop(0)

    def _stored(
        self, done: "asyncio.Future[list[Refused]]", sequence: int, refused: Sequence[Refused]
    ) -> None:
        if done.cancelled():
            return
        match done.exception():
            case None:
                if any(one.dropped for one in done.result()):
                    # The agent assumes that the collector has it. The next Welcome says what is stored.
                    self.stream.end(
                        grpc.StatusCode.FAILED_PRECONDITION,
                        "the collector dropped a text or finding that the batch refers to: connect again",
                    )
                    return
                refused = [*refused, *done.result()]
                self.streams.counters.refused += len(refused)
                self.stream.ack(sequence, [_refusal(one) for one in refused])
            case StoreFullError() as error:
                self.stream.end(grpc.StatusCode.RESOURCE_EXHAUSTED, f"not stored: {error}")
            case StoreError() as error:
                self.stream.end(grpc.StatusCode.UNAVAILABLE, f"not stored: {error}")
            case error:
                self.stream.end(grpc.StatusCode.INTERNAL, f"not stored: {error!r}")

    # Texts

    async def _take_chunk(self, chunk: BulkChunk) -> None:
        if self._assembly is None or self._assembly.sha256 != chunk.sha256:
            node, is_wanted = self.stream.node, chunk.sha256 in self._asked
            if chunk.offset or not (is_wanted or is_fabric(node) or self.gate.may_sweep(node)):
                return  # the finding that names it is refused, or the text is requested again
            # An interrupted transfer starts again.
            self._assembly = BulkAssembly(chunk.sha256, self.limits)
        self._assembly.add(chunk.offset, chunk.data)
        if not chunk.last:
            return
        assembly, self._assembly = self._assembly, None
        self._keep(assembly)
        if assembly.sha256 in self._asked:
            self._asked.remove(assembly.sha256)
        self.streams.counters.bulk_texts += 1
        await self._release()

    def _keep(self, text: BulkAssembly) -> None:
        """Keep a complete text until a finding names it. Drop the oldest texts that do not fit beside it.

        A text that the first held batch names is not dropped: the batch would request it again, and its
        return would drop the next one, without end.
        """
        self._texts.pop(text.sha256, None)
        needed = self._held[0].texts if self._held else set()
        others = deque(digest for digest in self._texts if digest not in needed)
        total_bytes = text.size_bytes + sum(one.size_bytes for one in self._texts.values())
        while others and (len(others) >= _MAX_TEXTS or total_bytes > self.limits.compressed):
            total_bytes -= self._texts.pop(others.popleft()).size_bytes
        if total_bytes > self.limits.compressed:
            if text.sha256 not in needed:
                return  # requested again when the batch that names it is the first
            text.invalidate(
                f"the texts of its batch have more than {self.limits.compressed} compressed bytes"
            )
        self._texts[text.sha256] = text

    async def _read(self, assembly: BulkAssembly, text_format: str) -> Bulk | str:
        """Decompress and read a text before any finding may name it, so an unreadable text replaces nothing.

        Returns the text, or why it cannot be read.
        """

        def work() -> Bulk:
            bulk, text = assembly.finish()
            self.read_text(bulk.sha256, text, f"{text_format} of {self.stream.node}", text_format)
            return bulk

        try:
            return await self.in_thread(work)
        except (BulkError, FormatError) as error:
            return str(error)


def _refusal(refused: Refused) -> Refusal:
    node, probe, subject = (text[:MAX_NAME_CHARS] for text in refused.key)
    return Refusal(
        key=FindingKey(node=node, probe=probe, subject=subject),
        reason=refused.reason,
        lease_moved=refused.lease_moved,
    )
