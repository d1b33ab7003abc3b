"""PlacementService over a real server: rights, refusals, and no message leaks a node."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, cast

import grpc
import grpc.aio
import pytest
from google.protobuf.duration_pb2 import Duration
from hyperscout.v1 import placement_pb2 as pb
from hyperscout.v1.placement_pb2_grpc import PlacementServiceStub
from hyperscout_collector.identity.access import Access, Gate
from hyperscout_collector.serve.grpc import placement_checks, placement_queries
from hyperscout_collector.serve.grpc.placement_service import PlacementService
from hyperscout_collector.serve.grpc.placement_watchers import PlacementWatchers
from hyperscout_collector.store.errors import StoreError
from hyperscout_gates.control.queue import Queue
from hyperscout_kubernetes.nodes import kept
from hyperscout_placer.book.drain import choose
from hyperscout_placer.book.placements import Placements
from hyperscout_placer.book.reservation import NoRoomError
from hyperscout_placer.cluster.answer import Placement, Refusal
from hyperscout_placer.cluster.capacity import Capacity
from hyperscout_placer.cluster.request import Group, Request, Spread, Workers
from hyperscout_placer.demands import node_masks
from hyperscout_placer.demands.node_masks import NodeMasks
from hyperscout_placer.messages.changes import defragment_message
from hyperscout_placer.repair.defrag import MovePlan
from hyperscout_topology.topology import Topology
from hypothesis import given
from hypothesis import strategies as st
from support import kube_objects
from support.builders import gang
from support.callers import refused
from support.identities import Reader
from support.placing import REQUESTS, free_of, part, request
from support.topologies import healthy_leaves, leaves
from support.waiting import until

Code = grpc.StatusCode
NODES = ["n01", "n02", "n03", "n04"]


class Disk:
    """Keeps what it is told, or says that it does not."""

    def __init__(self) -> None:
        self.problem = ""
        self.asked = 0

    async def written(self) -> None:
        self.asked += 1
        if self.problem:
            raise StoreError(self.problem)


class World:
    def __init__(self) -> None:
        self.now_ns = 10**18
        self.placements = Placements(clock_ns=lambda: self.now_ns, timer=lambda: 0.0)
        self.watchers = PlacementWatchers(lambda: list(self.placements))
        self.placements.changed.subscribe(self.watchers.changed)
        self.disk = Disk()
        self.nodes: dict[str, Any] = {}  # as stored
        self.masks = NodeMasks(self.nodes.get)
        self.service = PlacementService(
            self.placements, self.watchers, self.disk, self.masks, clock_ns=lambda: self.now_ns, queue=None
        )
        self.placements.set_topology(healthy_leaves())
        self.placements.set_unused({node: {"workers": 1, "nvidia.com/gpu": 8} for node in NODES})


@pytest.fixture
def world() -> Iterator[World]:
    with closing_world() as found:
        yield found


@contextmanager
def closing_world() -> Iterator[World]:
    found = World()
    yield found
    found.service.close()


@asynccontextmanager
async def serving(world: World, access: Access | None = None) -> AsyncIterator[PlacementServiceStub]:
    server = grpc.aio.server(interceptors=(Gate(access or Access()),))
    world.service.add_to(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield PlacementServiceStub(channel)
    finally:
        await server.stop(None)


async def test_a_reader_looks_and_holds_nothing(world: World) -> None:
    world.placements.place("a", Request(Group(1, (Workers(2),))), holder="api")
    async with serving(world, Reader()) as service:
        assert (await service.Place(request(1, gang="b", dry_run=True))).placement.placed
        assert world.placements.decisions == {"reserved": 1, "fits": 1}
        assert (await service.ListPlacements(pb.ListPlacementsRequest())).placements[0].gang == "a"
        assert (await service.ExplainPlacement(pb.ExplainPlacementRequest(gang="a"))).placement.placed
        await service.Repair(pb.RepairRequest(gang="a", failed_nodes=["n01"], dry_run=True))
        await service.Resize(pb.ResizeRequest(gang="a", workers=2, dry_run=True))
        await service.Improve(pb.ImproveRequest(gang="a"))
        await service.Defragment(pb.DefragmentRequest(request=request(2)))
        assert (await service.WatchPlacements(pb.WatchPlacementsRequest()).read()).snapshot
        for call in (
            service.Place(request(1, gang="b")),
            service.Repair(pb.RepairRequest(gang="a", failed_nodes=["n01"])),
            service.Resize(pb.ResizeRequest(gang="a", workers=2)),
            service.Release(pb.ReleaseRequest(gang="a")),
        ):
            assert await refused(call) == (Code.PERMISSION_DENIED, "reader x may not do this")
    assert [held.gang for held in world.placements] == ["a"]


async def test_what_moves_is_predicted_as_what_is_placed(world: World) -> None:
    world.placements.place("a", Request(Group(1, (Workers(2),))), holder="api")
    async with serving(world) as service:
        repaired = await service.Repair(pb.RepairRequest(gang="a", failed_nodes=["n01"]))
        assert repaired.placement.predicted.ring_s > 0
        improved = await service.Improve(pb.ImproveRequest(gang="a"))
        assert 0 < improved.placement.predicted.ring_s < repaired.placement.predicted.ring_s
        fits = await service.Defragment(pb.DefragmentRequest(request=request(2)))
        assert fits.placement.predicted.ring_s > 0
        world.placements.set_topology(Topology(8, (replace(healthy_leaves().hypernodes[0], parent=None),)))
        gone = await service.Repair(pb.RepairRequest(gang="a", failed_nodes=["n01"], dry_run=True))
        assert not gone.placement.HasField("predicted")  # a rank stays where no fabric shows a node


async def test_concurrent_gangs_get_clusters_of_their_own(world: World) -> None:
    """The server chooses the cluster, in the same step as the nodes."""
    tree = leaves(("a1", "a2", "east/a1", "west/a1"), ("east/a2", "east/a3", "a3", "west/a2"))
    world.placements.set_topology(tree)
    world.placements.set_unused({node: {"workers": 1} for node in tree.hypernodes[-1].nodes})
    async with serving(world) as service:
        answers = await asyncio.gather(
            *(service.Place(request(2, gang=name, clusters=["any"])) for name in "abc")
        )
        found = [answer.placement for answer in answers]
        assert sorted(x.cluster for x in found) == ["", "east", "west"]
        used = [one.node for x in found for one in x.assignments]
        assert len(set(used)) == len(used) == 6
        listed = (await service.ListPlacements(pb.ListPlacementsRequest())).placements
        assert [x.cluster for x in listed] == [x.cluster for x in sorted(found, key=lambda x: x.gang)]
        full = (await service.Place(request(2, clusters=["east", "west"], dry_run=True))).placement
        assert "cluster west: " in full.reason
        several = pb.DefragmentRequest(request=request(2, clusters=["any"]))
        assert await refused(service.Defragment(several)) == (
            Code.INVALID_ARGUMENT,
            "clusters: expected one: gangs are moved within a cluster",
        )


def sizes(placement: pb.Placement) -> tuple[list[str], list[tuple[int, int, int]]]:
    """Nodes by rank; count, minimum and maximum of each elastic part."""
    parts = [(x.count, x.min_count, x.max_count) for x in placement.elastic]
    return [x.node for x in placement.assignments], parts


async def test_an_elastic_gang_grows_and_shrinks_in_place(world: World) -> None:
    few = pb.PlaceRequest(gang="a", parts=[pb.Part(workers=pb.Workers(count=4, min_count=1))])
    world.placements.set_unusable({"n02", "n03", "n04"})
    async with serving(world) as service:

        async def resize(workers: int, *, dry_run: bool = False) -> pb.ResizeResponse:
            return await service.Resize(pb.ResizeRequest(gang="a", workers=workers, dry_run=dry_run))

        first = await service.Place(few)
        assert sizes(first.placement) == (["n01"], [(1, 1, 4)])
        none = await resize(2)
        assert (none.placement.placed, none.before) == (False, 1)
        assert "no place for one more worker beside 1 running worker" in none.placement.reason
        world.placements.set_unusable({"n02"})
        assert sizes((await resize(4, dry_run=True)).placement) == (["n01", "n03", "n04"], [(3, 1, 4)])
        assert world.placements.ranks == 1
        grown = await resize(4)
        assert sizes(grown.placement) == (["n01", "n03", "n04"], [(3, 1, 4)])
        assert (grown.before, world.placements.ranks) == (1, 3)
        assert grown.placement.predicted.ring_s > 0
        assert grown.placement.reason.startswith("3 of 4 workers have a place: no place for one more worker")
        same = (await resize(3)).placement
        assert (same.exact, same.bound, same.reason) == (grown.placement.exact, grown.placement.bound, "")
        assert same.exact
        assert not any("workers" in x for x in (free_of(world.placements)[n] for n in ("n01", "n03", "n04")))
        fewer = (await resize(2)).placement
        assert sizes(fewer) == (["n01", "n03"], [(2, 1, 4)])
        assert (fewer.exact, fewer.HasField("bound"), fewer.reason) == (False, False, "")
        assert free_of(world.placements)["n04"]["workers"] == 1
        listed = await service.ListPlacements(pb.ListPlacementsRequest())
        assert sizes(listed.placements[0]) == (["n01", "n03"], [(2, 1, 4)])
        for workers in (0, 5):
            text = f"workers: {workers}: expected 1 to 4"
            assert await refused(resize(workers)) == (Code.INVALID_ARGUMENT, text)
        world.placements.place("j", Request(Group(1, (Workers(1),))), holder="Job")
        foreign = service.Resize(pb.ResizeRequest(gang="j", workers=1))
        assert (await refused(foreign))[0] is Code.FAILED_PRECONDITION
        assert (await refused(service.Resize(pb.ResizeRequest(gang="x", workers=1))))[0] is Code.NOT_FOUND


async def test_a_resize_changes_only_the_counts_of_the_request(world: World) -> None:
    """Failed nodes that are cleared later are used again, and a tier that comes back is the limit again."""
    few = pb.PlaceRequest(
        gang="a",
        highest_tier_allowed="2",
        parts=[pb.Part(workers=pb.Workers(count=4, min_count=1))],
    )
    whole = healthy_leaves()
    leaves = tuple(replace(x, parent=None) for x in whole.hypernodes if x.tier == 1)
    async with serving(world) as service:
        await service.Place(few)
        await service.Repair(pb.RepairRequest(gang="a", failed_nodes=["n01"]))
        world.placements.set_topology(replace(whole, generation=8, hypernodes=leaves))
        await service.Resize(pb.ResizeRequest(gang="a", workers=1))
        world.placements.set_topology(replace(whole, generation=9))
        await service.Repair(pb.RepairRequest(gang="a", cleared_nodes=["n01"]))
        grown = await service.Resize(pb.ResizeRequest(gang="a", workers=4))
        assert sorted(sizes(grown.placement)[0]) == ["n01", "n02", "n03", "n04"]


async def test_a_gang_does_not_grow_onto_nodes_that_are_kept(world: World) -> None:
    few = pb.PlaceRequest(gang="a", parts=[pb.Part(workers=pb.Workers(count=4, min_count=1))])
    async with serving(world) as service:
        await service.Place(few)
        await service.Resize(pb.ResizeRequest(gang="a", workers=1))
        waits = Request(Group(1, (Workers(3),)))
        world.placements.drain = choose("b", waits, {}, world.placements.booked(waits))
        grown = await service.Resize(pb.ResizeRequest(gang="a", workers=4))
        assert not grown.placement.placed


async def test_a_dry_run_takes_no_name_that_could_not_be_reserved(world: World) -> None:
    async with serving(world) as service:
        code, text = await refused(service.Place(request(1, gang="a b", dry_run=True)))
        assert (code, text[:13]) == (Code.INVALID_ARGUMENT, "gang: 'a b': ")
        assert (await service.Place(request(1, dry_run=True))).placement.placed


async def test_what_is_not_on_disk_is_not_held(world: World) -> None:
    async with serving(world) as service:
        world.disk.problem = "the disk is full"
        assert await refused(service.Place(request(1, gang="a"))) == (Code.UNAVAILABLE, "the disk is full")
        assert list(world.placements) == []
        assert len(free_of(world.placements)) == 4
        world.disk.problem = ""
        await service.Place(request(1, gang="a"))
        assert world.disk.asked == 2
        await service.Place(request(1, gang="b", dry_run=True))
        await service.Place(request(9, gang="c"))
        assert world.disk.asked == 2  # nothing new to write


async def test_what_is_not_on_disk_is_not_said_to_be_done(world: World) -> None:
    async with serving(world) as service:
        held = (await service.Place(request(1, gang="a"))).placement.assignments[0].node
        world.disk.problem = "the disk is full"
        full = (Code.UNAVAILABLE, "the disk is full")
        # One after the other: a call is under way as soon as it is made.
        assert await refused(service.Repair(pb.RepairRequest(gang="a", failed_nodes=[held]))) == full
        for _ in range(2):
            assert await refused(service.Release(pb.ReleaseRequest(gang="a"))) == full
        world.disk.problem = ""
        assert (await refused(service.Release(pb.ReleaseRequest(gang="a"))))[0] == Code.NOT_FOUND


async def test_what_came_in_its_place_is_not_taken_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def overtaken() -> None:
        world.placements.release("a")
        world.now_ns += 1
        world.placements.place("a", Request(Group(1, (Workers(2),))), holder="api")
        raise StoreError("the disk is full")

    monkeypatch.setattr(world.disk, "written", overtaken)
    async with serving(world) as service:
        assert (await refused(service.Place(request(1, gang="a"))))[0] == Code.UNAVAILABLE
    assert len(world.placements.held("a").placement.nodes) == 2


LONGEST_S = 10 * 366 * 86_400


@pytest.mark.parametrize(
    ("expires_in", "good"),
    [
        (Duration(), False),
        (Duration(nanos=1), True),
        (Duration(seconds=-1), False),
        (Duration(seconds=LONGEST_S), True),
        (Duration(seconds=LONGEST_S + 1), False),
    ],
)
async def test_how_long_it_may_be_held(world: World, expires_in: Duration, good: bool) -> None:
    async with serving(world) as service:
        call = service.Place(request(1, gang="a", expires_in=expires_in))
        if good:
            assert (await call).placement.expires_at.ToNanoseconds() > world.now_ns
            return
        code, text = await refused(call)
        assert (code, text[:12]) == (Code.INVALID_ARGUMENT, "expires_in: ")
        assert len(world.placements) == 0


@pytest.mark.parametrize(("most", "good"), [(0, True), (1000, True), (1001, False)])
async def test_how_many_candidates_may_be_asked_for(world: World, most: int, good: bool) -> None:
    async with serving(world) as service:
        call = service.ExplainPlacement(pb.ExplainPlacementRequest(request=request(1), limit=most))
        if good:
            assert (await call).placement.placed
        else:
            assert (await refused(call))[0] == Code.INVALID_ARGUMENT


@pytest.mark.parametrize(("most", "good"), [(0, True), (100_000, True), (100_001, False)])
async def test_how_many_moves_may_be_asked_for(world: World, most: int, good: bool) -> None:
    async with serving(world) as service:
        call = service.Defragment(pb.DefragmentRequest(request=request(1), most_moves=most))
        if good:
            assert (await call).placement.placed
        else:
            assert (await refused(call))[0] == Code.INVALID_ARGUMENT


async def test_what_pods_hold_is_theirs(world: World) -> None:
    world.placements.place("ns/Job/x", Request(Group(1, (Workers(2),))), holder="Job")
    free = free_of(world.placements)
    async with serving(world) as service:
        name = "ns/Job/x"
        for call in (
            service.Release(pb.ReleaseRequest(gang=name)),
            service.Repair(pb.RepairRequest(gang=name, failed_nodes=["n01"])),
        ):
            code, text = await refused(call)
            assert (code, "belongs to its Job" in text) == (Code.FAILED_PRECONDITION, True)
        asked = pb.RepairRequest(gang=name, failed_nodes=["n01"], dry_run=True)
        assert (await service.Repair(asked)).placement.placed
        assert (await service.ListPlacements(pb.ListPlacementsRequest())).placements[0].holder == "Job"
    assert free_of(world.placements) == free


async def test_a_repair_does_not_move_another_reservation_of_the_name(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner releases the gang while the repair is computed, and a Job takes the name."""
    decide = world.service._decide

    async def slowly(*given: Any) -> Any:
        found = await decide(*given)
        if world.placements.held("a").holder == "api":
            world.placements.release("a")
            world.placements.place("a", gang(1), holder="Job")
        return found

    async with serving(world) as service:
        (first,) = (await service.Place(request(1, gang="a"))).placement.assignments
        monkeypatch.setattr(world.service, "_decide", slowly)
        world.now_ns += 1
        asked = pb.RepairRequest(gang="a", failed_nodes=[first.node])
        _, text = await refused(service.Repair(asked))
        monkeypatch.undo()
        assert "gang 'a' was released and reserved again: try again" in text
        held = world.placements.held("a")
        assert (held.holder, held.failed) == ("Job", ())


