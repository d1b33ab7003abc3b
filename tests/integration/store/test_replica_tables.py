"""Replicas share evidence, streams and messages in a real PostgreSQL."""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import psycopg
import pytest
from hyperscout_collector.evidence.committer import Committer, Refused, Submission
from hyperscout_collector.evidence.postgresql import PostgresqlStore
from hyperscout_collector.evidence.rows import Key, Row, row_of
from hyperscout_collector.evidence.state import AgentRow, EvidenceState, KeyChange
from hyperscout_collector.evidence.store import Changes
from hyperscout_collector.store.errors import StoreError
from hyperscout_collector.store.postgresql import PostgresqlConnection, PostgresqlDatabase
from hyperscout_collector.store.replicas import (
    _KEPT_BATCHES,
    LEADER,
    Claim,
    LostClaim,
    Mark,
    Message,
    NotOwnerError,
    Owner,
    ReplicaTables,
    begin_batch,
)
from hyperscout_collector.store.server import PostgresqlServer
from hyperscout_collector.store.writer import StoreWriter
from hyperscout_runtime.clock import Clock
from hyperscout_runtime.units import NS
from support.evidence_stores import FIXED, written
from support.findings import T0, lldp
from support.postgresql import Postgresql


class Replica:
    """The stores of one replica."""

    def __init__(self, server: PostgresqlServer, name: str, *, leads: bool = False, ahead_s: int = 0) -> None:
        owner = Owner(name, leads)
        database = written(server) if leads else PostgresqlDatabase(server)
        walls = iter([T0 + ahead_s * NS])  # when the process started; the clock was set back since
        clock = Clock(lambda: next(walls, T0), lambda: T0) if ahead_s else FIXED
        self.evidence = PostgresqlStore(database, PostgresqlDatabase(server), clock, owner)
        self.tables = ReplicaTables(PostgresqlDatabase(server), PostgresqlDatabase(server), owner)

    def claim(self, node: str, instance: int = 1) -> int:
        (number,) = self.tables.change([Claim(node, instance, b"")])
        return number

    def close(self) -> None:
        self.tables.close()
        self.evidence.close()

    def store(self, *rows: tuple[Row, bytes], **more: object) -> None:
        self.evidence.apply(Changes(rows, **more))  # type: ignore[arg-type]


def row(node: str, interface: str = "eth0", after_s: int = 0) -> tuple[Row, bytes]:
    finding = lldp(node, interface, T0 + after_s * NS)
    return row_of(finding, sent_ns=T0 + 100 * NS, received_ns=T0), finding.SerializeToString()


class Replicas:
    """The leader and two standbys."""

    def __init__(self, server: PostgresqlServer) -> None:
        self.leader = Replica(server, "l", leads=True)
        self.a = Replica(server, "a")
        self.b = Replica(server, "b", ahead_s=50)


@pytest.fixture
def database(shared_postgresql: Postgresql) -> str:
    return shared_postgresql.new_database()


@pytest.fixture
def replicas(shared_postgresql: Postgresql, database: str) -> Iterator[Replicas]:
    found = Replicas(shared_postgresql.server(database))
    yield found
    for one in (found.leader, found.a, found.b):
        one.close()


def test_only_the_replica_that_has_the_stream_writes(replicas: Replicas) -> None:
    leader, a, b = replicas.leader, replicas.a, replicas.b
    leader.store(row("n1"))  # without a stream, the leader may
    with pytest.raises(NotOwnerError, match="n1"):
        a.store(row("n1", after_s=1))
    first = a.claim("n1")
    a.store(row("n1", after_s=1))
    for other in (leader, b):
        with pytest.raises(NotOwnerError) as error:
            other.store(row("n1", after_s=2), row("n2"))
        assert "n1" in error.value.nodes
    assert b.claim("n1") > first
    with pytest.raises(NotOwnerError):
        a.store(row("n1", after_s=3))
    b.store(row("n1", after_s=2))
    assert [x.observed_ns - T0 for x in leader.evidence.load().rows] == [2 * NS]
    assert a.tables.change([Mark("n1", first, ended=True)]) == [0]  # the later stream stays
    b.store(row("n1", after_s=4))


def test_the_end_of_a_stream_leaves_the_next_one_of_the_same_batch(replicas: Replicas) -> None:
    a = replicas.a
    first, second = a.tables.change([Claim("n1", 1, b""), Claim("n1", 1, b"")])
    assert second > first
    assert a.tables.change([Mark("n1", first, ended=True)]) == [0]
    a.store(row("n1"))
    assert a.tables.change([Mark("n1", second, ended=True)]) != [0]


def test_a_claim_without_an_answer_is_ended_and_no_other_one(replicas: Replicas) -> None:
    a, b = replicas.a, replicas.b
    answered = a.claim("n1")
    a.tables.change([LostClaim("n1", answered), LostClaim("n2", answered)])
    a.store(row("n1"))  # its stream is still there
    a.claim("n1")
    a.tables.change([LostClaim("n1", answered)])
    with pytest.raises(NotOwnerError):
        a.store(row("n1", after_s=1))
    assert b.claim("n1")
    a.tables.change([LostClaim("n1", answered)])
    b.store(row("n1", after_s=1))


