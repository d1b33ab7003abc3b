"""Volcano's own scheduler places gangs onto what was discovered, and outlives what we do to the tree.

Sixteen nodes in three tiers: simulated agents of a fabric, the real collector, a real API server, Volcano's
real scheduler and controllers. `make e2e-volcano VOLCANO_BIN=folder` runs it; see docs/volcano.md.
"""

import asyncio
import itertools
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from hyperscout_sim.agents.player import Player
from hyperscout_sim.fabric import nvlink, shapes
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_sim.fabric.nvlink import Gpus
from hyperscout_sim.fabric.racks import racks
from kube.api import Object
from kube.control_plane import Options
from kube.recorder import Recorder, recording
from support.collector_process import CollectorProcess, collector_process
from support.collectors import playing
from support.kubernetes import Cluster
from support.real import require_real
from support.volcano import Volcano, domains_in, require_volcano
from support.waiting import TIMEOUT_S

BINARIES = require_volcano()
require_real("kubernetes", "kwok")

FABRIC = shapes.clos3(pods=2, leaves_per_pod=2, hosts_per_leaf=4, aggs_per_pod=2, cores_per_agg=2)
LEAVES, PODS, WHOLE = FABRIC.truth.tiers
# Four racks of 18 trays, each one NVLink domain but the last, which is two; and hosts with their own NVLink.
ROW = racks(2, 2, hgx=4, split={3: 9})
# Changes of membership and their removals go out at once: this is about what follows then.
PROMPT = (
    *("--sweep-interval-s", "1", "--hold-down-s", "0.1", "--settle-s", "0.5"),
    *("--removal-share", "1", "--hold-s", "1"),
)
_LOOK_EVERY_S = 0.05
Domains = Iterable[frozenset[str]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stage:
    """All that plays."""

    kube: Cluster
    volcano: Volcano
    player: Player
    collector: CollectorProcess
    recorder: Recorder

    async def until(self, happens: Callable[[], T], what: str) -> T:
        """Return the first true result. Fail if Volcano ends before."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while not (found := await asyncio.to_thread(happens)):
                    self.volcano.check()
                    await asyncio.sleep(_LOOK_EVERY_S)
        except TimeoutError:
            tree = await asyncio.to_thread(domains_in, self.kube)
            raise AssertionError(
                f"never seen: {what}; the tree: {tree}\n{self.collector.said[-1500:].decode()}\n"
                f"{dict(self.volcano.complaints())}"
            ) from None
        self.volcano.check()
        return found

    async def until_published(self, *tiers: Domains) -> None:
        wanted = {number: set(tier) for number, tier in enumerate(tiers, 1)}
        await self.until(lambda: domains_in(self.kube) == wanted, f"the tree {wanted}")

    async def no_write_broke_a_rule(self, *allowed: str) -> None:
        await asyncio.to_thread(self.recorder.assert_clean, allowed)

    async def submit(self, job: str, workers: int, highest_tier_allowed: int, gpus: int = 8) -> None:
        await asyncio.to_thread(self.volcano.submit, job, workers, highest_tier_allowed, gpus)

    async def placed(self, job: str, workers: int) -> frozenset[str]:
        return await self.until(lambda: self.volcano.nodes_of(job, workers), f"{job} placed")

    async def waits(self, job: str, workers: int) -> bool:
        return await asyncio.to_thread(self.volcano.waits, job, workers)

    async def finish(self, job: str) -> None:
        await asyncio.to_thread(self.volcano.finish, job)


@asynccontextmanager
async def stage(
    own_kube: Callable[..., Cluster],
    tmp_path: Path,
    fabric: SimFabric = FABRIC,
    gpus: Mapping[str, Gpus] | None = None,
    tiers: Iterable[Domains] = (LEAVES, PODS, WHOLE),
) -> AsyncIterator[Stage]:
    """Until the tiers are published and Volcano takes jobs."""
    kube = own_kube(Options(kwok=True))
    kube.nodes(fabric.hosts, gpus=4 if gpus else 8)
    volcano = Volcano(kube, BINARIES)
    flags = ("--kubernetes", "publish", "--kubeconfig", str(kube.kubeconfig), *PROMPT)
    async with (
        collector_process(tmp_path, *flags) as collector,
        recording(kube.plane) as recorder,
        playing(collector.address, fabric, gpus=gpus, connections=4, refresh_interval_s=30.0) as player,
    ):
        found = Stage(kube, volcano, player, collector, recorder)
        await found.until_published(*tiers)
        await found.until(volcano.queue_is_open, "the default queue open")
        yield found


def has_both(hypernode: Object) -> bool:
    status = hypernode.get("status", {})
    conditions = {c["type"] for c in status.get("conditions", ())}
    counted = status.get("nodeCount") == len(hypernode["spec"]["members"])
    return counted and conditions == {"Ready", "Degraded", "Consistent", "Stale"}


async def test_a_gang_lands_in_one_discovered_domain_and_one_too_large_waits(
    own_kube: Callable[..., Cluster], tmp_path: Path
) -> None:
    async with stage(own_kube, tmp_path) as on:
        await on.submit("fits", 4, highest_tier_allowed=1)
        first = await on.placed("fits", 4)
        assert first in LEAVES

        # Twelve nodes are free, but a leaf has four.
        await on.submit("too-large", 5, highest_tier_allowed=1)
        refusal = await on.until(lambda: on.volcano.refusal("too-large"), "a refusal of too-large")
        print(f"\nthe gang that is too large: {refusal}")

        # It is in no gang's way, and a tier higher the same gang finds room: it is the tree that holds it.
        await on.submit("behind", 4, highest_tier_allowed=1)
        second = await on.placed("behind", 4)
        assert second in set(LEAVES) - {first}
        await on.finish("behind")
        await on.submit("wider", 5, highest_tier_allowed=2)
        (pod,) = (pod for pod in PODS if not pod & first)
        assert await on.placed("wider", 5) <= pod
        assert await on.waits("too-large", 5)

        # Both write the status of the same objects: its count, our conditions.
        await on.until(lambda: all(map(has_both, on.kube.hypernodes().values())), "nodeCount and conditions")
        assert not on.volcano.complaints()
        await on.no_write_broke_a_rule()


async def test_a_gang_of_a_racks_size_lands_in_one_rack(
    own_kube: Callable[..., Cluster], tmp_path: Path
) -> None:
    whole = [frozenset(rack.trays) for rack in ROW.racks[:3]]
    units = [frozenset(ROW.racks[i].trays + ROW.racks[i + 1].trays) for i in (0, 2)]
    async with stage(own_kube, tmp_path, ROW.fabric, ROW.gpus, ROW.tiers) as on:

        async def rack_of(job: str) -> frozenset[str]:
            """The rack that a gang of eighteen is in: one, and all of it."""
            nodes = await on.placed(job, 18)
            assert nodes in whole, sorted(nodes)
            return nodes

        taken = set()
        for job in ("first", "second", "third"):
            await on.submit(job, 18, highest_tier_allowed=1, gpus=4)
            taken.add(await rack_of(job))
        assert len(taken) == 3

        # 18 trays are free, but they are two cliques that cannot reach each other by NVLink.
        await on.submit("fourth", 18, highest_tier_allowed=1, gpus=4)
        await on.until(lambda: on.volcano.waits("fourth", 18), "all workers of the fourth")
        await on.until(lambda: on.volcano.refusal("fourth"), "a refusal of the fourth")
        assert await on.waits("fourth", 18)
        await on.finish("second")
        assert await rack_of("fourth") in taken
        await on.submit("half", 9, highest_tier_allowed=1, gpus=4)
        assert await on.placed("half", 9) in ROW.racks[3].cliques

        # A tray that is put into another clique is no place for a gang of its rack.
        for job in ("first", "third", "fourth", "half"):
            await on.finish(job)
        tray = ROW.racks[0].trays[3]
        on.player.set_gpus(tray, nvlink.with_fabric(ROW.gpus[tray], clique_id=9))
        inner = {domain - {tray} for domain in ROW.nvlink} | {frozenset([tray])}
        await on.until_published(inner, *ROW.tiers[1:])
        taken = set()
        for job in ("fifth", "sixth"):
            await on.submit(job, 18, highest_tier_allowed=1, gpus=4)
            taken.add(await rack_of(job))
        assert taken == set(whole[1:])
        # A tier higher, all of the unit's trays but those of the second rack are its place.
        await on.submit("wider", 18, highest_tier_allowed=2, gpus=4)
        nodes = await on.placed("wider", 18)
        assert any(nodes <= unit for unit in units)

        assert not on.volcano.complaints()
        await on.no_write_broke_a_rule()


async def topology_jobs(on: Stage, took_s: list[float]) -> None:
    """One small gang after the other, each within a leaf, until cancelled."""
    for number in itertools.count():
        name, began_s = f"stream-{number}", time.monotonic()
        await on.submit(name, 3, highest_tier_allowed=1, gpus=1)
        nodes = await on.placed(name, 3)
        took_s.append(time.monotonic() - began_s)
        assert any(nodes <= leaf for leaf in LEAVES), nodes
        await on.finish(name)


async def test_the_scheduler_outlives_moves_and_tear_downs_and_places_meanwhile(
    own_kube: Callable[..., Cluster], tmp_path: Path
) -> None:
    a, b, c, d = LEAVES
    moved = (b | c, a | d)
    async with stage(own_kube, tmp_path) as on:
        took_s: list[float] = []
        # As long as a gang waits, the scheduler goes through the tree all the time, and misses no bad moment.
        await on.submit("too-large", 5, highest_tier_allowed=1)
        stream = asyncio.create_task(topology_jobs(on, took_s))

        async def goes_on() -> None:
            """The stream has got three more gangs placed, at least two of them begun from now on."""
            goal = len(took_s) + 3
            await on.until(lambda: stream.done() or len(took_s) >= goal, "more topology jobs placed")
            if stream.done():
                stream.result()

        await goes_on()

        # Two leaves change places between the pods. Neither pod can take before the other has let go.
        uplinks = [
            (on.player.fabric.between("leaf-p01-01", one)[0], on.player.fabric.between("leaf-p02-01", two)[0])
            for one, two in (("spine-p01-01", "spine-p02-01"), ("spine-p01-02", "spine-p02-02"))
        ]
        crossed = [on.player.miswire(*pair) for pair in uplinks]
        await on.until_published(LEAVES, moved, WHOLE)
        await goes_on()
        # More than half of a node each, as many as a pod has nodes: only a whole pod of today takes them.
        await on.submit("pod-wide", 8, highest_tier_allowed=2, gpus=5)
        assert await on.placed("pod-wide", 8) in moved
        await on.finish("pod-wide")
        for pair in crossed:
            on.player.miswire(*pair)
        await on.until_published(LEAVES, PODS, WHOLE)
        await goes_on()

        # A pod's nodes are drained, leave the cluster and come back: a branch goes and grows.
        for host in sorted(c | d):
            await asyncio.to_thread(on.kube.cordon, host)
        await goes_on()
        for host in sorted(c | d):
            await asyncio.to_thread(on.kube.delete_node, host)
        await on.until_published((a, b), (a | b,), (a | b,))
        await goes_on()
        await asyncio.to_thread(on.kube.nodes, sorted(c | d))
        await on.until_published(LEAVES, PODS, WHOLE)
        await goes_on()

        # All spines lose power: what is above the leaves goes, from the root down. And all of it comes back.
        await on.no_write_broke_a_rule()
        spines = [switch.guid for switch in FABRIC.switches if switch.level == 2]
        for guid in spines:
            on.player.pull(guid)
        await on.until_published(LEAVES)
        await goes_on()
        for guid in spines:
            on.player.push_back(guid)
        await on.until_published(LEAVES, PODS, WHOLE)
        await goes_on()

        assert await on.waits("too-large", 5)
        await on.no_write_broke_a_rule("root-gone")  # what is an island now has no root to keep
        stream.cancel()
        await asyncio.gather(stream, return_exceptions=True)
        print(
            f"\n{len(took_s)} gangs ran meanwhile: up in {statistics.median(took_s):.2f} s (median), "
            f"{max(took_s):.2f} s (longest); the scheduler complained: {dict(on.volcano.complaints())}"
        )
