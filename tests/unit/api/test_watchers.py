"""A watcher gets a snapshot, then every generation; one that is too slow begins anew and holds up nobody."""

import asyncio
import threading
from dataclasses import replace

import pytest
from hyperscout.v1 import topology_pb2 as pb
from hyperscout_collector.serve.grpc import watchers as watchers_module
from hyperscout_collector.serve.grpc.watchers import QUEUE_DELTAS, Watcher, Watchers
from hyperscout_topology.topology import Topology
from support.topologies import two_leaves


def generation(number: int) -> Topology:
    return replace(two_leaves(), generation=number)


async def following(watchers: Watchers, watcher: Watcher) -> tuple[str, int]:
    async with asyncio.timeout(10):
        event = pb.WatchTopologyResponse.FromString(await watchers.next(watcher))
    kind = event.WhichOneof("event") or ""
    return kind, getattr(event, kind).generation


async def test_a_snapshot_then_each_generation() -> None:
    watchers = Watchers(generation(1))
    watcher = watchers.add(omit_links=False)
    assert await following(watchers, watcher) == ("snapshot", 1)
    for number in (2, 3):
        await watchers.publish(generation(number))
    assert [await following(watchers, watcher) for _ in range(2)] == [("delta", 2), ("delta", 3)]


async def test_what_is_published_while_the_snapshot_is_made_is_not_lost() -> None:
    watchers = Watchers(generation(1))
    watcher = watchers.add(omit_links=False)
    first = asyncio.create_task(following(watchers, watcher))
    await asyncio.sleep(0)  # it has begun
    await watchers.publish(generation(2))
    seen = [await first]
    while seen[-1][1] < 2:
        seen.append(await following(watchers, watcher))
    assert seen in ([("snapshot", 2)], [("snapshot", 1), ("delta", 2)])


async def test_who_comes_while_a_delta_is_made_misses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    watchers = Watchers(generation(1))
    early = watchers.add(omit_links=True)
    assert await following(watchers, early) == ("snapshot", 1)
    begun, go = threading.Event(), threading.Event()

    def slowly(*arguments: object) -> bytes:
        begun.set()
        assert go.wait(10)
        return encoded_delta(*arguments)  # type: ignore[arg-type]

    encoded_delta = watchers_module._encoded_delta
    monkeypatch.setattr(watchers_module, "_encoded_delta", slowly)
    publishing = asyncio.create_task(watchers.publish(generation(2)))
    await asyncio.to_thread(begun.wait, 10)
    late = {omit: watchers.add(omit_links=omit) for omit in (True, False)}
    for watcher in late.values():
        assert await following(watchers, watcher) == ("snapshot", 1)
    go.set()
    await publishing
    assert await following(watchers, early) == ("delta", 2)
    assert await following(watchers, late[True]) == ("delta", 2)
    assert await following(watchers, late[False]) == ("snapshot", 2)


async def test_a_slow_watcher_begins_anew_and_holds_up_nobody() -> None:
    watchers = Watchers(generation(1))
    slow, quick = watchers.add(omit_links=True), watchers.add(omit_links=True)
    assert await following(watchers, slow) == await following(watchers, quick) == ("snapshot", 1)
    last = QUEUE_DELTAS + 10
    for number in range(2, last + 1):
        await watchers.publish(generation(number))
        assert await following(watchers, quick) == ("delta", number)
    assert len(slow.queue) <= QUEUE_DELTAS
    assert await following(watchers, slow) == ("snapshot", last)
    assert watchers.resnapshots == 1
    await watchers.publish(generation(last + 1))
    assert await following(watchers, slow) == ("delta", last + 1)


async def test_each_picture_is_encoded_once() -> None:
    watchers = Watchers(generation(1))
    current = watchers.current
    assert current.snapshot(True) is current.snapshot(True)
    assert current.get_response(False) is current.get_response(False)
    assert pb.GetTopologyResponse.FromString(current.get_response(True)).topology.generation == 1
    assert current.snapshot(True) != current.snapshot(False)
