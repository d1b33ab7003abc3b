"""The gate controller on an API server in memory: four nodes of one worker each, and gangs of plain pods."""

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from types import MappingProxyType
from typing import Any, cast

import pytest
from hyperscout_gates.control import controller
from hyperscout_gates.control.controller import Gates
from hyperscout_gates.control.pods import PLACED
from hyperscout_gates.state.gang import GANG_LABEL, GATE, SIZE_LABEL
from hyperscout_gates.state.gang_state import GateSettings
from hyperscout_kubernetes.client import Kube
from hyperscout_kubernetes.nodes import Nodes
from hyperscout_placer.book.placements import Placements
from hyperscout_placer.demands.node_masks import NodeMasks
from hyperscout_runtime.event_log import EventLog
from hyperscout_runtime.units import NS, rfc3339
from hyperscout_topology.topology import Endpoint

from support.fake_kube import FakeKube, Object
from support.topologies import LEAF, on_leaf_b, two_leaves

NODES = ["n01", "n02", "n03", "n04"]
PODS = "/api/v1/namespaces/default/pods"
_OWNER = {"apiVersion": "example.com/v1", "kind": "Set", "name": "set", "uid": "u", "controller": True}

_SETTINGS = GateSettings(patience_s=0.0)


class Server(FakeKube):
    """It applies the patch that opens a gate, and the watch tells of it at once."""

    told: Callable[[Object], None]

    def paced(self, limit: Any) -> "Server":
        return self

    async def list(self, path: str, query: Mapping[str, Any] | None = None) -> tuple[list[Any], str]:
        return await super().list(path, query)

    async def write(  # type: ignore[override]
        self, method: str, path: str, body: Any = None, *, timeout_s: float = 0.0, **rest: Any
    ) -> Object:
        if path.startswith(PODS) and method == "PATCH":
            self.before(method, path)
            found = copy.deepcopy(self.objects[path])
            found["spec"] |= {"schedulingGates": [], "affinity": body["spec"]["affinity"]}
            found["metadata"]["annotations"] |= body["metadata"]["annotations"]
            found["metadata"]["labels"] |= body["metadata"].get("labels", {})
            self.put(path, found)
            self.told(copy.deepcopy(found))
            return found
        return await super().write(method, path, body, content=rest.get("content", ""))


