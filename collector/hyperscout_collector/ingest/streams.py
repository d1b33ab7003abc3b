"""The connected streams, one per node, with their outgoing messages and the ingest counters."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import grpc
from hyperscout.v1.discovery_pb2 import Ack, Hello, Refusal, StreamFindingsResponse
from hyperscout_formats.facts.shared_fields import one_copy
from hyperscout_runtime.signals import Signal

from hyperscout_collector.evidence.rows import Key, Row
from hyperscout_collector.ingest.passed_removals import encoded
from hyperscout_collector.ingest.refusals import LineLimit
from hyperscout_collector.store.replicas import DIRECTIVE, FORGET

_MAX_DIRECTIVES = 256  # queued for one stream; an agent that reads none of them is ended
_MAX_REFUSALS = 1000  # reported in one ack; further refusals are only counted

# Why a report is refused because of its sender. For streams: an unknown caller, a caller that may not report,
# a caller that uses another name than its own. For findings: another node than the stream's own, or a probe
# of another kind of reporter (a switch's probe from a node, another probe from a switch, a crawl from an
# agent that is not of role fabric).
REFUSALS = ("unknown_caller", "may_not_report", "another_name", "foreign_finding", "wrong_probe")


@dataclass(slots=True)
class IngestCounters:
    """Counts since the start of the process."""

    streams: int = 0
    rejected_streams: int = 0
    batches: int = 0
    findings: int = 0
    unchanged: int = 0  # of these findings: named as unchanged
    refused: int = 0
    bulk_texts: int = 0
    bytes: int = 0  # encoded size of all messages
    refusals: Counter[str] = field(default_factory=Counter)  # by a value of REFUSALS


@dataclass(frozen=True, slots=True)
class End:
    """Why the collector ends a stream: a status and a message for the agent's log."""

    code: grpc.StatusCode
    reason: str


class StreamEndedError(Exception):
    """Ends a stream from inside its own handler."""

    def __init__(self, code: grpc.StatusCode, reason: str) -> None:
        super().__init__(reason)
        self.end = End(code, reason)


class Connection(Protocol):
    """A connected agent, at this replica or at another one. Times are Unix ns."""

    hello: Hello
    node: str
    connected_at_ns: int
    last_heard_ns: int
    offset_ns: int  # the agent's clock minus the collector's, at its last batch

    def end(self, code: grpc.StatusCode, reason: str) -> None: ...

    def tell(self, directive: StreamFindingsResponse) -> None:
        """Queue a message for the agent. Never blocks."""


@dataclass(slots=True, eq=False)
class AgentStream:
    """One agent's connected stream. Times are Unix ns. `task`: the handler that reads it.

    There are thousands, and most of them are silent. So a task that sends exists only while messages wait.
    """

    hello: Hello
    task: "asyncio.Task[object]"
    connected_at_ns: int
    last_heard_ns: int
    offset_ns: int = 0  # the agent's clock minus the collector's, at its last batch
    ended: End | None = None
    claimed: int = 0  # number of the batch in which other replicas learned of it; 0 = there are none
    node: str = field(init=False)
    _directives: list[StreamFindingsResponse] = field(default_factory=list, init=False)
    _refusals: list[Refusal] = field(default_factory=list, init=False)
    _acked: int = field(default=0, init=False)
    _sent_ack: int = field(default=0, init=False)
    _write: Callable[[StreamFindingsResponse], Awaitable[None]] | None = field(default=None, init=False)
    _sender: "asyncio.Task[None] | None" = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.node = one_copy(self.hello.node)

    def end(self, code: grpc.StatusCode, reason: str) -> None:
        """End the stream from outside. Only the first reason is kept."""
        if self.ended is None:
            self.ended = End(code, reason)
            self.task.cancel()

    def tell(self, directive: StreamFindingsResponse) -> None:
        """Queue a message for the agent.

        Never blocks. The queue is bounded: an agent that does not read is disconnected.
        """
        if len(self._directives) >= _MAX_DIRECTIVES:
            self.end(grpc.StatusCode.RESOURCE_EXHAUSTED, f"the agent has not read {_MAX_DIRECTIVES} messages")
            return
        self._directives.append(directive)
        self._send_soon()

    def ack(self, sequence: int, refusals: list[Refusal]) -> None:
        """Queue an ack: all batches up to `sequence` are stored."""
        self._acked = max(self._acked, sequence)
        self._refusals += refusals[: max(0, _MAX_REFUSALS - len(self._refusals))]
        self._send_soon()

    def open(self, write: Callable[[StreamFindingsResponse], Awaitable[None]]) -> None:
        """Begin to send what is queued, with `write`."""
        self._write = write
        self._send_soon()

    async def close(self) -> None:
        """Stop sending."""
        self._write = None
        if (sender := self._sender) is not None:
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)

    def _send_soon(self) -> None:
        if self._sender is None and self._write is not None:
            self._sender = asyncio.create_task(self._send(self._write), name=f"ingest-send-{self.node}")

    async def _send(self, write: Callable[[StreamFindingsResponse], Awaitable[None]]) -> None:
        while messages := self.outgoing():
            for message in messages:
                await write(message)
        self._sender = None  # after an error it stays: the connection is gone

    def outgoing(self) -> list[StreamFindingsResponse]:
        """Return the messages to send, and forget them. Acks of several batches are merged into one."""
        out, self._directives = self._directives, []
        if self._acked > self._sent_ack:
            out.append(StreamFindingsResponse(ack=Ack(sequence=self._acked, refusals=self._refusals)))
            self._sent_ack = self._acked
            self._refusals = []
        return out


