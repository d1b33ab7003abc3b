"""Runs of NCCL as the collector sees them: streams and evidence are real, agents are what the test says."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from hyperscout.v1.discovery_pb2 import Hello, MeasureNccl, NcclId, StreamFindingsResponse
from hyperscout.v1.finding_pb2 import Finding, FindingKey, Outcome
from hyperscout_collector.app.measuring import nccl as module
from hyperscout_collector.app.measuring.nccl import NcclRuns
from hyperscout_collector.app.measuring.nccl_schedule import NcclSchedule
from hyperscout_collector.decisions.measuring.nccl_windows import parse_windows
from hyperscout_collector.evidence.rows import Row, row_of
from hyperscout_collector.evidence.state import EvidencePlan, EvidenceState, KeyChange
from hyperscout_collector.ingest.streams import AgentStream, Streams
from hyperscout_collector.serve.grpc.measurement_service import NotNowError, RunFailedError
from hyperscout_formats.facts.facts import NcclResult, NcclRun
from hyperscout_formats.facts.wire_measured import nccl_to_proto
from hyperscout_runtime.clock import Clock
from hyperscout_runtime.units import NS
from hyperscout_topology.topology import Topology
from support.builders import hypernode
from support.waiting import TIMEOUT_S, until

ID = bytes(range(128))
OVER_S = 1e-9  # a timeout that has expired when it starts; 0 is the default
START_NS = 1_795_312_800 * NS  # Sunday 2026-11-22, 02:00 UTC


@dataclass
class World:
    """A collector's streams and evidence, and its cluster."""

    now_ns: int = START_NS
    not_free: dict[str, str] = field(default_factory=dict)
    paused: str | None = None

    def __post_init__(self) -> None:
        self.streams = Streams(100)
        self.state = EvidenceState()
        ids = iter(range(1, 1000))
        self.runs = NcclRuns(
            self.streams,
            why_not_free=self.not_free.get,
            why_paused=lambda: self.paused,
            clock_ns=lambda: self.now_ns,
            new_id=lambda: next(ids),
        )

    def connect(self, node: str, *probes: str) -> AgentStream:
        hello = Hello(node=node, probes=probes or ("lldp", "nccl"), instance=1)
        stream = AgentStream(hello, cast("asyncio.Task[object]", None), self.now_ns, self.now_ns)
        self.streams.add(stream)
        return stream

    def disconnect(self, node: str) -> None:
        stream = self.streams.get(node)
        assert stream is not None
        self.streams.discard(stream)
        self.runs.disconnected(stream)

    def commit(
        self,
        node: str,
        subject: str,
        *,
        outcome: Any = Outcome.OUTCOME_DATA,
        reason: str = "",
        at_ns: int | None = None,
        probe: str = "nccl",
    ) -> None:
        """A finding comes in and is on disk."""
        at_ns = self.now_ns if at_ns is None else at_ns
        finding = Finding(
            key=FindingKey(node=node, probe=probe, subject=subject), outcome=outcome, reason=reason
        )
        finding.observed_at.FromNanoseconds(at_ns)
        if outcome == Outcome.OUTCOME_DATA:
            finding.nccl.CopyFrom(nccl_to_proto(run_of(subject, at_ns)))
        plan = EvidencePlan(self.state, self.now_ns)
        row: Row = row_of(finding, sent_ns=self.now_ns, received_ns=self.now_ns)
        assert plan.upsert(row, b"") is None
        changes: list[KeyChange] = self.state.commit(plan)
        self.runs.follow(changes)


def run_of(subject: str, at_ns: int) -> NcclRun:
    results = (NcclResult("all_reduce", 8, 10.0, 0.1, 0.1),)
    return NcclRun("" if subject == "node" else subject, "libnccl", at_ns, "2.29.3", 2, results, 1.0)


def told(stream: AgentStream) -> list[MeasureNccl | NcclId]:
    """What was said down a stream since the last look."""
    said: list[StreamFindingsResponse] = list(stream._directives)
    stream._directives.clear()
    return [getattr(one, str(one.WhichOneof("message"))) for one in said]


