"""The room that evidence tells of: one worker a node, and its GPUs, whole or cut up."""

from types import SimpleNamespace
from typing import Any

import pytest
from hyperscout_collector.app.placing.evidence_capacity import EvidenceCapacity
from hyperscout_formats.facts.facts import DeviceResource, Gpu, MigInstance, NodeDevice
from hyperscout_placer.book.placements import Placements
from hyperscout_placer.cluster.devices import devices_of
from support.placing import free_of
from support.topologies import two_leaves


def gpu(number: int, mode: str = "", *profiles: str) -> Gpu:
    parts = tuple(MigInstance(f"MIG-{i}", profile, i, 0) for i, profile in enumerate(profiles))
    return Gpu(f"GPU-{number}", "H200", f"0000:{number:02x}:00.0", mig_mode=mode, mig_instances=parts)


CASES: dict[str, tuple[list[Gpu], dict[str, int]]] = {
    "none": ([], {}),
    "whole": ([gpu(0), gpu(1, "disabled")], {"nvidia.com/gpu": 2}),
    "cut up": (
        [gpu(0, "enabled", "1g.10gb", "1g.10gb", "3g.40gb"), gpu(1)],
        {"nvidia.com/gpu": 1, "nvidia.com/mig-1g.10gb": 2, "nvidia.com/mig-3g.40gb": 1},
    ),
    "cut up with media engines": ([gpu(0, "enabled", "1g.10gb+me")], {"nvidia.com/mig-1g.10gb.me": 1}),
    "ready to be cut up": ([gpu(0, "enabled")], {}),
}


@pytest.mark.parametrize("case", CASES)
def test_devices_are_called_as_the_device_plugin_calls_them(case: str) -> None:
    found, wanted = CASES[case]
    assert devices_of(found) == wanted


class State:
    """Evidence by node."""

    def __init__(self, **gpus: list[Gpu]) -> None:
        self.gpus = gpus

    @property
    def nodes(self) -> list[str]:
        return list(self.gpus)

    def rows_of_node(self, node: str) -> list[Any]:
        return [SimpleNamespace(fact=None), *(SimpleNamespace(fact=one) for one in self.gpus.get(node, []))]


def change(node: str, before: list[Gpu], after: list[Gpu]) -> Any:
    key = SimpleNamespace(node=node)
    rows = [[SimpleNamespace(fact=one) for one in gpus] for gpus in (before, after)]
    return SimpleNamespace(key=key, before=rows[0], after=rows[1])


def test_the_free_capacity_follows_what_agents_find() -> None:
    placements = Placements(clock_ns=lambda: 0, timer=lambda: 0.0)
    placements.set_topology(two_leaves())
    state = State(n01=[gpu(0), gpu(1)], n02=[])
    room = EvidenceCapacity(placements, state)  # type: ignore[arg-type]
    room.touch(state.nodes)
    one = {"workers": 1}
    assert free_of(placements) == {"n01": one | {"nvidia.com/gpu": 2}, "n02": one, "n03": one, "n04": one}
    told: list[str] = []
    placements.set_unused_of = lambda node, room: told.append(node)  # type: ignore[method-assign]
    room.follow([change("n01", [gpu(0)], [gpu(0)]), change("n02", [], [])])
    assert told == []  # as before
    del placements.set_unused_of
    state.gpus = {"n01": [], "n02": [gpu(0)]}
    room.follow([change("n01", [gpu(0)], []), change("n02", [], [gpu(0)])])
    assert free_of(placements) == {"n01": one, "n02": one | {"nvidia.com/gpu": 1}, "n03": one, "n04": one}
    state.gpus = {"n01": [gpu(0), gpu(1)], "n02": [gpu(0)]}
    room.follow([change("n01", [], [gpu(0), gpu(1)])])
    assert free_of(placements)["n01"] == one | {"nvidia.com/gpu": 2}


def test_devices_of_the_kubelet_count_whether_in_use_or_not() -> None:
    placements = Placements(clock_ns=lambda: 0, timer=lambda: 0.0)
    placements.set_topology(two_leaves())
    devices = (NodeDevice("a", (0,)), NodeDevice("b", (1,), in_use=True), NodeDevice("c"))
    found: Any = [gpu(0), DeviceResource("nvidia.com/gpu", devices), DeviceResource("rdma/hca", devices[:1])]
    state = State(n01=found)
    room = EvidenceCapacity(placements, state)  # type: ignore[arg-type]
    room.follow([change("n01", [], found[1:])])
    assert free_of(placements)["n01"] == {"workers": 1, "nvidia.com/gpu": 3, "rdma/hca": 1}
    state.gpus = {}
    room.follow([change("n01", found[1:], [])])
    assert free_of(placements)["n01"] == {"workers": 1}
