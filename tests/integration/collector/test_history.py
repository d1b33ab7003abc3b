"""What a collector remembers: cables that are cut and mended, nodes that move, restarts, and why."""

import asyncio
import contextlib
import json
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.topology_pb2_grpc import (
    TopologyServiceServicer,
    TopologyServiceStub,
    add_TopologyServiceServicer_to_server,
)
from hyperscout_collector.app.build.collector import Collector
from hyperscout_collector.app.replica import follower as follower_module
from hyperscout_collector.app.replica.follower import Follower
from hyperscout_collector.app.replica.process import recorded
from hyperscout_collector.history import standby_recorder
from hyperscout_collector.history.file import HistoryFile
from hyperscout_collector.history.store import Record
from hyperscout_runtime.task_watch import TaskWatch
from hyperscout_topology.diff import Diff
from hyperscout_topology.proto import delta_to_proto, timestamp, topology_to_proto
from support.agent_stream import AgentStream
from support.collector_process import CHANNEL_OPTIONS
from support.collectors import collector_settings, host_cable, playing
from support.command_line import CommandLine, Ran
from support.findings import lldp
from support.topologies import two_leaves
from support.waiting import TIMEOUT_S, eventually


@asynccontextmanager
async def asked(collector: Collector) -> AsyncIterator["Reader"]:
    async with grpc.aio.insecure_channel(collector.address, options=CHANNEL_OPTIONS) as channel:
        yield Reader(TopologyServiceStub(channel))


