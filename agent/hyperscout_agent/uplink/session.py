"""Runs one stream to a collector: Hello and Welcome, the full state, then changes; acks and directives back.

Only the finding store persists from one stream to the next.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
from hyperscout.v1.discovery_pb2 import (
    BulkChunk,
    FindingBatch,
    Heartbeat,
    Hello,
    StreamFindingsRequest,
    StreamFindingsResponse,
    Welcome,
)
from hyperscout_formats.text.leader import leader_in

from hyperscout_agent.findings.bulk import Bulk
from hyperscout_agent.findings.store import Batch, FindingStore, Key

_log = logging.getLogger(__name__)

# A batch or chunk stays under 1 MiB when encoded, including its envelope.
_BATCH_BYTES = 768 * 1024
_BATCH_FINDINGS = 2000
_CHUNK_BYTES = 960 * 1024
# Unacked batches: enough to use the path fully, few enough that a slow collector slows the agent down.
_WINDOW = 4
# The session ends if a collector takes longer than this for its Welcome or to store a batch.
_WELCOME_TIMEOUT_S = 30.0
_ACK_TIMEOUT_S = 120.0
_HEARTBEAT_S = (0.01, 3600.0)
# Queued messages of probes. An agent takes part in one NCCL run at a time.
_MAX_MESSAGES = 16
# After "full" the back-off limit is at least 8 s. After errors that only an operator can fix it is the cap.
_FAILURES_WHEN_FULL = 5
_FAILURES_WHEN_REFUSED = 8

_REFUSED = frozenset(
    {
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.ABORTED,
    }
)

Call = grpc.aio.StreamStreamCall[StreamFindingsRequest, StreamFindingsResponse]


class SessionError(Exception):
    """The stream ended. The message gives the reason. `failures`, `leader`: see `Route.failed`.

    `is_expected`: the collector starts, ends or does not lead.
    """

    def __init__(
        self, reason: str, failures: int = 0, leader: str | None = None, *, is_expected: bool = False
    ) -> None:
        super().__init__(reason)
        self.failures = failures
        self.leader = leader
        self.is_expected = is_expected


@dataclass(slots=True)
class UplinkStats:
    """Statistics of the uplink since the start of the process."""

    connected: bool = False
    sessions: int = 0  # streams with a Welcome
    failures: int = 0
    batches_sent: int = 0
    batches_acked: int = 0
    findings_sent: int = 0
    findings_acked: int = 0
    refusals: int = 0
    bulk_bytes_sent: int = 0  # compressed


Handler = Callable[[Any], None]
"""Takes the message of one directive. It must not block."""

Directives = Mapping[str, Sequence[Handler]]
"""Handlers of the collector's directives, by field of `StreamFindingsResponse.message`."""


@dataclass(frozen=True, slots=True)
class _UnackedBatch:
    """A batch that waits for its ack, with the texts that it names.

    The store may have dropped these texts since. There are at most `_WINDOW` such batches, each with at most
    `max_bulk_bytes` of the store.
    """

    sequence: int
    batch: Batch
    at_s: float
    bulks: tuple[Bulk, ...]


class Outbox:
    """Messages of probes for the collector. `changed`: set when there is something to send."""

    def __init__(self, changed: asyncio.Event) -> None:
        self._messages: deque[StreamFindingsRequest] = deque(maxlen=_MAX_MESSAGES)
        self._changed = changed

    def put(self, message: StreamFindingsRequest) -> None:
        self._messages.append(message)
        self._changed.set()

    def take(self) -> StreamFindingsRequest | None:
        """Remove and return the oldest message, or return None."""
        return self._messages.popleft() if self._messages else None

    def clear(self) -> None:
        self._messages.clear()


