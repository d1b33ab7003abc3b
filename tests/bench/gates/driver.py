"""What the gate controller does at its least: decide all gangs, then one patch a pod. No plan kept, no watch.

Beside the controller itself this tells what of its time is the engine's, what the API server's.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.gates.pods import PODS, at_once
from bench.quality.cluster import Shape
from hyperscout_gates.state.gang import GATE
from hyperscout_kubernetes.client import STRATEGIC, Kube
from hyperscout_placer.cluster.answer import Placement
from hyperscout_placer.cluster.capacity import Capacity
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.request import Group, Request, Workers
from hyperscout_placer.solve.place import place

GPUS = (("nvidia.com/gpu", 8),)


@dataclass(frozen=True, slots=True)
class Decided:
    """Nodes of each gang by rank, and how long all decisions took."""

    nodes: list[tuple[str, ...]]
    took_s: float


def decide(shape: Shape, gangs: int, size: int, tier: int) -> Decided:
    """One after the other on an empty cluster, each taken before the next."""
    forest = Forest.of(shape.topology())
    capacity = Capacity(forest, {name: {"nvidia.com/gpu": 8} for name in shape.names})
    request = Request(Group(1, (Workers(size, GPUS),), tier))
    needs = [Workers(1, GPUS)] * size
    found = []
    began = time.perf_counter()
    for _ in range(gangs):
        answer = place(capacity, request)
        if not isinstance(answer, Placement):
            raise AssertionError(answer.reason)  # noqa: TRY004
        capacity.take(answer.nodes, needs)
        found.append(answer.nodes)
    return Decided(found, time.perf_counter() - began)


async def open_gates(kube: Kube, gangs: Sequence[str], nodes: Sequence[Sequence[str]]) -> None:
    """One patch a pod: it drops the gate and pins the node."""
    await at_once(
        [
            lambda pod=f"{gang}-{rank}", node=node: kube.write(
                "PATCH", f"{PODS}/{pod}", opening(node), content=STRATEGIC, timeout_s=60.0
            )
            for gang, chosen in zip(gangs, nodes, strict=True)
            for rank, node in enumerate(chosen)
        ]
    )


def opening(node: str) -> dict[str, object]:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    pin = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return {"spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}], "affinity": pin}}