async def test_a_group_is_stored_without_what_another_replica_owns(replicas: Replicas) -> None:
    a, state, writer = replicas.a, EvidenceState(), StoreWriter()
    committer = Committer(state, a.evidence, writer, on_commit=lambda changes: None, clock_ns=lambda: T0)
    a.claim("n1")
    a.claim("n2")
    replicas.b.claim("n1")
    lost, kept = [await committer.submit(Submission([row(node)])) for node in ("n1", "n2")]
    await writer.flush()
    with pytest.raises(NotOwnerError, match="another replica has the stream of n1"):
        await lost
    assert await kept == []
    assert [x.key.node for x in replicas.leader.evidence.load().rows] == ["n2"]
    assert list(state.nodes) == ["n2"]
    await writer.close()


def test_the_leader_deletes_nothing_that_it_has_not_read(replicas: Replicas) -> None:
    leader, a = replicas.leader, replicas.a
    claimed = a.claim("n1")
    old, new = row("n1"), row("n1", after_s=1)
    a.store(old)
    leader.evidence.load()
    a.store(new)
    a.tables.change([Mark("n1", claimed, ended=True)])
    decided = [(old[0].key, old[0].rank)]
    leader.store(deletes=decided)
    (found,) = leader.evidence.load().rows
    assert found.observed_ns == new[0].observed_ns
    leader.store(deletes=decided)
    assert leader.evidence.load().rows == []


