"""Gangs on a discovered fabric: the real kube-scheduler places them by the labels and taints that we write.

A simulated fabric streams to a real collector, which labels the nodes of a real API server. kube-scheduler's
own topology-aware gangs (alpha in 1.36) then land inside one discovered domain each; a cable is cut, and the
next gangs go where the fabric is whole; it is put back, and the gang that waited gets its place.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hyperscout_sim.fabric import SimFabric
from hyperscout_sim.player import Player
from hyperscout_sim.shapes import rail_optimised
from kube.control_plane import Options
from support.collector_process import TIMEOUT_S, collector_process
from support.kubernetes import Cluster

GATES = ("GenericWorkload=true", "GangScheduling=true", "TopologyAwareWorkloadScheduling=true")
OPTIONS = Options(
    # Without the last one a pending gang is tried over and over, as fast as a core can.
    gates=(*GATES, "SchedulerPopFromBackoffQ=false"),
    runtime_config=("scheduling.k8s.io/v1alpha2=true",),
    controller_manager=True,  # PodGroups have a finalizer
    scheduler="",
    kwok=True,
)
FLAGS = (
    *("--kubernetes", "publish", "--node-labels", "on"),
    *("--taints", "on", "--taint-share", "0.1", "--taint-after-s", "0.2", "--taint-clear-after-s", "0.5"),
    *("--first-settle-s", "0.5", "--settle-s", "1", "--restart-grace-s", "0"),
    *("--quiet-s", "0.1", "--hold-down-s", "0.1"),
)
LEAF = "hyperscout.io/leaf"
TAINT = {"key": "hyperscout.io/degraded", "effect": "NoSchedule"}
PODS = "/api/v1/namespaces/default/pods"
GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
SIZE = 4


def submit(kube: Cluster, gang: str) -> None:
    """A gang of workers that take a whole node each and must share a leaf."""
    spec = {
        "schedulingPolicy": {"gang": {"minCount": SIZE}},
        "schedulingConstraints": {"topology": [{"key": LEAF}]},
    }
    kube.api.ask("POST", GROUPS, {"metadata": {"name": gang}, "spec": spec})
    container = {
        "name": "worker",
        "image": "none.invalid/worker",
        "resources": {"limits": {"nvidia.com/gpu": "8"}},
    }
    for rank in range(SIZE):
        pod: dict[str, Any] = {
            "metadata": {"name": f"{gang}-{rank}", "labels": {"gang": gang}},
            "spec": {"schedulingGroup": {"podGroupName": gang}, "containers": [container]},
        }
        kube.api.ask("POST", PODS, pod)


def workers(kube: Cluster, gang: str) -> list[Any]:
    return kube.api.items(f"{PODS}?labelSelector=gang%3D{gang}")


def placed(kube: Cluster, gang: str) -> list[str]:
    """The nodes of its workers when all run, else nothing."""
    pods = workers(kube, gang)
    running = [pod["spec"]["nodeName"] for pod in pods if pod["status"].get("phase") == "Running"]
    return sorted(running) if len(running) == SIZE else []


def refused(kube: Cluster, gang: str) -> bool:
    """Whether the scheduler has looked and found no place."""
    conditions = [c for pod in workers(kube, gang) for c in pod["status"].get("conditions", ())]
    return any(c["type"] == "PodScheduled" and c["status"] == "False" for c in conditions)


def tainted(kube: Cluster) -> dict[str, Any]:
    found = {n["metadata"]["name"]: n["spec"].get("taints") for n in kube.api.items("/api/v1/nodes")}
    return {name: taints for name, taints in found.items() if taints}


async def until(what: str, happens: Callable[[], Any], kube: Cluster) -> Any:
    """What it gives once that is something."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while not (found := await asyncio.to_thread(happens)):
                await asyncio.sleep(0.05)
            return found
    except TimeoutError:
        nodes = await kube.kubectl_async("get", "nodes", "--show-labels")
        pods = await kube.kubectl_async("get", "pods", "-o", "wide")
        raise AssertionError(f"never seen: {what}\n{nodes}\n{pods}\n{tainted(kube)}") from None


@asynccontextmanager
async def discovered(kube: Cluster, fabric: SimFabric, folder: Path) -> AsyncIterator[Player]:
    """The fabric, played to a collector that publishes into the cluster."""
    async with collector_process(folder, *FLAGS, "--kubeconfig", str(kube.kubeconfig)) as collector:
        player = Player(fabric, [collector.address], connections=4, refresh_interval_s=3600)
        task = asyncio.create_task(player.run())
        try:
            yield player
        except AssertionError as error:
            error.add_note(collector.said.decode())
            raise
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert await collector.stop() == 0


def label_values(kube: Cluster, nodes: Iterable[str]) -> dict[str, str]:
    found = {n["metadata"]["name"]: n["metadata"]["labels"] for n in kube.api.items("/api/v1/nodes")}
    return {name: found[name].get(LEAF, "") for name in nodes}


async def test_gangs_go_where_the_fabric_is_whole(own_kube: Callable[..., Cluster], tmp_path: Path) -> None:
    fabric = rail_optimised(2, SIZE, 2, 2, pods=2)  # 4 units of 4 nodes, 2 rails, 2 pods
    units = fabric.truth.tiers[0]
    unit_of = {host: i for i, unit in enumerate(units) for host in unit}
    kube = await asyncio.to_thread(own_kube, OPTIONS)
    kube.nodes(fabric.hosts)
    async with discovered(kube, fabric, tmp_path / "collector") as player:

        def labelled() -> bool:
            values = label_values(kube, fabric.hosts)
            return all(values.values()) and len(set(values.values())) == len(units)

        await until("labels of every leaf", labelled, kube)
        values = label_values(kube, fabric.hosts)
        assert {frozenset(n for n in values if values[n] == v) for v in values.values()} == set(units)
        assert set(values.values()) <= set(kube.hypernodes())

        async def lands(gang: str) -> int:
            """The unit that the gang is placed in: one, and all of it."""
            nodes = await until(f"gang {gang} runs", lambda: placed(kube, gang), kube)
            assert frozenset(nodes) in units, f"{gang} is on {nodes}"
            return unit_of[nodes[0]]

        await asyncio.to_thread(submit, kube, "first")
        taken = [await lands("first")]

        # A cable of a unit that is still free.
        victim = next(host for host in fabric.hosts if unit_of[host] not in taken)
        adapters = {adapter.guid for adapter in fabric.adapters_of()[victim]}
        cable = next(c for c in fabric.cables if adapters & {c.a, c.b})
        player.cut(cable)
        await until("the taint", lambda: tainted(kube) == {victim: [TAINT]}, kube)

        for gang in ("second", "third"):
            await asyncio.to_thread(submit, kube, gang)
            taken.append(await lands(gang))
        assert sorted([*taken, unit_of[victim]]) == [0, 1, 2, 3], "both where the fabric is whole"

        await asyncio.to_thread(submit, kube, "fourth")
        await until("there is no whole unit left", lambda: refused(kube, "fourth"), kube)
        assert placed(kube, "fourth") == []
        player.restore(cable)
        assert await lands("fourth") == unit_of[victim]
        assert tainted(kube) == {}
