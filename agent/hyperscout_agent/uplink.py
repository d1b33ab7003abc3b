"""The stream to the collector: current state up, acks and directives down.

One session is one stream: Hello, Welcome, the full state, then what changes. Nothing is remembered from
one session to the next but the store itself, so whatever breaks, the answer is always the same: back
off, connect, send the full state.
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

import grpc
import grpc.aio
from hyperscout.v1.discovery_pb2 import (
    BulkChunk,
    FindingBatch,
    Heartbeat,
    Hello,
    StreamFindingsRequest,
    StreamFindingsResponse,
    SweepLease,
    SweepRevoke,
    Welcome,
)
from hyperscout.v1.discovery_pb2_grpc import DiscoveryServiceStub
from hyperscout_formats.leader import leader_in

from hyperscout_agent.backoff import Backoff
from hyperscout_agent.bulk import Bulk
from hyperscout_agent.credentials import CredentialsError, Metadata, tls_hint
from hyperscout_agent.findings import Batch, FindingStore
from hyperscout_agent.route import Route

_log = logging.getLogger(__name__)

# A batch or chunk stays under 1 MiB encoded, with room for its envelope.
_BATCH_BYTES = 768 * 1024
_BATCH_FINDINGS = 2000
_CHUNK_BYTES = 960 * 1024
# Batches on their way: enough to fill the path, few enough that a slow collector holds the agent back.
_WINDOW = 4
# A collector that takes this long to greet or to store a batch is as good as gone; another may be better.
_WELCOME_TIMEOUT_S = 30.0
_ACK_TIMEOUT_S = 120.0
_HEARTBEAT_S = (0.01, 3600.0)
_BACKOFF_BASE_S = 0.5
_BACKOFF_CAP_S = 60.0
# "Full" answers start at 8 s, answers that only a person can change at the cap.
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

CHANNEL_OPTIONS: tuple[tuple[str, int | str], ...] = (
    # A path that drops packets silently is noticed in 20 + 10 s, with or without traffic.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
    # Back-off is ours; gRPC's own would come on top of it.
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    # Despite its name the least time that a connection may take to come about, before it is given up: ten
    # thousand agents that lost one leader shake hands with the next at once. A refusal is noticed at once.
    ("grpc.min_reconnect_backoff_ms", 10_000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.max_receive_message_length", 1024 * 1024),
    # A name may stand for several collectors of which one leads: each is tried in time (gRFC A62).
    ("grpc.service_config", '{"loadBalancingConfig": [{"pick_first": {"shuffleAddressList": true}}]}'),
    # A node's proxy settings are for its users' traffic.
    ("grpc.enable_http_proxy", 0),
)

Call = grpc.aio.StreamStreamCall[StreamFindingsRequest, StreamFindingsResponse]


def plaintext_channel(target: str) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS)


class _SessionError(Exception):
    """This stream is over; says why. `failures`: how far up the back-off starts. `leader`: see `Route`."""

    def __init__(self, reason: str, failures: int = 0, leader: str | None = None) -> None:
        super().__init__(reason)
        self.failures = failures
        self.leader = leader


@dataclass(slots=True)
class UplinkStats:
    """What the uplink did since the start of the process."""

    connected: bool = False
    sessions: int = 0  # streams that were greeted
    failures: int = 0
    batches_acked: int = 0
    findings_sent: int = 0
    refusals: int = 0
    bulk_bytes_sent: int = 0  # compressed


@dataclass(slots=True)
class _Session:
    in_flight: deque[tuple[int, Batch, float]] = field(default_factory=deque)  # sequence, batch, sent at
    bulk_held: set[bytes] = field(default_factory=set)
    bulk_wanted: deque[bytes] = field(default_factory=deque)
    sequence: int = 0
    full_state_sequence: int = 0  # of the batch that ended the full state; 0 = not sent yet
    heartbeat_interval_s: float = 10.0
    sent_at_s: float = 0.0


def _nothing(*_: object) -> None:
    return None


def _no_metadata() -> Metadata:
    return ()


class Uplink:
    """Keeps a stream to one of `targets` (see `Route`), and the store's dirty set small.

    `clock`: monotonic seconds; `wall_ns`: nanoseconds since 1970. `instance`: greater for each start
    of the process. `channel` and `metadata` are asked at each stream, for what to show is renewed meanwhile.
    `on_end` is called when a stream that was greeted ends: leases end with it. Call-backs must not block.
    """

    def __init__(
        self,
        targets: Sequence[str],
        store: FindingStore,
        *,
        version: str,
        probes: Sequence[str],
        instance: int,
        on_lease: Callable[[SweepLease], None] = _nothing,
        on_revoke: Callable[[SweepRevoke], None] = _nothing,
        on_intervals: Callable[[Mapping[str, float]], None] = _nothing,
        on_end: Callable[[], None] = _nothing,
        clock: Callable[[], float] = time.monotonic,
        wall_ns: Callable[[], int] = time.time_ns,
        rng: Random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        channel: Callable[[str], grpc.aio.Channel] = plaintext_channel,
        metadata: Callable[[], Metadata] = _no_metadata,
    ) -> None:
        if not targets:
            raise ValueError("no collector address")
        self.stats = UplinkStats()
        self._store = store
        self._hello = Hello(node=store.node, version=version, probes=probes, instance=instance)
        self._on_lease = on_lease
        self._on_revoke = on_revoke
        self._on_intervals = on_intervals
        self._on_end = on_end
        self._clock = clock
        self._wall_ns = wall_ns
        self._sleep = sleep
        self._channel = channel
        self._metadata = metadata
        self._laments: dict[str, str] = {}
        self._route = Route(targets, Backoff(rng, base_s=_BACKOFF_BASE_S, cap_s=_BACKOFF_CAP_S), rng)

    async def run(self) -> None:
        """Stream until cancelled. Never raises for what a collector or the network does."""
        while True:
            target = self._route.target
            failures, leader = 0, None
            try:
                await self._session(target)
            except _SessionError as ended:
                failures, leader = ended.failures, ended.leader
                hint = tls_hint(str(ended))
                self._lament(target, f"{hint} ({ended})" if hint else str(ended))
            except CredentialsError as error:
                self._lament(target, f"nothing to show to it: {error}")
            except grpc.aio.AioRpcError as error:
                failures, leader = _failures_of(error.code()), leader_in(error.trailing_metadata())
                self._lament(target, f"{error.code().name}: {error.details()}")
            except Exception:
                # A defect of ours must not cost the node its voice; the trace says where it is.
                _log.exception("collector %s: the stream ended on an unexpected error", target)
            self.stats.failures += 1
            await self._sleep(self._route.failed(failures=failures, leader=leader))

    def _lament(self, target: str, reason: str) -> None:
        """Log why a stream ended; the same reason over and over only for those who debug."""
        level = logging.DEBUG if self._laments.get(target) == reason else logging.WARNING
        self._laments[target] = reason
        _log.log(level, "collector %s: %s", target, reason)

    async def _session(self, target: str) -> None:
        """One stream, until it ends (always by an exception)."""
        metadata = self._metadata()
        channel = self._channel(target)
        call = DiscoveryServiceStub(channel).StreamFindings(metadata=metadata)
        greeted = False
        try:
            await _write(call, StreamFindingsRequest(hello=self._hello))
            try:
                async with asyncio.timeout(_WELCOME_TIMEOUT_S):
                    first = await _read(call)
            except TimeoutError:
                raise _SessionError(f"no answer to Hello in {_WELCOME_TIMEOUT_S:.0f} s") from None
            if not first.HasField("welcome"):
                raise _SessionError(f"{first.WhichOneof('message')} instead of Welcome")
            session = self._greet(first.welcome)
            greeted = True
            self._route.greeted()
            self._laments.clear()
            _log.info("collector %s: connected, version %s", target, first.welcome.version)
            await self._stream(call, session)
        finally:
            if greeted:
                self.stats.connected = False
                self._store.end_stream()
                self._on_end()
            call.cancel()
            await channel.close()

    def _greet(self, welcome: Welcome) -> _Session:
        self.stats.connected = True
        self.stats.sessions += 1
        low_s, high_s = _HEARTBEAT_S
        session = _Session(bulk_held=set(welcome.bulk_held), sent_at_s=self._clock())
        if welcome.heartbeat_interval_s > 0:
            session.heartbeat_interval_s = min(max(welcome.heartbeat_interval_s, low_s), high_s)
        self._store.begin_stream()
        return session

    async def _stream(self, call: Call, session: _Session) -> None:
        """Send and receive at once; the first of the two to end ends both."""
        sender = asyncio.create_task(self._send(call, session), name="uplink-send")
        receiver = asyncio.create_task(self._receive(call, session), name="uplink-receive")
        try:
            done, _ = await asyncio.wait((sender, receiver), return_when=asyncio.FIRST_COMPLETED)
            # The receiver knows the status that the collector gave; the sender only that the stream broke.
            for task in (receiver, sender):
                if task in done:
                    task.result()
        finally:
            for task in (sender, receiver):
                task.cancel()
            await asyncio.gather(sender, receiver, return_exceptions=True)

    # Up

    async def _send(self, call: Call, session: _Session) -> None:
        store = self._store
        while True:
            while session.bulk_wanted:
                if bulk := store.bulk(session.bulk_wanted.popleft()):
                    await self._send_bulk(call, session, bulk)
            if len(session.in_flight) < _WINDOW:
                if (batch := store.next_batch(_BATCH_BYTES, _BATCH_FINDINGS)) is not None:
                    await self._send_batch(call, session, batch)
                    continue
            else:
                store.changed.clear()  # nothing may go out before an ack, which wakes us
            now_s = self._clock()
            if session.in_flight and now_s - session.in_flight[0][2] > _ACK_TIMEOUT_S:
                raise _SessionError(f"no ack in {_ACK_TIMEOUT_S:.0f} s")
            wait_s = session.sent_at_s + session.heartbeat_interval_s - now_s
            if wait_s <= 0:
                await self._write(
                    call, session, StreamFindingsRequest(heartbeat=Heartbeat(findings=len(store)))
                )
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await store.changed.wait()

    async def _send_batch(self, call: Call, session: _Session, batch: Batch) -> None:
        named = {look.sweep.sha256 for look in batch.findings if look.HasField("sweep")}
        bulks = [self._store.bulk(digest) for digest in named - session.bulk_held]
        for bulk in bulks:
            if bulk is not None:
                await self._send_bulk(call, session, bulk)
        session.sequence += 1
        session.in_flight.append((session.sequence, batch, self._clock()))
        if batch.full_state_ends:
            session.full_state_sequence = session.sequence
        message = FindingBatch(
            sequence=session.sequence,
            findings=batch.findings,
            removed=batch.removed,
            full_state_ends=batch.full_state_ends,
        )
        message.sent_at.FromNanoseconds(self._wall_ns())
        await self._write(call, session, StreamFindingsRequest(batch=message))
        self.stats.findings_sent += len(batch.findings)

    async def _send_bulk(self, call: Call, session: _Session, bulk: Bulk) -> None:
        size = len(bulk.compressed)
        for offset in range(0, size, _CHUNK_BYTES):
            data = bulk.compressed[offset : offset + _CHUNK_BYTES]
            last = offset + len(data) == size
            chunk = BulkChunk(sha256=bulk.sha256, offset=offset, data=data, last=last)
            await self._write(call, session, StreamFindingsRequest(chunk=chunk))
            self.stats.bulk_bytes_sent += len(data)
        session.bulk_held.add(bulk.sha256)

    async def _write(self, call: Call, session: _Session, request: StreamFindingsRequest) -> None:
        await _write(call, request)
        session.sent_at_s = self._clock()

    # Down

    async def _receive(self, call: Call, session: _Session) -> None:
        while True:
            response = await _read(call)
            match response.WhichOneof("message"):
                case "ack":
                    self._take_ack(session, response)
                case "lease":
                    self._on_lease(response.lease)
                case "revoke":
                    self._on_revoke(response.revoke)
                case "intervals":
                    self._on_intervals(dict(response.intervals.interval_s_by_probe))
                case "need_bulk":
                    self._want_bulk(session, response.need_bulk.sha256)
                case other:
                    _log.debug("passed over a message of the collector: %s", other)

    def _take_ack(self, session: _Session, response: StreamFindingsResponse) -> None:
        ack = response.ack
        if ack.sequence > session.sequence:
            raise _SessionError(f"ack of batch {ack.sequence}, but only {session.sequence} were sent")
        while session.in_flight and session.in_flight[0][0] <= ack.sequence:
            _, batch, _ = session.in_flight.popleft()
            self._store.acked(batch)
            self.stats.batches_acked += 1
        for refusal in ack.refusals:
            self.stats.refusals += 1
            _log.warning(
                "the collector refused %s %s: %s", refusal.key.probe, refusal.key.subject, refusal.reason
            )
        if 0 < session.full_state_sequence <= ack.sequence:
            self._route.settled()
        self._store.changed.set()

    def _want_bulk(self, session: _Session, digest: bytes) -> None:
        if self._store.bulk(digest) is None:
            _log.warning("the collector asks for a text that is no longer here: %s", digest.hex()[:16])
        elif digest not in session.bulk_wanted:
            session.bulk_wanted.append(digest)
            self._store.changed.set()


def _failures_of(code: grpc.StatusCode) -> int:
    if code == grpc.StatusCode.RESOURCE_EXHAUSTED:
        return _FAILURES_WHEN_FULL
    return _FAILURES_WHEN_REFUSED if code in _REFUSED else 0


async def _write(call: Call, request: StreamFindingsRequest) -> None:
    try:
        await call.write(request)
    except asyncio.InvalidStateError:
        # The call is over already; its status is what matters.
        raise await _status(call) from None


async def _read(call: Call) -> StreamFindingsResponse:
    response = await call.read()
    if isinstance(response, StreamFindingsResponse):
        return response
    raise await _status(call)


async def _status(call: Call) -> Exception:
    """Why the collector ended the stream."""
    code = await call.code()
    if code == grpc.StatusCode.OK:
        return _SessionError("the collector ended the stream")
    leader = leader_in(await call.trailing_metadata())
    return _SessionError(f"{code.name}: {await call.details()}", _failures_of(code), leader)
