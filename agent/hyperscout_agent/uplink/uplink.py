"""Keeps a stream to the leading collector open, one stream after the other.

Only the finding store persists from one stream (`session`) to the next. So the reaction to any failure is the
same: back off, connect, send the full state.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from types import MappingProxyType

import grpc
import grpc.aio
from hyperscout.v1.discovery_pb2 import Hello
from hyperscout.v1.discovery_pb2_grpc import DiscoveryServiceStub
from hyperscout_formats.text.leader import leader_in
from hyperscout_runtime.backoff import Backoff
from hyperscout_runtime.credentials import CredentialsError, Metadata, protocol_hint, tls_hint
from hyperscout_runtime.errors import failure_level

from hyperscout_agent.findings.store import FindingStore
from hyperscout_agent.uplink.route import Route
from hyperscout_agent.uplink.session import (
    Directives,
    Outbox,
    Session,
    SessionError,
    UplinkStats,
    failures_of,
)

_log = logging.getLogger(__name__)

_BACKOFF_BASE_S = 0.5
_BACKOFF_CAP_S = 60.0
# A collector that refuses a stream may end it while the agent writes. Then gRPC itself sets the status
# INTERNAL, without the collector's reason and leader. An attempt at once mostly has these.
_AGAIN = 3
_DISTRUST = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INTERNAL)
_REFUSED = "Connection refused"  # in gRPC's text: no program listens at the address (connect(2))

Options = Sequence[tuple[str, int | str]]
_OPTIONS: Options = (
    # Detects a path that drops packets silently within 20 + 10 s, with or without traffic.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
    # No estimate of the bandwidth, for which gRPC pings the collector: the collector sends little.
    ("grpc.http2.bdp_probe", 0),
    # The uplink has its own back-off. gRPC's back-off would add to it.
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.max_receive_message_length", 1024 * 1024),
    # A name may resolve to several collectors, one of which leads. Shuffling tries each in time (gRFC A62).
    ("grpc.service_config", '{"loadBalancingConfig": [{"pick_first": {"shuffleAddressList": true}}]}'),
    # A node's proxy settings are not for the agent's traffic.
    ("grpc.enable_http_proxy", 0),
)


def channel_options(connect_s: float) -> Options:
    """Return the options of a channel to a collector. A connection takes at most `connect_s`."""
    # Despite its name, this is the time that gRPC allows for a connection attempt. A refusal fails at once.
    return *_OPTIONS, ("grpc.min_reconnect_backoff_ms", round(1000 * connect_s))


def plaintext_channel(target: str, options: Options) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(target, options=options)


class Uplink:
    """Keeps a stream to one of `targets` (see `Route`) and sends the store's dirty findings.

    `hello`: the first message of a stream, with the node of `store`. `outbox`: messages of probes, which
    end with the stream. `on_end`: called when a stream with a Welcome ends; leases and tasks end with it.
    `clock`: monotonic seconds. `wall_ns`: nanoseconds since 1970. `channel`, `metadata`: called for each
    stream, because credentials are renewed. Callbacks must not block.
    """

    def __init__(
        self,
        targets: Sequence[str],
        store: FindingStore,
        hello: Hello,
        *,
        directives: Directives = MappingProxyType({}),
        outbox: Outbox | None = None,
        on_end: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        wall_ns: Callable[[], int] = time.time_ns,
        rng: Random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        channel: Callable[[str, Options], grpc.aio.Channel] = plaintext_channel,
        metadata: Callable[[], Metadata] = tuple,
    ) -> None:
        if not targets:
            raise ValueError("no collector address")
        self.stats = UplinkStats()
        self._store = store
        self._hello = Hello()
        self._hello.CopyFrom(hello)
        self._hello.node = store.node
        self._directives = directives
        self._outbox = outbox or Outbox(store.changed)
        self._on_end = on_end
        self._clock = clock
        self._wall_ns = wall_ns
        self._sleep = sleep
        self._channel = channel
        self._metadata = metadata
        self._logged: dict[str, tuple[int, str]] = {}  # by address: level and text of the last line
        self._lost_s = clock()  # when the agent started, or the last stream ended
        self._route = Route(targets, Backoff(_BACKOFF_BASE_S, _BACKOFF_CAP_S, rng, jitter=1.0), rng)

    async def run(self) -> None:
        """Stream until cancelled. Errors of collectors and the network are logged and not raised."""
        again = 0
        while True:
            target = self._route.target
            failures, leader, reason = 0, None, ""
            began_s, greeted = self._clock(), self.stats.sessions
            try:
                await self._session(target)
            except SessionError as ended:
                failures, leader, reason = ended.failures, ended.leader, str(ended)
                self._log_failure(target, reason, is_expected=ended.is_expected)
            except CredentialsError as error:
                self._log_failure(target, f"its credentials are not usable: {error}")
            except grpc.aio.AioRpcError as error:
                is_unread = error.code() == grpc.StatusCode.INTERNAL and self.stats.sessions == greeted
                if is_unread and again < _AGAIN:
                    again += 1
                    continue
                failures, leader = failures_of(error.code()), leader_in(error.trailing_metadata())
                is_expected = error.code() == grpc.StatusCode.UNAVAILABLE
                reason = f"{error.code().name}: {error.details()}"
                self._log_failure(target, reason, is_expected=is_expected)
            except Exception:
                # A defect in the agent must not end the uplink. The log has the trace.
                _log.exception("collector %s: the stream ended on an unexpected error", target)
            again = 0
            self.stats.failures += 1
            was_greeted = self.stats.sessions != greeted
            answered = leader is not None or failures or was_greeted
            # A refused connection fails at once.
            silent = not answered and self._clock() - began_s >= 0.9 * self._route.connect_s
            left = leader == "" and was_greeted
            refused = not answered and _REFUSED in reason
            wait_s = self._route.failed(
                failures=failures, leader=leader, silent=silent, left=left, refused=refused
            )
            await self._sleep(wait_s)

    def _log_failure(self, target: str, reason: str, *, is_expected: bool = False) -> None:
        """Log why a stream ended. A repeated reason is logged at debug level only."""
        if hint := tls_hint(reason) or ": ".join(protocol_hint(reason) or ()):
            reason, is_expected = f"{hint} ({reason})", False
        line = failure_level(self._clock() - self._lost_s, is_expected=is_expected), reason
        level = logging.DEBUG if self._logged.get(target) == line else line[0]
        self._logged[target] = line
        _log.log(level, "collector %s: %s", target, reason)

    async def _session(self, target: str) -> None:
        """Run one stream until it ends, always by an exception."""
        metadata = self._metadata()
        channel = self._channel(target, channel_options(self._route.connect_s))
        call = DiscoveryServiceStub(channel).StreamFindings(metadata=metadata)
        session = Session(
            call,
            self._store,
            self.stats,
            self._directives,
            self._outbox,
            settled=self._route.settled,
            clock=self._clock,
            wall_ns=self._wall_ns,
        )
        try:
            welcome = await session.greet(self._hello)
            self.stats.connected = True
            self.stats.sessions += 1
            self._outbox.clear()
            self._store.begin_stream(welcome.held_ns if welcome.HasField("held_ns") else None)
            self._route.greeted()
            self._logged.clear()
            _log.info("collector %s: connected, version %s", target, welcome.version)
            await session.run()
        finally:
            if self.stats.connected:
                self.stats.connected, self._lost_s = False, self._clock()
                self._store.end_stream()
                # gRPC itself sets INTERNAL where the collector ended the stream while the agent was writing.
                if call.done() and await call.code() in _DISTRUST:
                    self._store.distrust()
                self._on_end()
            call.cancel()
            await channel.close()
