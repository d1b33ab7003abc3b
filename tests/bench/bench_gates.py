"""Gangs through one API server: hyperscout's gates with kube-scheduler, and kube-scheduler's own gangs.

    python tests/bench/bench_gates.py [--nodes N] [--gangs N] [--driven]

Gangs of 4, a node a pod, all posted at once over 16 connections, each to lie in one leaf. API server, etcd,
kube-scheduler, kwok, and the placing program share the machine's cores: the figures are for all together.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from bench.gates.driver import decide, open_gates
from bench.gates.pods import clear, gated, grouped, node, post, seen
from bench.quality.cluster import Shape
from hyperscout_cli.loadtest import child
from hyperscout_kubernetes.client import Kube, connect
from hyperscout_sim.agents.player import Player
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_sim.fabric.shapes import rail_optimised
from kube.control_plane import ControlPlane
from support.bench_rows import row
from support.collector_process import collector_process
from support.gangs import GANG_OPTIONS, label_values
from support.kubernetes import Cluster

KEY = "hyperscout.io/leaf"
SIZE = 4
LEAF = 25  # nodes
CASES = ((1000, 200), (5000, 100))  # nodes, gangs
BUDGETS = {1000: 0.25, 5000: 0.1}  # of the time that kube-scheduler's own gangs take
OWN_BUDGET_MS = 2.0  # processor time of the collector for a pod
AT_REST = 0.1  # of a core
TIMEOUT_S = 150.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one side. `pods_s`: from the first POST to the last bind. `gang_s`: from when a gang was posted to
    the bind of its last pod. `opened_s`, `bound_s`: the rates from the first to the last one. `writes`:
    requests a pod. `tiers`: mean of the lowest tier that holds a gang. `cpu_ms`: of `cpu_ms_of`."""

    pods: int
    pods_s: float
    gang_s: Sequence[float]
    opened_s: float
    bound_s: float
    writes: float
    tiers: float
    cpu_ms: Mapping[str, float]


