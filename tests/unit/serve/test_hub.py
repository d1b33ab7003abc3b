"""A reader gets a snapshot, then every generation. A slow reader begins anew or is ended."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest
from hyperscout.v1 import topology_pb2 as pb
from hyperscout_collector.serve.fanout import hub as hub_module
from hyperscout_collector.serve.fanout.channel import Channel, Form, TooSlowError, WatchEndedError
from hyperscout_collector.serve.fanout.hub import MAX_DELTAS, Hub
from hyperscout_topology.diff import Diff
from hyperscout_topology.topology import Link, Topology
from support.topologies import two_leaves
from support.waiting import TIMEOUT_S, until

Messages = AsyncGenerator[bytes | None]


def generation(number: int) -> Topology:
    return replace(two_leaves(), generation=number)


def joined(hub: Hub, *, omit_links: bool) -> Messages:
    channel = hub.channel(omit_links)
    return channel.messages(channel.join())


async def following(messages: Messages) -> tuple[str, int]:
    async with asyncio.timeout(TIMEOUT_S):
        event = pb.WatchTopologyResponse.FromString(await anext(messages) or b"")
    kind = event.WhichOneof("event") or ""
    return kind, getattr(event, kind).generation


async def test_a_stored_topology_that_cannot_be_checked_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(_: Topology) -> list[str]:
        raise ValueError("planted")

    monkeypatch.setattr(hub_module, "topology_problems", raising)
    hub = await Hub.opened(generation(1))
    assert hub.current.wrong == ("the stored topology cannot be checked: ValueError: planted",)
    assert await following(joined(hub, omit_links=False)) == ("snapshot", 1)


async def test_a_snapshot_then_each_generation() -> None:
    hub = Hub(generation(1))
    messages = joined(hub, omit_links=False)
    assert await following(messages) == ("snapshot", 1)
    for number in (2, 3):
        await hub.publish(generation(number))
    assert [await following(messages) for _ in range(2)] == [("delta", 2), ("delta", 3)]


async def test_what_is_published_while_the_snapshot_is_made_is_not_lost() -> None:
    hub = Hub(generation(1))
    messages = joined(hub, omit_links=False)
    first = asyncio.create_task(following(messages))
    await asyncio.sleep(0)  # it has begun
    await hub.publish(generation(2))
    seen = [await first]
    while seen[-1][1] < 2:
        seen.append(await following(messages))
    assert seen in ([("snapshot", 2)], [("snapshot", 1), ("delta", 2)])


async def test_a_reader_that_joins_while_a_delta_is_made_misses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, go = threading.Event(), threading.Event()
    delta_to_proto = hub_module.delta_to_proto

    def slowly(diff: Diff, *, omit_links: bool) -> pb.TopologyDelta:
        begun.set()
        assert go.wait(10)
        return delta_to_proto(diff, omit_links=omit_links)

    monkeypatch.setattr(hub_module, "delta_to_proto", slowly)
    hub = Hub(generation(1))
    early = joined(hub, omit_links=True)
    assert await following(early) == ("snapshot", 1)
    publishing = asyncio.create_task(hub.publish(generation(2)))
    await asyncio.to_thread(begun.wait, TIMEOUT_S)
    late, fresh = joined(hub, omit_links=True), joined(hub, omit_links=False)
    assert await following(late) == ("snapshot", 1)
    assert await following(fresh) == ("snapshot", 2)
    go.set()
    await publishing
    assert await following(early) == await following(late) == ("delta", 2)
    await hub.publish(generation(3))
    assert await following(fresh) == ("delta", 3)


async def test_a_slow_reader_begins_anew_and_delays_nothing() -> None:
    hub = Hub(generation(1))
    slow, quick = joined(hub, omit_links=True), joined(hub, omit_links=True)
    assert await following(slow) == await following(quick) == ("snapshot", 1)
    last = MAX_DELTAS + 10
    for number in range(2, last + 1):
        await hub.publish(generation(number))
        assert await following(quick) == ("delta", number)
    assert await following(slow) == ("snapshot", last)
    assert hub.resnapshots == 1
    await hub.publish(generation(last + 1))
    assert await following(slow) == ("delta", last + 1)


async def test_a_slow_reader_of_a_channel_without_restarts_is_ended() -> None:
    form = Form(lambda t: (b"snapshot",), lambda d: b"delta", max_deltas=2, max_bytes=100, restarts=False)
    channel = Channel(form, lambda: generation(1))
    messages = channel.messages(channel.join())
    assert await anext(messages) == b"snapshot"
    for number in range(2, 6):
        await channel.advance(generation(number))
    with pytest.raises(TooSlowError):
        await anext(messages)


async def test_a_reader_keeps_neither_its_snapshot_nor_dropped_deltas_in_memory() -> None:
    made: list[str] = []
    freed: list[str] = []

    class Chunk(bytes):
        name: str

        def __del__(self) -> None:
            freed.append(self.name)

    def chunk(name: str) -> Chunk:
        found = Chunk(name.encode())
        found.name = name
        made.append(name)
        return found

    form = Form(
        lambda topology: [chunk(f"snapshot {topology.generation}")],
        lambda diff: chunk(f"delta {diff.new.generation}"),
        max_deltas=2,
        max_bytes=1000,
    )
    channel = Channel(form, lambda: generation(1))
    slow, quick = channel.messages(channel.join()), channel.messages(channel.join())
    assert await anext(slow) == await anext(quick) == b"snapshot 1"
    last = 6
    for number in range(2, last + 1):
        await channel.advance(generation(number))
        assert await anext(quick) == f"delta {number}".encode()
        if number == 3:
            assert await anext(slow) == b"delta 2"
    assert made == ["snapshot 1", *(f"delta {number}" for number in range(2, last + 1))]
    assert freed == ["snapshot 1", "delta 3", "delta 4"]  # delta 2 is being sent


async def test_a_reader_does_not_begin_with_the_snapshot_of_readers_that_left() -> None:
    begun, go = threading.Event(), threading.Event()
    made: list[int] = []

    def snapshot(topology: Topology) -> tuple[bytes]:
        made.append(topology.generation)
        if len(made) == 1:
            begun.set()
            assert go.wait(10)
        return (b"%d" % topology.generation,)

    current = generation(1)
    form = Form(snapshot, lambda d: b"delta", max_deltas=9, max_bytes=99, restarts=False)
    channel = Channel(form, lambda: current)
    reader = channel.join()
    first = asyncio.ensure_future(anext(channel.messages(reader)))
    await asyncio.to_thread(begun.wait, TIMEOUT_S)
    first.cancel()
    channel.leave(reader)
    await until(lambda: channel.topology is None)
    current = generation(2)
    async with asyncio.timeout(TIMEOUT_S):
        assert await anext(channel.messages(channel.join())) == b"2"
    go.set()


async def test_a_channel_is_idle_after_its_last_reader_left() -> None:
    made = []
    form = Form(
        lambda t: (b"",), lambda d: bytes(made.append(d) or 1), max_deltas=9, max_bytes=99, resume_s=0
    )
    channel = Channel(form, lambda: generation(1))
    reader = channel.join()
    assert await channel.advance(generation(2))
    channel.leave(reader)
    await until(lambda: channel.topology is None)
    assert not await channel.advance(generation(3))
    assert len(made) == 1


async def test_the_end_reaches_all_readers() -> None:
    hub = Hub(generation(1))
    messages = joined(hub, omit_links=True)
    assert await following(messages) == ("snapshot", 1)
    waiting = asyncio.create_task(following(messages))
    await asyncio.sleep(0)
    hub.close("another replica leads", "leader:1")
    with pytest.raises(WatchEndedError) as caught:
        await waiting
    assert caught.value.leader == "leader:1"
    with pytest.raises(WatchEndedError):
        joined(hub, omit_links=True)


async def test_each_answer_is_encoded_once() -> None:
    current = Hub(generation(1)).current
    assert current.get_response(False) is current.get_response(False)
    assert pb.GetTopologyResponse.FromString(current.get_response(True)).topology.generation == 1
    assert current.get_response(True) != current.get_response(False)


@pytest.mark.parametrize(("nodes", "links", "in_thread"), [(0, 9, False), (1000, 0, True), (0, 9000, True)])
async def test_the_problems_of_each_large_generation_are_found_in_a_thread(
    monkeypatch: pytest.MonkeyPatch, nodes: int, links: int, in_thread: bool
) -> None:
    threads: list[threading.Thread] = []

    def problems(_: Topology) -> list[str]:
        threads.append(threading.current_thread())
        return []

    monkeypatch.setattr(hub_module, "topology_problems", problems)
    names = tuple(f"node-{i}" for i in range(nodes))
    cables = tuple(Link(f"node-{i}", "1", "leaf", str(i), "ethernet", ("lldp",)) for i in range(links))
    hub = await Hub.opened(replace(generation(1), nodes_without_evidence=names, links=cables))
    assert hub.current.wrong == ()
    await hub.publish(replace(generation(2), nodes_without_evidence=names, links=cables))
    assert hub.current.wrong == ()
    assert len(threads) == 2
    assert all((thread is not threading.main_thread()) == in_thread for thread in threads)
