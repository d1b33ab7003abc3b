"""One agent's stream after its Hello: what each message means, and when it counts as stored.

Messages are taken in the order in which they came. A batch that names a text which is not here holds up
itself and the batches behind it until the text is; so acks stay cumulative, and no finding takes the
place of an older one before it can be read.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

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
from hyperscout.v1.finding_pb2 import Finding, FindingKey
from hyperscout_formats.errors import FormatError
from hyperscout_formats.reporters import FABRIC_PROBES, SWITCH_PROBE, is_fabric, is_switch

from hyperscout_collector.evidence.committer import (
    Committer,
    FullState,
    OverloadedError,
    Refused,
    Submission,
)
from hyperscout_collector.evidence.rows import BadFinding, Key, Row, SweepFact, newer, row_of
from hyperscout_collector.evidence.state import COUNTING_PROBE, LEASED_PROBES, AgentRow, Bulk, EvidenceState
from hyperscout_collector.evidence.store import StoreError, StoreFullError
from hyperscout_collector.ingest.bulk import BulkAssembly, BulkError, BulkLimits
from hyperscout_collector.ingest.streams import AgentStream, IngestCounters, StreamEndedError

_log = logging.getLogger(__name__)

MAX_BATCH_BYTES = 1024 * 1024
_MAX_HELD_BATCHES = 16  # behind a missing text; an agent has fewer on their way
_MAX_UNSTORED_BATCHES = 64
_MAX_SAID_CHARS = 100
_MAX_TEXTS = 8  # come in and not named by a finding yet
_TEXT_TIMEOUT_S = 60.0


class SweepGate(Protocol):
    """Who may report what a whole fabric looks like."""

    def may_sweep(self, node: str) -> bool:
        """Whether the node holds a lease at all."""

    def refuse_sweep(self, node: str, lease_id: str) -> str | None:
        """Why a fabric finding of this node under this lease is refused; None when it is taken."""

    def unreadable(self, node: str, lease_id: str, reason: str) -> None:
        """A sweep came whose text is of no use."""


# Reads a text in a thread and keeps the reading: (digest, text, source, format). Raises FormatError.
TextReader = Callable[[bytes, bytes, str, str], object]
# Takes what an agent says of an NCCL run: (node, message). Must not block.
TakeId = Callable[[str, NcclId], None]


@dataclass(slots=True)
class _Batch:
    """A batch that was looked at. `texts`: digests that its findings name."""

    sequence: int
    rows: list[tuple[Row, bytes]]
    removed: list[Key]
    refused: list[Refused]
    full_state: FullState | None
    texts: set[bytes]
    cost_bytes: int
    came_ns: int


@dataclass(slots=True)
class Session:
    """Reads one stream's messages. Raises StreamEndedError when the stream must end."""

    stream: AgentStream
    state: EvidenceState
    committer: Committer
    gate: SweepGate
    read_text: TextReader
    in_thread: Callable[[Callable[[], Bulk]], Awaitable[Bulk]]
    clock_ns: Callable[[], int]
    limits: BulkLimits
    counters: IngestCounters
    take_id: TakeId
    _sequence: int = 0
    _seen: set[Key] | None = field(default_factory=set)  # since Hello; None = the full state has ended
    _held: deque[_Batch] = field(default_factory=deque)
    _assembly: BulkAssembly | None = None
    _texts: dict[bytes, BulkAssembly] = field(default_factory=dict)  # whole, and not read yet
    _asked: set[bytes] = field(default_factory=set)
    _said: set[str] = field(default_factory=set)  # refusals that were logged
    _unstored: "deque[asyncio.Future[list[Refused]]]" = field(default_factory=deque)

    async def take(self, request: StreamFindingsRequest) -> None:
        """One message."""
        now_ns = self.clock_ns()
        self.stream.last_heard_ns = now_ns
        self.counters.bytes += request.ByteSize()
        match request.WhichOneof("message"):
            case "batch":
                await self._take_batch(request.batch, now_ns)
            case "chunk":
                await self._take_chunk(request.chunk)
            case "nccl_id":
                self.take_id(self.stream.node, request.nccl_id)
            case "heartbeat":
                pass
            case "hello":
                raise StreamEndedError(grpc.StatusCode.INVALID_ARGUMENT, "Hello came twice")
            case _:
                pass  # a message of a newer agent
        if self._held and now_ns - self._held[0].came_ns > _TEXT_TIMEOUT_S * 1e9:
            raise StreamEndedError(
                grpc.StatusCode.FAILED_PRECONDITION, "a finding names a text that did not come"
            )

    # Batches

    async def _take_batch(self, batch: FindingBatch, now_ns: int) -> None:
        if batch.sequence != self._sequence + 1:
            raise StreamEndedError(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"batch {batch.sequence} came, {self._sequence + 1} was next",
            )
        self._sequence = batch.sequence
        if batch.ByteSize() > MAX_BATCH_BYTES:
            raise StreamEndedError(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"a batch of {batch.ByteSize()} bytes; up to {MAX_BATCH_BYTES} are taken",
            )
        if len(self._held) >= _MAX_HELD_BATCHES:
            raise StreamEndedError(
                grpc.StatusCode.RESOURCE_EXHAUSTED, f"{len(self._held)} batches wait for a text"
            )
        self.counters.batches += 1
        self.counters.findings += len(batch.findings)
        self._held.append(self._look_at(batch, now_ns))
        await self._release()

    def _look_at(self, batch: FindingBatch, now_ns: int) -> _Batch:
        sent_ns = _sent_ns(batch, now_ns)
        self.stream.offset_ns = sent_ns - now_ns
        looked = _Batch(batch.sequence, [], [], [], None, set(), batch.ByteSize(), now_ns)
        for finding in batch.findings:
            self._look_at_finding(finding, sent_ns, now_ns, looked)
        for key in batch.removed:
            if key.node == self.stream.node:
                looked.removed.append(_key(key))
            else:
                self._refuse(_key(key), "foreign_finding", looked)
        if batch.full_state_ends:
            if self._seen is None:
                raise StreamEndedError(grpc.StatusCode.INVALID_ARGUMENT, "the full state ended twice")
            hello = self.stream.hello
            looked.full_state = FullState(
                AgentRow(hello.node, hello.instance, hello.version), frozenset(self._seen)
            )
            self._seen = None
        return looked

    def _look_at_finding(self, finding: Finding, sent_ns: int, now_ns: int, looked: _Batch) -> None:
        key = _key(finding.key)
        if key.node != self.stream.node:
            self._refuse(key, "foreign_finding", looked)
            return
        if reason := _whose(finding):
            self._refuse(key, "wrong_probe", looked, reason)
            return
        if self._seen is not None:
            self._seen.add(key)
        try:
            row = row_of(finding, sent_ns=sent_ns, received_ns=now_ns, looks=self.state.looks(key))
        except BadFinding as error:
            looked.refused.append(Refused(key, str(error)))
            return
        # What a manager shows needs no lease: there is one that asks it, and it loads no fabric.
        if not is_fabric(key.node) and (key.probe in LEASED_PROBES or finding.HasField("sweep")):
            if any(not newer(row, look, now_ns) and row.rank == look.rank for look in self.state.looks(key)):
                return  # the full state tells it again; under which lease it was made no longer matters
            lease_id = finding.sweep.lease_id if finding.HasField("sweep") else ""
            if refusal := self.gate.refuse_sweep(key.node, lease_id):
                looked.refused.append(Refused(key, refusal))
                return
        if row.sha256:
            looked.texts.add(row.sha256)
        looked.rows.append((row, finding.SerializeToString()))

    def _refuse(self, key: Key, why: str, looked: _Batch, reason: str = "") -> None:
        """Somebody reports what is not theirs: counted each time, and said once a stream."""
        node = self.stream.node
        reason = reason or f"not a finding of {node}"
        looked.refused.append(Refused(key, reason))
        if why not in self._said:
            self._said.add(why)
            probe, subject, whose = map(_for_the_log, (key.probe, key.subject, key.node))
            _log.warning("refused: %s reports %s %s of %s: %s", node, probe, subject, whose, reason)
        self.counters.refusals[why] += 1

    async def _release(self) -> None:
        """Hand over the batches whose texts are here, in order."""
        while self._held:
            missing = [digest for digest in sorted(self._held[0].texts) if not self._is_here(digest)]
            if missing:
                for digest in missing:
                    if digest in self._asked:
                        continue
                    self._asked.add(digest)
                    self.stream.tell(StreamFindingsResponse(need_bulk=NeedBulk(sha256=digest)))
                return
            await self._hand_over(self._held.popleft())

    def _is_here(self, digest: bytes) -> bool:
        return digest in self._texts or self.state.holds_bulk(digest)

    async def _hand_over(self, batch: _Batch) -> None:
        bulks: list[Bulk] = []
        for digest in sorted(batch.texts):
            if (assembly := self._texts.pop(digest, None)) is None:
                continue  # it is in the store
            facts = [row.fact for row, _ in batch.rows if row.sha256 == digest]
            found = await self._read(assembly, next(x.format for x in facts if isinstance(x, SweepFact)))
            if isinstance(found, Bulk):
                bulks.append(found)
                continue
            for row, _ in batch.rows:
                if isinstance(row.fact, SweepFact) and row.sha256 == digest:
                    batch.refused.append(Refused(row.key, f"its text: {found}"))
                    if row.key.probe != COUNTING_PROBE:  # the fabric is swept as well as before
                        self.gate.unreadable(row.key.node, row.fact.lease_id, found)
            batch.rows = [pair for pair in batch.rows if pair[0].sha256 != digest]
        cost = batch.cost_bytes + sum(len(bulk.compressed) for bulk in bulks)
        submission = Submission(
            batch.rows, bulks, batch.removed, full_state=batch.full_state, cost_bytes=cost
        )
        while len(self._unstored) >= _MAX_UNSTORED_BATCHES:
            await asyncio.wait((self._unstored[0],))
            self._drop_stored()
        try:
            stored = await self.committer.submit(submission)
        except OverloadedError as error:
            raise StreamEndedError(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error)) from error
        self._drop_stored()
        self._unstored.append(stored)
        stored.add_done_callback(lambda done: self._stored(done, batch.sequence, batch.refused))

    def _drop_stored(self) -> None:
        while self._unstored and self._unstored[0].done():
            self._unstored.popleft()

    def _stored(
        self, done: "asyncio.Future[list[Refused]]", sequence: int, refused: Sequence[Refused]
    ) -> None:
        if done.cancelled():
            return
        match done.exception():
            case None:
                if any(one.text_missing for one in done.result()):
                    # The agent thinks that we hold it: the Welcome of its next stream says what we hold.
                    self.stream.end(grpc.StatusCode.FAILED_PRECONDITION, "a text was dropped meanwhile")
                    return
                refused = [*refused, *done.result()]
                self.counters.refused += len(refused)
                self.stream.ack(sequence, [_refusal(one) for one in refused])
            case StoreFullError() as error:
                self.stream.end(grpc.StatusCode.RESOURCE_EXHAUSTED, f"not stored: {error}")
            case StoreError() as error:
                self.stream.end(grpc.StatusCode.UNAVAILABLE, f"not stored: {error}")
            case error:
                self.stream.end(grpc.StatusCode.INTERNAL, f"not stored: {error!r}")

    # Texts

    async def _take_chunk(self, chunk: BulkChunk) -> None:
        if not (is_fabric(self.stream.node) or self.gate.may_sweep(self.stream.node)):
            return  # the finding that names it will be refused, and says why
        if self._assembly is None or self._assembly.sha256 != chunk.sha256:
            # A text that was broken off half-way is begun anew.
            self._assembly = BulkAssembly(chunk.sha256, self.limits)
        self._assembly.add(chunk.offset, chunk.data)
        if not chunk.last:
            return
        assembly, self._assembly = self._assembly, None
        while len(self._texts) >= _MAX_TEXTS:
            self._texts.pop(next(iter(self._texts)))
        self._texts[assembly.sha256] = assembly
        self._asked.discard(assembly.sha256)
        self.counters.bulk_texts += 1
        await self._release()

    async def _read(self, assembly: BulkAssembly, text_format: str) -> Bulk | str:
        """Unpack and read it before any finding may name it: what cannot be read replaces nothing. Returns
        why it cannot be."""

        def work() -> Bulk:
            bulk, text = assembly.finish()
            self.read_text(bulk.sha256, text, f"{text_format} of {self.stream.node}", text_format)
            return bulk

        try:
            return await self.in_thread(work)
        except (BulkError, FormatError) as error:
            return str(error)


