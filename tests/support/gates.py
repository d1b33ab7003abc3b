"""The gate controller against a real API server, in the test's own process, and gangs of pods for it."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from hyperscout_gates.control.controller import Gates, Mode
from hyperscout_gates.control.pods import PLACED
from hyperscout_gates.state.gang import GANG_LABEL, HIGHEST_TIER, SIZE_LABEL
from hyperscout_gates.state.gang_plan import SELECTOR
from hyperscout_gates.state.gang_state import GateSettings
from hyperscout_kubernetes.client import Fence, Kube, connect
from hyperscout_kubernetes.nodes import Nodes
from hyperscout_placer.book.placements import Placements
from hyperscout_placer.demands.node_masks import NodeMasks
from hyperscout_runtime.event_log import EventLog
from hyperscout_topology.topology import Topology
from kube.api import MERGE, ApiError, all_at_once

from support.chart import NAMESPACE, RELEASE, render
from support.kube_objects import Object, pod
from support.kubernetes import Cluster
from support.waiting import TIMEOUT_S, until_awaited

OWN = "hyperscout-gangs"  # the namespace of plans, as the chart names it
PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
SETS = "/apis/apps/v1/namespaces/default/replicasets"
PLANS = f"/api/v1/namespaces/{OWN}/configmaps?labelSelector={SELECTOR}"
_NOW = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}


class Controller:
    """`said`: what a dry run printed."""

    def __init__(
        self, kube: Kube, topology: Topology, mode: Mode, settings: GateSettings, selector: str
    ) -> None:
        self.said: list[str] = []
        self._in_flight = 0
        self._count_requests(kube)
        self.nodes = Nodes(kube, selector, rng=Random(1))
        self.placements = Placements(clock_ns=time.time_ns, timer=time.perf_counter)
        masks = NodeMasks(self.nodes.get)
        self.nodes.changed.subscribe(masks.node_changed)
        self.gates = Gates(
            kube,
            self.nodes,
            OWN,
            mode,
            settings,
            self.said.append,
            self.placements,
            masks,
            EventLog("gang"),
            rng=Random(1),
        )
        self.nodes.changed.subscribe(self.gates.node_changed)
        self.placements.set_topology(topology)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        services = {"nodes": self.nodes.reflector.run, **self.gates.services}
        self._tasks = [asyncio.create_task(run(), name=name) for name, run in services.items()]

    def _count_requests(self, kube: Kube) -> None:
        ask = kube._ask

        async def counted(*words: Any) -> Object:
            self._in_flight += 1
            try:
                return await ask(*words)
            finally:
                self._in_flight -= 1

        kube.__dict__["_ask"] = counted

    async def kill(self) -> None:
        """Between two requests: a connection that is cut while it is made leaves a socket behind."""
        async with asyncio.timeout(TIMEOUT_S):
            while self._in_flight:
                await asyncio.sleep(0.002)
        for task in self._tasks:
            task.cancel()
        for ended in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended


class Dying:
    """Lets so many writes of plans and pods through, and `spent` is set when they are done: the next ones are
    never sent."""

    def __init__(self, writes: int) -> None:
        self._left = writes
        self._to_come = writes
        self.spent = asyncio.Event()

    def hook(self, kube: Kube) -> None:
        write = kube.write

        async def hooked(method: str, path: str, *rest: Any, **options: Any) -> Object:
            self._left -= not path.endswith("/events")
            if self._left < 0 or path.endswith("/events"):
                await asyncio.Event().wait()
            found = await write(method, path, *rest, **options)
            self._to_come -= 1
            if not self._to_come:
                self.spent.set()
            return found

        kube.__dict__["write"] = hooked


@asynccontextmanager
async def controller(
    kubeconfig: Path,
    topology: Topology,
    mode: Mode = "on",
    *,
    settings: GateSettings | None = None,
    fence: Fence | None = None,
    dying: Dying | None = None,
    selector: str = "",
) -> AsyncIterator[Controller]:
    """One that runs until the end of the block, if it is not killed before."""
    async with await connect(kubeconfig) as kube:
        fenced = kube.fenced(fence) if fence is not None else kube
        if dying is not None:
            dying.hook(fenced)
        found = Controller(fenced, topology, mode, settings or GateSettings(), selector)
        found.start()
        try:
            yield found
        finally:
            await found.kill()


def gang_pod(name: str, labels: Object | None = None, *, gpus: int = 8, **spec: Any) -> Object:
    """A gated pod that takes GPUs."""
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}}
    container = {"name": "worker", "image": "none.invalid/worker", "resources": resources}
    return pod(name, {"containers": [container], **spec}, labels=labels or {})


def post_gang(kube: Cluster, gang: str, size: int, tier: str = "", **spec: Any) -> None:
    """Plain pods with labels and no owner."""
    labels = {GANG_LABEL: gang, SIZE_LABEL: str(size)}
    bodies = [gang_pod(f"{gang}-{rank}", labels, **spec) for rank in range(size)]
    for body in bodies:
        body["metadata"]["annotations"] = {HIGHEST_TIER: tier} if tier else {}
    all_at_once([lambda b=body: kube.api.ask("POST", PODS, b) for body in bodies])


def post_job(
    kube: Cluster, name: str, size: int, tier: str = "", annotations: Object | None = None, **spec: Any
) -> None:
    """An Indexed Job, whose pods the controller manager makes. `annotations`: of its pods."""
    template = gang_pod("", restartPolicy="Never", **spec)
    template["metadata"] = {"labels": {"job": name}, "annotations": annotations or {}}
    annotations = {HIGHEST_TIER: tier} if tier else {}
    of = {"completions": size, "parallelism": size, "completionMode": "Indexed", "backoffLimit": 20}
    body = {"metadata": {"name": name, "annotations": annotations}, "spec": {**of, "template": template}}
    kube.api.ask("POST", JOBS, body)


def post_replicas(kube: Cluster, name: str, size: int, tier: str, **spec: Any) -> None:
    """A ReplicaSet whose pods say by labels that they are a gang; it makes them again at once."""
    labels = {GANG_LABEL: name, SIZE_LABEL: str(size)}
    template = gang_pod("", labels, **spec)
    template["metadata"] = {"labels": labels, "annotations": {HIGHEST_TIER: tier}}
    of = {"replicas": size, "selector": {"matchLabels": labels}, "template": template}
    kube.api.ask("POST", SETS, {"metadata": {"name": name}, "spec": of})


class Seen:
    """What is there of gangs."""

    def __init__(self, kube: Cluster) -> None:
        self._kube = kube

    def pods(self, gang: str) -> list[Object]:
        found = self._kube.api.items(PODS)
        return [p for p in found if p["metadata"]["name"].startswith(f"{gang}-")]

    def live(self, gang: str) -> list[Object]:
        return [
            p
            for p in self.pods(gang)
            if "deletionTimestamp" not in p["metadata"]
            and p["status"].get("phase") not in ("Succeeded", "Failed")
        ]

    def gated(self, gang: str) -> int:
        return sum(1 for p in self.live(gang) if p["spec"].get("schedulingGates"))

    def nodes(self, gang: str, size: int) -> list[str]:
        """Where all so many pods are bound; else nothing."""
        found = sorted(p["spec"].get("nodeName", "") for p in self.live(gang))
        return found if len(found) == size and all(found) else []

    def plans(self) -> list[Object]:
        try:
            return self._kube.api.items(PLANS)
        except ApiError:
            return []

    def events(self, about: str = "") -> list[str]:
        found = self._kube.api.items("/api/v1/namespaces/default/events")
        return [
            f"{x['reason']}: {x['message']}"
            for x in found
            if x["source"].get("component") == "hyperscout" and x["involvedObject"]["name"].startswith(about)
        ]

    def finish(self, gang: str) -> None:
        """Set its live pods to Succeeded."""
        for found in self.live(gang):
            self.end(found, "Succeeded")

    def end(self, found: Object, phase: str) -> None:
        path = f"{PODS}/{found['metadata']['name']}/status"
        self._kube.api.ask("PATCH", path, {"status": {"phase": phase}}, content=MERGE)

    def delete(self, found: Object) -> None:
        path = f"{PODS}/{found['metadata']['name']}"
        self._kube.api.ask(
            "DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        )

    async def until(self, what: str, happens: Callable[[], Any]) -> Any:
        """Return the first true result."""

        def instead() -> str:
            return f"{what}\n{self._kube.kubectl('get', 'pods', '-o', 'wide')}\n{self.events()}"

        return await until_awaited(lambda: asyncio.to_thread(happens), instead, pause_s=0.05)


def pins(found: Sequence[Object]) -> dict[str, str]:
    """Node by pod, as the pins say, and judged: each names one node, the one of the annotation."""
    result = {}
    for one in found:
        affinity = one["spec"].get("affinity", {}).get("nodeAffinity", {})
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
        if required is None or PLACED not in one["metadata"].get("annotations", {}):
            continue
        fields = {f["values"][0] for term in required["nodeSelectorTerms"] for f in term["matchFields"]}
        assert len(fields) == 1, required
        result[one["metadata"]["name"]] = fields.pop()
    return result


def collectors_account(kube: Cluster, **gates: Any) -> Path:
    """The collector's account with what the chart gives it where gates are on, and nothing else."""
    kube.service_account(account := f"{RELEASE}-collector", NAMESPACE)
    policies = ("MutatingAdmissionPolicy", "ValidatingAdmissionPolicy")
    for kind in ("Namespace", "ServiceAccount", "Role", "ClusterRole", *policies, ""):
        for found in render({"gates": {"mode": "on", **gates}}):
            if found["kind"] == kind or (not kind and found["kind"].endswith("Binding")):
                kube.apply(found)
    return kube.kubeconfig_of(account, NAMESPACE)


def make_namespace(kube: Cluster) -> None:
    with contextlib.suppress(ApiError):
        kube.api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": OWN}})


def clear(kube: Cluster) -> None:
    """Away with all that a test left."""
    away = _NOW | {"propagationPolicy": "Background"}
    events = "/api/v1/namespaces/default/events"
    for path in (JOBS, SETS, PODS, "/api/v1/nodes", PLANS, events):
        kube.api.ask("DELETE", path, away)
    give_up_s = time.monotonic() + TIMEOUT_S
    while kube.api.names(PODS) or kube.api.names(JOBS) or kube.api.names(SETS):
        if time.monotonic() > give_up_s:
            raise RuntimeError("pods of the test before are still there")
        time.sleep(0.02)
        kube.api.ask("DELETE", PODS, _NOW)