class Session:
    """One stream. Call `greet`, then `run`.

    `settled`: called when the collector has stored the full state. `clock`: monotonic seconds. `wall_ns`:
    nanoseconds since 1970.
    """

    def __init__(
        self,
        call: Call,
        store: FindingStore,
        stats: UplinkStats,
        directives: Directives,
        outbox: Outbox,
        *,
        settled: Callable[[], None],
        clock: Callable[[], float],
        wall_ns: Callable[[], int],
    ) -> None:
        self._call = call
        self._store = store
        self._stats = stats
        self._directives = directives
        self._outbox = outbox
        self._settled = settled
        self._clock = clock
        self._wall_ns = wall_ns
        self._in_flight: deque[_UnackedBatch] = deque()
        self._bulk_held: set[bytes] = set()
        self._bulk_wanted: dict[bytes, Bulk] = {}
        self._sequence = 0
        self._full_state_sequence = 0  # sequence of the batch that ends the full state; 0 = not sent yet
        self._heartbeat_interval_s = 10.0
        self._sent_at_s = 0.0

    async def greet(self, hello: Hello) -> Welcome:
        """Send Hello and wait for Welcome. Raises SessionError."""
        await _write(self._call, StreamFindingsRequest(hello=hello))
        try:
            async with asyncio.timeout(_WELCOME_TIMEOUT_S):
                first = await _read(self._call)
        except TimeoutError:
            raise SessionError(f"the collector did not answer Hello in {_WELCOME_TIMEOUT_S:.0f} s") from None
        if not first.HasField("welcome"):
            raise SessionError(f"expected Welcome, the collector sent {first.WhichOneof('message')}")
        low_s, high_s = _HEARTBEAT_S
        self._bulk_held = set(first.welcome.bulk_held)
        self._sent_at_s = self._clock()
        if first.welcome.heartbeat_interval_s > 0:
            self._heartbeat_interval_s = min(max(first.welcome.heartbeat_interval_s, low_s), high_s)
        return first.welcome

    async def run(self) -> None:
        """Send and receive concurrently until one of them ends, always by an exception, which is raised."""
        sender = asyncio.create_task(self._send(), name="uplink-send")
        receiver = asyncio.create_task(self._receive(), name="uplink-receive")
        try:
            done, _ = await asyncio.wait((sender, receiver), return_when=asyncio.FIRST_COMPLETED)
            # The receiver has the collector's status. The sender only knows that the stream broke.
            for task in (receiver, sender):
                if task in done:
                    task.result()
        finally:
            for task in (sender, receiver):
                task.cancel()
            await asyncio.gather(sender, receiver, return_exceptions=True)

    # To the collector

    async def _send(self) -> None:
        store = self._store
        while True:
            while self._bulk_wanted:
                await self._send_bulk(self._bulk_wanted.pop(next(iter(self._bulk_wanted))))
            while (message := self._outbox.take()) is not None:
                await self._write(message)
            if len(self._in_flight) < _WINDOW:
                if (batch := store.next_batch(_BATCH_BYTES, _BATCH_FINDINGS)) is not None:
                    await self._send_batch(batch)
                    continue
            else:
                store.changed.clear()  # the window is full; an ack sets the event again
            now_s = self._clock()
            if self._in_flight and now_s - self._in_flight[0].at_s > _ACK_TIMEOUT_S:
                raise SessionError(f"the collector acknowledged no batch in {_ACK_TIMEOUT_S:.0f} s")
            wait_s = self._sent_at_s + self._heartbeat_interval_s - now_s
            if wait_s <= 0:
                await self._write(StreamFindingsRequest(heartbeat=Heartbeat(findings=len(store))))
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await store.changed.wait()

    async def _send_batch(self, batch: Batch) -> None:
        named = {one.sweep.sha256 for one in batch.findings if one.HasField("sweep")}
        bulks = tuple(bulk for digest in named if (bulk := self._store.bulk(digest)))
        # The collector drops a text that no finding names.
        self._bulk_held = {digest for digest in self._bulk_held if self._store.bulk(digest)}
        for bulk in bulks:
            if bulk.sha256 not in self._bulk_held:
                await self._send_bulk(bulk)
        self._sequence += 1
        self._in_flight.append(_UnackedBatch(self._sequence, batch, self._clock(), bulks))
        if batch.full_state_ends:
            self._full_state_sequence = self._sequence
        message = FindingBatch(
            sequence=self._sequence,
            findings=batch.findings,
            unchanged=batch.unchanged,
            removed=batch.removed,
            full_state_ends=batch.full_state_ends,
        )
        message.sent_at.FromNanoseconds(self._wall_ns())
        await self._write(StreamFindingsRequest(batch=message))
        self._stats.batches_sent += 1
        self._stats.findings_sent += len(batch.findings) + len(batch.unchanged)

    async def _send_bulk(self, bulk: Bulk) -> None:
        size = len(bulk.compressed)
        for offset in range(0, size, _CHUNK_BYTES):
            data = bulk.compressed[offset : offset + _CHUNK_BYTES]
            last = offset + len(data) == size
            chunk = BulkChunk(sha256=bulk.sha256, offset=offset, data=data, last=last)
            await self._write(StreamFindingsRequest(chunk=chunk))
            self._stats.bulk_bytes_sent += len(data)
        self._bulk_held.add(bulk.sha256)

    async def _write(self, request: StreamFindingsRequest) -> None:
        await _write(self._call, request)
        self._sent_at_s = self._clock()

    # From the collector

    async def _receive(self) -> None:
        while True:
            response = await _read(self._call)
            match response.WhichOneof("message"):
                case "ack":
                    self._take_ack(response)
                case "need_bulk":
                    self._want_bulk(response.need_bulk.sha256)
                case str(kind) if kind in self._directives:
                    for handle in self._directives[kind]:
                        handle(getattr(response, kind))
                case other:
                    _log.debug("ignored a message of the collector: %s", other)

    def _take_ack(self, response: StreamFindingsResponse) -> None:
        ack = response.ack
        if ack.sequence > self._sequence:
            raise SessionError(
                f"the collector sent an ack of batch {ack.sequence}, but only {self._sequence} were sent"
            )
        refused = {Key(one.key.probe, one.key.subject) for one in ack.refusals}
        while self._in_flight and self._in_flight[0].sequence <= ack.sequence:
            batch = self._in_flight.popleft().batch
            self._store.acked(batch, refused)
            self._stats.batches_acked += 1
            self._stats.findings_acked += len(batch.findings) + len(batch.unchanged)
        for refusal in ack.refusals:
            self._stats.refusals += 1
            key, level = refusal.key, logging.INFO if refusal.lease_moved else logging.WARNING
            _log.log(level, "the collector refused %s %s: %s", key.probe, key.subject, refusal.reason)
        if 0 < self._full_state_sequence <= ack.sequence:
            self._settled()
        self._store.changed.set()

    def _want_bulk(self, digest: bytes) -> None:
        sent = (bulk for one in self._in_flight for bulk in one.bulks if bulk.sha256 == digest)
        if (bulk := next(sent, None)) is None:
            _log.warning("the collector requested a text that no sent batch names: %s", digest.hex()[:16])
            return
        self._bulk_wanted[digest] = bulk
        self._store.changed.set()


def failures_of(code: grpc.StatusCode) -> int:
    """Return the minimum failure count of the back-off after a gRPC status."""
    if code == grpc.StatusCode.RESOURCE_EXHAUSTED:
        return _FAILURES_WHEN_FULL
    return _FAILURES_WHEN_REFUSED if code in _REFUSED else 0


async def _write(call: Call, request: StreamFindingsRequest) -> None:
    try:
        await call.write(request)
    except asyncio.InvalidStateError:
        # The call has already ended; its status is the reason.
        raise await _status(call) from None


async def _read(call: Call) -> StreamFindingsResponse:
    response = await call.read()
    if isinstance(response, StreamFindingsResponse):
        return response
    raise await _status(call)


async def _status(call: Call) -> Exception:
    """Return an exception with the reason why the collector ended the stream."""
    code = await call.code()
    if code == grpc.StatusCode.OK:
        return SessionError("the collector ended the stream", is_expected=True)
    leader, is_expected = leader_in(await call.trailing_metadata()), code == grpc.StatusCode.UNAVAILABLE
    reason = f"{code.name}: {await call.details()}"
    return SessionError(reason, failures_of(code), leader, is_expected=is_expected)
