"""Reads the answers of the kubelet's PodResources API: which devices a node has, where, and which are in use.

Source: kubernetes/kubelet, pkg/apis/podresources/v1/api.proto. `GetAllocatableResources` returns all healthy
devices of all device plugins, `List` what each container uses. A device that is in use and not healthy is
only in the second answer. Names of pods and containers are not read.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message
from hyperscout.v1.kubelet_pb2 import KubeletAllocatable, KubeletDevices, KubeletPods

from hyperscout_formats.facts.facts import MAX_DEVICES, MAX_NUMA_NODES, DeviceResource, NodeDevice
from hyperscout_formats.text.counts import count
from hyperscout_formats.text.errors import FormatError

MAX_RESOURCES: Final = 64
_MAX_NAME_CHARS: Final = 253  # of a resource (RFC 1123) or a device

_Answer = TypeVar("_Answer", bound=Message)


def parse(allocatable: bytes, pods: bytes, source: str) -> Mapping[str, DeviceResource | str]:
    """Return for each resource its devices, or why they are left out. Raises FormatError.

    `allocatable`: the answer of GetAllocatableResources. `pods`: the answer of List.
    """
    healthy = _decoded(KubeletAllocatable, allocatable, f"{source}: GetAllocatableResources")
    listed = _decoded(KubeletPods, pods, f"{source}: List")
    containers = (one for pod in listed.pod_resources for one in pod.containers)
    used = [devices for container in containers for devices in container.devices]
    names = {one.resource_name for one in (*healthy.devices, *used)}
    if len(names) > MAX_RESOURCES:
        raise FormatError(source, 0, f"devices of {len(names)} resources: at most {MAX_RESOURCES} are read")
    for name in names:
        if not _is_name(name):
            raise FormatError(
                source, 0, f"a resource has the name {name[:_MAX_NAME_CHARS]!a}: expected 1 to "
                f"{_MAX_NAME_CHARS} printable characters"
            )  # fmt: skip
    found: dict[str, dict[str, NodeDevice]] = {name: {} for name in sorted(names)}
    wrong: dict[str, str] = {}
    for devices, in_use in (*((one, False) for one in healthy.devices), *((one, True) for one in used)):
        name = devices.resource_name
        for device in _devices_of(devices, in_use):
            if reason := _problem(device):
                wrong.setdefault(name, reason)
            else:
                known = found[name].get(device.id)
                numa_nodes = device.numa_nodes or (known.numa_nodes if known else ())
                found[name][device.id] = replace(device, numa_nodes=numa_nodes)
        if len(found[name]) > MAX_DEVICES:
            wrong[name] = f"{count(len(found[name]), 'device')}: at most {MAX_DEVICES} of a resource are read"
    return {name: wrong.get(name) or _resource(name, devices.values()) for name, devices in found.items()}


def _decoded(kind: type[_Answer], answer: bytes, source: str) -> _Answer:
    try:
        return kind.FromString(answer)
    except DecodeError as error:
        raise FormatError(source, 0, "expected a message of the PodResources API, v1") from error


def _devices_of(devices: KubeletDevices, in_use: bool) -> Iterator[NodeDevice]:
    # A device plugin that does not know the NUMA node of a device may report -1, as sysfs does.
    numa_nodes = tuple(sorted({node.ID for node in devices.topology.nodes if node.ID >= 0}))
    for device_id in devices.device_ids:
        yield NodeDevice(device_id, numa_nodes, in_use)


def _problem(device: NodeDevice) -> str | None:
    if not _is_name(device.id):
        return f"a device has the id {device.id[:_MAX_NAME_CHARS]!a}: expected printable characters"
    if device.numa_nodes and device.numa_nodes[-1] >= MAX_NUMA_NODES:
        return f"device {device.id}: NUMA node {device.numa_nodes[-1]}: Linux has at most {MAX_NUMA_NODES}"
    return None


def _is_name(text: str) -> bool:
    return 0 < len(text) <= _MAX_NAME_CHARS and text.isprintable()


def _resource(name: str, devices: Iterable[NodeDevice]) -> DeviceResource:
    return DeviceResource(name, tuple(sorted(devices, key=lambda device: device.id)))
