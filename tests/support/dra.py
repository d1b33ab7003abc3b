"""Claims on NICs: what a real scheduler allocates, and the objects that tests of DRA share."""

from collections.abc import Mapping
from typing import Any

from kube.api import Object

GROUP = "/apis/resource.k8s.io/v1"
SLICES = f"{GROUP}/resourceslices"
RULES = "/apis/resource.k8s.io/v1beta2/devicetaintrules"
DRIVER = "nic.hyperscout.io"
GPU_DRIVER = "gpu.example.com"
GATE = "DRADeviceTaintRules=true"
RUNTIME_CONFIG = "resource.k8s.io/v1beta2=true"


def gpu_slice(node: str, roots: Mapping[str, str]) -> Object:
    """A slice of a GPU driver. `roots`: by device, the PCIe root."""
    devices: list[Any] = [
        {"name": name, "attributes": {"resource.kubernetes.io/pcieRoot": {"string": root}}}
        for name, root in roots.items()
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": GPU_DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{GPU_DRIVER}"},
        "spec": spec,
    }


def device_class(name: str) -> Object:
    """A class of all devices of a driver."""
    selector = {"cel": {"expression": f'device.driver == "{name}"'}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [selector]},
    }


def allocated(claim: Object) -> dict[str, tuple[str, str]]:
    """The pool and the device of each request of a claim; {} while it is not allocated."""
    results = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
    return {x["request"]: (x["pool"], x["device"]) for x in results}
