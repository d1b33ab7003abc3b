"""Takes agents' streams at a standby, for replicas with PostgreSQL.

The standby checks findings as the leader does, stores them and acknowledges them. It has only the findings of
its connected agents in memory. The leader reads what is stored (`app.ingest.other_replicas`); its messages to
agents, and theirs to it, pass through a table.
"""

import asyncio
import importlib.metadata
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from hyperscout.v1.discovery_pb2 import NcclId, StreamFindingsResponse, SweepRevoke
from hyperscout_runtime.bounded_executor import BoundedExecutor
from hyperscout_runtime.errors import described

from hyperscout_collector.app.build.context import Context
from hyperscout_collector.app.build.lifecycle import Lifecycle
from hyperscout_collector.app.build.stores import postgresql_server, shared_store
from hyperscout_collector.app.ingest.evidence_cleanup import Removals
from hyperscout_collector.app.ingest.other_replicas import BEATS, POLL_S
from hyperscout_collector.app.ingest.outbox import Outbox
from hyperscout_collector.evidence.committer import Committer
from hyperscout_collector.evidence.state import EvidenceState
from hyperscout_collector.evidence.store import Loaded, reloaded
from hyperscout_collector.evidence.sweep_texts import SweepTexts
from hyperscout_collector.identity.access import Access
from hyperscout_collector.ingest.claims import Claims
from hyperscout_collector.ingest.passed_leases import PassedLeases
from hyperscout_collector.ingest.passed_removals import decoded
from hyperscout_collector.ingest.service import DiscoveryService, IngestSettings
from hyperscout_collector.ingest.streams import AgentStream, Connection, Streams
from hyperscout_collector.store.errors import StoreError
from hyperscout_collector.store.postgresql import PostgresqlDatabase
from hyperscout_collector.store.replicas import (
    DIRECTIVE,
    FORGET,
    LEADER,
    NCCL_ID,
    SWEEP_FAILED,
    Message,
    StreamNews,
)
from hyperscout_collector.store.writer import StoreWriter

_log = logging.getLogger(__name__)

_MAX_EARLY = 10_000  # streams that are about to begin, and whose messages wait
_MAX_UNSENT = 10_000  # messages to the leader, while the server does not answer