@asynccontextmanager
async def running(world: World, *nodes: str, **more: Any) -> AsyncIterator[tuple[int, asyncio.Task[NcclRun]]]:
    """A run that has begun: its task id, and what waits for its end."""
    task = asyncio.create_task(world.runs.run(nodes, **more))
    await asyncio.sleep(0)
    try:
        yield next(iter(world.runs._by_task)), task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert world.runs._by_task == {}
        assert world.runs._by_node == {}


async def ended(task: asyncio.Task[NcclRun]) -> NcclRun:
    async with asyncio.timeout(TIMEOUT_S):
        return await task


async def test_two_nodes() -> None:
    world = World()
    a, b = world.connect("a"), world.connect("b")
    async with running(world, "a", "b", sizes_bytes=(8, 16), timeout_s=30.0) as (task_id, run):
        assert told(a) == [
            MeasureNccl(task_id=task_id, rank=0, ranks=2, peer="b", sizes_bytes=[8, 16], timeout_s=30.0)
        ]
        assert told(b) == [
            MeasureNccl(task_id=task_id, rank=1, ranks=2, peer="a", sizes_bytes=[8, 16], timeout_s=30.0)
        ]
        world.runs.take_id("a", NcclId(task_id=task_id, unique_id=ID))
        assert told(a) == []
        assert told(b) == [NcclId(task_id=task_id, unique_id=ID)]
        world.runs.take_id("b", NcclId(task_id=task_id))
        world.runs.take_id("a", NcclId(task_id=task_id))
        world.now_ns += NS
        world.commit("a", "b")
        assert await ended(run) == run_of("b", world.now_ns)
        assert told(a) == told(b) == []
        assert world.runs.free("a")


async def test_one_node() -> None:
    world = World()
    a = world.connect("a")
    async with running(world, "a") as (task_id, run):
        assert told(a) == [MeasureNccl(task_id=task_id, timeout_s=120.0)]
        world.runs.take_id("a", NcclId(task_id=task_id, unique_id=ID))  # no other agent to hand it on to
        world.commit("a", "node")
        await asyncio.sleep(0)
        assert not run.done()  # its processes are not said to be gone
        world.runs.take_id("a", NcclId(task_id=task_id))
        assert (await ended(run)).peer == ""
        assert told(a) == []


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        (("a", "x"), "x: no agent"),
        (("a", "off"), "off: the probe is off"),
        (("a", "busy"), "busy: a run is under way"),
        (("a", "work"), "work: neither cordoned"),
        (("busy",), "busy: a run is under way"),
    ],
)
async def test_what_may_not_begin(nodes: tuple[str, ...], words: str) -> None:
    world = World(not_free={"work": "neither cordoned nor reserved"})
    a = world.connect("a")
    for node in ("busy", "work"):
        world.connect(node)
    world.connect("off", "lldp")
    async with running(world, "busy"):
        with pytest.raises(NotNowError, match=words):
            await world.runs.run(nodes)
        assert told(a) == []
        assert world.runs.free("a")
        assert not world.runs.free(nodes[-1])


@pytest.mark.parametrize("size", [0, 2, 10, 1 << 40])
async def test_sizes_that_are_none(size: int) -> None:
    world = World()
    world.connect("a")
    with pytest.raises(NotNowError, match="sizes_bytes: each must be a multiple of 4"):
        await world.runs.run(("a",), (8, size))


async def test_nothing_begins_while_measuring_is_paused() -> None:
    world = World(paused="by an admin")
    world.connect("a")
    with pytest.raises(NotNowError, match="measuring is paused by an admin: `hyperscout measure resume`"):
        await world.runs.run(("a",))


async def test_runs_at_once_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_RUNS", 1)
    world = World()
    world.connect("a")
    world.connect("b")
    async with running(world, "a"):
        with pytest.raises(NotNowError, match="1 runs are under way"):
            await world.runs.run(("b",))


