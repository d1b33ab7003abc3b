"""DiscoveryService: accepts the agents' streams and ends those that violate the protocol."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from hyperscout.v1.discovery_pb2 import Hello, StreamFindingsRequest, StreamFindingsResponse, Welcome
from hyperscout.v1.discovery_pb2_grpc import DiscoveryServiceServicer
from hyperscout_formats.facts.clean_message import clean
from hyperscout_formats.text.collector_time import stamp
from hyperscout_formats.text.leader import refusal
from hyperscout_formats.text.reporters import cluster_of, is_reporter
from hyperscout_runtime.units import NS

from hyperscout_collector.evidence.committer import Committer
from hyperscout_collector.evidence.rows import MAX_NAME_CHARS
from hyperscout_collector.evidence.state import Bulk, EvidenceState
from hyperscout_collector.identity.access import Access
from hyperscout_collector.identity.callers import AccessError, Caller, reports_for
from hyperscout_collector.ingest.bulk import BulkLimits
from hyperscout_collector.ingest.intake import MAX_BATCH_BYTES, SweepGate, newest_held_ns
from hyperscout_collector.ingest.refusals import LineLimit, Refusals, host_of
from hyperscout_collector.ingest.session import Session, TakeId, TextReader
from hyperscout_collector.ingest.streams import AgentStream, Connection, End, StreamEndedError, Streams

_log = logging.getLogger(__name__)

_MAX_PROBES = 64
# `Refusals` logs these at a limited rate.
_NOTED = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)

# A message may be slightly larger than the batch or chunk in it. gRPC refuses larger messages
# (RESOURCE_EXHAUSTED) before it reads them.
_OPTIONS: Sequence[tuple[str, int]] = (
    ("grpc.max_receive_message_length", MAX_BATCH_BYTES + 64 * 1024),
    ("grpc.max_send_message_length", -1),  # a topology of 65,536 hosts in one message
    # Agents ping every 20 s. By default a gRPC server answers that with GOAWAY.
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # Detects a peer that disappeared without closing (power, network) within 30 + 10 s.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # A connection that sends nothing, and one without calls.
    ("grpc.server_handshake_timeout_ms", 5_000),
    ("grpc.max_connection_idle_ms", 30_000),
    # gRPC's estimate of the bandwidth answers each message of an idle agent with a ping: a third of the
    # processor time of the message. Without it a stream sends 64 KiB ahead: 1.3 MB/s over 50 ms.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.so_reuseport", 0),  # two collectors on one port would share the agents at random
)
MAX_OTHER_CONNECTIONS = 2000  # of readers and placers, at each port


def server_options(max_streams: int) -> list[tuple[str, int]]:
    """Return the options of a gRPC server for this number of agents."""
    # gRPC counts for each port, and closes further connections at once.
    return [*_OPTIONS, ("grpc.max_allowed_incoming_connections", max_streams + MAX_OTHER_CONNECTIONS)]


@dataclass(frozen=True, slots=True)
class IngestSettings:
    """Settings of the service.

    `clusters`: whose nodes may report, besides those of the collector's own cluster. Times in seconds. A
    stream without messages for `heartbeat_timeout_s` is ended.
    """

    version: str
    clusters: frozenset[str] = frozenset()
    hello_timeout_s: float = 10.0
    heartbeat_interval_s: float = 10.0
    heartbeat_timeout_s: float = 35.0  # three heartbeats and a margin
    bulk_limits: BulkLimits = field(default_factory=BulkLimits)


class StreamListener(Protocol):
    """Receives connections and disconnections of agents. Called on the event loop; must not block."""

    def connected(self, stream: Connection) -> None: ...

    def disconnected(self, stream: Connection) -> None: ...


class StreamOwner(Protocol):
    """Makes this replica the one that has a stream, where several take streams."""

    async def claim(self, stream: AgentStream) -> None:
        """Return when the evidence of the node is in memory. Raises StreamEndedError."""

    def ended(self, stream: AgentStream) -> None:
        """Called once for each stream that was claimed."""


class DiscoveryService(DiscoveryServiceServicer):
    """The gRPC service.

    `read_text`: see `TextReader`; it runs in a thread of this service, one text at a time. `owner`: None =
    no other replica takes streams. `leader`: of a call's context, the address that the agent gets with
    UNAVAILABLE; see `close`.
    """

    def __init__(
        self,
        settings: IngestSettings,
        streams: Streams,
        state: EvidenceState,
        committer: Committer,
        *,
        gate: SweepGate,
        listener: StreamListener,
        read_text: TextReader,
        clock_ns: Callable[[], int],
        identify: Access | None = None,
        take_id: TakeId | None = None,
        owner: StreamOwner | None = None,
        leader: Callable[[Any], str | None] = lambda context: None,
    ) -> None:
        self._settings = settings
        self._streams = streams
        self._refusals = Refusals(streams.counters.refusals)
        self._ends = LineLimit()
        self._state = state
        self._committer = committer
        self._gate = gate
        self._listener = listener
        self._read_text = read_text
        self._clock_ns = clock_ns
        self._identify = identify or Access()
        self._take_id = take_id or (lambda node, message: None)
        # No BoundedExecutor: each stream waits for its own call, so the number of streams is the bound.
        self._thread = ThreadPoolExecutor(1, "sweep-reader")
        self._owner = owner
        self._closing = False
        self._leader = leader

    def close(self, reason: str, leader: str | None = None) -> None:
        """End all streams and accept no more.

        `leader`: address of the collector that agents must connect to; "" = not known yet; None = there is no
        other collector.
        """
        self._closing, self._leader = True, lambda context: leader
        self._streams.end_all(grpc.StatusCode.UNAVAILABLE, reason)
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def StreamFindings(  # type: ignore[override]  # noqa: N802 - gRPC names it
        self, request_iterator: Any, context: Any
    ) -> None:
        """Serve one stream from Hello to its end.

        `request_iterator` is unused, because only `read` allows a timeout.
        """
        stream: AgentStream | None = None
        end: End | None = None
        await context.send_initial_metadata(stamp(self._clock_ns()))
        try:
            caller, stream = await self._greet(context)
            await self._serve(caller, stream, context)
        except StreamEndedError as error:
            end = error.end
        except AccessError as error:
            end = End(error.code, str(error))
        except asyncio.CancelledError:
            if stream is None or stream.ended is None:
                raise  # the agent disconnected, or the server stops
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
            end = stream.ended
        finally:
            if stream is not None:
                if self._streams.discard(stream):
                    self._listener.disconnected(stream)
                if self._owner is not None:
                    self._owner.ended(stream)
        if end is not None:
            await self._refuse(context, stream, end)

    async def _greet(self, context: Any) -> tuple[Caller, AgentStream]:
        settings = self._settings
        self._check_capacity()
        try:
            async with asyncio.timeout(settings.hello_timeout_s):
                first = await _read(context)
        except TimeoutError:
            raise StreamEndedError(
                grpc.StatusCode.DEADLINE_EXCEEDED, f"no Hello within {settings.hello_timeout_s:g} s"
            ) from None
        if not isinstance(first, StreamFindingsRequest) or not first.HasField("hello"):
            found = first.WhichOneof("message") if isinstance(first, StreamFindingsRequest) else "the end"
            raise StreamEndedError(
                grpc.StatusCode.INVALID_ARGUMENT, f"expected Hello, received {found or 'nothing'}"
            )
        _check(first.hello, settings.clusters)
        clean(first.hello)
        # Authenticate only after Hello: a client that is refused while it writes may not receive the reason.
        try:
            caller = await self._identify.reporter(context, first.hello.node)
            reports_for(caller, first.hello.node)
        except AccessError as error:
            self._note(error, first.hello.node, context)
            raise
        self._check_capacity()  # the state may have changed during the request to the API server
        now_ns = self._clock_ns()
        task = cast("asyncio.Task[object]", asyncio.current_task())
        stream = AgentStream(first.hello, task, now_ns, now_ns)
        if self._owner is None:
            self._add(stream)
            return caller, stream
        await self._owner.claim(stream)
        try:
            self._check_capacity()
            self._add(stream)
        except BaseException:
            self._owner.ended(stream)
            raise
        return caller, stream

    def _add(self, stream: AgentStream) -> None:
        if (old := self._streams.add(stream)) is not None:
            self._listener.disconnected(old)
        self._listener.connected(stream)

    def _check_capacity(self) -> None:
        if self._closing:
            raise StreamEndedError(grpc.StatusCode.UNAVAILABLE, "the collector is shutting down")
        if self._streams.full:
            raise StreamEndedError(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"the limit of {len(self._streams)} connected agents is reached",
            )

    async def _serve(self, caller: Caller, stream: AgentStream, context: Any) -> None:
        settings = self._settings
        session = Session(
            stream,
            self._state,
            self._committer,
            self._gate,
            self._read_text,
            self._in_thread,
            self._clock_ns,
            settings.bulk_limits,
            self._streams,
            self._take_id,
        )
        welcome = Welcome(
            version=settings.version,
            heartbeat_interval_s=settings.heartbeat_interval_s,
            bulk_held=self._state.bulks_of(stream.node),
            held_ns=newest_held_ns(self._state, stream.node, stream.hello.instance),
        )
        await context.write(StreamFindingsResponse(welcome=welcome))
        del welcome  # as below
        # An agent must receive Welcome first, even when a lease is already queued.
        stream.open(context.write)
        silence = _SilenceLimit(settings.heartbeat_timeout_s, stream)
        try:
            while True:
                silence.waiting()
                request = await _read(context)
                silence.received()
                if not isinstance(request, StreamFindingsRequest):
                    return  # the agent closed its side of the stream
                if self._clock_ns() >= caller.until_s * NS:
                    try:
                        caller = await self._identify.still_reports(caller)
                        reports_for(caller, stream.node)
                    except AccessError as error:
                        self._note(error, stream.node, context)
                        raise
                await session.take(request)
                # The next one is seconds away. Thousands of streams would each keep a batch: 10 KiB.
                del request
        finally:
            silence.close()
            await stream.close()

    def _note(self, error: AccessError, claimed: str, context: Any) -> None:
        """Record a refusal because of the reporter's identity: an operator should know of the attempt."""
        if error.refusal:
            self._refusals.note(error.refusal, context.peer(), claimed, str(error), error.identity)

    async def _refuse(self, context: Any, stream: AgentStream | None, end: End) -> None:
        sender = stream.node if stream is not None else context.peer()
        self._streams.counters.rejected_streams += 1
        if end.code not in _NOTED:
            more = self._ends.more(end.code.name, host_of(sender) if stream is None else sender)
            if more is not None:
                _log.info("stream of %s ended: %s: %s%s", sender, end.code.name, end.reason, more)
        hint = self._leader(context) if end.code is grpc.StatusCode.UNAVAILABLE else None
        await context.abort(end.code, end.reason, () if hint is None else refusal(hint)[1])

    async def _in_thread(self, work: Callable[[], Bulk]) -> Bulk:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


