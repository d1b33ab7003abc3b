"""HyperNodes in a real API server: how soon a cut cable shows in `kubectl get -w`, what a large tree costs.

The API server, etcd, the collector, a watching kubectl and the simulated agents share the machine's cores, so
the figures are for all of them together. The flips are of distinct links, so nothing is damped.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from random import Random

import grpc.aio
from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.topology_pb2_grpc import TopologyServiceStub

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from hyperscout_kubernetes.client import connect
from hyperscout_kubernetes.nodes import Nodes
from hyperscout_publish.hypernodes.kubernetes import KubernetesPublisher
from hyperscout_sim.agents.player import Player
from hyperscout_sim.fabric.shapes import rail_optimised
from hyperscout_topology.topology import Condition, HyperNode, Topology
from kube.control_plane import ControlPlane
from support.bench_rows import p99, row
from support.collector_process import CHANNEL_OPTIONS, collector_process
from support.kubernetes import Cluster
from support.published import condition, published, status_at

FLIPS = 500
LARGE_NODES, LARGE_LEAVES = 10_000, 499
TIMEOUT_S = 120.0
NOW_NS = 1_800_000_000_000_000_000


async def latency(kube: Cluster, folder: Path) -> None:
    """Cut 500 host links of 1,000 nodes, one after the other."""
    fabric = rail_optimised(4, 32, 4, 4, pods=8)
    hosts = fabric.hosts[:1000]
    await asyncio.to_thread(kube.nodes, fabric.hosts)
    flags = ("--kubernetes", "publish", "--kubeconfig", str(kube.kubeconfig))
    seen_ns: dict[str, int] = {}
    async with collector_process(folder, *flags) as collector, published(kube) as seen:
        player = Player(fabric, [collector.address], connections=16, refresh_interval_s=3600)
        playing = asyncio.create_task(player.run())
        async with asyncio.timeout(TIMEOUT_S):
            while not (player.settled and len(player.agents) == len(fabric.hosts)):
                await asyncio.sleep(0.05)
        await seen.until(
            lambda now: all(status_at(now, n, "Degraded")[0] == "False" for n in hosts[::50]),
            "a healthy tree",
        )
        first = {cable.a: cable for cable in fabric.cables} | {cable.b: cable for cable in fabric.cables}
        adapter = {}
        for a in fabric.adapters:
            adapter.setdefault(a.host, a)
        writes = kube.writes("hypernodes")
        for host in hosts[:: len(hosts) // FLIPS][:FLIPS]:
            before = {name: condition(h, "Degraded")[1] for name, h in seen.now.items()}
            player.cut(first[adapter[host].guid])
            await seen.until(
                lambda now, old=before: any(
                    condition(h, "Degraded")[1] != old.get(n) for n, h in now.items()
                ),
                f"{host}'s cut cable",
            )
            seen_ns[host] = time.time_ns()
        await asyncio.sleep(1)
        writes = kube.writes("hypernodes") - writes
        took = [
            (seen_ns[host] - came_ns) / 1e9
            for host, came_ns in (await arrived(collector.address, set(seen_ns)))
        ]
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)
    row(
        f"finding received -> kubectl get -w, {len(fabric.hosts)} nodes, median of {len(took)} flips",
        f"{statistics.median(took) * 1000:.0f} ms",
    )
    row("finding received -> kubectl get -w, p99", f"{p99(took):.2f} s", "", "", "1 s")
    row(
        "writes to HyperNodes for these flips",
        f"{writes}",
        f"{len(took)} flips",
        f"{writes / len(took):.2f} x",
    )


async def arrived(address: str, hosts: set[str]) -> list[tuple[str, int]]:
    """When (Unix ns) the finding of each host's dead port came in."""
    found = []
    async with grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
        service = TopologyServiceStub(channel)
        for host in sorted(hosts):
            held = await service.ListFindings(pb.ListFindingsRequest(node=host, probe="infiniband"))
            down = [x for x in held.findings if x.finding.infiniband.state == "DOWN"]
            found.append((host, max(x.received_at.ToNanoseconds() for x in down)))
    return found


def large() -> Topology:
    """500 HyperNodes, 10,000 nodes."""
    good = tuple(
        Condition(kind, status, "AsItShould", "as it should be", NOW_NS)
        for kind, status in (
            ("Ready", "True"),
            ("Degraded", "False"),
            ("Consistent", "True"),
            ("Stale", "False"),
        )
    )
    nodes = [f"node-{i:05d}" for i in range(LARGE_NODES)]
    leaves = [
        HyperNode(f"leaf-{i:03d}", 1, "leaf", "core", (), tuple(nodes[i::LARGE_LEAVES]), (), good)
        for i in range(LARGE_LEAVES)
    ]
    core = HyperNode("core", 2, "core", None, tuple(h.name for h in leaves), tuple(nodes), (), good)
    return Topology(1, (*leaves, core))


async def scale(kube: Cluster) -> None:
    topology = large()
    bad = Condition("Degraded", "True", "LinksDown", "1 of 80 links down", NOW_NS)
    first = topology.hypernodes[0]
    cut = replace(first, conditions=tuple(bad if c.type == "Degraded" else c for c in first.conditions))
    changed = replace(topology, hypernodes=(cut, *topology.hypernodes[1:]))
    async with await connect(kube.kubeconfig) as client:
        nodes = Nodes(client, "", rng=Random(0))
        publisher = KubernetesPublisher(
            client, nodes, rng=Random(0), clock_ns=lambda: NOW_NS, timer=time.monotonic
        )
        tasks = [asyncio.create_task(publisher.run()), asyncio.create_task(nodes.reflector.run())]
        began = time.perf_counter()
        await publisher.publish(topology)
        took = time.perf_counter() - began
        row(f"first publish, {LARGE_LEAVES + 1} HyperNodes, {LARGE_NODES} nodes", f"{took:.1f} s")
        await asyncio.sleep(0.5)
        before, began, cpu = kube.writes("hypernodes"), time.perf_counter(), time.process_time()
        rounds = 20
        for _ in range(rounds):
            await publisher.publish(topology)
        cpu = (time.process_time() - cpu) / rounds
        row("the same again, writes", f"{kube.writes('hypernodes') - before}", "0", "", "")
        row("the same again, processor time of one look", f"{cpu * 1000:.0f} ms")
        before, began = kube.writes("hypernodes"), time.perf_counter()
        await publisher.publish(changed)
        took = time.perf_counter() - began
        row("one cut cable, writes", f"{kube.writes('hypernodes') - before}", "1", "", "")
        row("one cut cable, until it is written", f"{took * 1000:.0f} ms")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for number, part in enumerate((lambda k: latency(k, Path(folder) / "data"), scale)):
            with ControlPlane(Path(folder) / f"kube-{number}") as plane:
                asyncio.run(part(Cluster(plane)))


if __name__ == "__main__":
    main()