class Reader:
    """Asks of the history, again and again until it is as wanted."""

    def __init__(self, service: Any) -> None:
        self.service = service

    async def events(self, **request: Any) -> list[pb.HistoryEvent]:
        return list((await self.service.ListHistory(pb.ListHistoryRequest(**request))).events)

    async def until(
        self, wanted: Callable[[list[pb.HistoryEvent]], bool], **request: Any
    ) -> list[pb.HistoryEvent]:
        found: list[pb.HistoryEvent] = []
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while not wanted(found := await self.events(**request)):
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"last seen: {[told(x) for x in found]}") from None
        return found

    async def picture(self, at: Timestamp | None = None) -> pb.Topology:
        return (await self.service.GetTopology(pb.GetTopologyRequest(at=at))).topology

    async def grown(self) -> pb.Topology:
        """The whole fabric, published and recorded, and nothing about it to come."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                now = await self.picture()
                if len(now.links) == 12 and not now.anomalies and len(now.hypernodes) == 3:
                    first = await self.events(page_size=1)
                    if first and first[0].generation == now.generation:
                        return now
                await asyncio.sleep(0.02)


def told(event: pb.HistoryEvent) -> tuple[str, ...]:
    return (
        event.kind,
        event.hypernode,
        event.node,
        event.what,
        event.before,
        event.after,
        event.cause.kind,
        event.message,
    )


def is_told(events: list[pb.HistoryEvent]) -> bool:
    """That a cable is cut: what is degraded, and what is not ready, may be two generations."""
    return {"Degraded", "Ready"} <= {x.what for x in events}


def now() -> Timestamp:
    return timestamp(time.time_ns()) or Timestamp()


async def test_a_cable_that_is_cut_and_mended_is_told_with_its_cause(tmp_path: Path) -> None:
    async with (
        Collector(collector_settings(tmp_path)) as collector,
        asked(collector) as reader,
        playing(collector.address) as player,
    ):
        whole = await reader.grown()
        (home,) = (h.name for h in whole.hypernodes if h.tier == 1 and "node-0006" in h.nodes)
        before = now()
        cable = host_cable(player, "node-0006")
        player.cut(cable)
        found = await reader.until(is_told, since=before)
        cut = now()
        assert {(x.kind, x.hypernode, x.node) for x in found if x.what != "Degraded"} >= {
            ("LinkRemoved", home, "node-0006"),
            ("AnomalyAppeared", home, "node-0006"),
            ("ConditionChanged", home, "node-0006"),  # Ready names it
        }
        (flip,) = (x for x in found if x.what == "Degraded")
        assert (flip.hypernode, flip.before, flip.after, flip.reason) == (home, "False", "True", "LinksDown")
        assert "node-0006" in flip.message
        assert flip.cause.kind == "findings"
        assert "node-0006" in {key.node for key in flip.cause.findings}

        player.restore(cable)
        await reader.until(lambda events: not events, since=before, net=True)  # as if nothing had been
        then = await reader.events(since=before, until=cut, net=True)
        assert {x.kind for x in then} == {"LinkRemoved", "AnomalyAppeared", "ConditionChanged"}
        assert all(x.id and x.generation > whole.generation for x in then)
        assert len((await reader.picture(cut)).links) == 11
        assert len((await reader.picture(before)).links) == 12
        assert (await reader.picture(before)).generation == whole.generation
        both = await reader.events(about="node-0006", kinds=["LinkAdded", "LinkRemoved"], since=before)
        assert [x.kind for x in both] == ["LinkAdded", "LinkRemoved"]
        ends = f"{both[0].subject.device}:{both[0].subject.port}--{both[0].peer.device}:{both[0].peer.port}"
        assert [
            x.id for x in await reader.events(about=ends, kinds=["LinkAdded", "LinkRemoved"], since=before)
        ] == [x.id for x in both]


async def test_what_changed_while_the_collector_was_down_is_a_restart(tmp_path: Path) -> None:
    async with (
        Collector(collector_settings(tmp_path)) as collector,
        asked(collector) as reader,
        playing(collector.address) as player,
    ):
        whole = await reader.grown()
    before = now()
    async with Collector(collector_settings(tmp_path)) as collector, asked(collector) as reader:
        assert (await reader.picture(before)).links == (
            await reader.picture()
        ).links  # it was out all the time
        assert await reader.events(since=before) == []
        async with playing(collector.address) as player:
            player.cut(host_cable(player, "node-0006"))  # its agents have not started yet
            found = await reader.until(
                lambda events: any(x.kind == "LinkRemoved" for x in events), since=before
            )
        first = next(x for x in reversed(found) if x.generation > whole.generation)
        assert first.cause.kind == "restart"
        assert first.cause.findings_total > 0


async def test_what_a_person_approved_says_so(tmp_path: Path) -> None:
    names = [f"n{i:02}" for i in range(12)]
    async with Collector(collector_settings(tmp_path)) as collector, asked(collector) as reader:
        agents = [AgentStream(collector.address, name) for name in names]
        try:
            for i, agent in enumerate(agents):
                await agent.__aenter__()
                cable = lldp(names[i], "eth0", time.time_ns(), neighbour=f"leaf-{i // 4}", port=names[i])
                await agent.store(cable, full=True)
            async with asyncio.timeout(TIMEOUT_S):
                while [len(h.nodes) for h in (await reader.picture()).hypernodes] != [4, 4, 4]:
                    await asyncio.sleep(0.02)
            for name, agent in zip(names[4:], agents[4:], strict=True):  # all are plugged into the first leaf
                await agent.store(lldp(name, "eth0", time.time_ns(), neighbour="leaf-0", port=name))
            async with asyncio.timeout(TIMEOUT_S):
                while not (status := await reader.service.GetStatus(pb.GetStatusRequest())).HasField("held"):
                    await asyncio.sleep(0.02)
            done = await reader.service.Approve(pb.ApproveRequest(generation=status.held.generation))
            found = await reader.until(lambda events: any(x.generation >= done.generation for x in events))
            moved = [x for x in found if x.kind == "NodeMoved"]
            assert {x.node for x in moved} == set(
                names[4:]
            )  # some may have moved before the others were held
            approved = {x.cause.kind for x in moved if x.generation == done.generation}
            assert approved == {"approved"}
        finally:
            for agent in agents:
                await agent.__aexit__(None, None, None)


async def test_a_standby_that_takes_over_knows_what_its_leader_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However late the leader's history has a cause, the standby waits for it.
    monkeypatch.setattr(standby_recorder, "_ATTEMPTS", 10_000)
    monkeypatch.setattr(follower_module, "_ANSWER_S", TIMEOUT_S)
    own = tmp_path / "standby"
    async with (
        Collector(collector_settings(tmp_path)) as leader,
        asked(leader) as reader,
        playing(leader.address) as player,
    ):
        follower = Follower(collector_settings(tmp_path), lambda: leader.address, rng=Random(1))
        async with recorded(collector_settings(tmp_path, data_dir=own), follower, TaskWatch()) as recorder:
            assert recorder is not None
            task = asyncio.create_task(follower.run())
            await reader.grown()
            latest = pb.ListHistoryRequest(page_size=1)
            grown = leader.watchers.current.topology.generation
            await eventually(lambda: any(x.generation >= grown for x in recorder.events(latest).events))
            before = now()
            player.cut(host_cable(player, "node-0006"))
            events = await reader.until(
                lambda events: any(x.what == "Degraded" for x in events), since=before
            )
            generation = max(x.generation for x in events)
            await eventually(lambda: recorder.events(latest).events[0].generation >= generation)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            previous = await asyncio.to_thread(follower.take)
    async with (
        Collector(collector_settings(tmp_path, data_dir=own), previous=previous) as second,
        asked(second) as reader,
    ):
        found = await reader.until(lambda events: any(x.what == "Degraded" for x in events), since=before)
        wanted = {(x.kind, x.what, x.hypernode, x.cause.kind) for x in events}
        assert {(x.kind, x.what, x.hypernode, x.cause.kind) for x in found} >= wanted
        assert len((await reader.picture(before)).links) == 12


class Leader(TopologyServiceServicer):
    """Ends its stream while it is asked for the cause of a generation, and does not answer before."""

    def __init__(self) -> None:
        self.snapshots = 0
        self.asked = asyncio.Event()

    async def WatchTopology(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC names it
        self.snapshots += 1
        whole = replace(two_leaves(), generation=10 * self.snapshots)
        cut = replace(whole, generation=whole.generation + 1, links=whole.links[self.snapshots :])
        yield pb.WatchTopologyResponse(snapshot=topology_to_proto(whole))
        yield pb.WatchTopologyResponse(delta=delta_to_proto(Diff(whole, cut)))
        await self.asked.wait()
        self.asked.clear()

    async def ListHistory(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC names it
        self.asked.set()
        await asyncio.Event().wait()


async def test_a_standby_records_on_when_a_call_is_cut_off_with_its_channel(tmp_path: Path) -> None:
    leader, server = Leader(), grpc.aio.server()
    add_TopologyServiceServicer_to_server(leader, server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    watch = TaskWatch()
    follower = Follower(collector_settings(tmp_path), lambda: address, rng=Random(1))
    try:
        async with recorded(collector_settings(tmp_path), follower, watch) as recorder:
            assert recorder is not None
            task = asyncio.create_task(follower.run())
            latest = pb.ListHistoryRequest(page_size=1)
            await eventually(lambda: recorder.size.events > 0)
            await eventually(lambda: recorder.events(latest).events[0].generation >= 31)
            assert not task.done()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        watch.check()
    finally:
        await server.stop(None)


async def test_a_standby_that_stops_while_it_writes_records_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go = threading.Event(), threading.Event()
    add = HistoryFile.add

    def slowly(self: HistoryFile, record: Record) -> None:
        begun.set()
        assert go.wait(TIMEOUT_S)
        add(self, record)

    monkeypatch.setattr(HistoryFile, "add", slowly)
    settings = collector_settings(tmp_path)
    follower = Follower(settings, lambda: "", rng=Random(1))
    others = asyncio.all_tasks()

    async def end_the_write(tasks: set["asyncio.Task[Any]"]) -> None:
        """After a task of the block is cancelled, which happens when the block ends."""
        await eventually(lambda: any(task.cancelling() or task.done() for task in tasks))
        go.set()

    async with recorded(settings, follower, TaskWatch()):
        whole = topology_to_proto(replace(two_leaves(), generation=1))
        follower.received(pb.WatchTopologyResponse(snapshot=whole))
        await asyncio.to_thread(begun.wait, TIMEOUT_S)
        ending = asyncio.create_task(end_the_write(asyncio.all_tasks() - others))
    await ending
    with contextlib.closing(sqlite3.connect(settings.data_dir / "history.db")) as file:
        assert file.execute("SELECT generation FROM pictures").fetchall() == [(1,)]


def at(seconds: int) -> Timestamp:
    return Timestamp(seconds=seconds)


@pytest.mark.parametrize(
    ("call", "request_", "code", "words"),
    [
        ("ListHistory", pb.ListHistoryRequest(kinds=["Nothing"]), "INVALID_ARGUMENT", "kinds"),
        ("ListHistory", pb.ListHistoryRequest(page_size=2000), "INVALID_ARGUMENT", "page_size"),
        ("ListHistory", pb.ListHistoryRequest(page_token="W10="), "INVALID_ARGUMENT", "page_token"),
        ("ListHistory", pb.ListHistoryRequest(page_token="!"), "INVALID_ARGUMENT", "page_token"),
        ("ListHistory", pb.ListHistoryRequest(since=at(9), until=at(9)), "INVALID_ARGUMENT", "until"),
        ("GetTopology", pb.GetTopologyRequest(at=at(9)), "NOT_FOUND", "1970"),
        ("GetTopology", pb.GetTopologyRequest(at=at(1 << 33)), "INVALID_ARGUMENT", "in the future"),
    ],
)
async def test_bad_requests_name_the_field(
    tmp_path: Path, call: str, request_: Any, code: str, words: str
) -> None:
    async with (
        Collector(collector_settings(tmp_path)) as collector,
        asked(collector) as reader,
        playing(collector.address),
    ):
        await reader.grown()
        with pytest.raises(grpc.aio.AioRpcError, match=words) as caught:
            await getattr(reader.service, call)(request_)
        assert caught.value.code() == grpc.StatusCode[code]


async def test_where_none_is_kept_that_is_said(tmp_path: Path) -> None:
    async with (
        Collector(collector_settings(tmp_path, history_max_days=0)) as collector,
        asked(collector) as reader,
    ):
        for call in (reader.events(), reader.picture(at(9))):
            with pytest.raises(grpc.aio.AioRpcError, match="history_max_days") as caught:
                await call
            assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert not (tmp_path / "data" / "history.db").exists()


async def test_the_command_line_tells_it(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = CommandLine(capsysbinary, monkeypatch)
    async with (
        Collector(collector_settings(tmp_path)) as collector,
        asked(collector) as reader,
        playing(collector.address) as player,
    ):
        to = ("--collector", collector.address)

        async def ask(*arguments: str) -> Ran:
            return await asyncio.to_thread(run, *arguments, *to)

        await reader.grown()
        before = now().ToJsonString()
        cable = host_cable(player, "node-0006")
        assert (await ask("diff", "--since", before)).code == 0
        player.cut(cable)
        await reader.until(is_told)
        differs = await ask("diff", "--since", before)
        assert differs.code == 3
        lines = differs.out.splitlines()
        removed_link = "- link node-0006 mlx5_0/p1 -- leaf-02/p2 (since "
        assert [line for line in lines if line.startswith(removed_link)] != []
        assert [line for line in lines if "Degraded False -> True (LinksDown)" in line] != []
        # The sweep or the host's own report: the one that came first.
        assert any(
            "findings: node-" in line and (" infiniband" in line or " ibnet" in line) for line in lines
        )
        as_json = json.loads((await ask("diff", "--since", before, "-o", "json")).out)["differences"]
        assert [x["change"] for x in as_json].count("removed") == 1
        assert {x["event"]["cause"]["kind"] for x in as_json} == {"findings"}
        assert (await ask("diff", "--since", "1h")).err.startswith("the history begins at ")

        # Before that, events tell how the tree grew while agents arrived one by one.
        table = (await ask("history", "node-0006", "--since", before, "-o", "wide")).out.splitlines()
        assert table[0].split() == ["TIME", "KIND", "SUBJECT", "CHANGE", "GENERATION", "HYPERNODE", "CAUSE"]
        assert len(table) == 4
        assert [
            line for line in table if "LinkRemoved" in line and "node-0006 mlx5_0/p1 -- leaf-02/p2" in line
        ] != []
        removed = await ask("history", "--kind", "linkremoved", "--since", before, "-o", "json")
        listed = json.loads(removed.out)
        assert [x["subject"]["name"] for x in listed] == ["node-0006"]
        assert "there are older events" in (await ask("history", "--limit", "1")).err
        selected = await ask("history", "-l", "kind=LinkRemoved", "--limit", "1", "--no-headers")
        assert [line.split()[1] for line in selected.out.splitlines()] == ["LinkRemoved"]
        by_kind = await ask("history", "node-0006", "--since", before, "--sort-by", "kind", "--no-headers")
        kinds = [line.split()[1] for line in by_kind.out.splitlines()]
        assert kinds == sorted(kinds)
        assert len(kinds) == 3
        assert (await ask("history", "--sort-by", "size")).code == 2
        assert (await ask("history", "--flaps", "-l", "changes=0")).out == ""
        another = await ask("history", "node-0001", "--since", before)
        assert "nothing changed about 'node-0001'" in another.err
        unknown = await ask("history", "node-0999", "--since", before)
        assert (unknown.code, unknown.out) == (1, "")
        assert unknown.err.startswith("error: nothing is recorded about 'node-0999': expected a node, ")
        assert (await ask("history", "node-0999", "--flaps")).code == 1
        quiet = await ask("history", "--flaps", "--since", before)
        assert (quiet.code, quiet.out, quiet.err) == (0, "", "nothing changed more than twice\n")
        assert (await ask("history", "--flaps", "--since", before, "-o", "json")).out == "[]\n"
        assert (await ask("history", "--net", "--flaps")).code == 2
        for _ in range(2):
            player.restore(cable)
            await reader.until(lambda events: not events, since=from_text(before), net=True)
            player.cut(cable)
            await reader.until(
                lambda events: any(x.kind == "LinkRemoved" for x in events), since=from_text(before), net=True
            )
        flaps = (await ask("history", "--flaps", "--since", before)).out.splitlines()
        assert any(line.split()[:2] == ["5", "Link"] for line in flaps), flaps

        assert "Degraded" not in (await ask("tree", "--at", before)).out
        assert "Degraded" in (await ask("tree")).out
        then = json.loads((await ask("get", "links", "node-0006", "--at", before, "-o", "json")).out)
        assert len(then) == 1
        assert (await ask("get", "links", "node-0006")).code == 1
        assert "leaf-02" in (await ask("describe", "node", "node-0006", "--at", before)).out
        assert "before the oldest" in (await ask("tree", "--at", "1d")).err
        assert (await ask("get", "findings", "--at", before)).code == 2


def from_text(text: str) -> Timestamp:
    found = Timestamp()
    found.FromJsonString(text)
    return found