def _for_the_log(text: str) -> str:
    """As much of a name that nobody has checked as a line bears: it may be a megabyte, or several lines."""
    return repr(text[:_MAX_SAID_CHARS])[1:-1]


def _whose(finding: Finding) -> str:
    """Whose business it is, where it is not that of who reports it; "" where it is.

    What becomes of a finding goes by its payload, and a look that saw nothing has none: so both count.
    """
    node, probe, payload = finding.key.node, finding.key.probe, finding.WhichOneof("payload")
    if payload == "sweep" and finding.sweep.format not in ("", probe):
        return f"a text of {_for_the_log(finding.sweep.format)} is of the probe of that name"
    if is_switch(node) or probe == SWITCH_PROBE or payload == "switch_port":
        if is_switch(node) and probe == SWITCH_PROBE and payload in (None, "switch_port"):
            return ""
        return f"a switch reports the probe `{SWITCH_PROBE}` alone, and nobody else reports that"
    if is_fabric(node) or probe in FABRIC_PROBES or payload == "switch_table":
        if is_fabric(node) and probe in FABRIC_PROBES and payload in (None, "switch_table", "sweep"):
            return ""
        probes = ", ".join(f"`{name}`" for name in sorted(FABRIC_PROBES))
        return f"an agent of role fabric reports the probes {probes} alone, and nobody else reports those"
    return ""


def _sent_ns(batch: FindingBatch, now_ns: int) -> int:
    """When the batch was sent, by the agent's clock."""
    try:
        if batch.HasField("sent_at"):
            return batch.sent_at.ToNanoseconds()
        newest = max((finding.observed_at.ToNanoseconds() for finding in batch.findings), default=now_ns)
    except ValueError:
        return now_ns
    return max(newest, now_ns)


def _key(key: FindingKey) -> Key:
    return Key(key.node, key.probe, key.subject)


def _refusal(refused: Refused) -> Refusal:
    node, probe, subject = refused.key
    return Refusal(key=FindingKey(node=node, probe=probe, subject=subject), reason=refused.reason)
