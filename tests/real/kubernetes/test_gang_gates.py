"""Gangs behind their gates end to end: two replicas of the real collector, a played fabric, a real cluster.

The leader is killed with kill -9 while it opens gates; the other one finishes them on the same plans.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from hyperscout_sim.fabric.shapes import rail_optimised
from kube.control_plane import Options
from support.chart import NAMESPACE
from support.collector_process import CollectorProcess, collector_process
from support.collectors import playing
from support.gates import OWN, PODS, Seen, make_namespace, pins, post_gang
from support.kubernetes import Cluster
from support.real import require_real

require_real("kubernetes")

NAMES = ("one", "two")
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/hyperscout-collector"
SIZE = 4
GANGS = [f"gang{i}" for i in range(12)]
FLAGS = (
    *("--kubernetes", "publish", "--gates", "on", "--settle-s", "1"),
    *("--restart-grace-s", "0", "--takeover-limit-s", "60", "--leader-election"),
    *("--lease-namespace", NAMESPACE, "--lease-duration-s", "8", "--gates-namespace", OWN),
)


@asynccontextmanager
async def replicas(kube: Cluster, folder: Path) -> AsyncIterator[list[CollectorProcess]]:
    async with AsyncExitStack() as stack:
        found = []
        for name in NAMES:
            words = ("--kubeconfig", str(kube.kubeconfig), "--identity", name, "--advertise", "127.0.0.1:1")
            found.append(await stack.enter_async_context(collector_process(folder / name, *words, *FLAGS)))
        yield found


async def test_the_other_replica_finishes_what_the_killed_leader_began(
    own_kube: Callable[..., Cluster], tmp_path: Path
) -> None:
    fabric = rail_optimised(4, 12, 2, 2, pods=2)
    leaves = [frozenset(unit) for unit in fabric.truth.tiers[0]]
    kube = await asyncio.to_thread(own_kube, Options(scheduler="", kwok=True))
    make_namespace(kube)
    kube.service_account("collector", NAMESPACE)
    kube.nodes(fabric.hosts)
    seen = Seen(kube)
    async with (
        replicas(kube, tmp_path) as both,
        playing([one.address for one in both], fabric, connections=2),
    ):
        await seen.until("HyperNodes", kube.hypernodes)
        for gang in GANGS:
            await asyncio.to_thread(post_gang, kube, gang, SIZE, "1")

        def opened() -> dict[str, str]:
            return pins(kube.api.items(PODS))

        before = await seen.until("a gate is open", opened)
        holder = kube.api.ask("GET", LEASE)["spec"]["holderIdentity"]  # both may have led by now
        both[NAMES.index(holder.partition("_")[0])].kill()
        before |= opened()
        nodes = {}
        for gang in GANGS:
            nodes[gang] = await seen.until(f"{gang} runs", lambda g=gang: seen.nodes(g, SIZE))
        assert before.items() <= opened().items(), "a pod that was sent somewhere is elsewhere"
    for gang, where in nodes.items():
        assert any(set(where) <= leaf for leaf in leaves), f"{gang} is on {where}"
    everywhere = [node for where in nodes.values() for node in where]
    assert len(set(everywhere)) == len(everywhere), "two pods with all GPUs of one node"
    assert len(seen.plans()) == len(GANGS)
