"""The leader's view of the agents at other replicas: their findings, their streams, and what it tells them.

Other replicas write findings and streams to PostgreSQL. The leader reads them when it is notified, and each
second. It changes its evidence and emits the same signals as for its own agents.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import grpc
from google.protobuf.message import DecodeError
from hyperscout.v1.discovery_pb2 import Hello, NcclId, SweepRevoke
from hyperscout_runtime.bounded_executor import BoundedExecutor

from hyperscout_collector.app.ingest.outbox import Outbox
from hyperscout_collector.evidence.committer import Committer
from hyperscout_collector.evidence.postgresql import EvidenceNews, PostgresqlStore
from hyperscout_collector.evidence.rows import Key, Row, by_rank
from hyperscout_collector.evidence.state import EvidencePlan, EvidenceState, KeyChange
from hyperscout_collector.ingest.claims import Claims
from hyperscout_collector.ingest.service import StreamListener
from hyperscout_collector.ingest.session import TakeId
from hyperscout_collector.ingest.streams import AgentStream, RemoteStream, Streams
from hyperscout_collector.store.errors import StoreError
from hyperscout_collector.store.replicas import (
    NCCL_ID,
    SWEEP_FAILED,
    Listener,
    Message,
    ReplicaTables,
    StreamRow,
)

_log = logging.getLogger(__name__)

POLL_S = 1.0
BEATS = 5  # within the time after which a silent replica is taken for dead
_MAX_UNSENT = 100_000  # messages, while the server does not answer


@dataclass(frozen=True, slots=True)
class SharedStore:
    """How replicas share the streams of agents. `term`: of the leader; 0 at a standby."""

    evidence: PostgresqlStore
    tables: ReplicaTables
    listener: Listener
    term: int = 0

    async def close(self, in_thread: BoundedExecutor) -> None:
        """Close the connections."""
        for connection in (self.listener, self.tables, self.evidence):
            await in_thread(connection.close)


@dataclass(frozen=True, slots=True)
class Receivers:
    """What receives changes of other replicas.

    `connections`: the streams. `committed`, `full_state`: as the signals. `take_id`, `sweep_failed`: what
    agents send to the leader.
    """

    connections: StreamListener
    committed: Callable[[Sequence[KeyChange]], None]
    full_state: Callable[[str], None]
    take_id: TakeId
    sweep_failed: Callable[[str, str, str], None]


class OtherReplicas:
    """Run `run` as a task. `claims` are those of the leader's own streams.

    `since`: number of the batch up to which the evidence was loaded. `silence_s`: a replica that is silent
    for so long is taken for dead. `clock_ns`: Unix ns.
    """

    def __init__(
        self,
        shared: SharedStore,
        streams: Streams,
        state: EvidenceState,
        committer: Committer,
        *,
        since: int,
        receivers: Receivers,
        silence_s: float,
        clock_ns: Callable[[], int],
    ) -> None:
        self.problem: str | None = None  # why nothing of other replicas is read; None = it is
        self.claims = Claims(shared.tables, load=self._load, drop=_keep)
        self._shared = shared
        self._tables = shared.tables
        self._streams = streams
        self._state = state
        self._committer = committer
        self._since = since  # evidence is read up to this number
        self._streams_since = 0
        self._to = receivers
        self._silence_s = silence_s
        self._clock_ns = clock_ns
        self._received: list[Message] = []  # the store has them no longer
        self._reading = asyncio.Lock()
        self._in_thread = BoundedExecutor("replicas")
        self._outbox = Outbox(self._tables, self._in_thread, _MAX_UNSENT)
        self._waiting = BoundedExecutor("replicas-listener")

    async def run(self) -> None:
        """Follow the other replicas until cancelled."""
        await self._clean()  # streams of the former leader have ended
        async with asyncio.TaskGroup() as group:
            group.create_task(self.claims.run(), name="claims")
            group.create_task(self._follow(), name="replicas-follow")
            group.create_task(self._outbox.run(), name="replicas-send")
            group.create_task(self._keep_house(), name="replicas-housekeeping")

    async def read(self) -> None:
        """Take what other replicas have stored up to now. Raises StoreError."""
        async with self._reading:
            found = await self._in_thread(self._tables.take_news, self._streams_since)
            self._received += found.messages
            ended = [row for row in found.streams if row.ended]
            present = [row for row in found.streams if self._connect(row)]
            async with self._committer.paused():
                await self._committer.reload_unsure()
                news = await self._in_thread(self._shared.evidence.news, self._since)
                if changes := self._commit(news):
                    self._to.committed(changes)
                self._since = news.number
            for row in present:
                if row.full_state:
                    self._to.full_state(row.node)
            for row in ended:
                self._disconnect(row)
            self._streams_since = found.number
            received, self._received = self._received, []
            for message in received:
                try:
                    self._take(message)
                except DecodeError as error:
                    _log.warning("%s: a message (%s) is not read: %s", message.node, message.kind, error)

    async def _load(self, nodes: Sequence[str]) -> None:
        await self.read()

    async def _follow(self) -> None:
        while True:
            try:
                await self.read()
                self.problem = None
            except StoreError as error:
                if self.problem is None:
                    _log.error("findings of other replicas are not read: %s", error)
                self.problem = f"findings of other replicas are not read: {error}"
            await self._waiting(self._shared.listener.wait, POLL_S)

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(self._silence_s / BEATS)
            await self._clean()

    async def _clean(self) -> None:
        """Remove dead replicas and what was read."""
        try:
            await self._in_thread(self._tables.beat)
            await self._in_thread(self._tables.remove_dead, self._silence_s)
            await self._in_thread(self._tables.prune, self._streams_since, self._since)
        except StoreError as error:
            level = logging.INFO if self.problem is None else logging.DEBUG
            _log.log(level, "streams at dead replicas are ended later: %s", error)

    # Evidence

    def _commit(self, news: EvidenceNews) -> list[KeyChange]:
        plan = EvidencePlan(self._state, self._clock_ns())
        for key, rank in news.deleted:
            self._replace(plan, key, rank, None)
        if news.present is not None:
            for node in list(self._state.nodes):
                for row in list(self._state.rows_of_node(node)):
                    if (row.key, row.rank) not in news.present:
                        self._replace(plan, row.key, row.rank, None)
        for row in news.rows:
            self._replace(plan, row.key, row.rank, row)
        for key, rank, times in news.renewed:
            for row in plan.rows_of_key(key):
                if row.rank == rank:
                    self._replace(plan, key, rank, row.renewed(*times))
        plan.agents.update({agent.node: agent for agent in news.agents})
        changes = self._state.commit(plan, news.text_bytes)
        for change in changes:
            stream = self._streams.get(change.key.node)
            if isinstance(stream, RemoteStream) and change.after:
                newest = max(change.after, key=lambda row: row.received_ns)
                if newest.received_ns > stream.last_heard_ns:
                    self._streams.heard(stream, newest.received_ns, newest.offset_ns)
        return changes

    def _replace(self, plan: EvidencePlan, key: Key, rank: int, row: Row | None) -> None:
        others = [one for one in plan.rows_of_key(key) if one.rank != rank]
        rows = others if row is None else [*others, row]
        plan.rows[key] = by_rank(rows)

    # Streams

    def _connect(self, row: StreamRow) -> bool:
        """Make the stand-in of a stream. Returns whether the stream is at another replica and lives."""
        if row.ended or row.replica == self._tables.owner.replica:
            return False
        known = self._streams.get(row.node)
        if isinstance(known, RemoteStream) and known.claimed == row.claimed:
            return True
        if isinstance(known, AgentStream):
            if known.claimed > row.claimed:
                return False
            known.end(grpc.StatusCode.ABORTED, "a newer stream of this node replaced it")
        if known is not None and self._streams.discard(known):
            self._to.connections.disconnected(known)
        try:
            hello = Hello.FromString(row.hello)
        except DecodeError as error:
            _log.warning("%s: its stream at replica %s is left out: %s", row.node, row.replica, error)
            return False
        stream = RemoteStream(hello, row.replica, row.claimed, self._clock_ns(), self._tell)
        self._streams.add(stream)
        self._to.connections.connected(stream)
        return True

    def _disconnect(self, row: StreamRow) -> None:
        known = self._streams.get(row.node)
        if isinstance(known, RemoteStream) and known.claimed == row.claimed:
            self._streams.discard(known)
            self._to.connections.disconnected(known)
        elif isinstance(known, AgentStream) and known.claimed == row.claimed:
            known.end(grpc.StatusCode.UNAVAILABLE, "another replica took this one for dead: connect again")

    # Messages

    def _tell(self, stream: RemoteStream, kind: str, body: bytes) -> None:
        self._outbox.put(Message(stream.replica, self._shared.term, stream.node, stream.claimed, kind, body))

    def _take(self, message: Message) -> None:
        known = self._streams.get(message.node)
        if not isinstance(known, RemoteStream) or known.claimed != message.claimed:
            return
        if message.kind == NCCL_ID:
            self._to.take_id(message.node, NcclId.FromString(message.body))
        elif message.kind == SWEEP_FAILED:
            failed = SweepRevoke.FromString(message.body)
            self._to.sweep_failed(message.node, failed.lease_id, failed.reason)


async def _keep(nodes: Sequence[str]) -> None:
    """The leader has the findings of all nodes."""
