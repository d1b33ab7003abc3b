"""Gangs of pods in a real API server: post them, see when each is opened and bound, take them away again."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from hyperscout_gates.state.gang import GANG_LABEL, GATE, HIGHEST_TIER, SIZE_LABEL
from hyperscout_kubernetes.client import Kube

PODS = "/api/v1/namespaces/default/pods"
GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
CONNECTIONS = 16
Object = dict[str, Any]
_TTLS = ((100, 0), (500, 15), (1000, 30), (2000, 60), (10_000, 300))  # by nodes of the cluster


def gated(gang: str, size: int, tier: str) -> list[tuple[str, Object]]:
    """What to post, and where: pods behind hyperscout's gate, the gang to lie in one domain of the tier."""
    labels = {GANG_LABEL: gang, SIZE_LABEL: str(size), "gang": gang}
    spec = {"schedulingGates": [{"name": GATE}], **_one_node()}
    return [
        (
            PODS,
            {
                "metadata": {
                    "name": f"{gang}-{rank}",
                    "labels": labels,
                    "annotations": {HIGHEST_TIER: tier},
                },
                "spec": spec,
            },
        )
        for rank in range(size)
    ]


def grouped(gang: str, size: int, key: str) -> list[tuple[str, Object]]:
    """The same for kube-scheduler's own gangs: a PodGroup whose pods share a value of one label of nodes."""
    policy = {"gang": {"minCount": size}}
    group = {"schedulingPolicy": policy, "schedulingConstraints": {"topology": [{"key": key}]}}
    spec = {"schedulingGroup": {"podGroupName": gang}, **_one_node()}
    posts = [(GROUPS, {"metadata": {"name": gang}, "spec": group})]
    pods = [{"metadata": {"name": f"{gang}-{rank}", "labels": {"gang": gang}}} for rank in range(size)]
    posts += [(PODS, pod | {"spec": spec}) for pod in pods]
    return posts


def _one_node() -> Object:
    container = {
        "name": "worker",
        "image": "none.invalid/worker",
        "resources": {"limits": {"nvidia.com/gpu": "8"}},
    }
    return {"containers": [container]}


def node(name: str, labels: Mapping[str, str], cluster: int) -> tuple[str, Object]:
    """A node that is ready. What the controller manager would note on each in a `cluster` of so many nodes,
    twenty a second while the programs are measured, is there already."""
    room = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
    ttl_s = next(ttl_s for most, ttl_s in _TTLS if cluster <= most)
    status = {
        "capacity": room,
        "allocatable": room,
        "conditions": [{"type": "Ready", "status": "True", "reason": "Test"}],
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
    }
    metadata = {
        "name": name,
        "labels": {"kubernetes.io/hostname": name, **labels},
        "annotations": {"node.alpha.kubernetes.io/ttl": str(ttl_s)},
    }
    return "/api/v1/nodes", {"metadata": metadata, "status": status}


async def at_once(work: Iterable[Callable[[], Awaitable[Any]]], connections: int = CONNECTIONS) -> None:
    """All of it in order, some at a time."""
    rest = iter(list(work))

    async def some() -> None:
        for call in rest:
            await call()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(connections):
            tasks.create_task(some())


async def post(kube: Kube, gangs: Sequence[Sequence[tuple[str, Object]]]) -> list[float]:
    """Post gang by gang; returns when the last pod of each was taken."""
    done = [0.0] * len(gangs)

    async def one(number: int, path: str, body: Object) -> None:
        await kube.write("POST", path, body, timeout_s=60.0)
        done[number] = max(done[number], time.perf_counter())

    await at_once([lambda n=n, p=p, b=b: one(n, p, b) for n, gang in enumerate(gangs) for p, b in gang])
    return done


@dataclass(slots=True)
class Seen:
    """When (performance counter) a pod was first seen without gates, and bound; and where."""

    opened_s: dict[str, float] = field(default_factory=dict)
    bound_s: dict[str, float] = field(default_factory=dict)
    node: dict[str, str] = field(default_factory=dict)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def until_bound(self, pods: Iterable[str], timeout_s: float) -> bool:
        """Whether they all were, in time."""
        wanted = set(pods)
        try:
            async with asyncio.timeout(timeout_s), self.changed:
                await self.changed.wait_for(lambda: wanted <= self.bound_s.keys())
        except TimeoutError:
            return False
        return True

    def by_gang(self) -> Mapping[str, list[str]]:
        """Bound pods of each gang, by rank."""
        found: dict[str, list[str]] = {}
        for pod in sorted(self.bound_s):
            found.setdefault(pod.rpartition("-")[0], []).append(pod)
        return found


@asynccontextmanager
async def seen(kube: Kube) -> AsyncIterator[Seen]:
    """A watch on all pods from now on."""
    what = Seen()
    _, version = await kube.list(PODS)

    async def watch() -> None:
        nonlocal version
        # A server under load ends streams that are read slowly: go on from where it ended.
        while True:
            async for event in kube.watch(PODS, version):
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] in ("ADDED", "MODIFIED"):
                    await note(event["object"])

    async def note(pod: Object) -> None:
        now_s = time.perf_counter()
        name, spec = pod["metadata"]["name"], pod["spec"]
        if not spec.get("schedulingGates"):
            what.opened_s.setdefault(name, now_s)
        if spec.get("nodeName") and name not in what.bound_s:
            what.bound_s[name], what.node[name] = now_s, spec["nodeName"]
            async with what.changed:
                what.changed.notify_all()

    task = asyncio.create_task(watch())
    try:
        yield what
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def clear(kube: Kube, timeout_s: float = 120.0) -> None:
    """No pods, no groups, and none left on their way out."""
    async with asyncio.timeout(timeout_s):
        await kube.write("DELETE", PODS, query={"gracePeriodSeconds": 0}, timeout_s=60.0)
        while (await kube.get(PODS, {"limit": 1}, timeout_s=60.0)).get("items"):
            await asyncio.sleep(0.1)
        await kube.write("DELETE", GROUPS, timeout_s=60.0)
        while (await kube.get(GROUPS, {"limit": 1}, timeout_s=60.0)).get("items"):
            await asyncio.sleep(0.1)
