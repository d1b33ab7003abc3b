"""Findings are removed by the replica that has the agent's stream, also when the first write fails."""

import asyncio
from unittest.mock import Mock

from hyperscout.v1.discovery_pb2 import Hello
from hyperscout_collector.app.ingest.evidence_cleanup import FORGET_AFTER_NS, EvidenceCleanup, Removals
from hyperscout_collector.evidence.committer import Committer, Refused, Submission
from hyperscout_collector.evidence.rows import Key
from hyperscout_collector.evidence.sqlite import SqliteStore
from hyperscout_collector.ingest.passed_removals import decoded
from hyperscout_collector.ingest.streams import Connection, RemoteStream
from hyperscout_collector.store.errors import StoreError
from hyperscout_collector.store.replicas import FORGET, NotOwnerError
from support.evidence_rig import Rig
from support.findings import T0, S, lldp


class FakeCommitter(Committer):
    """Notes what it is asked to remove. `outcomes`: what the next submissions raise."""

    def __init__(self, *outcomes: StoreError) -> None:
        self.forgotten: list[set[str]] = []
        self._outcomes = list(outcomes)

    def due(self, now_ns: int, connected: object) -> list[Key]:
        return []

    async def submit(self, submission: Submission) -> "asyncio.Future[list[Refused]]":
        self.forgotten.append({key.node for key in submission.forgotten})
        done: asyncio.Future[list[Refused]] = asyncio.get_running_loop().create_future()
        if self._outcomes:
            done.set_exception(self._outcomes.pop(0))
        else:
            done.set_result([])
        return done


async def removed(*outcomes: StoreError) -> list[set[str]]:
    """The nodes of findings that are removed, in each of the writes that follow a failure."""
    rig = Rig(Mock(SqliteStore))
    rig.put(lldp("n1", "eth0"), lldp("n2", "eth0"))
    removals = Removals(rig.state, committer := FakeCommitter(*outcomes))
    removals.add([Key("n1", "lldp", "eth0"), Key("n2", "lldp", "eth0")])
    for _ in range(3):
        await removals.write()
    return committer.forgotten


async def test_a_removal_that_fails_is_repeated() -> None:
    assert await removed(StoreError("away")) == [{"n1", "n2"}, {"n1", "n2"}]


async def test_a_removal_is_left_to_the_replica_that_has_the_stream() -> None:
    assert await removed(NotOwnerError(["n1"])) == [{"n1", "n2"}, {"n2"}]


async def test_old_findings_of_an_agent_elsewhere_are_removed_there() -> None:
    rig = Rig(Mock(SqliteStore))
    rig.put(lldp("n1", "eth0"), lldp("n2", "eth0"))
    sent: list[tuple[str, str, bytes]] = []

    def send(stream: RemoteStream, kind: str, body: bytes) -> None:
        sent.append((stream.node, kind, body))

    streams: dict[str, Connection] = {"n1": RemoteStream(Hello(node="n1"), "b", 7, T0, send)}
    cleanup = EvidenceCleanup(
        rig.state,
        rig.view,
        committer := FakeCommitter(),
        stream_of=streams.get,
        clock_ns=lambda: T0 + FORGET_AFTER_NS + S,
    )
    await cleanup.tick()
    await cleanup.tick()  # n1's replica has been asked
    assert committer.forgotten == [{"n2"}, {"n2"}]
    ((node, kind, body),) = sent
    assert (node, kind) == ("n1", FORGET)
    key = Key("n1", "lldp", "eth0")
    assert decoded("n1", body, rig.state) == {key: list(rig.state.rows_of_key(key))}
    rig.put(lldp("n1", "eth0", T0 + S), at_ns=T0 + S)
    assert decoded("n1", body, rig.state) == {}  # it is newer


async def test_the_next_replica_of_an_agent_is_asked_again() -> None:
    rig = Rig(Mock(SqliteStore))
    rig.put(lldp("n1", "eth0"))
    asked: list[str] = []

    def at(replica: str) -> RemoteStream:
        return RemoteStream(Hello(node="n1"), replica, 7, T0, lambda stream, *_: asked.append(stream.replica))

    streams: dict[str, Connection] = {"n1": at("b")}
    cleanup = EvidenceCleanup(
        rig.state, rig.view, FakeCommitter(), stream_of=streams.get, clock_ns=lambda: T0 + FORGET_AFTER_NS + S
    )
    await cleanup.tick()
    streams["n1"] = at("c")
    await cleanup.tick()
    assert asked == ["b", "c"]
