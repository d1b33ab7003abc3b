"""PlacementService of a whole collector: agents on the real uplink, callers on real gRPC, a real disk."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf.duration_pb2 import Duration
from hyperscout.v1 import placement_pb2 as pb
from hyperscout.v1 import topology_pb2
from hyperscout.v1.placement_pb2_grpc import PlacementServiceStub
from hyperscout.v1.topology_pb2_grpc import TopologyServiceStub
from hyperscout_collector.app.build.collector import Collector
from hyperscout_collector.app.status.status import problems
from support.callers import refused
from support.collector_process import CHANNEL_OPTIONS, collector_process
from support.collectors import collector_settings, playing
from support.live import Watcher, domains
from support.placing import free_of, request
from support.waiting import TIMEOUT_S, eventually

HOSTS = [f"node-000{i}" for i in range(1, 9)]
ALL_FREE = {node: {"workers": 1} for node in HOSTS}
Code = grpc.StatusCode


@asynccontextmanager
async def placing(collector: Collector) -> AsyncIterator[PlacementServiceStub]:
    async with grpc.aio.insecure_channel(collector.address, options=CHANNEL_OPTIONS) as channel:
        yield PlacementServiceStub(channel)


@asynccontextmanager
async def eight_hosts(tmp_path: Path, **more: Any) -> AsyncIterator[tuple[Collector, PlacementServiceStub]]:
    """A collector that has published 8 hosts under 2 leaves and 2 spines."""
    async with (
        Collector(collector_settings(tmp_path, **more)) as collector,
        placing(collector) as service,
        playing(collector.address),
    ):
        await Watcher(collector.address).until(
            lambda t: domains(t) == {frozenset(HOSTS[:4]), frozenset(HOSTS[4:])}, "two leaves"
        )
        yield collector, service


def nodes(placement: pb.Placement) -> list[str]:
    return [x.node for x in placement.assignments]


async def test_place_reserve_list_watch_release(tmp_path: Path) -> None:
    async with eight_hosts(tmp_path) as (collector, service):
        placements = collector.components.publishing.placing.placements
        dry = (await service.Place(request(4, dry_run=True))).placement
        assert (dry.placed, dry.tier, dry.nodes, dict(dry.domains)) == (True, 1, 4, {1: 1, 2: 1})
        assert nodes(dry) in (HOSTS[:4], HOSTS[4:])
        assert dry.exact
        assert not dry.holder
        assert dry.predicted.ring_s > 0
        assert free_of(placements) == ALL_FREE

        watch = service.WatchPlacements(pb.WatchPlacementsRequest())
        first = await watch.read()
        assert (first.snapshot, list(first.placements)) == (True, [])

        held = (await service.Place(request(3, gang="train"))).placement
        assert (held.gang, held.holder, held.tier) == ("train", "api", 1)
        assert held.HasField("reserved_at")
        assert not held.HasField("expires_at")
        assert all(free_of(placements)[node] == {} for node in nodes(held))
        news = await watch.read()
        assert (news.snapshot, [p.gang for p in news.placements]) == (False, ["train"])
        assert nodes(news.placements[0]) == nodes(held)

        other = (await service.Place(request(5, gang="wide"))).placement
        assert other.tier == 2
        assert not set(nodes(other)) & set(nodes(held))
        listed = (await service.ListPlacements(pb.ListPlacementsRequest())).placements
        assert [(p.gang, p.tier) for p in listed] == [("train", 1), ("wide", 2)]

        refused = (await service.Place(request(1, gang="late"))).placement
        assert (refused.placed, nodes(refused)) == (False, [])
        assert refused.reason

        await service.Release(pb.ReleaseRequest(gang="train"))
        async with asyncio.timeout(TIMEOUT_S):
            while "train" not in (news := await watch.read()).released:
                pass
        await service.Release(pb.ReleaseRequest(gang="wide"))
        assert free_of(placements) == ALL_FREE
        assert (await service.ListPlacements(pb.ListPlacementsRequest())).placements == []


BAD = {
    "no workers": (request(0, gang="g"), "parts[0].workers.count: 0"),
    "absurdly many": (request(2**32 - 1, gang="g"), "parts[0].workers.count: 4294967295"),
    "nothing": (pb.PlaceRequest(gang="g"), "parts: 0"),
    "no name": (request(1), "gang: ''"),
    "a name with a slash": (request(1, gang="default/Job/x"), "gang: 'default/Job/x'"),
    "a long name": (request(1, gang="g" * 254), "gang: "),
    "unknown tier": (
        request(1, gang="g", highest_tier_allowed="moon"),
        "highest_tier_allowed: no tier 'moon'",
    ),
    "negative tier": (request(1, gang="g", highest_tier_allowed="-1"), "highest_tier_allowed: no tier '-1'"),
    "unknown node": (request(1, gang="g", avoid=["node-0001", "node-9999"]), "avoid[1]: 'node-9999'"),
    "negative quantity": (
        request(1, gang="g", resources={"nvidia.com/gpu": "-1"}),
        "parts[0].workers.resources",
    ),
    "no quantity": (request(1, gang="g", resources={"cpu": "many"}), "parts[0].workers.resources['cpu']"),
    "it expires before": (request(1, gang="g", expires_in=Duration(seconds=-1)), "expires_in: -1 s"),
    "it expires at once": (request(1, gang="g", expires_in=Duration()), "expires_in: 0 s"),
    "it expires never": (request(1, gang="g", expires_in=Duration(seconds=2**40)), "expires_in: "),
    "unknown mode": (request(1, gang="g", mode=7), "mode: 7"),
    "an empty part": (pb.PlaceRequest(gang="g", parts=[pb.Part()]), "parts[0]: expected workers or a group"),
    "a group of nothing": (
        pb.PlaceRequest(gang="g", parts=[pb.Part(group=pb.Group(count=1))]),
        "parts[0].group.parts: 0",
    ),
    "no spread": (request(1, gang="g", spread=pb.Spread(most=0, tier="node")), "spread.most: 0"),
    "spread over nothing": (request(1, gang="g", spread=pb.Spread(most=1)), "spread.tier: missing"),
}


async def test_without_kubernetes_labels_are_unknown(tmp_path: Path) -> None:
    async with eight_hosts(tmp_path) as (_, service):
        asked = request(1, dry_run=True)
        asked.parts[0].workers.node_selector["gpu"] = "h100"
        answer = (await service.Place(asked)).placement
        assert not answer.placed
        assert "because the collector reads no nodes of Kubernetes: set `kubernetes`" in answer.reason


async def test_what_cannot_be_meant_names_its_field_and_holds_nothing(tmp_path: Path) -> None:
    async with eight_hosts(tmp_path) as (collector, service):
        placements = collector.components.publishing.placing.placements
        for what, (bad, field) in BAD.items():
            code, text = await refused(service.Place(bad))
            assert code == Code.INVALID_ARGUMENT, what
            assert text.startswith(field), (what, text)
        await service.Place(request(2, gang="a"))
        free = free_of(placements)
        assert (await refused(service.Place(request(1, gang="a"))))[0] == Code.ALREADY_EXISTS
        assert (await refused(service.Release(pb.ReleaseRequest(gang="b"))))[0] == Code.NOT_FOUND
        explain = service.ExplainPlacement
        for asked in (
            pb.ExplainPlacementRequest(),
            pb.ExplainPlacementRequest(request=request(1), gang="a"),
            pb.ExplainPlacementRequest(gang="a", limit=1001),
        ):
            assert (await refused(explain(asked)))[0] == Code.INVALID_ARGUMENT
        assert (await refused(explain(pb.ExplainPlacementRequest(gang="b"))))[0] == Code.NOT_FOUND
        assert (await refused(service.Improve(pb.ImproveRequest(gang="b"))))[0] == Code.NOT_FOUND
        for repair in (pb.RepairRequest(gang="a"), pb.RepairRequest(gang="a", failed_nodes=["moon"])):
            code, text = await refused(service.Repair(repair))
            assert (code, text.split(":")[0]) == (Code.INVALID_ARGUMENT, "failed_nodes")
        many = pb.DefragmentRequest(request=request(1), most_moves=100_001)
        assert (await refused(service.Defragment(many)))[0] == Code.INVALID_ARGUMENT
        assert free_of(placements) == free
        assert [held.gang for held in placements] == ["a"]


async def test_without_a_topology_nothing_is_placed(tmp_path: Path) -> None:
    async with Collector(collector_settings(tmp_path)) as collector, placing(collector) as service:
        for call in (
            service.Place(request(1, gang="g")),
            service.Place(request(1, dry_run=True)),
            service.ExplainPlacement(pb.ExplainPlacementRequest(request=request(1))),
            service.Defragment(pb.DefragmentRequest(request=request(1))),
        ):
            code, text = await refused(call)
            assert code == Code.FAILED_PRECONDITION
            assert "no topology has been published" in text
        assert (await service.ListPlacements(pb.ListPlacementsRequest())).placements == []


async def test_a_reservation_ends_when_it_is_over(tmp_path: Path) -> None:
    async with eight_hosts(tmp_path) as (collector, service):
        placements = collector.components.publishing.placing.placements
        asked = request(2, gang="brief", expires_in=Duration(nanos=200_000_000))
        before_ns = time.time_ns()
        held = (await service.Place(asked)).placement
        expires_ns = held.expires_at.ToNanoseconds()
        assert before_ns + 200_000_000 <= expires_ns <= time.time_ns() + 200_000_000
        await eventually(lambda: placements.get("brief") is None, "it is over")
        assert free_of(placements) == ALL_FREE


async def test_reservations_live_through_a_restart(tmp_path: Path) -> None:
    async with eight_hosts(tmp_path) as (_, service):
        kept = (await service.Place(request(3, gang="kept", resources={"workers": "1"}))).placement
        await service.Place(request(1, gang="released"))
        await service.Place(request(1, gang="over", expires_in=Duration(nanos=1)))
        await service.Release(pb.ReleaseRequest(gang="released"))
        failed = min(set(HOSTS) - set(nodes(kept)))
        await service.Repair(pb.RepairRequest(gang="kept", failed_nodes=[failed]))
    async with Collector(collector_settings(tmp_path)) as collector, placing(collector) as service:
        # Before any agent is back: the topology was saved too.
        (again,) = (await service.ListPlacements(pb.ListPlacementsRequest())).placements
        assert (again.gang, nodes(again), again.holder) == ("kept", nodes(kept), "api")
        assert (again.cost, again.reserved_at, again.exact) == (kept.cost, kept.reserved_at, kept.exact)
        assert [x.node for x in again.failed_nodes] == [failed]
        placements = collector.components.publishing.placing.placements
        assert free_of(placements) == ALL_FREE | {node: {} for node in nodes(kept)}
        await service.Release(pb.ReleaseRequest(gang="kept"))
        assert free_of(placements) == ALL_FREE
    async with Collector(collector_settings(tmp_path)) as collector:
        assert list(collector.components.publishing.placing.placements) == []


async def test_what_a_caller_was_told_survives_kill_9(tmp_path: Path) -> None:
    data, held = tmp_path / "data", {}
    quick = ("--settle-s", "0.05")
    async with collector_process(data, *quick) as process, playing(process.address):
        await Watcher(process.address).until(
            lambda t: sorted(map(len, domains(t))) == [4, 4], "two leaves of four hosts"
        )
        await asyncio.to_thread(_saved, data / "evidence.db")
        async with grpc.aio.insecure_channel(process.address, options=CHANNEL_OPTIONS) as channel:
            service = PlacementServiceStub(channel)
            for gang in "abc":
                held[gang] = nodes((await service.Place(request(2, gang=gang))).placement)
            await service.Release(pb.ReleaseRequest(gang="b"))
        process.kill()
        await process.ended()
    async with (
        collector_process(data) as process,
        grpc.aio.insecure_channel(process.address, options=CHANNEL_OPTIONS) as channel,
    ):
        service = PlacementServiceStub(channel)
        listed = (await service.ListPlacements(pb.ListPlacementsRequest())).placements
        assert {p.gang: nodes(p) for p in listed} == {"a": held["a"], "c": held["c"]}
        assert (await service.Place(request(4, gang="d"))).placement.placed
        assert not (await service.Place(request(1, gang="e"))).placement.placed
        status = await TopologyServiceStub(channel).GetStatus(topology_pb2.GetStatusRequest())
        assert (status.placements, status.placed_workers) == (3, 8)


def _saved(path: Path) -> None:
    """Until the published topology is on disk; blocks."""
    end_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end_s:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
            if db.execute("SELECT 1 FROM topology").fetchone():
                return
        threading.Event().wait(0.05)
    raise AssertionError("the topology was never saved")


async def test_a_damaged_file_is_set_aside_and_said(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "placements.db").write_bytes(b"not SQLite, whatever it was" * 100)
    async with Collector(collector_settings(tmp_path)) as collector:
        async with grpc.aio.insecure_channel(collector.address, options=CHANNEL_OPTIONS) as channel:
            status = await TopologyServiceStub(channel).GetStatus(topology_pb2.GetStatusRequest())
        assert any("moved to placements.db.damaged-" in problem for problem in status.problems)
    assert len(list((tmp_path / "data").glob("placements.db.damaged-*"))) == 1


async def test_what_cannot_be_written_is_not_reserved(tmp_path: Path) -> None:
    async with eight_hosts(tmp_path) as (collector, service):
        placements = collector.components.publishing.placing.placements
        await service.Place(request(2, gang="before"))
        free = free_of(placements)
        with sqlite3.connect(tmp_path / "data" / "placements.db") as other:
            other.execute("CREATE TRIGGER full BEFORE INSERT ON gangs BEGIN SELECT RAISE(ABORT, 'full'); END")
        code, text = await refused(service.Place(request(2, gang="after")))
        assert (code, "not saved" in text) == (Code.UNAVAILABLE, True)
        assert free_of(placements) == free
        assert [held.gang for held in placements] == ["before"]
        assert any("not saved" in problem for problem in problems(collector.components))
        with sqlite3.connect(tmp_path / "data" / "placements.db") as other:
            other.execute("DROP TRIGGER full")
        await service.Place(request(2, gang="after"))
        assert not any("not saved" in problem for problem in problems(collector.components))


async def test_a_caller_that_goes_away_leaves_nothing_reserved(tmp_path: Path) -> None:
    async with eight_hosts(tmp_path) as (collector, service):
        placing = collector.components.publishing.placing
        begun = asyncio.Event()
        goes_on = asyncio.Event()
        written = placing.reservations.written

        async def slow() -> None:
            begun.set()
            await goes_on.wait()
            await written()

        placing.reservations.written = slow  # type: ignore[method-assign]
        call = service.Place(request(2, gang="gone"))
        await begun.wait()
        assert placing.placements.get("gone") is not None
        call.cancel()
        await eventually(lambda: placing.placements.get("gone") is None, "it is released")
        assert free_of(placing.placements) == ALL_FREE


async def test_repair_moves_only_what_it_must(tmp_path: Path) -> None:
    async with eight_hosts(tmp_path) as (collector, service):
        placements = collector.components.publishing.placing.placements
        held = (await service.Place(request(3, gang="train"))).placement
        (spare,) = set(HOSTS[:4] if nodes(held)[0] in HOSTS[:4] else HOSTS[4:]) - set(nodes(held))
        failed = nodes(held)[1]
        asked = pb.RepairRequest(gang="train", failed_nodes=[failed], dry_run=True)
        before = free_of(placements)
        dry = await service.Repair(asked)
        assert [(m.rank, m.source, m.target) for m in dry.moves] == [(1, failed, spare)]
        assert dry.kept_tier
        assert free_of(placements) == before
        asked.dry_run = False
        done = await service.Repair(asked)
        assert list(done.moves) == list(dry.moves)
        moved = placements.held("train").placement.nodes
        assert moved == (nodes(held)[0], spare, nodes(held)[2])
        assert free_of(placements)[spare] == {}
        await service.Release(pb.ReleaseRequest(gang="train"))
        assert free_of(placements) == ALL_FREE


async def test_explained_improved_and_defragmented(tmp_path: Path) -> None:
    async with eight_hosts(tmp_path) as (collector, service):
        placements = collector.components.publishing.placing.placements
        await service.Place(request(3, gang="train"))
        free = free_of(placements)
        explained = await service.ExplainPlacement(pb.ExplainPlacementRequest(request=request(4)))
        assert explained.placement.tier == 1
        assert explained.candidates[0].why == ""
        assert explained.text
        again = await service.ExplainPlacement(pb.ExplainPlacementRequest(gang="train"))
        assert nodes(again.placement) == list(placements.held("train").placement.nodes)
        assert not (await service.Improve(pb.ImproveRequest(gang="train"))).better
        plan = await service.Defragment(pb.DefragmentRequest(request=request(4, highest_tier_allowed="1")))
        assert (plan.placement.placed, plan.moved) == (True, 0)
        assert free_of(placements) == free


async def test_gpus_of_agents_are_the_free_capacity(tmp_path: Path) -> None:
    """What `nvlink` found is asked for by its resource name; whole nodes and GPUs do not mix."""
    async with eight_hosts(tmp_path) as (collector, service):
        placements = collector.components.publishing.placing.placements
        for node in HOSTS[:2]:
            placements.set_unused_of(node, {"workers": 1, "nvidia.com/gpu": 8})
        one = (await service.Place(request(4, gang="gpus", resources={"nvidia.com/gpu": "4"}))).placement
        assert nodes(one) == [HOSTS[0], HOSTS[0], HOSTS[1], HOSTS[1]]
        whole = (await service.Place(request(6, gang="whole"))).placement
        assert nodes(whole) == HOSTS[2:]
        assert not (await service.Place(request(1, gang="no"))).placement.placed