class World:
    """Four nodes of one worker each, and gangs of plain pods. `server`: that of an earlier leader."""

    def __init__(
        self, settings: GateSettings = _SETTINGS, server: Server | None = None, now_s: float = 1_800_000_000.0
    ) -> None:
        self.now_s = now_s
        self.settings = settings
        self.server = Server() if server is None else server
        kube = cast("Kube", self.server)
        self.nodes = Nodes(kube, "", rng=Random(1))
        self.placements = Placements(clock_ns=self.clock_ns, timer=lambda: 0.0)
        masks = NodeMasks(self.nodes.get)
        self.nodes.changed.subscribe(masks.node_changed)
        self.gates = Gates(
            kube,
            self.nodes,
            "own",
            "on",
            self.settings,
            lambda text: None,
            self.placements,
            masks,
            EventLog("gang"),
            clock_ns=self.clock_ns,
            rng=Random(1),
            timer=lambda: 0.0,  # real durations would decide how long the controller pauses
        )
        self.server.told = self.gates.pods.learn
        self.nodes.changed.subscribe(self.gates.node_changed)
        self.placements.set_topology(replace(two_leaves(), anomalies=()))
        for name in NODES:
            self.learn_node(name)
        self.nodes.reflector.synced.set()
        for path, found in self.server.objects.items():
            if path.startswith(PODS):
                self.gates.pods.learn(copy.deepcopy(found))
        self.gates.pods.synced.set()

    def learn_node(self, name: str, **labels: str) -> None:
        """The watch tells of a node that is ready."""
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        room = {"allocatable": {"nvidia.com/gpu": "8", "pods": "110", "cpu": "64"}}
        metadata = {"name": name, "uid": name, "labels": labels}
        self.nodes.reflector.learn({"metadata": metadata, "spec": {}, "status": ready | room})

    def clock_ns(self) -> int:
        return int(self.now_s * 1e9)

    def next_leader(self) -> "World":
        """Another collector on the same API server, which begins now."""
        return World(self.settings, self.server, self.now_s)

    def submit(
        self,
        gang: str,
        size: int,
        priority: int = 0,
        *,
        owned: bool = False,
        selector: Mapping[str, str] = MappingProxyType({}),
        **annotations: str,
    ) -> None:
        """Create the pods of a gang. `owned`: a controller would create them again."""
        for rank in range(size):
            name = f"{gang}-{rank}"
            metadata = {
                "name": name,
                "namespace": "default",
                "uid": f"uid-{name}",
                "annotations": {
                    f"hyperscout.io/{key.replace('_', '-')}": x for key, x in annotations.items()
                },
                "labels": {GANG_LABEL: gang, SIZE_LABEL: str(size)},
                "creationTimestamp": rfc3339(int(self.now_s * NS)),
                "ownerReferences": [_OWNER] if owned else [],
            }
            limits = {"resources": {"limits": {"nvidia.com/gpu": "8"}}}
            spec = {"schedulingGates": [{"name": GATE}], "containers": [{"name": "w", **limits}]}
            spec |= {"priority": priority, "nodeSelector": dict(selector)}
            pod = self.server.put(f"{PODS}/{name}", {"metadata": metadata, "spec": spec, "status": {}})
            self.gates.pods.learn(copy.deepcopy(pod))

    def end(self, gang: str) -> None:
        """Its pods are deleted."""
        for path in [path for path in self.server.objects if path.startswith(f"{PODS}/{gang}-")]:
            name = self.server.objects.pop(path)["metadata"]["name"]
            self.gates.pods.forget(f"default/{name}")

    def waiting(self) -> list[str]:
        """The gangs that wait for nodes and were refused, in order."""
        return [one.gang.rpartition("/")[2] for one in self.gates.queue.turns.waiting() if one.reason]

    def kept_for(self) -> str:
        """The gang for which a domain is kept; "" = none is."""
        waiting = self.gates.queue.turns.waiting()
        return next((one.gang.rpartition("/")[2] for one in waiting if one.HasField("kept")), "")

    def opened(self, gang: str) -> list[str]:
        """Nodes of its pods whose gates are open."""
        pods = (x for path, x in self.server.objects.items() if path.startswith(f"{PODS}/{gang}-"))
        marks = [pod["metadata"].get("annotations", {}).get(PLACED) for pod in pods]
        return sorted(json.loads(mark)["node"] for mark in marks if mark)

    def bind(self) -> None:
        """The scheduler and the kubelets accept what is open."""
        for path, pod in list(self.server.objects.items()):
            mark = pod["metadata"].get("annotations", {}).get(PLACED)
            if path.startswith(PODS) and mark and not pod["spec"].get("nodeName"):
                spec = pod["spec"] | {"nodeName": json.loads(mark)["node"]}
                status = {"phase": "Running", "podIP": "10.9.9.9"}
                bound = self.server.put(path, copy.deepcopy(pod) | {"spec": spec, "status": status})
                self.gates.pods.learn(copy.deepcopy(bound))

    def degrade(self, *nodes: str) -> None:
        """One cable of each of these nodes has errors; none of the others."""
        found = [
            on_leaf_b("ErroringLink", Endpoint(f"a{n[1:]}", n, "1"), LEAF, hypernode="leaf-a") for n in nodes
        ]
        self.placements.set_topology(replace(two_leaves(), anomalies=tuple(found)))

    def messages(self, reason: str) -> list[str]:
        events = (body for _, path, body in self.server.writes if path.endswith("/events"))
        return [body["message"] for body in events if body["reason"] == reason]

    def deleted(self) -> list[str]:
        """Names of deleted pods."""
        found = (path for method, path, _ in self.server.writes if method == "DELETE")
        return [path.rpartition("/")[2] for path in found if path.startswith(PODS)]

    def told(self) -> list[str]:
        """Events, by reason."""
        return [body["reason"] for method, path, body in self.server.writes if path.endswith("/events")]

    def held(self) -> dict[str, list[str]]:
        return {one.gang: sorted(one.placement.nodes) for one in self.placements}


@asynccontextmanager
async def running(world: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """The controller's services but the watch. None of them may end by itself."""
    monkeypatch.setattr(controller, "_TICK_S", 0.0)
    services = {name: run for name, run in world.gates.services.items() if name != "pod-watch"}
    tasks = [asyncio.create_task(run(), name=name) for name, run in services.items()]
    try:
        yield
    finally:
        ended = [task for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in ended:
            task.result()
