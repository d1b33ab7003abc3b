"""A standby records what its leader publishes, and why."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from hyperscout.v1 import topology_pb2 as pb
from hyperscout_collector.evidence.rows import Key
from hyperscout_collector.history.causes import Cause
from hyperscout_collector.history.opening import in_file
from hyperscout_collector.history.recorder import Recorder
from hyperscout_collector.history.settings import HistorySettings
from hyperscout_collector.history.standby_recorder import MAX_WAITING, StandbyRecorder
from hyperscout_collector.store.writer import StoreWriter
from hyperscout_topology.diff import Diff
from hyperscout_topology.proto import apply, delta_to_proto, topology_to_proto
from hyperscout_topology.topology import Topology
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from support.any_topologies import TOPOLOGIES, same
from support.topologies import SINCE_NS, two_leaves
from support.waiting import until

WHY = Cause("findings", (Key("n01", "lldp", "eth0"),), 1)


def recorder_in(folder: Path, writer: StoreWriter) -> Recorder:
    def now_ns() -> int:
        return SINCE_NS

    return Recorder(in_file(folder / "history.db", HistorySettings(), now_ns), now_ns, writer)


@hypothesis_settings(deadline=None)
@given(st.lists(TOPOLOGIES, min_size=2, max_size=5))
def test_steps_lead_to_the_same_picture(many: Sequence[Topology]) -> None:
    now = many[0]
    for old, new in pairwise(many):
        now = apply(now, [delta_to_proto(Diff(old, new))])
        assert same(now) == same(new)


async def test_generations_of_the_leader_are_recorded_with_their_causes(tmp_path: Path) -> None:
    slept: list[float] = []
    asked: list[int] = []

    async def why(generation: int) -> Cause | None:
        asked.append(generation)
        if generation == 9 or asked.count(generation) < 2:
            return None  # not written yet; of 9 it never is
        return WHY

    async def sleep(delay_s: float) -> None:
        slept.append(delay_s)

    def step(old: Topology, new: Topology) -> pb.WatchTopologyResponse:
        return pb.WatchTopologyResponse(delta=delta_to_proto(Diff(old, new)))

    whole = two_leaves()
    cut = Topology(8, whole.hypernodes, whole.switches, whole.adapters, whole.links[1:])
    other = Topology(9, whole.hypernodes, whole.switches, whole.adapters, whole.links[2:])
    writer = StoreWriter()
    recorder = recorder_in(tmp_path, writer)
    standby = StandbyRecorder(recorder, why, sleep=sleep)
    tasks = [asyncio.create_task(writer.run()), asyncio.create_task(standby.run())]

    async def published(generation: int) -> list[pb.HistoryEvent]:
        def found() -> list[pb.HistoryEvent]:
            if not recorder.size.generations:
                return []
            return list(recorder.events(pb.ListHistoryRequest(kinds=["GenerationPublished"])).events)

        await until(lambda: any(x.generation >= generation for x in found()[:1]))
        return found()

    standby.receive(pb.WatchTopologyResponse(delta=pb.TopologyDelta(generation=3)))  # of what, is not known
    standby.receive(pb.WatchTopologyResponse(snapshot=topology_to_proto(whole)))
    standby.receive(step(whole, cut))
    standby.receive(step(cut, other))
    found = await published(9)
    assert [(x.generation, x.cause.kind) for x in found] == [(9, "followed"), (8, "findings"), (7, "restart")]
    assert found[1].cause.findings[0].node == "n01"
    assert asked[:2] == [8, 8]
    # Away for a while: what changed meanwhile is one event of a start, and nothing is told twice.
    standby.receive(pb.WatchTopologyResponse(snapshot=topology_to_proto(other)))
    standby.receive(pb.WatchTopologyResponse(snapshot=topology_to_proto(Topology(12, whole.hypernodes))))
    found = await published(12)
    assert [(x.generation, x.cause.kind) for x in found][:2] == [(12, "restart"), (9, "followed")]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await writer.close()
    await recorder.close()


async def test_events_that_wait_are_bounded_and_a_snapshot_goes_on(tmp_path: Path) -> None:
    async def why(generation: int) -> Cause | None:
        return WHY

    whole = two_leaves()
    newest = replace(whole, generation=4000, links=whole.links[1:])
    writer = StoreWriter()
    recorder = recorder_in(tmp_path, writer)
    standby = StandbyRecorder(recorder, why)
    standby.receive(pb.WatchTopologyResponse(snapshot=topology_to_proto(whole)))
    for i in range(3 * MAX_WAITING):
        standby.receive(pb.WatchTopologyResponse(delta=pb.TopologyDelta(generation=whole.generation + 1 + i)))
        assert len(standby._events) <= MAX_WAITING
    standby.receive(pb.WatchTopologyResponse(snapshot=topology_to_proto(newest)))
    await standby.finish()
    assert await recorder.queue.flush()
    found = recorder.events(pb.ListHistoryRequest(kinds=["GenerationPublished"])).events
    assert [x.generation for x in found] == [4000]
    await writer.close()
    await recorder.close()


async def test_a_snapshot_takes_the_place_of_what_waited_before_it(tmp_path: Path) -> None:
    async def why(generation: int) -> Cause | None:
        return WHY

    whole = two_leaves()
    cut = Topology(8, whole.hypernodes, whole.switches, whole.adapters, whole.links[1:])
    newest = Topology(12, whole.hypernodes, whole.switches, whole.adapters, whole.links)
    writer = StoreWriter()
    recorder = recorder_in(tmp_path, writer)
    standby = StandbyRecorder(recorder, why)
    standby.receive(pb.WatchTopologyResponse(snapshot=topology_to_proto(whole)))
    standby.receive(pb.WatchTopologyResponse(delta=delta_to_proto(Diff(whole, cut))))
    standby.receive(pb.WatchTopologyResponse(snapshot=topology_to_proto(newest)))
    writing = asyncio.create_task(writer.run())
    await standby.finish()
    await until(lambda: recorder.size.generations)
    found = recorder.events(pb.ListHistoryRequest(kinds=["GenerationPublished"])).events
    assert [x.generation for x in found] == [12]
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    await writer.close()
    await recorder.close()
