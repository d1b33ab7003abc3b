"""From a cable to `kubectl get hypernodes`: a real collector, a real API server, a real kubectl watching."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.topology_pb2_grpc import TopologyServiceStub
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_sim.fabric.shapes import rail_optimised
from kube.recorder import recording
from support.collector_process import CHANNEL_OPTIONS, CollectorProcess, collector_process
from support.collectors import playing
from support.kubernetes import Cluster
from support.published import (
    Object,
    Published,
    condition,
    conditions_of,
    leaf_of,
    published,
    status_at,
)
from support.waiting import TIMEOUT_S, eventually

FLAGS = ("--settle-s", "1.5", "--hold-down-s", "0.1", "--restart-grace-s", "0")
FLAGS = (*FLAGS, "--hold-down-s", "0.1")


@asynccontextmanager
async def collector(kube: Cluster, folder: Path, *flags: str) -> AsyncIterator[CollectorProcess]:
    """One that publishes into the cluster."""
    words = ("--kubernetes", "publish", "--kubeconfig", str(kube.kubeconfig), *FLAGS, *flags)
    async with collector_process(folder, *words) as process:
        yield process


def fabric_of() -> SimFabric:
    """32 nodes, 2 rails, 2 pods of 2 units."""
    return rail_optimised(2, 8, 2, 2, pods=2)


async def tree_of(seen: Published, fabric: SimFabric) -> None:
    """Until every node is in a healthy leaf."""
    await seen.until(
        lambda now: all(
            status_at(now, n, "Ready")[0] == "True" and status_at(now, n, "Degraded")[0] == "False"
            for n in fabric.hosts
        ),
        "a healthy tree",
    )


async def test_a_cut_cable_turns_a_condition_and_back(kube: Cluster, tmp_path: Path) -> None:
    fabric = fabric_of()
    kube.nodes(fabric.hosts)
    async with published(kube) as seen, collector(kube, tmp_path) as process:
        async with playing(process.address, fabric, connections=4) as player:
            await tree_of(seen, fabric)
            adapter = fabric.adapters[0]
            cable = next(c for c in fabric.cables if adapter.guid in (c.a, c.b))
            player.cut(cable)
            _, message = await seen.until(
                lambda now: (found := status_at(now, adapter.host, "Degraded"))[0] == "True" and found,
                "Degraded",
            )
            assert "1 of 16 host links down" in message
            assert adapter.host in message
            shown = kube.kubectl("get", "hypernodes")
            assert "LinksDown" in shown
            player.restore(cable)
            await tree_of(seen, fabric)
        assert await process.stop() == 0
    assert {h["spec"]["tier"] for h in seen.now.values()} == {1, 2, 3}


async def test_what_happens_to_a_node_shows(kube: Cluster, tmp_path: Path) -> None:
    fabric = fabric_of()
    node, other = fabric.hosts[0], fabric.hosts[1]
    kube.nodes(fabric.hosts)
    async with (
        published(kube) as seen,
        collector(kube, tmp_path) as process,
        playing(process.address, fabric, connections=4),
    ):
        await tree_of(seen, fabric)

        async def shows(word: str) -> None:
            await seen.until(
                lambda now: (
                    word in status_at(now, other, "Ready")[1] and status_at(now, other, "Ready")[0] == "False"
                ),
                f"Ready False: {word}",
            )

        kube.cordon(node)
        await shows(f"{node} (cordoned)")
        kube.cordon(node, unschedulable=False)
        await seen.until(lambda now: status_at(now, other, "Ready")[0] == "True", "Ready again")
        kube.set_ready(node, ready=False)
        await shows(f"{node} (NotReady: Test)")
        kube.set_ready(node, ready=True)
        await seen.until(lambda now: status_at(now, other, "Ready")[0] == "True", "Ready again")
        kube.delete_node(node)
        await shows(f"{node} (no such node)")
        await seen.until(lambda now: not leaf_of(now, node), "it has left its HyperNode")
        await seen.until(lambda now: status_at(now, other, "Ready")[0] == "True", "Ready without it")
        assert "7 of 7" in status_at(seen.now, other, "Ready")[1]
        kube.nodes([node])
        await seen.until(lambda now: leaf_of(now, node) == leaf_of(now, other), "it is back")


THEIRS = """
apiVersion: topology.volcano.sh/v1alpha1
kind: HyperNode
metadata: {name: theirs}
spec: {tier: 1, members: [{type: Node, selector: {regexMatch: {pattern: "^NODE$"}}}]}
"""


def reasons(kube: Cluster, name: str) -> set[str]:
    events = kube.api.items("/api/v1/namespaces/default/events")
    return {e["reason"] for e in events if e["involvedObject"]["name"] == name}


def tiers_of(kube: Cluster, node: str) -> dict[str, str]:
    """The labels of a node that name its domains."""
    labels = kube.api.ask("GET", f"/api/v1/nodes/{node}")["metadata"]["labels"]
    return {key: value for key, value in labels.items() if key.startswith("hyperscout.io/")}


async def test_another_owner_s_hypernode_is_reported_and_removes_nothing(
    kube: Cluster, tmp_path: Path
) -> None:
    """This also holds for a collector that takes over with nothing but the cluster."""
    fabric = fabric_of()
    node = fabric.hosts[0]
    kube.nodes(fabric.hosts)
    labels = ("--node-labels", "on")

    def overlaps(now: Mapping[str, Object]) -> bool:
        return status_at(now, node, "Consistent")[0] == "False"

    async with published(kube) as seen:
        async with collector(kube, tmp_path / "a", *labels) as process:
            async with playing(process.address, fabric, connections=4):
                await tree_of(seen, fabric)
                await eventually(lambda: "hyperscout.io/core" in tiers_of(kube, node))
                before = {name: h["spec"] for name, h in seen.now.items()}
                labelled = tiers_of(kube, node)
                kube.apply(THEIRS.replace("NODE", node))
                await seen.until(overlaps, "Consistent False")
                _, message = status_at(seen.now, node, "Consistent")
                assert message.startswith("overlaps: HyperNode theirs, which hyperscout does not manage")
                (reason,) = (
                    c["reason"] for c in conditions_of(leaf_of(seen.now, node)) if c["type"] == "Consistent"
                )
                assert reason == "Overlap"
                await eventually(lambda: "Overlap" in reasons(kube, "theirs"))
            assert await process.stop() == 0
        async with (
            recording(kube.plane) as recorder,
            collector(kube, tmp_path / "b", *labels) as process,
            playing(process.address, fabric, connections=4) as player,
        ):
            adapter = fabric.adapters[-1]
            player.cut(next(c for c in fabric.cables if adapter.guid in (c.a, c.b)))
            await seen.until(lambda now: status_at(now, adapter.host, "Degraded")[0] == "True", "Degraded")
            assert overlaps(seen.now)
            assert {n: h["spec"] for n, h in seen.now.items() if n != "theirs"} == before
            assert tiers_of(kube, node) == labelled
            assert {event.what for event in recorder.events} == {"changed"}
            leaf = leaf_of(seen.now, node)["metadata"]["name"]
            shown = {
                condition(e.after, "Consistent")[0] for e in recorder.events if e.after and e.name == leaf
            }
            assert shown <= {"False"}, "the overlap stays reported during the take-over"
            kube.kubectl("delete", "hn", "theirs")
            await seen.until(lambda now: status_at(now, node, "Consistent")[0] == "True", "Consistent")


async def test_yield_removes_domains_and_labels_that_overlap(kube: Cluster, tmp_path: Path) -> None:
    fabric = fabric_of()
    node, other = fabric.hosts[0], fabric.hosts[-1]
    kube.nodes(fabric.hosts)
    async with (
        published(kube) as seen,
        collector(kube, tmp_path, "--node-labels", "on", "--overlap", "yield") as process,
        playing(process.address, fabric, connections=4),
    ):
        await tree_of(seen, fabric)
        await eventually(lambda: len(tiers_of(kube, node)) == len(tiers_of(kube, other)) == 3)
        kube.apply(THEIRS.replace("NODE", node))
        await seen.until(lambda now: not leaf_of(now, node), "the leaf of the node is gone")
        await seen.until(lambda now: {h["spec"]["tier"] for h in now.values()} == {1, 2}, "no root")
        await eventually(lambda: not tiers_of(kube, node))
        await eventually(lambda: len(tiers_of(kube, other)) == 2)
        kube.kubectl("delete", "hn", "theirs")
        await tree_of(seen, fabric)
        await eventually(lambda: len(tiers_of(kube, node)) == 3)


async def until_troubled(address: str) -> None:
    """Until the collector says that it cannot publish."""
    async with (
        asyncio.timeout(TIMEOUT_S),
        grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as channel,
    ):
        service = TopologyServiceStub(channel)
        while not any("kubernetes" in x for x in (await service.GetStatus(pb.GetStatusRequest())).problems):
            await asyncio.sleep(0.05)


async def test_an_api_server_that_is_away_costs_nothing_but_time(
    own_kube: Callable[[], Cluster], tmp_path: Path
) -> None:
    kube = own_kube()
    fabric = fabric_of()
    kube.nodes(fabric.hosts)
    async with (
        collector(kube, tmp_path) as process,
        playing(process.address, fabric, connections=4) as player,
    ):
        async with published(kube) as seen:
            await tree_of(seen, fabric)
        await asyncio.to_thread(kube.plane.kill_apiserver)
        adapter = fabric.adapters[0]
        cable = next(c for c in fabric.cables if adapter.guid in (c.a, c.b))
        player.cut(cable)
        await until_troubled(process.address)
        await asyncio.to_thread(kube.plane.start_apiserver)
        await asyncio.to_thread(kube.plane.await_ready)
        async with published(kube) as seen:
            await seen.until(lambda now: status_at(now, adapter.host, "Degraded")[0] == "True", "Degraded")
