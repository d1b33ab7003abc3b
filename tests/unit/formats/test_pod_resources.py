"""The kubelet's answers about devices: what they say, and that no bytes break the reader."""

import contextlib

import pytest
from hyperscout.v1.kubelet_pb2 import KubeletDevices
from hyperscout_formats.facts.facts import MAX_DEVICES, DeviceResource, NodeDevice
from hyperscout_formats.facts.wire import device_resource_from_proto, device_resource_to_proto
from hyperscout_formats.kubelet.pod_resources import MAX_RESOURCES, parse
from hyperscout_formats.text.errors import FormatError
from hypothesis import given
from hypothesis import strategies as st
from support.kubelet_answers import GPU, allocatable, devices, pods, two_zones

# Field numbers and types of kubernetes/kubelet, pkg/apis/podresources/v1/api.proto, written by hand.
DEVICES_IN_ZONE_1 = b"\x0a\x01g" + b"\x12\x02d1" + b"\x12\x02d2" + b"\x1a\x04\x0a\x02\x08\x01"
RAW_ALLOCATABLE = bytes([0x0A, len(DEVICES_IN_ZONE_1)]) + DEVICES_IN_ZONE_1 + b"\x10\x03"  # and a processor
D1 = b"\x0a\x01g" + b"\x12\x02d1"
CONTAINER = b"\x0a\x01c" + bytes([0x12, len(D1)]) + D1
POD = b"\x0a\x01p" + b"\x12\x01n" + bytes([0x1A, len(CONTAINER)]) + CONTAINER
RAW_PODS = bytes([0x0A, len(POD)]) + POD


def test_the_wire_format() -> None:
    assert parse(RAW_ALLOCATABLE, RAW_PODS, "kubelet") == {
        "g": DeviceResource("g", (NodeDevice("d1", (1,), True), NodeDevice("d2", (1,))))
    }


@pytest.mark.parametrize(
    ("healthy", "used", "expected"),
    [
        ([], [], {}),
        (two_zones(1), [], {"gpu-0-0": ((0,), False), "gpu-1-0": ((1,), False)}),
        (two_zones(1), [devices(["gpu-1-0"], [1])], {"gpu-0-0": ((0,), False), "gpu-1-0": ((1,), True)}),
        ([devices(["a", "b"])], [devices(["b"])], {"a": ((), False), "b": ((), True)}),
        ([devices(["a"], [1, 0])], [], {"a": ((0, 1), False)}),
        ([devices(["a"], [-1])], [], {"a": ((), False)}),
        ([], [devices(["unhealthy"], [0])], {"unhealthy": ((0,), True)}),
    ],
)
def test_devices(
    healthy: list[KubeletDevices],
    used: list[KubeletDevices],
    expected: dict[str, tuple[tuple[int, ...], bool]],
) -> None:
    found = parse(allocatable(*healthy), pods(*used), "kubelet")
    resources = [one for one in found.values() if isinstance(one, DeviceResource)]
    assert {one.id: (one.numa_nodes, one.in_use) for x in resources for one in x.devices} == expected
    assert all(device_resource_from_proto(device_resource_to_proto(one)) == one for one in resources)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (
            devices([f"d{i}" for i in range(MAX_DEVICES + 1)]),
            "513 devices: at most 512 of a resource are read",
        ),
        (devices(["\n"]), "a device has the id '\\n': expected printable characters"),
        (devices(["d"], [1024]), "device d: NUMA node 1024: Linux has at most 1024"),
    ],
)
def test_a_resource_is_left_out_alone(given: KubeletDevices, reason: str) -> None:
    other = devices(["x"], resource="other.com/x")
    found = parse(allocatable(given, other), pods(), "kubelet")
    assert found == {GPU: reason, "other.com/x": DeviceResource("other.com/x", (NodeDevice("x"),))}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"\xff", "kubelet: GetAllocatableResources: expected a message of the PodResources API, v1"),
        (allocatable(devices(["a"], resource="")), "kubelet: a resource has the name ''"),
        (
            allocatable(*(devices(["a"], resource=f"x.com/{i}") for i in range(MAX_RESOURCES + 1))),
            "kubelet: devices of 65 resources: at most 64 are read",
        ),
    ],
)
def test_answers_that_are_refused(answer: bytes, reason: str) -> None:
    with pytest.raises(FormatError, match=reason.replace("(", r"\(")):
        parse(answer, pods(), "kubelet")


_NAMES = st.text(max_size=4)
_NUMA = st.none() | st.lists(st.integers(-2, 2000), max_size=3)
_ANY = st.lists(st.builds(devices, st.lists(_NAMES, max_size=5), _NUMA, _NAMES), max_size=6)


@given(st.binary(), st.binary())
def test_any_bytes(first: bytes, second: bytes) -> None:
    with contextlib.suppress(FormatError):
        parse(first, second, "kubelet")


@given(_ANY, _ANY)
def test_any_answers(healthy: list[KubeletDevices], used: list[KubeletDevices]) -> None:
    try:
        found = parse(allocatable(*healthy), pods(*used), "kubelet")
    except FormatError:
        return
    in_use = {(one.resource_name, device) for one in used for device in one.device_ids}
    for name, resource in found.items():
        if isinstance(resource, DeviceResource):
            ids = [device.id for device in resource.devices]
            assert ids == sorted(set(ids))
            assert {device.id for device in resource.devices if device.in_use} == {
                device for owner, device in in_use if owner == name
            }