async def test_a_repair_that_waits_is_not_for_a_later_reservation(world: World) -> None:
    """Two repairs are under way when the owner releases the gang and reserves it again."""
    world.placements.place("a", gang(1), holder="api")
    (node,) = world.placements.held("a").placement.nodes
    asked = pb.RepairRequest(gang="a", failed_nodes=[node])
    repairs = [asyncio.create_task(world.service.repair(asked, None)) for _ in range(2)]
    await asyncio.sleep(0)
    world.placements.release("a")
    world.now_ns += 1
    world.placements.place("a", gang(1), holder="api")
    for repair in repairs:
        with pytest.raises(NoRoomError, match="was released and reserved again"):
            await repair
    assert world.placements.held("a").failed == ()


async def test_repairs_of_one_gang_at_once_all_end(world: World) -> None:
    async with serving(world) as service:
        await service.Place(request(1, gang="a"))
        asked = [pb.RepairRequest(gang="a", failed_nodes=[node]) for node in NODES[:-1] * 4]
        await asyncio.gather(*(service.Repair(one) for one in asked))
        held = world.placements.held("a")
        assert [x.node for x in held.failed] == NODES[:-1]
        assert held.placement.nodes == (NODES[-1],)


async def test_a_gang_remembers_its_failed_nodes(world: World) -> None:
    def remembered() -> list[str]:
        return [x.node for x in world.placements.held("a").failed]

    async with serving(world) as service:

        async def repair(failed: str = "", cleared: str = "", *, dry_run: bool = False) -> pb.RepairResponse:
            asked = pb.RepairRequest(
                gang="a", failed_nodes=failed.split(), cleared_nodes=cleared.split(), dry_run=dry_run
            )
            return await service.Repair(asked)

        (first,) = (await service.Place(request(1, gang="a"))).placement.assignments
        assert (await repair(first.node, dry_run=True)).moves
        assert remembered() == [], "a dry run remembers nothing"
        nodes, asked = [first.node], world.disk.asked
        for _ in range(3):  # each repair names only the node that failed last
            moved = await repair(nodes[-1])
            nodes += [move.target for move in moved.moves]
            assert [x.node for x in moved.placement.failed_nodes] == remembered() == sorted(nodes[:-1])
        assert sorted(nodes) == NODES
        none = await repair(nodes[-1])
        assert (none.placement.placed, remembered()) == (False, NODES), "also if there is no replacement"
        assert world.disk.asked == asked + 4
        tried = await repair(cleared=nodes[0], dry_run=True)
        assert len(tried.moves) == 1
        assert [x.node for x in tried.placement.failed_nodes] == sorted(nodes[1:])
        assert remembered() == NODES
        (move,) = (await repair(cleared=nodes[0])).moves
        assert (move.source, move.target) == (nodes[-1], nodes[0])
        assert remembered() == sorted(nodes[1:])
        (again,) = (await service.ListPlacements(pb.ListPlacementsRequest())).placements
        assert [x.node for x in again.failed_nodes] == remembered()
        assert (await repair()).moves == [], "no rank is on a failed node"
        (back,) = (await repair(nodes[0], cleared=" ".join(nodes[1:]))).moves
        assert (back.source, remembered()) == (nodes[0], [nodes[0]])
        for failed, cleared, text in (
            ("moon", "", "failed_nodes: 'moon': no such node"),
            ("n01", "moon", "cleared_nodes: 'moon': no such node"),
            ("n01 n02", "n02", "cleared_nodes: 'n02' is in failed_nodes, too: give it in one of them"),
        ):
            assert await refused(repair(failed, cleared)) == (Code.INVALID_ARGUMENT, text)
        assert (await repair(cleared=" ".join(NODES))).placement.placed
        code, text = await refused(repair())
        assert (code, "remembers no failed nodes" in text) == (Code.INVALID_ARGUMENT, True)


