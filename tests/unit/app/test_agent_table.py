"""The running counts of GetStatus are what a count from scratch finds, whatever happened before."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest
from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.discovery_pb2 import Hello
from hyperscout.v1.finding_pb2 import Finding, FindingKey, Outcome
from hyperscout_collector.app.status.agent_table import AgentTable
from hyperscout_collector.evidence.age_count import AgeCount
from hyperscout_collector.evidence.kept import KEPT_PROBES
from hyperscout_collector.evidence.rows import Row, row_of
from hyperscout_collector.evidence.state import AgentRow, EvidencePlan, EvidenceState
from hyperscout_collector.ingest.streams import AgentStream, StreamEndedError, Streams
from hyperscout_formats.text.reporters import is_fabric, is_switch
from hyperscout_topology.proto import timestamp
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.evidence_rows import all_rows
from support.findings import T0, S, stamp

STALE_S = 100
NODES = ("n1", "n2", "switch/leaf-1", "fabric/crawl")


class World:
    """A state, streams and devices, and the table that follows them. `earlier`: by agent, when the former
    leader last heard it."""

    def __init__(
        self, findings: Sequence[tuple[Any, ...]] = (), earlier: Mapping[str, int] | None = None
    ) -> None:
        self.now_ns = T0
        self.state = EvidenceState()
        self.streams = Streams(100)
        self.heard: dict[str, tuple[int, int]] = {}
        self.state.load([self._row(*finding) for finding in findings], [AgentRow("n2", 1, "old")])
        agents = [pb.AgentStatus(node=x, last_heard=timestamp(at)) for x, at in (earlier or {}).items()]
        self.table = AgentTable(self.state, self.streams, STALE_S * S, agents)
        self.table.count(self.state.nodes)

    # What happens

    def find(self, *finding: Any) -> None:
        row = self._row(*finding)
        plan = EvidencePlan(self.state, self.now_ns)
        plan.upsert(row, b"")
        self.table.follow(self.state.commit(plan))

    def remove(self, node: str, subject: str) -> None:
        plan = EvidencePlan(self.state, self.now_ns)
        for key in list(self.state.keys_of(node)):
            if key.subject == subject:
                plan.forget(key, self.state.rows_of_key(key))
        self.table.follow(self.state.commit(plan))

    def full_state(self, node: str, version: str) -> None:
        plan = EvidencePlan(self.state, self.now_ns, agents={node: AgentRow(node, 1, version)})
        self.table.follow(self.state.commit(plan))
        self.table.full_state(node)

    def connect(self, node: str, instance: int) -> None:
        task = cast("asyncio.Task[object]", Ended())
        hello = Hello(node=node, instance=instance, version=f"v{instance}")
        with contextlib.suppress(StreamEndedError):  # a newer agent of the node is connected
            self.streams.add(AgentStream(hello, task, self.now_ns, self.now_ns))

    def disconnect(self, node: str) -> None:
        if (stream := self.streams.get(node)) is not None:
            self.streams.discard(stream)

    def hear(self, node: str, offset_s: int | None) -> None:
        if (stream := self.streams.get(node)) is not None:
            self.streams.heard(stream, self.now_ns, None if offset_s is None else offset_s * S)

    def device(self, node: str, offset_s: int) -> None:
        self.heard[node] = self.now_ns, offset_s * S
        self.table.device_heard(node, self.now_ns, offset_s * S)

    def wait(self, seconds: int) -> None:
        self.now_ns += seconds * S

    # What is to be found

    def agents(self) -> list[pb.AgentStatus]:
        found = []
        for node in sorted({*self.state.nodes, *(stream.node for stream in self.streams)}):
            rows = list(self.state.rows_of_node(node))
            newest = max(rows, key=lambda row: row.received_ns, default=None)
            heard_ns, offset_ns = (newest.received_ns, newest.offset_ns) if newest else (0, 0)
            stream, known = self.streams.get(node), self.state.agents.get(node)
            version, device = known.version if known else "", self._device(node)
            if stream is not None:
                heard_ns, offset_ns, version = stream.last_heard_ns, stream.offset_ns, stream.hello.version
            elif device is not None:
                (heard_ns, offset_ns), version = device, "mqtt"
            found.append(
                pb.AgentStatus(
                    node=node,
                    version=version,
                    connected=stream is not None or device is not None,
                    last_heard=timestamp(heard_ns),
                    findings=len(rows),
                    failed_findings=sum(row.outcome == Outcome.OUTCOME_FAILED for row in rows),
                    clock_offset_s=offset_ns / S,
                )
            )
        return found

    def _device(self, node: str) -> tuple[int, int] | None:
        found = self.heard.get(node)
        if found is None or found[0] < self.now_ns - STALE_S * S:
            return None
        return found if node not in self.state.agents or is_switch(node) else None

    def listed(self) -> dict[str, bool]:
        """By agent, whether it is connected."""
        self.table.refresh(self.now_ns)
        answer = pb.GetStatusResponse.FromString(self.table.encoded())
        return {agent.node: agent.connected for agent in answer.agents}

    def check(self) -> None:
        self.table.refresh(self.now_ns)
        agents = self.agents()
        assert list(pb.GetStatusResponse.FromString(self.table.encoded()).agents) == agents
        assert self.table.away == {agent.node for agent in agents if not agent.connected}
        assert self.table.blind == {
            agent.node
            for agent in agents
            if is_fabric(agent.node) and agent.findings and agent.findings == agent.failed_findings
        }
        limit_ns = self.now_ns - STALE_S * S
        assert self.state.stale_count(limit_ns) == sum(
            row.seen_ns // S < limit_ns // S and row.key.probe not in KEPT_PROBES
            for row in all_rows(self.state)
        )

    def _row(self, node: str, probe: str, subject: str, age_s: int, outcome: int, offset_s: int) -> Row:
        finding = Finding(
            key=FindingKey(node=node, probe=probe, subject=subject),
            observed_at=stamp(self.now_ns - age_s * S),
            outcome=cast(Any, outcome),
        )
        return row_of(finding, sent_ns=self.now_ns + offset_s * S, received_ns=self.now_ns)


class Ended:
    """In place of the task of a stream that another takes the place of."""

    def cancel(self) -> None:
        return None


FINDING = st.tuples(
    st.sampled_from(NODES),
    st.sampled_from(("lldp", "nvlink", "nccl")),
    st.sampled_from(("a", "b")),
    st.integers(0, 3 * STALE_S),
    st.sampled_from((Outcome.OUTCOME_DATA, Outcome.OUTCOME_NOTHING, Outcome.OUTCOME_FAILED)),
    st.integers(-5, 5),
)
NODE = st.sampled_from(NODES)
OFFSET = st.integers(-5, 5)
CHANGE = st.one_of(
    st.tuples(st.just("find"), FINDING),
    st.tuples(st.just("remove"), st.tuples(NODE, st.sampled_from(("a", "b")))),
    st.tuples(st.just("full_state"), st.tuples(NODE, st.sampled_from(("v1", "v2")))),
    st.tuples(st.just("connect"), st.tuples(NODE, st.integers(1, 3))),
    st.tuples(st.just("disconnect"), st.tuples(NODE)),
    st.tuples(st.just("hear"), st.tuples(NODE, st.none() | OFFSET)),
    st.tuples(st.just("device"), st.tuples(NODE, OFFSET)),
    st.tuples(st.just("wait"), st.tuples(st.integers(-STALE_S, 2 * STALE_S))),  # clocks are set back, too
)


SEEN = ("n1", "lldp", "a", 0, Outcome.OUTCOME_DATA, 0)
BLIND = ("fabric/crawl", "lldp", "a", 0, Outcome.OUTCOME_FAILED, 0)
EXPIRES = [("device", ("n1", 3)), ("wait", (STALE_S + 1,)), ("wait", (-STALE_S,))]


@settings(max_examples=300)
@example([SEEN], EXPIRES)
@example([BLIND], [("remove", ("fabric/crawl", "a"))])
@given(st.lists(FINDING, max_size=5, unique_by=lambda x: x[:3]), st.lists(CHANGE, max_size=30))
@pytest.mark.slow
def test_the_counts_are_those_of_a_count_from_scratch(
    loaded: list[tuple[Any, ...]], changes: list[tuple[str, tuple[Any, ...]]]
) -> None:
    world = World(loaded)
    world.check()
    for what, arguments in changes:
        getattr(world, what)(*arguments)
        world.check()


def test_a_request_reads_no_finding_and_a_commit_those_of_its_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World([SEEN, BLIND])
    counted: list[str] = []
    rows_of_node = EvidenceState.rows_of_node

    def noted(state: EvidenceState, node: str) -> Any:
        counted.append(node)
        return rows_of_node(state, node)

    monkeypatch.setattr(EvidenceState, "rows_of_node", noted)
    world.find("n1", "lldp", "b", 0, Outcome.OUTCOME_DATA, 0)
    assert counted == ["n1"]
    world.table.refresh(world.now_ns)
    assert len(pb.GetStatusResponse.FromString(world.table.encoded()).agents) == 2
    assert counted == ["n1"]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=30))
def test_times_before_a_limit_that_moves_to_and_fro(steps: list[tuple[int, int]]) -> None:
    count, times = AgeCount(), list[int]()
    for at_s, limit_s in steps:
        times.append(at_s * S)
        count.add(at_s * S, 1)
        if len(times) > 5:
            count.add(times.pop(0), -1)
        assert count.before(limit_s * S) == sum(at_ns < limit_s * S for at_ns in times)


def test_agents_of_the_former_leader_are_listed_until_they_report_or_are_forgotten() -> None:
    day = 86_400 * S
    world = World(earlier={"n1": T0 - day, "n2": T0 - day, "n3": T0 - 6 * day})
    assert world.listed() == {"n1": False, "n2": False, "n3": False}
    world.connect("n1", 1)
    world.find("n2", "lldp", "a", 0, Outcome.OUTCOME_DATA, 0)
    assert world.listed() == {"n1": True, "n2": False, "n3": False}
    world.wait(2 * 86_400)
    world.disconnect("n1")
    world.remove("n2", "a")
    assert world.listed() == {}


def test_agents_of_the_former_leader_may_have_evidence_here() -> None:
    """As after a second take-over, where this replica's own evidence is loaded."""
    findings = [(node, *SEEN[1:]) for node in ("n1", "n2")]
    world = World(findings, earlier={"n1": T0, "n2": T0, "n3": T0})
    assert world.listed() == {"n1": False, "n2": False, "n3": False}
