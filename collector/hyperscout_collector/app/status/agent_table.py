"""Keeps the agents that GetStatus lists. Each is encoded when it changes, so a request only joins the bytes.

An agent is listed while it is connected or the collector has findings of it. After a take-over an agent that
the former leader listed stays, until it has been silent for a week. A message costs one encoding. A commit
also counts the findings of the nodes of which more than times changed.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.finding_pb2 import Outcome
from hyperscout_formats.text.reporters import is_fabric, is_switch
from hyperscout_runtime.units import NS

from hyperscout_collector.app.ingest.evidence_cleanup import FORGET_AFTER_NS
from hyperscout_collector.evidence.rows import Row
from hyperscout_collector.evidence.state import EvidenceState, KeyChange
from hyperscout_collector.ingest.streams import Streams

_FAILED = int(Outcome.OUTCOME_FAILED)


class _Counted(NamedTuple):
    """The number of findings of one agent."""

    findings: int = 0
    failed: int = 0


_NOTHING = _Counted()


class AgentTable:
    """Follows the evidence and the streams. Times are Unix ns. Use it only on the event loop.

    `earlier`: the agents that the former leader listed. Call `count` with the reporters that were loaded at
    the start.

    A device that reports by MQTT has no stream. It counts as connected until `stale_after_ns` after its last
    message, unless an agent runs on the same node.
    """

    def __init__(
        self,
        state: EvidenceState,
        streams: Streams,
        stale_after_ns: int,
        earlier: Iterable[pb.AgentStatus],
    ) -> None:
        self.away: set[str] = set()  # listed and not connected
        self.blind: set[str] = set()  # agents of role fabric whose findings all failed
        self._state = state
        self._streams = streams
        self._stale_after_ns = stale_after_ns
        self._counted: dict[str, _Counted] = {}
        self._devices: dict[str, tuple[int, int]] = {}  # by reporter: time and offset of its last message
        self._fresh: set[str] = set()  # devices that count as connected
        self._encoded: dict[str, bytes] = {}  # a GetStatusResponse each, with one agent
        self._order: list[str] = []  # the keys of `_encoded`, sorted
        self._earlier = {agent.node: agent for agent in earlier}  # that have not reported yet
        streams.changed.subscribe(self.touch)
        for node in list(self._earlier):  # `touch` removes those with evidence
            self.touch(node)

    def follow(self, changes: Sequence[KeyChange]) -> None:
        """A commit changed the evidence."""
        self.count({change.key.node for change in changes if not change.is_renewal})
        for node in {change.key.node for change in changes if change.is_renewal}:
            if self._streams.get(node) is None:  # otherwise the stream says when the agent was heard
                self.touch(node)

    def full_state(self, node: str) -> None:
        """An agent has ended its full state, which stores its version."""
        if self._streams.get(node) is None:  # otherwise the stream says which version it has
            self.touch(node)

    def device_heard(self, reporter: str, at_ns: int, offset_ns: int) -> None:
        """A message of a device arrived. `offset_ns`: its clock minus the collector's."""
        self._devices[reporter] = at_ns, offset_ns
        self._fresh.add(reporter)
        self.touch(reporter)

    def refresh(self, now_ns: int) -> None:
        """Update which devices count as connected. Call it before reading `away` or `encoded`."""
        for node, agent in list(self._earlier.items()):
            if agent.last_heard.ToNanoseconds() < now_ns - FORGET_AFTER_NS:
                del self._earlier[node]
                self.touch(node)
        limit_ns = now_ns - self._stale_after_ns
        fresh = {reporter for reporter, (at_ns, _) in self._devices.items() if at_ns >= limit_ns}
        changed, self._fresh = fresh ^ self._fresh, fresh
        for reporter in changed:
            self.touch(reporter)

    def encoded(self) -> bytes:
        """An encoded GetStatusResponse that contains only `agents`, sorted by node.

        Concatenated encoded messages are one message with the fields of all
        (https://protobuf.dev/programming-guides/encoding/#last-one-wins).
        """
        return b"".join(map(self._encoded.__getitem__, self._order))

    def touch(self, node: str) -> None:
        """Encode the agent of this node again, or drop it."""
        stream = self._streams.get(node)
        rows = list(self._state.rows_of_node(node)) if stream is None else []
        if stream is None:
            self._count(node, rows)
        counted = self._counted.get(node, _NOTHING)
        if stream is None and not counted.findings:
            if (earlier := self._earlier.get(node)) is None:
                self._drop(node)
            else:
                self._list(pb.AgentStatus(node=node, version=earlier.version, last_heard=earlier.last_heard))
            return
        self._earlier.pop(node, None)
        known = self._state.agents.get(node)
        connected = stream is not None
        version = known.version if known is not None else ""
        if stream is not None:
            heard_ns, offset_ns, version = stream.last_heard_ns, stream.offset_ns, stream.hello.version
        elif node in self._fresh and (known is None or is_switch(node)):
            (heard_ns, offset_ns), version, connected = self._devices[node], "mqtt", True
        else:
            newest = max(rows, key=attrgetter("received_ns"))
            heard_ns, offset_ns = newest.received_ns, newest.offset_ns
        agent = pb.AgentStatus(node=node, version=version, connected=connected)
        if heard_ns:
            agent.last_heard.seconds, agent.last_heard.nanos = divmod(heard_ns, NS)
        agent.findings, agent.failed_findings = counted.findings, counted.failed
        agent.clock_offset_s = offset_ns / NS
        self._list(agent)

    def _list(self, agent: pb.AgentStatus) -> None:
        node = agent.node
        if node not in self._encoded:
            insort(self._order, node)
        self._encoded[node] = pb.GetStatusResponse(agents=[agent]).SerializeToString()
        _set(self.away, node, not agent.connected)
        _set(self.blind, node, 0 < agent.findings == agent.failed_findings and is_fabric(node))

    def _drop(self, node: str) -> None:
        if self._encoded.pop(node, None) is not None:
            del self._order[bisect_left(self._order, node)]
            self.away.discard(node)
            self.blind.discard(node)

    def count(self, nodes: Iterable[str]) -> None:
        """Count the findings of these nodes again."""
        for node in nodes:
            if self._streams.get(node) is None or self._count(node, self._state.rows_of_node(node)):
                self.touch(node)

    def _count(self, node: str, rows: Iterable[Row]) -> bool:
        """Returns whether the numbers have changed."""
        failed = [row.outcome == _FAILED for row in rows]
        before = self._counted.pop(node, _NOTHING)
        if failed:
            self._counted[node] = _Counted(len(failed), sum(failed))
        return self._counted.get(node, _NOTHING) != before


def _set(names: set[str], name: str, wanted: bool) -> None:
    if wanted:
        names.add(name)
    else:
        names.discard(name)
