"""The NUMA zones of nodes, from what agents report about devices, RDMA adapters and GPUs."""

from typing import Any

import pytest
from hyperscout.v1.finding_pb2 import Finding, FindingKey, Outcome
from hyperscout_collector.app.placing.evidence_zones import EvidenceZones, zones_of
from hyperscout_collector.evidence.rows import row_of
from hyperscout_collector.evidence.state import KeyChange
from hyperscout_formats.facts.facts import DeviceResource, Gpu, InfinibandPort, NodeDevice
from hyperscout_formats.facts.wire import device_resource_to_proto, infiniband_to_proto
from hyperscout_formats.facts.wire_measured import gpu_to_proto
from hyperscout_placer.cluster.numa_zones import Zone, ZoneDevices
from support.findings import T0, stamp

GPU = "nvidia.com/gpu"


def row(probe: str, subject: str, **payload: Any) -> Any:
    finding = Finding(
        key=FindingKey(node="n1", probe=probe, subject=subject),
        observed_at=stamp(T0),
        outcome=Outcome.OUTCOME_DATA,
        **payload,
    )
    return row_of(finding, sent_ns=T0, received_ns=T0)


def devices(*given: tuple[tuple[int, ...], bool], name: str = GPU) -> Any:
    """Devices with their NUMA nodes, and whether each is in use."""
    found = tuple(NodeDevice(f"d{i}", zones, in_use) for i, (zones, in_use) in enumerate(given))
    payload = device_resource_to_proto(DeviceResource(name, found))
    return row("pod_resources", name, device_resource=payload)


def adapter(device: str, numa_node: int | None) -> Any:
    port = InfinibandPort(
        device, 1, 7, 7, 7, "ACTIVE", "LinkUp", 400.0, 1, 1, device, "InfiniBand", numa_node=numa_node
    )
    return row("infiniband", f"{device}/1", infiniband=infiniband_to_proto(port))


def gpu(address: str, numa_node: int | None, *nics: str) -> Any:
    found = Gpu(f"GPU-{address}", "H200", address, numa_node=numa_node, nearest_nics=nics)
    return row("nvlink", address, gpu=gpu_to_proto(found))


FREE, USED = False, True


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], ()),
        ([adapter("mlx5_0", 0)], ()),
        (
            [devices(((1,), FREE), ((0,), USED), ((1,), USED), ((1,), FREE))],
            (ZoneDevices(Zone(0), {GPU: 0}), ZoneDevices(Zone(1), {GPU: 2})),
        ),
        ([devices(((), FREE), ((0, 1), FREE))], (ZoneDevices(Zone(None), {GPU: 1}),)),
        (
            [devices(((0,), FREE)), devices(((0,), FREE), ((), FREE), name="rdma/hca")],
            (ZoneDevices(Zone(0), {GPU: 1, "rdma/hca": 1}), ZoneDevices(Zone(None), {"rdma/hca": 1})),
        ),
        (
            [
                devices(((0,), FREE), ((1,), FREE)),
                adapter("mlx5_1", 1),
                adapter("mlx5_0", 1),
                gpu("a", 0, "x"),
            ],
            (ZoneDevices(Zone(0), {GPU: 1}), ZoneDevices(Zone(1, ("mlx5_0", "mlx5_1")), {GPU: 1})),
        ),
        (
            [
                devices(((0,), FREE)),
                adapter("mlx5_9", None),
                gpu("a", 0, "eth2"),
                gpu("b", 0, "eth1", "eth2"),
            ],
            (ZoneDevices(Zone(0, ("eth1", "eth2")), {GPU: 1}),),
        ),
    ],
)
def test_zones(rows: list[Any], expected: tuple[ZoneDevices, ...]) -> None:
    assert zones_of(rows) == expected


class Heard:
    """Placements and evidence at once."""

    def __init__(self) -> None:
        self.zones: dict[str, tuple[ZoneDevices, ...]] = {}
        self.rows: list[Any] = []

    def rows_of_node(self, node: str) -> list[Any]:
        return self.rows

    def set_zones_of(self, node: str, zones: tuple[ZoneDevices, ...]) -> None:
        self.zones[node] = zones


def test_zones_follow_the_evidence() -> None:
    world: Any = Heard()
    zones = EvidenceZones(world, world)
    first, other = devices(((0,), FREE)), row("lldp", "eth0")
    world.rows = [first]
    zones.follow([KeyChange(first.key, (), (first,))])
    assert world.zones == {"n1": (ZoneDevices(Zone(0), {GPU: 1}),)}
    world.rows, world.zones = [], {}
    zones.follow([KeyChange(other.key, (), (other,))])
    assert world.zones == {}, "a change that concerns no zone"
    zones.follow([KeyChange(first.key, (first,), ())])
    assert world.zones == {"n1": ()}


def test_use_of_devices_starts_no_inference() -> None:
    first, then = devices(((0,), FREE)), devices(((0,), USED))
    assert not KeyChange(first.key, (first,), (then,)).news