@dataclass(slots=True, eq=False)
class RemoteStream:
    """Stands in for the stream of an agent at another replica, which `send(stream, kind, body)` reaches.

    `claimed`: as in `AgentStream`. `last_heard_ns`: when that replica received the newest finding.
    """

    hello: Hello
    replica: str
    claimed: int
    connected_at_ns: int
    send: Callable[["RemoteStream", str, bytes], None]
    offset_ns: int = 0
    node: str = field(init=False)
    last_heard_ns: int = field(init=False)

    def __post_init__(self) -> None:
        self.node = one_copy(self.hello.node)
        self.last_heard_ns = self.connected_at_ns

    def end(self, code: grpc.StatusCode, reason: str) -> None:
        """Nothing: that replica ends its stream."""

    def tell(self, directive: StreamFindingsResponse) -> None:
        self.send(self, DIRECTIVE, directive.SerializeToString())

    def forget(self, rows: Mapping[Key, Collection[Row]]) -> None:
        """Let that replica remove these rows, but no newer ones of their keys."""
        self.send(self, FORGET, encoded(rows))


class Streams:
    """The connected streams by node. `limit`: largest number of streams of this replica.

    The signal `changed` is emitted with the node of each stream that connects, disconnects or sends.
    """

    def __init__(self, limit: int) -> None:
        self.changed = Signal[[str]]()
        self.counters = IngestCounters()
        self.refused_findings = LineLimit()
        self._limit = limit
        self._by_node: dict[str, Connection] = {}
        self._remote = 0  # number of those at other replicas

    def __len__(self) -> int:
        return len(self._by_node)

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self._by_node.values()))

    def get(self, node: str) -> Connection | None:
        return self._by_node.get(node)

    def heard(self, stream: Connection, at_ns: int, offset_ns: int | None = None) -> None:
        """Record a message.

        `offset_ns`: the agent's clock minus the collector's, where the message contains it.
        """
        stream.last_heard_ns = at_ns
        if offset_ns is not None:
            stream.offset_ns = offset_ns
        self.changed(stream.node)

    @property
    def full(self) -> bool:
        return len(self._by_node) - self._remote >= self._limit

    def add(self, stream: AgentStream | RemoteStream) -> Connection | None:
        """Make it the node's stream. Returns the stream that it replaced, which is ended.

        Of two streams of one node the newer process wins; of one process, the newer stream wins. Raises
        StreamEndedError if the connected stream belongs to the newer process.
        """
        old = self._by_node.get(stream.node)
        if old is not None and old.hello.instance > stream.hello.instance:
            raise StreamEndedError(
                grpc.StatusCode.ABORTED,
                f"a newer agent of {stream.node} is connected: stop the older process, "
                "or give each machine a name of its own",
            )
        if old is not None:
            old.end(grpc.StatusCode.ABORTED, "a newer stream of this node replaced it")
        self._set(stream.node, stream)
        if isinstance(stream, AgentStream):
            self.counters.streams += 1
        self.changed(stream.node)
        return old

    def discard(self, stream: Connection) -> bool:
        """Remove the stream. Returns False if another stream of the node has replaced it."""
        if self._by_node.get(stream.node) is not stream:
            return False
        self._set(stream.node, None)
        self.changed(stream.node)
        return True

    def _set(self, node: str, stream: Connection | None) -> None:
        old = self._by_node.pop(node, None)
        self._remote += isinstance(stream, RemoteStream) - isinstance(old, RemoteStream)
        if stream is not None:
            self._by_node[node] = stream

    def end_all(self, code: grpc.StatusCode, reason: str) -> None:
        for stream in self:
            stream.end(code, reason)