async def test_what_a_failed_write_has_stored_is_read_before_the_next_one(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, state, writer = replicas.leader, EvidenceState(), StoreWriter()
    seen: list[KeyChange] = []
    committer = Committer(
        state,
        leader.evidence,
        writer,
        on_commit=seen.extend,
        clock_ns=lambda: T0,
        load_nodes=leader.evidence.load_nodes,
    )
    apply = leader.evidence.apply

    def unanswered(changes: Changes) -> None:
        apply(changes)
        error = StoreError("the connection broke")
        error.may_be_stored = True
        raise error

    async def stored(*given: Any, removed: Sequence[Key] = ()) -> list[Refused]:
        waiting = await committer.submit(Submission(given, removed=removed))
        await writer.flush()
        return await waiting

    leader.claim("n1")
    old, gone, new = row("n1"), row("n1", "eth9"), row("n1", after_s=1)
    await stored(old, gone)
    with monkeypatch.context() as patch:
        patch.setattr(leader.evidence, "apply", unanswered)
        with pytest.raises(StoreError, match="broke"):
            await stored(new, removed=[gone[0].key])
    assert {x.observed_ns for x in state.rows_of_node("n1")} == {old[0].observed_ns}
    seen.clear()
    leader.claim("n2")
    await stored(row("n2"))
    assert [x.observed_ns for x in state.rows_of_node("n1")] == [new[0].observed_ns]
    assert {x.key.subject for x in seen if x.key.node == "n1"} == {"eth0", "eth9"}
    with monkeypatch.context() as patch:  # once is enough
        patch.setattr(committer, "_load_nodes", None)
        await stored(row("n2", after_s=1))
    await writer.close()


def test_the_stream_of_an_older_process_is_refused(replicas: Replicas) -> None:
    leader, a = replicas.leader, replicas.a
    claimed = leader.claim("n1", instance=2**64 - 1)
    assert claimed
    assert a.claim("n1", instance=7) == 0
    assert leader.tables.change([Mark("n1", claimed, ended=True)]) != [0]
    assert a.claim("n1", instance=7)


def test_the_leader_reads_what_standbys_wrote_since_a_number(replicas: Replicas) -> None:
    leader, a = replicas.leader, replicas.a
    a.claim("n1")
    since = leader.evidence.load().number
    a.store(row("n1"), row("n1", "eth1"), agents=[AgentRow("n1", 1, "0.2")])
    leader.store(row("n2"))
    news = leader.evidence.news(since)
    assert [x.key.subject for x in news.rows] == ["eth0", "eth1"]
    assert [agent.node for agent in news.agents] == ["n1"]
    assert not news.deleted
    (renewed,) = (one for one in news.rows if one.key.subject == "eth0")
    times = renewed.observed_ns + NS, renewed.offset_ns, renewed.received_ns + NS
    a.store(renewed=[renewed.renewed(*times)], deletes=[(Key("n1", "lldp", "eth1"), renewed.rank)])
    later = leader.evidence.news(news.number)
    assert not later.rows
    assert later.renewed == [(renewed.key, renewed.rank, times)]
    assert later.deleted == [(Key("n1", "lldp", "eth1"), renewed.rank)]
    assert later.present is None
    leader.tables.prune(later.number, later.number)
    assert leader.evidence.news(news.number).deleted == []
    assert leader.evidence.news(later.number).number == later.number


def test_a_leader_that_is_too_far_behind_reads_all_keys(
    replicas: Replicas, shared_postgresql: Postgresql, database: str
) -> None:
    leader, a = replicas.leader, replicas.a
    a.claim("n1")
    since = leader.evidence.load().number
    a.store(row("n1"), row("n1", "eth1"))
    shared_postgresql.execute(database, f"UPDATE sequence SET number = number + {_KEPT_BATCHES}")
    rank = row("n1")[0].rank
    a.store(deletes=[(Key("n1", "lldp", "eth1"), rank)])
    assert leader.evidence.news(since).present == {(Key("n1", "lldp", "eth0"), rank)}


def test_times_are_stored_by_the_clock_of_the_leader(replicas: Replicas) -> None:
    leader, a = replicas.leader, replicas.b
    leader.store(row("n2"))
    a.claim("n1")
    own, encoded = row("n1")
    own = own.renewed(own.observed_ns, own.offset_ns - 50 * NS, own.received_ns + 50 * NS)
    a.store((own, encoded))
    (stored,) = leader.evidence.news(0).rows
    assert (stored.received_ns, stored.seen_ns) == (T0, own.seen_ns - 50 * NS)
    assert a.evidence.load_nodes(["n1"]).rows == [own]


def test_the_shift_of_the_clock_holds_while_it_is_used(
    replicas: Replicas, shared_postgresql: Postgresql, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shift_ns, writers = PostgresqlStore._shift_ns, []

    def checked(store: PostgresqlStore, db: PostgresqlConnection) -> int:
        with shared_postgresql.session(database) as other, pytest.raises(psycopg.errors.LockNotAvailable):
            other.execute("SELECT 1 FROM hyperscout.sequence FOR UPDATE NOWAIT")
        writers.append(store)
        return shift_ns(store, db)

    monkeypatch.setattr(PostgresqlStore, "_shift_ns", checked)
    replicas.leader.evidence.load()
    replicas.a.claim("n1")
    replicas.a.store(row("n1"))
    assert writers == [replicas.leader.evidence, replicas.a.evidence]


def test_an_unreadable_finding_is_deleted_unless_a_standby_replaces_it(
    replicas: Replicas, shared_postgresql: Postgresql, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, a = replicas.leader.evidence, replicas.a
    a.claim("n1")
    a.store(row("n1"), row("n1", "eth1"))
    shared_postgresql.execute(database, r"UPDATE findings SET finding = '\x00'")
    batches = count()

    def late(db: PostgresqlConnection, owner: Owner, nodes: Sequence[str] = ()) -> int:
        if owner.leads and next(batches) == 1:  # the one that deletes, after the read
            a.store(row("n1", after_s=1))
        return begin_batch(db, owner, nodes)

    monkeypatch.setattr("hyperscout_collector.evidence.postgresql.begin_batch", late)
    assert "2 damaged rows were dropped" in leader.load().problems[0]
    assert [x.key.subject for x in leader.load().rows] == ["eth0"]


def test_messages_reach_their_replica_once_and_in_order(replicas: Replicas) -> None:
    leader, a, b = replicas.leader, replicas.a, replicas.b
    sent = [Message("a", 1, f"n{i}", i, "directive", b"x") for i in range(20)]
    leader.tables.send(sent)
    a.tables.send([Message(LEADER, 0, "n1", 1, "nccl_id", b"y")])
    assert b.tables.take_news(0).messages == []
    assert a.tables.take_news(0).messages == sent
    assert a.tables.take_news(0).messages == []
    assert [x.body for x in leader.tables.take_news(0).messages] == [b"y"]


def test_messages_to_a_replica_that_is_gone_are_deleted(
    replicas: Replicas, shared_postgresql: Postgresql, database: str
) -> None:
    leader, a, b = replicas.leader, replicas.a, replicas.b
    for one in (a, b):
        one.tables.beat()
    a.tables.leave()
    sent = [Message(name, 1, "n1", 1, "directive", b"x") for name in ("a", "b", LEADER)]
    leader.tables.send(sent)  # the leader has not read that `a` left
    leader.tables.prune(0, 0)
    found = shared_postgresql.execute(database, "SELECT receiver FROM messages ORDER BY receiver")
    assert found == [("b",), (LEADER,)]


def test_the_leader_ends_the_streams_of_dead_replicas(replicas: Replicas) -> None:
    leader, a, b = replicas.leader, replicas.a, replicas.b
    assert not a.tables.beat()
    assert a.tables.beat()
    a.claim("n1")
    b.claim("n2")  # a sign of life too
    leader.tables.remove_dead(3600.0)
    assert {x.node: x.ended for x in leader.tables.take_news(0).streams} == {"n1": False, "n2": False}
    a.store(row("n1"))
    leader.tables.remove_dead(0.0)
    assert {x.node: x.ended for x in leader.tables.take_news(0).streams} == {"n1": True, "n2": True}
    assert not a.tables.beat()
    with pytest.raises(NotOwnerError):
        a.store(row("n1", after_s=1))
    number = leader.tables.take_news(0).number
    leader.tables.prune(number, number)
    assert leader.tables.take_news(0).streams == []