async def test_a_repair_that_is_overtaken_is_decided_anew(world: World) -> None:
    async with serving(world) as service:
        held = (await service.Place(request(1, gang="a"))).placement.assignments[0].node
        spare = next(n for n in ("n01", "n02") if n != held)
        look, overtaken = world.service._decide, []

        async def slow(work: Any, *args: Any) -> Any:
            found = await look(work, *args)
            if not overtaken:  # another request takes the spare node in between
                overtaken.append(found.moves[0].target)
                world.placements.set_unusable({spare})
            return found

        world.service._decide = slow  # type: ignore[method-assign]
        done = await service.Repair(pb.RepairRequest(gang="a", failed_nodes=[held]))
        assert overtaken == [spare]
        assert done.moves[0].target in ("n03", "n04")
        assert world.placements.held("a").placement.nodes == (done.moves[0].target,)

        async def always(work: Any, *args: Any) -> Any:
            found = await look(work, *args)
            world.placements.restore(replace(world.placements.held("a"), reserved_ns=world.now_ns))
            return found

        world.service._decide = always  # type: ignore[method-assign]
        before = world.placements.held("a").placement.nodes
        code, _ = await refused(service.Repair(pb.RepairRequest(gang="a", failed_nodes=list(before))))
        assert code == Code.ABORTED
        assert world.placements.held("a").placement.nodes == before
        world.service._decide = look


