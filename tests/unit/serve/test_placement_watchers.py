"""Watchers of placements: a snapshot, then changes; a slow one is never waited for."""

import asyncio

import pytest
from hyperscout_collector.serve.fanout.channel import WatchEndedError
from hyperscout_collector.serve.grpc.placement_watchers import PlacementWatchers
from hyperscout_placer.book.reservation import Reservation
from hyperscout_placer.cluster.answer import Cost, Placement
from hyperscout_placer.cluster.request import Group, Request, Workers

PLACED = Placement(("n1",), 1, "leaf", Cost(1, (), 1, 0, (0, 0)))


def held(gang: str, reserved_ns: int = 1) -> Reservation:
    return Reservation(gang, "api", Request(Group(1, (Workers(1),))), PLACED, reserved_ns)


async def test_a_snapshot_then_changes_the_newest_of_each_gang() -> None:
    book = [held("a")]
    watchers = PlacementWatchers(lambda: list(book))
    watcher = watchers.add()
    watchers.changed("b", held("b"))  # before it looked: in the snapshot, if it is still there
    first = await watchers.next(watcher)
    assert (first.held, first.released, first.snapshot) == ((held("a"),), (), True)
    watchers.changed("a", None)
    watchers.changed("c", held("c"))
    watchers.changed("c", held("c", 2))
    second = await watchers.next(watcher)
    assert (second.held, second.released, second.snapshot) == ((held("c", 2),), ("a",), False)
    waiting = asyncio.create_task(watchers.next(watcher))
    await asyncio.sleep(0)
    assert not waiting.done()
    watchers.changed("c", None)
    assert (await waiting).released == ("c",)
    watchers.discard(watcher)
    assert len(watchers) == 0


async def test_one_that_is_too_slow_begins_anew() -> None:
    watchers = PlacementWatchers(lambda: [held("a")], most=2)
    watcher = watchers.add()
    await watchers.next(watcher)
    for gang in "abc":
        watchers.changed(gang, None)
    assert (watchers.resnapshots, watcher.changes) == (1, {})
    assert (await watchers.next(watcher)).snapshot
    watchers.changed("d", held("d"))
    assert not (await watchers.next(watcher)).snapshot


async def test_all_are_told_where_to_go_on() -> None:
    watchers = PlacementWatchers(list, limit=1)
    watcher = watchers.add()
    assert watchers.full
    await watchers.next(watcher)
    waiting = asyncio.create_task(watchers.next(watcher))
    await asyncio.sleep(0)
    watchers.close("another leads", "leader:50051")
    with pytest.raises(WatchEndedError) as caught:
        await waiting
    assert (str(caught.value), caught.value.leader) == ("another leads", "leader:50051")
    with pytest.raises(WatchEndedError):
        await watchers.next(watchers.add())