def fabric_of(nodes: int) -> SimFabric:
    """Leaves of LEAF nodes, pods of eight leaves."""
    return rail_optimised(8, LEAF, 1, 2, pods=nodes // (8 * LEAF))


def shape_of(fabric: SimFabric) -> Shape:
    """The same for the engine: hosts come in the order of the tree."""
    leaf, pod = (fabric.truth.domain_of(tier) for tier in (1, 2))
    sizes: dict[int, dict[int, int]] = {}
    for host in fabric.hosts:
        of_pod = sizes.setdefault(pod[host], {})
        of_pod[leaf[host]] = of_pod.get(leaf[host], 0) + 1
    shape = Shape.of([list(leaves.values()) for leaves in sizes.values()])
    return replace(shape, names=fabric.hosts)


async def post_nodes(kube: Kube, shape: Shape, *, labelled: bool) -> None:
    """`labelled`: with the label that the collector would write."""
    rows = zip(shape.names, shape.leaf.tolist(), strict=True)
    labels = [(name, {KEY: f"leaf-{leaf:04}"} if labelled else {}) for name, leaf in rows]
    await post(kube, [[node(name, of_it, len(labels))] for name, of_it in labels])


@asynccontextmanager
async def controller(cluster: Cluster, fabric: SimFabric, folder: Path) -> AsyncIterator[int]:
    """A collector whose gate controller is on, of a simulated fabric; ready when all nodes are labelled."""
    flags = ("--kubernetes", "publish", "--kubeconfig", str(cluster.kubeconfig), "--node-labels", "on")
    flags += ("--gates", "on", "--lease-namespace", "default")
    async with collector_process(folder, *flags) as collector:
        player = Player(fabric, [collector.address], connections=16, refresh_interval_s=3600)
        playing = asyncio.create_task(player.run())
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while not all((await asyncio.to_thread(label_values, cluster, KEY)).values()):
                    await asyncio.sleep(1)
            yield collector.pid
        except AssertionError as error:
            error.add_note(collector.said.decode()[-3000:])
            raise
        finally:
            playing.cancel()
            await asyncio.gather(playing, return_exceptions=True)
        await collector.stop()


async def until_calm(cluster: Cluster) -> None:
    """Until no program writes to nodes any more; the scheduler has long taken them in by then."""
    before = -1
    while (now := await asyncio.to_thread(cluster.writes, "nodes")) != before:
        before = now
        await asyncio.sleep(2)


RESOURCES = ("pods", "podgroups", "configmaps", "events")


def cpu_s(cluster: Cluster, collector: int | None) -> dict[str, float]:
    """Processor time so far of each program and of this process, which posts, watches and (driven) places."""
    pids = {program.name: program.pid for program in cluster.plane.programs} | {"client": os.getpid()}
    if collector is not None:
        pids["collector"] = collector
    return {name: child.cpu_s(pid) for name, pid in pids.items()}


def cpu_ms_of(
    before: Mapping[str, float], after: Mapping[str, float], pods: int, rest_s: float
) -> dict[str, float]:
    """Processor time a pod, by program. `rest_s`: what the collector would have used without gangs, which is
    listed apart."""
    found = {name: (now_s - before[name]) * 1000 / pods for name, now_s in after.items()}
    if rest_s:
        found["collector at rest"] = rest_s * 1000 / pods
        found["collector"] -= found["collector at rest"]
    return found


async def at_rest(cluster: Cluster, collector: int) -> float:
    """Wait until the collector uses little, and return the share of a core that its agents then need."""
    while True:
        began, before_s = time.perf_counter(), cpu_s(cluster, collector)["collector"]
        await asyncio.sleep(5)
        used_s = cpu_s(cluster, collector)["collector"] - before_s
        if (share := used_s / (time.perf_counter() - began)) < AT_REST:
            return share


async def side(
    cluster: Cluster,
    kube: Kube,
    shape: Shape,
    posts: Sequence[Sequence[tuple[str, dict[str, object]]]],
    *,
    release: Callable[[], Awaitable[None]] | None = None,
    collector: int | None = None,
) -> Outcome:
    """Post all gangs, then (where no other program does) open their gates; wait for the last pod."""
    names = [f"{gang[-1][1]['metadata']['name'].rpartition('-')[0]}" for gang in posts]  # type: ignore[index]
    pods = [f"{name}-{rank}" for name in names for rank in range(SIZE)]
    rest = 0.0 if collector is None else await at_rest(cluster, collector)
    before = await asyncio.to_thread(lambda: sum(cluster.writes(resource) for resource in RESOURCES))
    cpu, measured = cpu_s(cluster, collector), time.perf_counter()
    async with seen(kube) as watched:
        began = time.perf_counter()
        posted = dict(zip(names, await post(kube, posts), strict=True))
        if release is not None:
            await release()
        if not await watched.until_bound(pods, TIMEOUT_S):
            raise AssertionError(f"{len(watched.bound_s)} of {len(pods)} pods were bound")
    rest_s = rest * (time.perf_counter() - measured)
    cpu = cpu_ms_of(cpu, cpu_s(cluster, collector), len(pods), rest_s)
    after = await asyncio.to_thread(lambda: sum(cluster.writes(resource) for resource in RESOURCES))
    index = {name: i for i, name in enumerate(shape.names)}
    gangs = watched.by_gang()
    tops = [shape.top(np.array([index[watched.node[pod]] for pod in gang])) for gang in gangs.values()]
    return Outcome(
        len(pods),
        len(pods) / (max(watched.bound_s.values()) - began),
        [max(watched.bound_s[pod] for pod in gang) - posted[name] for name, gang in gangs.items()],
        rate(watched.opened_s.values()),
        rate(watched.bound_s.values()),
        (after - before) / len(pods),
        statistics.fmean(tops),
        cpu,
    )


def rate(times: Sequence[float]) -> float:
    ordered = sorted(times)
    return (len(ordered) - 1) / max(ordered[-1] - ordered[0], 1e-9)


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def compare(cluster: Cluster, folder: Path, nodes: int, gangs: int, *, driven: bool) -> None:
    """`driven`: gates are opened by the least that can, not by the collector."""
    fabric = fabric_of(nodes)
    shape = shape_of(fabric)
    decided = decide(shape, gangs, SIZE, 1)
    names = [f"gated-{i:04}" for i in range(gangs)]
    posts = [gated(name, SIZE, "leaf" if driven else "1") for name in names]
    async with await connect(cluster.kubeconfig, writes_per_s=1e6, burst=1000) as kube:
        await post_nodes(kube, shape, labelled=driven)
        await until_calm(cluster)
        if driven:
            by_hand = partial(open_gates, kube, names, decided.nodes)
            ours = await side(cluster, kube, shape, posts, release=by_hand)
        else:
            async with controller(cluster, fabric, folder) as pid:
                ours = await side(cluster, kube, shape, posts, collector=pid)
        await clear(kube)
        theirs = await side(cluster, kube, shape, [grouped(f"own-{i:04}", SIZE, KEY) for i in range(gangs)])
        await clear(kube)
    side_name = "the least driver" if driven else "the gate controller"
    where = f"{nodes:,} nodes, {gangs} gangs of {SIZE}, {side_name}"
    times = [one.pods / one.pods_s for one in (ours, theirs)]
    row(
        f"{where}: first POST to last bind",
        f"{times[0]:.1f} s",
        f"{times[1]:.1f} s kube-scheduler's own gangs",
        f"{times[0] / times[1]:.2f} x",
        f"{BUDGETS[nodes]} x" if nodes in BUDGETS else "",
    )
    row(f"{where}: pods bound", f"{ours.pods_s:.0f} pods/s", f"{theirs.pods_s:.0f} pods/s")
    for share in (0.5, 0.99):
        mine, other = quantile(ours.gang_s, share), quantile(theirs.gang_s, share)
        row(f"{where}: posted to its last pod bound, p{100 * share:.0f}", f"{mine:.2f} s", f"{other:.2f} s")
    row(f"{where}: lowest tier that holds a gang, mean", f"{ours.tiers:.2f}", f"{theirs.tiers:.2f}")
    row(f"{where}: API writes a pod", f"{ours.writes:.2f}", f"{theirs.writes:.2f}")
    row(f"{where}: engine alone", f"{gangs * SIZE / decided.took_s:,.0f} pods/s decided")
    row(f"{where}: gates opened", f"{ours.opened_s:.0f} pods/s", "")
    row(f"{where}: binds, first to last", f"{ours.bound_s:.0f} pods/s", f"{theirs.bound_s:.0f} pods/s")
    for name in ours.cpu_ms:
        cpu = f"{theirs.cpu_ms[name]:.1f} ms" if name in theirs.cpu_ms else ""
        of_server, budget = "", ""
        if name == "collector":
            of_server = f"{ours.cpu_ms[name] / ours.cpu_ms['kube-apiserver']:.2f} x the API server's"
            budget = f"{OWN_BUDGET_MS:g} ms"
        row(f"{where}: processor time a pod, {name}", f"{ours.cpu_ms[name]:.1f} ms", cpu, of_server, budget)
    both = [sum(one.cpu_ms.values()) - one.cpu_ms["client"] for one in (ours, theirs)]
    ratio = f"{both[1] / both[0]:.1f} x less"
    row(f"{where}: processor time a pod, all but the client", f"{both[0]:.1f} ms", f"{both[1]:.1f} ms", ratio)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--gangs", type=int)
    parser.add_argument("--driven", action="store_true", help="by the least driver, not by the collector")
    chosen = parser.parse_args()
    for nodes, gangs in CASES:
        if chosen.nodes not in (None, nodes):
            continue
        with tempfile.TemporaryDirectory() as name, ControlPlane(Path(name) / "kube", GANG_OPTIONS) as plane:
            folder, count = Path(name) / "collector", chosen.gangs or gangs
            asyncio.run(compare(Cluster(plane), folder, nodes, count, driven=chosen.driven))


if __name__ == "__main__":
    main()