async def test_a_gang_that_means_nothing_today_says_so(world: World) -> None:
    spread = Group(1, (Workers(2),), tier=2, spread=Spread(1, 1))
    world.placements.place("a", Request(spread), holder="api")
    leaves = tuple(replace(h, parent=None) for h in healthy_leaves().hypernodes if h.tier == 1)
    world.placements.set_topology(Topology(8, leaves))
    async with serving(world) as service:
        code, text = await refused(service.ExplainPlacement(pb.ExplainPlacementRequest(gang="a")))
        assert (code, "current tiers" in text) == (Code.FAILED_PRECONDITION, True)
        code, text = await refused(service.Improve(pb.ImproveRequest(gang="a")))
        assert (code, "current tiers" in text) == (Code.FAILED_PRECONDITION, True)
        await service.Release(pb.ReleaseRequest(gang="a"))


async def test_held_nodes_that_vanished_cause_no_error(world: World) -> None:
    world.placements.place("a", Request(Group(1, (Workers(4),))), holder="api")
    one = replace(healthy_leaves().hypernodes[0], parent=None)
    world.placements.set_topology(Topology(8, (one,)))
    async with serving(world) as service:
        assert len((await service.ListPlacements(pb.ListPlacementsRequest())).placements[0].assignments) == 4
        assert not (await service.Place(request(1, gang="b"))).placement.placed
        await service.ExplainPlacement(pb.ExplainPlacementRequest(gang="a"))
        await service.Improve(pb.ImproveRequest(gang="a"))
        await service.Repair(pb.RepairRequest(gang="a", failed_nodes=["n03"], dry_run=True))
        await service.Defragment(pb.DefragmentRequest(request=request(1)))
        await service.Release(pb.ReleaseRequest(gang="a"))
        assert (await service.Place(request(2, gang="b"))).placement.placed


