"""A collector and agents on a machine whose clock is set two hours forward and back."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.topology_pb2_grpc import TopologyServiceStub
from support.collector_process import channel_to, collector_process
from support.collectors import QUICK_FLAGS, eight_hosts, playing
from support.waiting import TIMEOUT_S, eventually

FLAGS = (*QUICK_FLAGS, "--stale-after-s", "600", "--refresh-s", "0.2")
STEPS_S = (7200, 0, -7200, 0)


class Watched:
    """The topology and the status that a collector serves."""

    def __init__(self, service: TopologyServiceStub) -> None:
        self._service = service
        self.topology = pb.Topology()
        self.status = pb.GetStatusResponse()

    async def look(self) -> None:
        self.topology = (await self._service.GetTopology(pb.GetTopologyRequest(), timeout=TIMEOUT_S)).topology
        self.status = await self._service.GetStatus(pb.GetStatusRequest(), timeout=TIMEOUT_S)

    async def shows(self, wanted: Callable[["Watched"], bool], what: str) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                await self.look()
                if wanted(self):
                    return
                assert not self.stale, f"{self.stale} while waiting for {what}"
                await asyncio.sleep(0.05)

    @property
    def stale(self) -> list[str]:
        conditions = [(h.name, c) for h in self.topology.hypernodes for c in h.conditions]
        found = [name for name, c in conditions if c.reason == "Stale" or "stale" in c.message]
        return found if found or not self.status.stale_findings else ["findings"]

    @property
    def missing(self) -> int:
        return sum(x.kind == "MissingLink" for x in self.topology.anomalies)


async def test_a_stepped_clock_neither_stops_publishing_nor_makes_anything_stale(tmp_path: Path) -> None:
    clock = tmp_path / "ahead"
    clock.write_text("0")
    fabric = eight_hosts()
    cable = fabric.cables[0]  # of a host
    async with (
        collector_process(tmp_path / "data", *FLAGS, clock=clock) as process,
        playing(process.address, fabric, refresh_interval_s=1.0) as player,
        channel_to(process.address) as channel,
    ):
        watched = Watched(TopologyServiceStub(channel))
        await eventually(lambda: player.settled, "agents that have reported")
        await watched.shows(lambda w: len(w.topology.hypernodes) >= 3, "the tree")
        for step_s in STEPS_S:
            clock.write_text(str(step_s))
            before = watched.topology.generation
            player.cut(cable)
            await watched.shows(lambda w: w.missing > 0, f"a missing link at {step_s} s")
            player.restore(cable)
            await watched.shows(lambda w: w.missing == 0, f"no missing link at {step_s} s")
            assert watched.topology.generation > before
            said = [x for x in watched.status.problems if f"was set by {step_s:+d} s" in x]
            assert bool(said) == bool(step_s), watched.status.problems
        clock.write_text("7200")
        assert await process.stop() == 0
    async with (
        collector_process(tmp_path / "data", *FLAGS, "--restart-grace-s", "60", clock=clock) as process,
        channel_to(process.address) as channel,
    ):
        watched = Watched(TopologyServiceStub(channel))
        await watched.shows(lambda w: len(w.topology.hypernodes) >= 3, "the tree of before the restart")
        assert (watched.stale, watched.status.problems) == ([], [])