class _SilenceLimit:
    """Ends a stream that is silent for `limit_s`. It has one timer in this time, and not one a message."""

    __slots__ = ("_limit_s", "_loop", "_since_s", "_stream", "_timer")

    def __init__(self, limit_s: float, stream: AgentStream) -> None:
        self._limit_s = limit_s
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self._since_s: float | None = None  # None = no message is awaited
        self._timer = self._loop.call_later(limit_s, self._check)

    def waiting(self) -> None:
        """A message is awaited from now on."""
        self._since_s = self._loop.time()

    def received(self) -> None:
        """The message arrived."""
        self._since_s = None

    def close(self) -> None:
        self._timer.cancel()

    def _check(self) -> None:
        now_s = self._loop.time()
        due_s = (now_s if self._since_s is None else self._since_s) + self._limit_s
        if now_s >= due_s:
            why = f"no message for {self._limit_s:g} s"
            self._stream.end(grpc.StatusCode.DEADLINE_EXCEEDED, why)
        else:
            self._timer = self._loop.call_at(due_s, self._check)


async def _read(context: Any) -> object:
    """Returns the next message, or gRPC's end-of-stream mark.

    Raises StreamEndedError if it cannot be decoded.
    """
    try:
        return await context.read()
    except DecodeError as error:
        raise StreamEndedError(
            grpc.StatusCode.INVALID_ARGUMENT, "the bytes are not a StreamFindingsRequest"
        ) from error


def _check(hello: Hello, clusters: frozenset[str]) -> None:
    for name, text, least in (("node", hello.node, 1), ("version", hello.version, 0)):
        if not least <= len(text) <= MAX_NAME_CHARS:
            raise StreamEndedError(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"Hello: {name} has {len(text)} characters; expected {least} to {MAX_NAME_CHARS}",
            )
    if not is_reporter(hello.node):
        raise StreamEndedError(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"Hello: {hello.node!r} is not the name of an agent: expected NODE, CLUSTER/NODE, switch/NAME or "
            "fabric/NAME",
        )
    if (cluster := cluster_of(hello.node)) and cluster not in clusters:
        raise StreamEndedError(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"Hello: the collector's setting `clusters` has no {cluster!r}: add it, or correct the agent's "
            "setting `cluster`",
        )
    if len(hello.probes) > _MAX_PROBES or any(len(probe) > MAX_NAME_CHARS for probe in hello.probes):
        raise StreamEndedError(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"Hello: probes: expected at most {_MAX_PROBES} names of at most {MAX_NAME_CHARS} characters",
        )