async def test_what_only_looks_has_a_copy(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.placements.place("a", Request(Group(1, (Workers(2),))), holder="api")
    seen = []

    def spoils(capacity: Capacity, *_: Any, **__: Any) -> Any:
        for node in NODES:
            capacity.set_free(node, {})
        seen.append(capacity)
        return Refusal(1)

    monkeypatch.setattr(placement_queries, "defragment", spoils)
    monkeypatch.setattr(placement_queries, "improvement", lambda *args: spoils(*args) and None)
    monkeypatch.setattr(placement_queries, "repair", spoils)
    monkeypatch.setattr(placement_queries, "place_in_cluster", spoils)
    monkeypatch.setattr(world.placements, "_engine", spoils)
    free = free_of(world.placements)
    async with serving(world) as service:
        await service.Defragment(pb.DefragmentRequest(request=request(1)))
        await service.Improve(pb.ImproveRequest(gang="a"))
        await service.Repair(pb.RepairRequest(gang="a", failed_nodes=["n01"]))
        await service.Place(request(1, dry_run=True))
        await service.ExplainPlacement(pb.ExplainPlacementRequest(request=request(1)))
        await service.ExplainPlacement(pb.ExplainPlacementRequest(gang="a"))
    assert len(seen) == 6
    assert free_of(world.placements) == free


class Waits:
    """A queue of one gang, for which leaf-a is kept, and the plans for it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.turns = self.plans = self
        self.every_s = 0.0
        self.last: pb.DefragmentResponse | None = None

    def waiting(self) -> list[pb.WaitingGang]:
        kept = pb.KeptDomain(tier=1, hypernode="leaf-a", nodes=2, workers=2)
        return [pb.WaitingGang(gang="ns/Job/a", holder="Job", priority=-3, workers=2, kept=kept)]

    def plan(self, found: MovePlan | Refusal) -> None:
        placements = self._world.placements
        forest, speeds = placements.capacity.forest, placements.speeds
        self.last = defragment_message("ns/Job/a", gang(2), found, forest, speeds)
        self.last.planned_at.seconds = 9


async def test_waiting_gangs_and_the_plan_of_the_schedule(world: World) -> None:
    last = pb.DefragmentRequest(last=True)
    async with serving(world, Reader()) as service:
        assert not (await service.ListQueue(pb.ListQueueRequest())).gangs
        code, reason = await refused(service.Defragment(last))
        assert (code, "gates are off: set gates" in reason) == (Code.NOT_FOUND, True)
    queue = Waits(world)
    world.service._queue = cast("Queue", queue)
    async with serving(world, Reader()) as service:
        assert (await service.ListQueue(pb.ListQueueRequest())).gangs == queue.waiting()
        code, reason = await refused(service.Defragment(last))
        assert (code, "gates_defragment_every_s is 0" in reason) == (Code.NOT_FOUND, True)
        queue.every_s = 1.0
        assert "no gang waited at the last look" in (await refused(service.Defragment(last)))[1]
        queue.plan(Refusal(1, "no plan was found"))
        answer = await service.Defragment(last)
        assert (answer.placement.reason, answer.planned_at.seconds) == ("no plan was found", 9)
        placement = world.placements.place("x", gang(2), holder="Job", dry_run=True)
        assert isinstance(placement, Placement)
        queue.plan(MovePlan((), placement, 0))
        answer = await service.Defragment(last)
        assert (answer.placement.gang, answer.placement.placed) == ("ns/Job/a", True)
        assert answer.placement.predicted.ring_s > 0
        # A smaller topology is published after the plan. Its speeds have no node of that number.
        world.placements.set_topology(leaves(("a1", "a2")))
        assert await service.Defragment(last) == answer


async def test_callers_are_placed_around_a_kept_domain(world: World) -> None:
    """Also in a dry run, in a thread, and with an expiry that is too late."""
    placements, large = world.placements, gang(2, tier=1)
    placements.place("busy", gang(1), holder="Job")
    placements.drain = choose("ns/Job/large", large, {}, placements.booked(large))
    assert placements.drain is not None
    assert placements.drain.hypernode == "leaf-b"
    two_kinds = pb.PlaceRequest(gang="b", parts=[part(1, role="leader"), part(1)])
    async with serving(world) as service:
        for asked in (
            request(2, gang="b"),
            request(2, gang="b", dry_run=True),
            request(2, gang="b", expires_in=Duration(seconds=60)),
            two_kinds,
        ):
            answer = (await service.Place(asked)).placement
            assert not answer.placed
            assert "kept for gang ns/Job/large, which has waited longer (HyperNode leaf-b)" in answer.reason
        explained = await service.ExplainPlacement(pb.ExplainPlacementRequest(request=request(2)))
        assert "kept for gang ns/Job/large" in explained.placement.reason
        answer = (await service.Place(request(1, gang="c"))).placement
        assert [one.node for one in answer.assignments] == ["n02"]


async def test_a_higher_priority_may_use_a_kept_domain(world: World) -> None:
    placements, large = world.placements, gang(2, tier=1)
    placements.place("busy", gang(1), holder="Job")
    placements.drain = choose("ns/Job/large", large, {}, placements.booked(large), priority=5)
    async with serving(world) as service:
        for priority, placed in ((0, False), (5, False), (6, True)):
            explained = pb.ExplainPlacementRequest(request=request(2, priority=priority))
            assert (await service.ExplainPlacement(explained)).placement.placed == placed
            for dry_run in (True, False):
                asked = request(2, gang="b", priority=priority, dry_run=dry_run)
                assert (await service.Place(asked)).placement.placed == placed


async def test_what_roles_demand_counts_in_all_calls(world: World) -> None:
    for name, gpu in zip(NODES, ("h100", "a100", "h100", "h100"), strict=True):
        world.nodes[name] = kept(kube_objects.node(name, labels={"gpu": gpu}))
    two_kinds = [part(1, role="leader"), part(2)]
    for one in two_kinds:
        one.workers.node_selector["gpu"] = "h100"
    async with serving(world) as service:
        for asked in (request(3, gang="a"), pb.PlaceRequest(gang="a", parts=two_kinds)):
            asked.parts[0].workers.node_selector["gpu"] = "h100"
            for dry_run in (True, False):
                asked.dry_run = dry_run
                answer = (await service.Place(asked)).placement
                assert sorted(one.node for one in answer.assignments) == ["n01", "n03", "n04"]
            explained = await service.ExplainPlacement(pb.ExplainPlacementRequest(gang="a"))
            assert len(explained.placement.assignments) == 3
            repaired = await service.Repair(pb.RepairRequest(gang="a", failed_nodes=["n01"], dry_run=True))
            assert not repaired.placement.placed  # n02 has the wrong label
            assert not (await service.Improve(pb.ImproveRequest(gang="a"))).better
            # Nothing of the gang can move to n02, so that two workers fit into a leaf.
            plan = await service.Defragment(
                pb.DefragmentRequest(request=request(2, highest_tier_allowed="1"))
            )
            assert not plan.placement.placed
            await service.Release(pb.ReleaseRequest(gang="a"))
        refused_ = (await service.Place(request(4, gang="a", dry_run=True))).placement
        assert refused_.placed
        before, world.nodes["n04"] = world.nodes["n04"], kept(kube_objects.node("n04"))
        world.masks.node_changed(before, world.nodes["n04"])
        asked = request(3, gang="a")
        asked.parts[0].workers.node_selector["gpu"] = "h100"
        answer = (await service.Place(asked)).placement
        assert not answer.placed
        asked.parts[0].workers.tolerations.add(key="a")
        asked.parts[0].workers.tolerations[0].effect = "Never"
        code, words = await refused(service.Place(asked))
        assert (code, "tolerations[0].effect" in words) == (Code.INVALID_ARGUMENT, True)


async def test_threads_compute_masks_once_for_equal_demands(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller chooses how long that takes, so the event loop must not wait for it."""
    made: list[int] = []

    def mask_for(*given: Any) -> Any:
        made.append(threading.get_ident())
        return real(*given)

    real = node_masks.mask_for
    monkeypatch.setattr(node_masks, "mask_for", mask_for)
    monkeypatch.setattr(node_masks, "_MAX_ENTRIES", 1)  # the table keeps one mask
    for name in NODES:
        world.nodes[name] = kept(kube_objects.node(name, labels={"gpu": "h100"}))
    asked = [request(1, gang=name) for name in "abc"]
    for one in asked:
        one.parts[0].workers.node_selector["gpu"] = "h100"
    asked[0].parts[0].workers.count, asked[0].parts[0].workers.min_count = 2, 1
    asked[1].parts[0].workers.tolerations.add(operator="Exists")
    other_kind = request(1, dry_run=True)
    other_kind.parts[0].workers.node_selector["gpu"] = "a100"
    service, held = world.service, pb.ImproveRequest(gang="a")
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: service.place(other_kind, None),
        *(partial(service.place, one, None) for one in asked),
        lambda: service.explain_placement(pb.ExplainPlacementRequest(gang="a"), None),
        lambda: service.explain_placement(pb.ExplainPlacementRequest(request=other_kind), None),
        lambda: service.repair(pb.RepairRequest(gang="a", failed_nodes=["n01"], dry_run=True), None),
        lambda: service.resize(pb.ResizeRequest(gang="a", workers=1), None),
        lambda: service.improve(held, None),
        lambda: service.defragment(pb.DefragmentRequest(request=other_kind), None),
    ]
    for number, call in enumerate(calls):
        world.masks.node_changed(None, {"changed": number})
        made.clear()
        await call()
        assert made
        assert threading.get_ident() not in made
    assert len(made) == 3, "the request, and three reservations with two demands"


