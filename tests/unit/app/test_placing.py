"""The placer in a collector: what it is told, and when."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hyperscout_collector.app.inference.cluster import ClusterView
from hyperscout_collector.app.placing.placing import Placing
from hyperscout_collector.app.placing.reservations import Reservations, reservation_file
from hyperscout_collector.evidence.state import EvidenceState
from hyperscout_collector.store.writer import StoreWriter
from hyperscout_placer.book.failed_nodes import FailedNode
from hyperscout_placer.book.reservation import NotReadyError, Reservation
from hyperscout_placer.cluster.answer import Cost, Placement
from support.builders import gang
from support.placing import free_of
from support.topologies import healthy_leaves

ONE = {"workers": 1}


class FakeCluster:
    """`nodes`: why each is down; None = there is no cluster."""

    def __init__(self) -> None:
        self.is_known = True
        self.nodes: dict[str, str | None] | None = None
        self.asked = 0

    def view(self) -> ClusterView:
        self.asked += 1
        return ClusterView(self.nodes)

    def why_not_reserved(self, node: str) -> str | None:
        return None


class World:
    def __init__(self, folder: Path, now_ns: int = 100, *, over: bool = False, **more: Any) -> None:
        self.now_ns = now_ns
        self.seen_ns: dict[str, int] = {}  # when each agent last reported
        self.cluster = FakeCluster()
        self.writer = StoreWriter()
        self.file = reservation_file(folder / "placements.db")
        self.reservations = Reservations(self.file, self.writer, now_ns=lambda: self.now_ns, over=over)
        self.placing = Placing(
            self.reservations,
            EvidenceState(),
            self.cluster,
            decided=lambda seconds: None,
            clock_ns=lambda: self.now_ns,
            timer=lambda: 0.0,
            seen_ns=lambda node: self.seen_ns.get(node, 0),
            **more,
        )
        self.placements = self.placing.placements

    def close(self) -> None:
        self.file.close()

    def free(self) -> set[str]:
        return {node for node, free in free_of(self.placements).items() if free}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    found = World(tmp_path)
    assert found.reservations.problems == []
    yield found
    found.close()


def test_without_a_cluster_each_node_takes_a_worker(world: World) -> None:
    with pytest.raises(NotReadyError):
        world.placements.place("a", gang(1), holder="api")
    world.placing.published(healthy_leaves())
    world.placing.tick()
    assert free_of(world.placements) == dict.fromkeys(("n01", "n02", "n03", "n04"), ONE)


def test_nodes_of_a_cluster_that_are_down_have_no_free_capacity(world: World) -> None:
    cluster = world.cluster
    cluster.is_known = False
    world.placing.published(healthy_leaves())
    world.placing.tick()
    assert cluster.asked == 0
    assert world.free() == {"n01", "n02", "n03", "n04"}
    cluster.is_known, cluster.nodes = True, {"n01": None, "n02": "cordoned", "n03": None}
    world.placing.tick()
    assert world.free() == {"n01", "n03"}  # the cluster has no n04
    cluster.nodes["n02"] = None
    world.placing.tick()
    assert (world.free(), cluster.asked) == ({"n01", "n03"}, 1)  # no event said that it changed
    world.placing.cluster_changed()
    world.placing.tick()
    assert world.free() == {"n01", "n02", "n03"}


def test_a_failed_node_is_remembered_until_it_was_down_and_has_reported(world: World) -> None:
    cluster = world.cluster
    cluster.nodes = dict.fromkeys(("n01", "n02", "n03", "n04"))
    world.placing.published(healthy_leaves())
    world.placements.place("a", gang(1), holder="api")
    world.placements.set_failed("a", (FailedNode("n03", 90),))

    def after_tick(now_ns: int) -> list[FailedNode]:
        world.now_ns = now_ns
        world.placing.cluster_changed()
        world.placing.tick()
        return list(world.placements.held("a").failed)

    world.seen_ns["n03"] = 110
    assert after_tick(120) == [FailedNode("n03", 90)], "it was never down"
    cluster.nodes["n03"] = "not ready"
    assert after_tick(130) == [FailedNode("n03", 90, 130)]
    cluster.nodes["n03"] = None
    assert after_tick(140) == [FailedNode("n03", 90, 130)], "its agent has not reported since"
    world.seen_ns["n03"] = 150
    cluster.is_known = False
    assert after_tick(160) == [FailedNode("n03", 90, 130)], "whether it is down is unknown"
    cluster.is_known = True
    assert after_tick(160) == []


def test_where_pods_are_watched_they_say_what_is_free(tmp_path: Path) -> None:
    world = World(tmp_path, pods_are_watched=True)
    world.placing.published(healthy_leaves())
    with pytest.raises(NotReadyError, match="the free resources of the nodes are unknown"):
        world.placements.place("a", gang(1), holder="Job")
    world.placements.set_unused({"n02": ONE})
    world.placing.follow([])
    assert world.free() == {"n02"}
    world.close()


async def test_what_was_reserved_is_held_again_and_goes_when_it_is_over(tmp_path: Path) -> None:
    first = World(tmp_path)
    first.placing.published(healthy_leaves())
    first.placements.place("a", gang(1), holder="api", expires_ns=200)
    first.placements.place("b", gang(1), holder="api")
    wrong = Placement(("n01",), 1, "leaf-a", Cost(1, (), 1, 0, ()))
    first.reservations.follow("c", Reservation("c", "api", gang(1), wrong, 1))
    await first.reservations.queue.flush()
    first.file._database.connection.execute("UPDATE gangs SET placement = x'' WHERE gang = 'c'")
    first.close()

    second = World(tmp_path, 199)
    (problem,) = second.reservations.problems
    assert "1 damaged rows were dropped" in problem  # gang c has no nodes for its rank
    second.placing.published(healthy_leaves())
    assert second.free() == {"n03", "n04"}
    second.now_ns = 200
    second.placing.tick()
    assert second.free() == {"n01", "n03", "n04"}
    second.reservations.queue.problem = "the disk is full"
    assert second.placing.problems == ["the disk is full"]
    second.reservations.queue.problem = None
    await second.reservations.queue.flush()  # that "a" is over is written, too
    second.close()

    third = World(tmp_path, 1)
    assert [held.gang for held in third.placements] == ["b"]
    third.close()

    fourth = World(tmp_path, over=True)
    assert fourth.reservations.problems == []
    assert list(fourth.placements) == []
    fourth.close()