class StandbyIngest:
    """Takes streams by `service`. Register `end` as the first step of the stop.

    `leader`: as of `DiscoveryService`. The constructor raises StoreError.
    """

    def __init__(
        self, context: Context, access: Access, lifecycle: Lifecycle, leader: Callable[[Any], str | None]
    ) -> None:
        settings, self._clock_ns = context.settings, context.clock_ns
        server = postgresql_server(settings)
        self._shared = shared_store(context, server, PostgresqlDatabase(server), None)
        self._tables = self._shared.tables
        self._silence_s = settings.lease_duration_s
        self._lifecycle = lifecycle
        self._streams = Streams(settings.max_streams)
        self._state = EvidenceState()
        self._writer = StoreWriter()
        self._committer = Committer(
            self._state,
            self._shared.evidence,
            self._writer,
            on_commit=lambda changes: None,
            on_full_state=self._full_state,
            load_nodes=self._shared.evidence.load_nodes,
            clock_ns=context.clock_ns,
            grace_s=settings.restart_grace_s,
        )
        self._removals = Removals(self._state, self._committer)
        self._claims = Claims(self._tables, load=self._load, drop=self._drop)
        self._gate = PassedLeases(self._streams, self._state, self._sweep_failed)
        self._present: Counter[str] = Counter()  # claimed streams, by node
        self._since = 0
        self._term: int | None = None
        self._early: dict[tuple[str, int], list[StreamFindingsResponse]] = {}
        self._in_thread = BoundedExecutor("replicas")
        self._outbox = Outbox(self._tables, self._in_thread, _MAX_UNSENT)
        self._waiting = BoundedExecutor("replicas-listener")
        self._beating = BoundedExecutor("replicas-beat")
        self.service = DiscoveryService(
            IngestSettings(importlib.metadata.version("hyperscout")),
            self._streams,
            self._state,
            self._committer,
            gate=self._gate,
            listener=self,
            read_text=SweepTexts(self._shared.evidence).read,
            clock_ns=context.clock_ns,
            identify=access,
            take_id=self._take_id,
            owner=self._claims,
            leader=leader,
        )

    def start(self) -> None:
        """Run until the lifecycle stops."""
        lifecycle = self._lifecycle
        lifecycle.on_stop("connections to PostgreSQL", partial(self._shared.close, self._in_thread))
        lifecycle.on_stop("ends of streams", self._leave)
        lifecycle.run("replicas-follow", self._follow())
        lifecycle.run("replicas-send", self._outbox.run())
        lifecycle.run("replicas-beat", self._beat())
        lifecycle.run("claims", self._claims.run())
        lifecycle.on_stop("writer of the store", self._writer.close)
        lifecycle.run("store-writer", self._writer.run())
        lifecycle.on_stop("flush of the store", self._writer.flush)

    def end(self, leader: str) -> None:
        """End all streams, and take no more. `leader`: as of `DiscoveryService.close`."""
        self.service.close("this replica is no standby any more", leader)

    async def _leave(self) -> None:
        try:
            await self._in_thread(self._tables.leave)
        except StoreError as error:
            _log.debug("the leader ends the streams later: %s", error)

    # Evidence of connected agents

    async def _load(self, nodes: Sequence[str]) -> None:
        self._present.update(nodes)
        async with self._committer.paused():
            loaded = await self._in_thread(self._shared.evidence.load_nodes, nodes)
            self._state.commit(reloaded(self._state, nodes, loaded, self._clock_ns()), loaded.text_bytes)

    async def _drop(self, nodes: Sequence[str]) -> None:
        self._present.subtract(nodes)
        gone = [node for node in set(nodes) if self._present[node] <= 0]
        for node in gone:
            del self._present[node]
        async with self._committer.paused():
            self._state.commit(reloaded(self._state, gone, Loaded(), self._clock_ns()))

    async def _remove(self) -> None:
        """Remove what newly started agents have not reported again, and what the leader asked to remove."""
        self._removals.add(
            self._committer.due(self._clock_ns(), lambda node: self._streams.get(node) is not None)
        )
        await self._removals.write()

    # Streams

    def connected(self, stream: Connection) -> None:
        """As of `StreamListener`."""
        if isinstance(stream, AgentStream):
            for directive in self._early.pop((stream.node, stream.claimed), ()):
                self._pass(stream, directive)

    def disconnected(self, stream: Connection) -> None:
        """As of `StreamListener`."""
        self._gate.gone(stream.node)

    def _full_state(self, node: str) -> None:
        stream = self._streams.get(node)
        if isinstance(stream, AgentStream):
            self._claims.full_state(stream)

    async def _beat(self) -> None:
        while True:
            try:
                if not await self._beating(self._tables.beat):
                    reason = "another replica took this one for dead: connect again"
                    self._streams.end_all(grpc.StatusCode.UNAVAILABLE, reason)
            except StoreError as error:
                _log.debug("no sign of life: %s", error)  # writes say so
            await asyncio.sleep(self._silence_s / BEATS)

    # The leader

    async def _follow(self) -> None:
        problem = ""
        while True:
            await self._waiting(self._shared.listener.wait, POLL_S)
            try:
                self._take(await self._in_thread(self._tables.take_news, self._since))
                problem = ""
            except StoreError as error:
                if not problem:
                    _log.info("messages of the leader do not arrive: %s", error)
                problem = str(error)
            await self._remove()

    def _take(self, news: StreamNews) -> None:
        if self._term not in (None, news.term):
            self._gate.leader_changed()
            self._early.clear()
        self._term, self._since = news.term, news.number
        for row in news.streams:
            stream = self._streams.get(row.node)
            if not isinstance(stream, AgentStream):
                continue
            if row.claimed > stream.claimed and row.replica != self._tables.owner.replica:
                stream.end(grpc.StatusCode.ABORTED, "a newer stream of this node replaced it")
            elif row.claimed == stream.claimed and row.ended:
                reason = "another replica took this one for dead: connect again"
                stream.end(grpc.StatusCode.UNAVAILABLE, reason)
        for message in news.messages:
            if message.term != news.term:
                continue
            try:
                self._take_message(message)
            except (DecodeError, ValueError, TypeError) as error:  # of protobuf, or of JSON
                _log.warning("a message of the leader (%s) is not read: %s", message.kind, described(error))

    def _take_message(self, message: Message) -> None:
        if message.kind == FORGET:
            self._removals.due.update(decoded(message.node, message.body, self._state))
        if message.kind != DIRECTIVE:
            return
        directive = StreamFindingsResponse.FromString(message.body)
        stream = self._streams.get(message.node)
        if isinstance(stream, AgentStream) and stream.claimed == message.claimed:
            self._pass(stream, directive)
        else:  # its claim is stored, and its evidence is being loaded
            self._early.setdefault((message.node, message.claimed), []).append(directive)
            if len(self._early) > _MAX_EARLY:
                del self._early[next(iter(self._early))]

    def _pass(self, stream: AgentStream, directive: StreamFindingsResponse) -> None:
        self._gate.passed(stream.node, directive)
        stream.tell(directive)

    def _take_id(self, node: str, message: NcclId) -> None:
        self._tell_leader(node, NCCL_ID, message.SerializeToString())

    def _sweep_failed(self, node: str, failed: SweepRevoke) -> None:
        self._tell_leader(node, SWEEP_FAILED, failed.SerializeToString())

    def _tell_leader(self, node: str, kind: str, body: bytes) -> None:
        stream = self._streams.get(node)
        if isinstance(stream, AgentStream):
            self._outbox.put(Message(LEADER, 0, node, stream.claimed, kind, body))