async def test_a_topology_that_comes_while_masks_are_computed_counts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*NODES, "n05"):
        world.nodes[name] = kept(kube_objects.node(name, labels={"gpu": "h100"}))
    asked = request(1, gang="a")
    asked.parts[0].workers.node_selector["gpu"] = "h100"
    real, published = world.service._decide, [leaves(("n05",))]

    async def decide(*given: Any) -> Any:
        answer = await real(*given)
        if published:
            world.placements.set_topology(published.pop())
            world.placements.set_unused({"n05": {"workers": 1}})
        return answer

    monkeypatch.setattr(world.service, "_decide", decide)
    answer = await world.service.place(asked, None)
    assert [x.node for x in answer.placement.assignments] == ["n05"]


async def test_too_many_at_once_are_turned_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world.service._queries, "_most", 0)
    async with serving(world) as service:
        code, _ = await refused(service.Place(request(1, dry_run=True)))
        assert code == Code.RESOURCE_EXHAUSTED
        two_kinds = pb.PlaceRequest(gang="b", parts=[part(1, role="leader"), part(1)])
        assert (await service.Place(two_kinds)).placement.placed  # delays no other call
        looks = pb.RepairRequest(gang="b", failed_nodes=["n01"], dry_run=True)
        assert (await refused(service.Repair(looks)))[0] == Code.RESOURCE_EXHAUSTED
        await service.Repair(pb.RepairRequest(gang="b", failed_nodes=["n01"]))
        assert (await service.ListPlacements(pb.ListPlacementsRequest())).placements
        assert (await service.Place(request(1, gang="a"))).placement.placed  # that is done on the loop


