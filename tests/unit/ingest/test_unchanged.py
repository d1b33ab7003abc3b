"""Findings that agents name as unchanged: what the collector holds is always what the agent found."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import grpc
import pytest
from hyperscout.v1.discovery_pb2 import FindingBatch, Hello, StreamFindingsRequest, Unchanged
from hyperscout.v1.finding_pb2 import Finding, FindingKey
from hyperscout_agent.findings.store import Batch, FindingStore
from hyperscout_agent.findings.store import Key as OwnKey
from hyperscout_collector.evidence.committer import Committer, FullState, Submission
from hyperscout_collector.evidence.rows import Key, Row, row_of
from hyperscout_collector.evidence.state import AgentRow, EvidencePlan, EvidenceState
from hyperscout_collector.evidence.store import Changes
from hyperscout_collector.ingest.bulk import BulkLimits
from hyperscout_collector.ingest.intake import newest_held_ns
from hyperscout_collector.ingest.session import Session
from hyperscout_collector.ingest.streams import AgentStream, StreamEndedError, Streams
from hyperscout_collector.store.writer import StoreWriter
from hyperscout_formats.text.reporters import DEVICE_PROBE
from support.findings import T0, S, called, failed, lldp, sweep

NODE = "n1"


@dataclass
class MemoryStore:
    """What `SqliteStore` keeps, in memory: it can be copied, and an older copy can come back."""

    rows: dict[tuple[Key, int], Row] = field(default_factory=dict)
    agents: dict[str, AgentRow] = field(default_factory=dict)

    def copy(self) -> "MemoryStore":
        return MemoryStore(dict(self.rows), dict(self.agents))

    def apply(self, changes: Changes) -> None:
        for place in changes.deletes:
            del self.rows[place]
        for row, encoded in changes.upserts:
            assert encoded
            self.rows[row.key, row.rank] = row
        for row in changes.renewed:
            assert self.rows[row.key, row.rank].same_content(row), "only the times change"
            self.rows[row.key, row.rank] = row
        self.agents.update({agent.node: agent for agent in changes.agents})


class Gate:
    """Gives no lease."""

    def may_sweep(self, node: str) -> bool:
        return False

    def refuse_sweep(self, node: str, lease_id: str, port_guid: int | None) -> str | None:
        return "no lease"

    def holds(self, node: str, lease_id: str) -> bool:
        return False

    def unreadable(self, node: str, lease_id: str, reason: str) -> None:
        raise AssertionError(reason)


def _no_text(*_: object) -> Any:
    raise AssertionError("no text is sent")


class Collector:
    """Evidence, and streams of one agent at a time. `start` begins another process with the same store."""

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self.store = MemoryStore()
        self.full_states: list[str] = []
        self.writes: list[Changes] = []
        self._clock_ns = clock_ns
        self.start()

    def start(self) -> None:
        self.state = EvidenceState()
        self.state.load(self.store.rows.values(), self.store.agents.values())
        self.writer = StoreWriter()
        self.committer = Committer(
            self.state,
            self,  # type: ignore[arg-type]
            self.writer,
            on_commit=lambda _: None,
            on_full_state=self.full_states.append,
            clock_ns=self._clock_ns,
            grace_s=0.0,
            renewals_wait_s=3600.0,  # each test ends the waits
            full_state_wait_s=3600.0,
        )
        self.streams = Streams(10)

    def apply(self, changes: Changes) -> None:
        self.writes.append(changes)
        self.store.apply(changes)

    async def stop(self) -> None:
        await self.writer.close()

    def connect(self, instance: int) -> Session:
        task: Any = asyncio.current_task()
        stream = AgentStream(Hello(node=NODE, instance=instance, version="1"), task, 0, 0)
        return Session(
            stream,
            self.state,
            self.committer,
            Gate(),
            _no_text,
            _no_text,
            self._clock_ns,
            BulkLimits(),
            self.streams,
            _no_text,
        )

    async def forget(self, *keys: Key) -> None:
        """Remove findings as the clean-up does."""
        rows = {key: self.state.rows_of_key(key) for key in keys}
        await self.committer.submit(Submission(forgotten=rows))
        await self.writer.flush()

    async def take(self, session: Session, batch: FindingBatch) -> set[OwnKey] | None:
        """Store a batch. Returns what was refused; None: the collector ends the stream."""
        try:
            await session.take(StreamFindingsRequest(batch=batch))
        except StreamEndedError as error:
            if error.end.code is not grpc.StatusCode.FAILED_PRECONDITION:
                raise
            return None
        await self.writer.flush()
        await asyncio.sleep(0)  # the callback of the stored batch
        refused: set[OwnKey] = set()
        for message in session.stream.outgoing():
            refused |= {OwnKey(one.key.probe, one.key.subject) for one in message.ack.refusals}
        return refused


class World:
    """An agent and a collector. `now_ns`: the clock of both; each operation takes a second."""

    def __init__(self) -> None:
        self.now_ns = T0
        self.skew_ns = 0  # of the agent's wall clock
        self.collector = Collector(lambda: self.now_ns)
        self.backup = self.collector.store.copy()
        self.instance = 0
        self.sent: list[FindingBatch] = []  # of the present stream
        self.ended = 0  # streams that the collector ended
        self.has_lost = False  # whether the collector has lost findings
        self.session: Session | None = None
        self.waiting: list[tuple[Batch, set[OwnKey]]] = []  # acks that have not arrived
        self.restart_agent()

    # The agent

    def restart_agent(self) -> None:
        self.lose()
        self.instance += 1
        self.agent = FindingStore(NODE, lambda: self.now_ns / S)

    def put(self, subject: int, what: int) -> None:
        """`what`: 0 = a failure, otherwise the neighbour."""
        name = f"eth{subject}"
        at_ns = self.now_ns + self.skew_ns
        self.agent.put(self.observed(name, what) if what else failed(NODE, "lldp", name, at_ns))

    def observed(self, name: str, what: int) -> Finding:
        return lldp(NODE, name, self.now_ns + self.skew_ns, neighbour=f"leaf-{what}")

    def remove(self, subject: int) -> None:
        self.agent.remove(FindingKey(node=NODE, probe="lldp", subject=f"eth{subject}"))

    # The stream

    def lose(self) -> None:
        """The stream breaks: acks that have not arrived are lost."""
        if self.session is not None:
            self.session, self.waiting, self.sent = None, [], []
            self.agent.end_stream()

    def connect(self, *, is_older: bool = False) -> None:
        """Begin a stream. `is_older`: one side does not know of unchanged findings."""
        self.lose()
        self.session = self.collector.connect(self.instance)
        held_ns = newest_held_ns(self.collector.state, NODE, self.instance)
        self.agent.begin_stream(None if is_older else held_ns)

    async def send(self, most: int = 1000, *, arrives: bool = True) -> bool:
        """Send a batch. Returns whether there was one."""
        if self.session is None or (batch := self.agent.next_batch(1 << 20, most)) is None:
            return False
        message = FindingBatch(
            sequence=len(self.sent) + 1,
            findings=batch.findings,
            unchanged=batch.unchanged,
            removed=batch.removed,
            full_state_ends=batch.full_state_ends,
        )
        message.sent_at.FromNanoseconds(self.now_ns + self.skew_ns)
        self.sent.append(message)
        refused = await self.collector.take(self.session, message) if arrives else None
        if refused is not None:
            self.waiting.append((batch, refused))
            return True
        self.lose()
        if arrives:
            self.ended += 1
            self.agent.distrust()
        return True

    def acks(self, most: int = 1000) -> None:
        for _ in range(min(most, len(self.waiting))):
            self.agent.acked(*self.waiting.pop(0))

    async def settle(self) -> None:
        """Send all, on a new stream if there is none, until the collector has acknowledged all."""
        for _ in range(3):
            if self.session is None:
                self.connect()
            while await self.send():
                pass
            self.acks()
            if self.session is not None:
                break
        assert self.agent.dirty == 0
        await self.collector.forget(*self.collector.committer.due(self.now_ns + S, lambda _: True))

    # The collector

    async def restart_collector(self, store: MemoryStore | None = None) -> None:
        self.lose()
        await self.collector.stop()
        if store is not None:
            self.collector.store, self.has_lost = store, True
        self.collector.start()

    def check(self) -> None:
        """The collector holds what the agent holds, in memory and in its store."""
        stored = {(row.key, row.rank): row for row in self.collector.state.rows_of_node(NODE)}
        assert stored == self.collector.store.rows
        expected = {
            (Key(NODE, *key), rank): finding
            for key, entry in self.agent._entries.items()
            for rank, finding in entry.ranked
        }
        assert stored.keys() >= expected.keys()
        for key, rank in stored.keys() - expected.keys():
            # A key that was removed and failed since: its removal was not sent.
            assert rank > max(other for own, other in expected if own == key)
        for place, finding in expected.items():
            row = stored[place]
            as_sent = row_of(finding, sent_ns=self.now_ns, received_ns=self.now_ns)
            assert row.same_content(as_sent)
            assert 0 <= as_sent.observed_ns - row.observed_ns < 60 * S, "times are sent once a minute"
        assert self.has_lost or not self.ended, "a stream is not ended without a reason"
        self.has_lost, self.ended = False, 0


# How often each operation is played.
OPERATIONS = {
    "put": 10,
    "settle": 5,
    "send": 6,
    "ack": 6,
    "later": 4,
    "remove": 1,
    "connect": 2,
    "lose": 1,
    "drop": 1,
    "restart agent": 1,
    "restart collector": 2,
    "back up": 1,
    "restore": 1,
    "wipe": 1,
    "forget": 1,
}


@pytest.mark.parametrize("seed", range(20))
async def test_the_evidence_ends_equal_to_the_findings(seed: int) -> None:
    rng, world = Random(seed), World()
    for name in rng.choices([*OPERATIONS], [*OPERATIONS.values()], k=400):
        world.now_ns += S
        match name:
            case "put":
                world.put(rng.randrange(3), rng.randrange(3))
            case "settle":
                await world.settle()
                world.check()
            case "send":
                await world.send(rng.randrange(1, 4))
            case "ack":
                world.acks(1)
            case "later":
                world.now_ns += rng.choice([20, 70]) * S
            case "remove":
                world.remove(rng.randrange(3))
            case "connect":
                world.connect(is_older=rng.random() < 0.2)
            case "lose":
                world.lose()
            case "drop":
                await world.send(2, arrives=False)
            case "restart agent":
                world.restart_agent()
            case "restart collector":
                await world.restart_collector()
            case "back up":
                world.backup = world.collector.store.copy()
            case "restore":
                await world.restart_collector(world.backup.copy())
            case "wipe":
                await world.restart_collector(MemoryStore())
            case "forget":
                await world.collector.forget(Key(NODE, "lldp", f"eth{rng.randrange(3)}"))
                world.has_lost = True
                world.lose()  # the agent sends it again on its next stream
    await world.settle()
    world.check()
    await world.collector.stop()


async def settled_world() -> World:
    """An agent with four findings, which the collector holds."""
    world = World()
    for subject in range(4):
        world.put(subject, 1)
    await world.settle()
    world.collector.full_states.clear()
    world.collector.writes.clear()
    world.now_ns += S
    return world


async def test_an_unchanged_state_is_named_and_nothing_is_written() -> None:
    world = await settled_world()
    await world.restart_collector()
    await world.settle()
    (batch,) = world.sent
    assert not batch.findings
    assert [(one.subject, one.observed_ns) for one in batch.unchanged] == [(f"eth{i}", 0) for i in range(4)]
    assert batch.full_state_ends
    assert world.collector.full_states == [NODE], "a takeover waits for the full state"
    assert world.collector.writes == []
    world.check()
    await world.collector.stop()


async def test_only_what_changed_while_the_collector_was_away_is_sent() -> None:
    world = await settled_world()
    world.lose()
    world.now_ns += 70 * S
    world.put(0, 2)  # another neighbour
    world.put(1, 1)  # the same again: its time is due
    world.remove(2)
    await world.restart_collector()
    await world.settle()
    (batch,) = world.sent
    assert [one.key.subject for one in batch.findings] == ["eth0"]
    assert [(one.subject, bool(one.observed_ns)) for one in batch.unchanged] == [
        ("eth1", True),
        ("eth3", False),
    ]
    world.check()
    ages = {row.key.subject: world.now_ns - row.seen_ns for row in world.collector.state.rows_of_node(NODE)}
    assert ages["eth1"] < 2 * S
    assert ages["eth3"] > 70 * S
    await world.collector.stop()


async def test_a_refresh_sends_times_alone() -> None:
    world = await settled_world()
    world.now_ns += 70 * S
    for subject in range(4):
        world.put(subject, 1)
    await world.settle()
    batch = world.sent[-1]
    assert not batch.findings
    assert len(batch.unchanged) == 4
    (changes,) = world.collector.writes
    assert len(changes.renewed) == 4
    assert not changes.upserts
    assert {row.seen_ns for row in world.collector.store.rows.values()} == {world.now_ns}
    await world.collector.stop()


async def test_a_clock_that_is_set_back_ends_no_stream() -> None:
    world = await settled_world()
    for skew_s in (-100, -200, 0):
        world.skew_ns = skew_s * S
        for _ in range(2):
            world.now_ns += 70 * S
            for subject in range(4):
                world.put(subject, 1)
            await world.settle()
            assert {row.seen_ns for row in world.collector.store.rows.values()} == {world.now_ns}
        assert not world.sent[-1].findings, "times alone are sent again"
    assert not world.ended
    await world.collector.stop()


async def test_a_result_of_nccl_is_sent_again() -> None:
    """The collector keeps the newest ones only, so the agent cannot know which it holds."""
    world = await settled_world()
    run = failed(NODE, "nccl", "n2", world.now_ns)
    run.ClearField("outcome")
    run.ClearField("reason")
    run.nccl.peer = "n2"
    world.agent.put(run)
    world.connect()
    batch = world.agent.next_batch(1 << 20, 1000)
    assert batch is not None
    world.agent.acked(batch)
    world.connect()
    batch = world.agent.next_batch(1 << 20, 1000)
    assert batch is not None
    assert [one.key.probe for one in batch.findings] == ["nccl"]
    assert len(batch.unchanged) == 4
    await world.collector.stop()


async def test_a_state_with_a_finding_that_has_gone_is_not_full() -> None:
    """A named finding is forgotten after it was checked, and before it is written."""
    world = await settled_world()
    held = world.collector.state.rows_of_key(Key(NODE, "lldp", "eth1"))
    renewed = [replace(row, observed_ns=row.observed_ns + S) for row in held]
    agent = AgentRow(NODE, world.instance, "1")
    await world.collector.forget(Key(NODE, "lldp", "eth1"))
    submission = Submission(renewed=renewed, full_state=FullState(agent, frozenset(row.key for row in held)))
    stored = await world.collector.committer.submit(submission)
    await world.collector.writer.flush()
    assert [one.dropped for one in await stored] == [True]
    assert world.collector.full_states == [], "the agent sends all on its next stream"
    assert len(world.collector.store.rows) == 3, "nothing is removed for a state that is not full"
    await world.collector.stop()


async def test_a_finding_is_named_once_in_a_batch() -> None:
    world = await settled_world()
    await world.restart_collector()
    world.connect()
    assert world.session is not None
    batch = world.agent.next_batch(1 << 20, 1)
    assert batch is not None
    message = FindingBatch(sequence=1, unchanged=[*batch.unchanged, *batch.unchanged])
    assert await world.collector.take(world.session, message) is None, "the collector ends the stream"
    await world.collector.stop()


async def test_a_time_that_was_stored_without_an_ack_ends_no_stream() -> None:
    world = await settled_world()
    world.now_ns += 70 * S
    world.put(0, 1)
    assert await world.send()
    await world.settle()
    world.now_ns += 70 * S
    world.put(0, 1)
    assert await world.send()
    world.lose()  # the collector has the new time, and the agent does not know it
    await world.settle()
    assert world.ended == 0
    world.check()
    await world.collector.stop()


async def test_two_times_on_the_way_end_no_stream() -> None:
    world = await settled_world()
    for _ in range(2):
        world.now_ns += 70 * S
        world.put(0, 1)
        assert await world.send()
    world.acks(1)
    world.now_ns += 70 * S
    world.put(0, 1)
    await world.settle()
    assert world.ended == 0
    world.check()
    await world.collector.stop()


@pytest.mark.parametrize(
    ("store", "ended"),
    [
        pytest.param(MemoryStore, 0, id="a lost store: Welcome names no finding"),
        pytest.param(None, 0, id="an older store: Welcome names an older finding"),
        pytest.param("damaged", 1, id="a finding is missing: the collector ends the stream"),
    ],
)
async def test_a_collector_that_holds_less_gets_all(store: Any, ended: int) -> None:
    world = await settled_world()
    if store is None:
        lacking = world.collector.store.copy()
        world.put(0, 2)
        await world.settle()
    elif store == "damaged":
        lacking = world.collector.store.copy()
        del lacking.rows[Key(NODE, "lldp", "eth1"), 2]
    else:
        lacking = MemoryStore()
    await world.restart_collector(lacking)
    await world.settle()
    assert world.ended == ended
    world.check()
    assert len(world.sent[0].findings) == 4
    # It is not repeated: the next reconnect names them again.
    await world.restart_collector()
    await world.settle()
    assert world.ended == 0
    assert len(world.sent[0].unchanged) == 4
    await world.collector.stop()


async def test_the_process_before_proves_nothing() -> None:
    world = await settled_world()
    world.restart_agent()
    world.put(0, 1)
    await world.settle()
    assert [one.key.subject for one in world.sent[0].findings] == ["eth0"]
    assert newest_held_ns(world.collector.state, NODE, 1) == 0
    await world.collector.stop()


async def test_a_refused_finding_is_sent_again() -> None:
    world = await settled_world()
    found = lldp(NODE, "eth9", world.now_ns)
    found.outcome = 77
    world.agent.put(found)
    await world.settle()
    world.lose()
    await world.settle()
    assert [one.key.subject for one in world.sent[0].findings] == ["eth9"]
    await world.collector.stop()


@pytest.mark.parametrize(
    "finding",
    [
        pytest.param(called(lldp(NODE, "eth0"), NODE, DEVICE_PROBE), id="of a device in the node"),
        pytest.param(sweep(NODE, b"\1" * 32), id="a sweep, which needs a lease"),
        pytest.param(failed(NODE, "ibnetdiscover", "mlx5_0/1"), id="a failed sweep"),
        pytest.param(lldp("n2", "eth0"), id="of another node"),
        pytest.param(lldp(NODE, "eth0", T0 - S), id="of another time"),
    ],
)
async def test_what_an_agent_must_not_name(finding: Finding) -> None:
    """A claim about an own finding is the only one that is accepted."""
    world = World()
    plan = EvidencePlan(world.collector.state, T0)
    plan.upsert(row_of(finding, sent_ns=T0, received_ns=T0), b"x")
    world.collector.state.commit(plan)
    key = finding.key
    named = Unchanged(probe=key.probe, subject=key.subject, held_ns=T0, observed_ns=T0 + 50 * S)
    before = list(world.collector.state.rows_of_node(key.node))
    batch = FindingBatch(sequence=1, unchanged=[named])
    assert await world.collector.take(world.collector.connect(1), batch) is None
    assert list(world.collector.state.rows_of_node(key.node)) == before
    await world.collector.stop()