@pytest.mark.parametrize(
    ("happens", "words"),
    [
        (lambda w, t: w.runs.take_id("a", NcclId(task_id=t, failure="GPUs at work")), "a: GPUs at work"),
        (lambda w, t: w.runs.take_id("b", NcclId(task_id=t, failure="no libnccl")), "b: no libnccl"),
        (lambda w, t: w.disconnect("a"), "a: its agent went away"),
        (lambda w, t: w.disconnect("b"), "b: its agent went away"),
        (lambda w, t: w.commit("a", "b", outcome=Outcome.OUTCOME_FAILED, reason="hung"), "a: hung"),
        (lambda w, t: w.commit("a", "b", outcome=Outcome.OUTCOME_NOTHING, reason="no GPU"), "a: no GPU"),
        (lambda w, t: w.not_free.update(b="no more"), "b: no more"),  # uncordoned in mid-run
        (lambda w, t: setattr(w, "paused", "by an admin"), "measuring was paused by an admin"),
        (lambda w, t: w.runs.take_id("a", NcclId(task_id=t, unique_id=b"short")), "a: an id of 5 bytes"),
    ],
)
async def test_a_failed_run_says_why_and_ends_the_other_rank(
    monkeypatch: pytest.MonkeyPatch, happens: Any, words: str
) -> None:
    monkeypatch.setattr(module, "_LOOK_S", 0.0)
    world = World()
    streams = {"a": world.connect("a"), "b": world.connect("b")}
    async with running(world, "a", "b") as (task_id, run):
        for stream in streams.values():
            told(stream)
        happens(world, task_id)
        await until(lambda: any(stream._directives for stream in streams.values()))
        over = NcclId(task_id=task_id, failure=words)
        said = {node: told(stream) for node, stream in streams.items()}
        assert over in said["a"] + said["b"]
        assert not run.done()  # it waits until they have cleaned up
        for node in ("a", "b"):
            world.runs.take_id(node, NcclId(task_id=task_id, failure="stopped"))
        with pytest.raises(RunFailedError) as caught:
            await ended(run)
        assert str(caught.value) == words


async def test_a_run_does_not_wait_for_an_agent_that_is_gone() -> None:
    world = World()
    world.connect("a")
    world.connect("b")
    async with running(world, "a", "b") as (task_id, run):
        world.disconnect("b")
        world.runs.take_id("a", NcclId(task_id=task_id, failure="stopped"))
        async with asyncio.timeout(TIMEOUT_S):
            with pytest.raises(RunFailedError, match="b: its agent went away"):
                await run


async def test_a_run_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CLEAN_UP_S", 0.0)
    world = World()
    a, b = world.connect("a"), world.connect("b")
    async with running(world, "a", "b", timeout_s=OVER_S) as (task_id, run):
        with pytest.raises(RunFailedError, match="no end in 1e-09 s"):
            await ended(run)
        assert NcclId(task_id=task_id, failure="no end in 1e-09 s") in told(a)
        assert NcclId(task_id=task_id, failure="no end in 1e-09 s") in told(b)


async def test_a_result_counts_though_a_rank_does_not_say_that_it_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_CLEAN_UP_S", 0.0)
    world = World()
    world.connect("a")
    world.connect("b")
    async with running(world, "a", "b", timeout_s=OVER_S) as (_, run):
        world.commit("a", "b")
        assert (await ended(run)).method == "libnccl"


async def test_a_caller_that_hangs_up_ends_the_run() -> None:
    world = World()
    a, b = world.connect("a"), world.connect("b")
    async with running(world, "a", "b") as (task_id, run):
        told(a), told(b)
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        over = NcclId(task_id=task_id, failure="the call that requested it has ended")
        assert told(a) == told(b) == [over]


async def test_no_agent_speaks_for_another_node() -> None:
    world = World()
    _, b, _ = world.connect("a"), world.connect("b"), world.connect("c")
    async with running(world, "a", "b") as (task_id, _):
        told(b)
        world.runs.take_id("b", NcclId(task_id=task_id, unique_id=ID))  # rank 1 makes no id
        world.runs.take_id("c", NcclId(task_id=task_id, unique_id=ID))
        world.runs.take_id("c", NcclId(task_id=task_id, failure="x"))
        world.runs.take_id("a", NcclId(task_id=task_id + 1, failure="x"))
        world.commit("b", "a")  # rank 0 alone reports
        world.commit("a", "c")
        world.commit("a", "b", probe="latency")
        assert told(b) == []
        world.runs.take_id("a", NcclId(task_id=task_id, unique_id=ID))
        world.runs.take_id("a", NcclId(task_id=task_id, unique_id=bytes(128)))  # one id, once
        assert told(b) == [NcclId(task_id=task_id, unique_id=ID)]
        world.runs.take_id("b", NcclId(task_id=task_id))
        world.runs.take_id("b", NcclId(task_id=task_id, failure="after its end"))
        here = world.runs._by_task[task_id]
        assert (here.result, here.failure, here.over) == (None, "", {"b"})