async def test_no_more_watch_than_may_and_all_are_told_of_the_end(world: World) -> None:
    world.watchers.limit = 1
    async with serving(world) as service:
        watch = service.WatchPlacements(pb.WatchPlacementsRequest())
        assert (await watch.read()).snapshot
        second = service.WatchPlacements(pb.WatchPlacementsRequest())
        assert (await refused(second.read()))[0] == Code.RESOURCE_EXHAUSTED
        world.watchers.close("another leads", "leader:1")
        code, text = await refused(watch.read())
        assert (code, text) == (Code.UNAVAILABLE, "another leads")
        assert ("hyperscout-leader", "leader:1") in tuple(await watch.trailing_metadata())
        await until(lambda: not len(world.watchers))


# Whatever is asked: an answer or one named refusal, and not a piece more held than the book says.

NAMED = {Code.INVALID_ARGUMENT, Code.ALREADY_EXISTS}


@given(
    asked=st.lists(
        st.tuples(REQUESTS, st.booleans(), st.none() | st.integers(-1, 2**40), st.integers(-1, 2**31 - 1)),
        min_size=1,
        max_size=3,
    )
)
def test_no_request_crashes_or_leaks(asked: list[tuple[pb.PlaceRequest, bool, int | None, int]]) -> None:
    async def ask() -> None:
        with closing_world() as world:
            free = free_of(world.placements)
            for message, dry_run, seconds, nanos in asked:
                message.dry_run = dry_run
                if seconds is not None:
                    message.expires_in.CopyFrom(Duration(seconds=seconds, nanos=nanos))
                for call in (
                    world.service.place(message, None),
                    world.service.explain_placement(pb.ExplainPlacementRequest(request=message), None),
                    world.service.defragment(pb.DefragmentRequest(request=message), None),
                ):
                    try:
                        answer = await call
                    except tuple(kind for kind, code in placement_checks.CODES if code in NAMED):
                        continue
                    answer.SerializeToString()
            for held in world.placements:
                assert isinstance(held.placement, Placement)
                world.placements.release(held.gang)
            assert free_of(world.placements) == free

    asyncio.run(ask())


def test_the_parts_of_a_request_are_what_they_were() -> None:
    """Nothing above writes into a message that it was given."""
    message = pb.PlaceRequest(parts=[part(1)], gang="a")
    before = message.SerializeToString()
    with closing_world() as world:
        asyncio.run(world.service.place(message, None))
    assert message.SerializeToString() == before
