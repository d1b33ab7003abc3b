"""Gangs of kube-scheduler's own (alpha in 1.36) on a fabric that a real collector discovers and labels.

Every worker takes a whole node; all nodes of a gang must have the same value of one label.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hyperscout_sim.agents.player import Player
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_sim.fabric.nvlink import Gpus
from kube.api import MERGE
from kube.control_plane import Options

from support.collector_process import collector_process
from support.collectors import playing
from support.kubernetes import Cluster
from support.waiting import until_awaited

_GATES = ("GenericWorkload=true", "GangScheduling=true", "TopologyAwareWorkloadScheduling=true")
GANG_OPTIONS = Options(
    # Without the last one a pending gang is tried over and over, as fast as a core can.
    gates=(*_GATES, "SchedulerPopFromBackoffQ=false"),
    runtime_config=("scheduling.k8s.io/v1alpha2=true",),
    controller_manager=True,  # PodGroups have a finalizer
    scheduler="",
    kwok=True,
)
LABELLING = (
    *("--kubernetes", "publish", "--node-labels", "on"),
    *("--taints", "on", "--taint-share", "0.1", "--taint-after-s", "0.2", "--taint-clear-after-s", "0.5"),
    *("--settle-s", "1", "--hold-down-s", "0.1", "--restart-grace-s", "0"),
)
TAINT = {"key": "hyperscout.io/degraded", "effect": "NoSchedule"}
_PODS = "/api/v1/namespaces/default/pods"
_GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"


class Gangs:
    """Gangs whose workers take `gpus` GPUs each (all of a node) and must share a value of label `key`."""

    def __init__(self, kube: Cluster, key: str, gpus: int = 8) -> None:
        self._kube = kube
        self._key = key
        self._gpus = str(gpus)

    def submit(self, gang: str, size: int) -> None:
        spec = {
            "schedulingPolicy": {"gang": {"minCount": size}},
            "schedulingConstraints": {"topology": [{"key": self._key}]},
        }
        self._kube.api.ask("POST", _GROUPS, {"metadata": {"name": gang}, "spec": spec})
        container = {
            "name": "worker",
            "image": "none.invalid/worker",
            "resources": {"limits": {"nvidia.com/gpu": self._gpus}},
        }
        for rank in range(size):
            pod: dict[str, Any] = {
                "metadata": {"name": f"{gang}-{rank}", "labels": {"gang": gang}},
                "spec": {"schedulingGroup": {"podGroupName": gang}, "containers": [container]},
            }
            self._kube.api.ask("POST", _PODS, pod)

    def finish(self, gang: str) -> None:
        """Set its pods to Succeeded, which frees their nodes."""
        for pod in self._workers(gang):
            path = f"{_PODS}/{pod['metadata']['name']}/status"
            self._kube.api.ask("PATCH", path, {"status": {"phase": "Succeeded"}}, content=MERGE)

    def nodes_of(self, gang: str) -> list[str]:
        """The nodes of its workers when all run, else nothing."""
        pods = self._workers(gang)
        running = [pod["spec"]["nodeName"] for pod in pods if pod["status"].get("phase") == "Running"]
        return sorted(running) if len(running) == len(pods) else []

    def refused(self, gang: str) -> bool:
        """Whether the scheduler has looked and found no place."""
        conditions = [c for pod in self._workers(gang) for c in pod["status"].get("conditions", ())]
        return any(c["type"] == "PodScheduled" and c["status"] == "False" for c in conditions)

    def _workers(self, gang: str) -> list[Any]:
        return self._kube.api.items(f"{_PODS}?labelSelector=gang%3D{gang}")


def tainted(kube: Cluster) -> dict[str, Any]:
    found = {n["metadata"]["name"]: n["spec"].get("taints") for n in kube.api.items("/api/v1/nodes")}
    return {name: taints for name, taints in found.items() if taints}


def label_values(kube: Cluster, key: str) -> dict[str, str]:
    """Node -> its value of a label, "" where it has none."""
    nodes = kube.api.items("/api/v1/nodes")
    return {n["metadata"]["name"]: n["metadata"]["labels"].get(key, "") for n in nodes}


async def until(what: str, happens: Callable[[], Any], kube: Cluster) -> Any:
    """Return the first true result."""

    def instead() -> str:
        nodes = kube.kubectl("get", "nodes", "--show-labels")
        return f"{what}\n{nodes}\n{kube.kubectl('get', 'pods', '-o', 'wide')}\n{tainted(kube)}"

    return await until_awaited(lambda: asyncio.to_thread(happens), instead, pause_s=0.05)


@asynccontextmanager
async def discovered(
    kube: Cluster, fabric: SimFabric, folder: Path, gpus: Mapping[str, Gpus] | None = None
) -> AsyncIterator[Player]:
    """The fabric, played to a collector that publishes into the cluster and labels its nodes."""
    async with collector_process(folder, *LABELLING, "--kubeconfig", str(kube.kubeconfig)) as collector:
        try:
            async with playing(collector.address, fabric, gpus=gpus, connections=4) as player:
                yield player
        except AssertionError as error:
            error.add_note(collector.said.decode())
            raise
        assert await collector.stop() == 0