async def test_findings_of_earlier_runs_do_not_count() -> None:
    world = World()
    world.connect("a")
    world.connect("b")
    async with running(world, "a", "b") as (task_id, run):
        before_ns = world.now_ns - 1
        world.now_ns += 5 * NS
        world.commit("a", "b", at_ns=before_ns, outcome=Outcome.OUTCOME_FAILED, reason="old")  # full state
        world.commit("a", "b", at_ns=before_ns)
        here = world.runs._by_task[task_id]
        assert (here.result, here.failure) == (None, "")
        world.commit("a", "b")
        for node in ("a", "b"):
            world.runs.take_id(node, NcclId(task_id=task_id))
        assert (await ended(run)).at_ns == world.now_ns


# --- in a window -----------------------------------------------------------------------------------

TREE = Topology(
    1,
    hypernodes=(
        hypernode("rack-1", ("a", "b", "c"), parent="pod"),
        hypernode("rack-2", ("d", "e"), parent="pod"),
        hypernode("pod", ("a", "b", "c", "d", "e"), children=("rack-1", "rack-2")),
    ),
)


def window_of(world: World, text: str = "Sun 02:00-04:00") -> NcclSchedule:
    return NcclSchedule(
        parse_windows(text),
        world.runs,
        world.streams,
        world.state,
        lambda: TREE,
        clock=Clock(lambda: world.now_ns, lambda: world.now_ns),
    )


async def turn(world: World, window: NcclSchedule, *, fails: bool = False) -> tuple[str, ...]:
    """One turn of the window; the pair that it ran, whose agents play along."""
    task = asyncio.create_task(window.turn())
    await asyncio.sleep(0)
    nodes: tuple[str, ...] = ()
    for task_id, run in list(world.runs._by_task.items()):
        nodes = run.nodes
        if not fails:
            world.commit(nodes[0], nodes[1])
        for node in nodes:
            world.runs.take_id(node, NcclId(task_id=task_id, failure="hung" if fails else ""))
    async with asyncio.timeout(TIMEOUT_S):
        await task
    world.now_ns += 60 * NS
    return nodes


async def test_in_a_window_each_domain_runs_once() -> None:
    world = World(not_free={"c": "at work"})
    for node in "abcde":
        world.connect(node)
    window = window_of(world)
    assert [await turn(world, window) for _ in range(4)] == [("a", "d"), ("a", "b"), ("d", "e"), ()]
    world.now_ns = START_NS + 7 * 86_400 * NS
    assert await turn(world, window) == ("a", "d")  # a week later


async def test_what_failed_is_tried_again_in_the_next_window() -> None:
    world = World()
    for node in "abcde":
        world.connect(node)
    window = window_of(world, "Sun 02:00-04:00, Sun 12:00-13:00")
    assert await turn(world, window, fails=True) == ("a", "d")
    assert [await turn(world, window) for _ in range(3)] == [("a", "b"), ("d", "e"), ()]
    world.now_ns = START_NS + 10 * 3600 * NS
    assert await turn(world, window) == ("a", "d")


@pytest.mark.parametrize("minutes", [-1, 119, 120, 600])
async def test_nothing_runs_outside_or_at_the_very_end(minutes: int) -> None:
    world = World(now_ns=START_NS + minutes * 60 * NS)
    for node in "abcde":
        world.connect(node)
    assert await turn(world, window_of(world)) == ()


async def test_nodes_that_are_not_free_are_left_out() -> None:
    world = World(not_free=dict.fromkeys("abd", "at work"))
    for node in "abcde":
        world.connect(node)
    window = window_of(world)
    assert [await turn(world, window) for _ in range(2)] == [("c", "e"), ()]


async def test_the_task_of_a_window_sleeps_between_its_turns() -> None:
    world = World()
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise asyncio.CancelledError

    window = window_of(world)
    window._sleep = sleep
    with pytest.raises(asyncio.CancelledError):
        await window.run()
    assert slept == [10.0] * 3
    await NcclSchedule(
        (), world.runs, world.streams, world.state, lambda: TREE, clock=Clock(), sleep=sleep
    ).run()
    assert len(slept) == 3
