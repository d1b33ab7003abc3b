"""The ResourceSlices that hyperscout writes, and what it reads of those of other drivers. Uses no I/O.

Source: kubernetes/api, resource/v1 (types.go); the standard attributes are those of
k8s.io/dynamic-resource-allocation, deviceattribute. A slice has all NICs of a node; the pool has the node's
name, and its generation grows with each change.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from hyperscout_formats.kubelet.dra import DRIVER
from hyperscout_kubernetes.client import Object
from hyperscout_kubernetes.paths import api_path, is_name

from hyperscout_publish.devices.nics import Nic
from hyperscout_publish.devices.places import NicKey, Place

GROUP = "resource.k8s.io"
API_VERSION = f"{GROUP}/v1"
NO_SLICES = "upgrade to Kubernetes 1.34 or newer, or set dra: off and dra_taints: off"
COLLECTION = api_path(API_VERSION, "resourceslices")
_STANDARD = "resource.kubernetes.io"
_MAX_TEXT = 64  # bytes of the value of an attribute
# How drivers call the attributes that identify a NIC, in lower case and without their domain.
_ADDRESSES = frozenset({"pcibusid", "pciaddress", "pciaddr"})
_INTERFACES = frozenset({"ifname", "interface", "interfacename"})
_RDMA_DEVICES = frozenset({"rdmadevice", "rdmadev", "rdmadevname", "rdmadevicename"})
_MACS = frozenset({"mac", "macaddress", "hardwareaddress"})
_KINDS = ("pci", _ADDRESSES), ("if", _INTERFACES), ("rdma", _RDMA_DEVICES), ("mac", _MACS)


class DeviceRef(NamedTuple):
    """The identity of a device in a cluster."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return "/".join(self)


def kept(found: Object) -> Object:
    """Return the part of a ResourceSlice that is kept.

    "own": whether it is the slice that hyperscout writes for its node. Another one can have the driver, too.
    Of hyperscout's devices these are the names, the places by PCI address and a digest: there are tens of
    thousands in a large cluster. Of other drivers' devices it is what identifies NICs, by name.
    """
    spec = found["spec"]
    devices, node, pool = spec.get("devices") or [], spec.get("nodeName") or "", spec.get("pool") or {}
    own = (DRIVER, slice_name(node), node)
    result = {
        "metadata": {key: found["metadata"].get(key, "") for key in ("name", "uid", "resourceVersion")},
        "driver": spec.get("driver", ""),
        "node": node,
        "pool": pool,
        "own": (spec.get("driver"), found["metadata"].get("name"), pool.get("name")) == own,
    }
    if not result["own"]:
        return result | {"ids": {x.get("name", ""): ids for x in devices if (ids := _ids(x))}}
    places = {address: place for x in devices for address, place in _place(x)}
    found_digest = digest(devices, pool.get("resourceSliceCount", 0))
    return result | {"names": [x["name"] for x in devices], "places": places, "digest": found_digest}


def digest(devices: Sequence[Object], slices: int = 1) -> bytes:
    """Return a digest of devices and of the number of slices in their pool.

    It depends on the order of the devices, but not on that of their attributes.
    """
    return hashlib.sha256(json.dumps([slices, devices], sort_keys=True).encode()).digest()


def _place(device: Object) -> Iterator[tuple[str, Place]]:
    """Yield the PCI address and the place of a published device that has both."""
    attributes = device.get("attributes") or {}
    rail, leaf = (attributes.get(key) or {} for key in ("rail", "leaf"))
    address = (attributes.get(f"{_STANDARD}/pciBusID") or {}).get("string")
    if address and "int" in rail:
        yield address, Place(leaf.get("string", ""), rail["int"])


def _ids(device: Object) -> set[tuple[str, str]]:
    """What identifies a NIC in the attributes of a device: ("pci", address), ("if", name), ("rdma", name).

    A device with a PCI address only may be a GPU, which an agent could name as its NIC.
    """
    found = set()
    for key, value in (device.get("attributes") or {}).items():
        name, text = key.rpartition("/")[2].lower(), value.get("string")
        if text:
            found |= {(kind, text) for kind, names in _KINDS if name in names}
    return found if any(kind != "pci" for kind, _ in found) else set()


class Elsewhere:
    """The NICs that other drivers publish. `slices`: as `kept` returns them."""

    def __init__(self, slices: Iterable[Object]) -> None:
        self._found: dict[tuple[str, str, str], DeviceRef] = {}
        for one in slices:
            if one["driver"] != DRIVER and one["node"]:
                for name, ids in one["ids"].items():
                    ref = DeviceRef(one["driver"], one["pool"].get("name", ""), name)
                    self._found |= {(one["node"], *ident): ref for ident in ids}

    def get(self, node: str, nic: Nic) -> DeviceRef | None:
        """Return the device of another driver that is this NIC."""
        idents = ("pci", nic.pci_address), ("if", nic.interface), ("rdma", nic.rdma_device)
        return next((ref for x in idents if (ref := self._found.get((node, *x)))), None)


def places_in(slices: Iterable[Object]) -> dict[NicKey, Place]:
    """Return the published leaf and rail of each NIC."""
    own = (one for one in slices if one["own"])
    return {(one["node"], address): place for one in own for address, place in one["places"].items()}


def strays(slices: Iterable[Object], nodes: Iterable[str]) -> dict[str, list[str]]:
    """Return the slices, by driver, that are in the way of those that hyperscout writes for `nodes`.

    They have the name of such a slice, or the driver.
    """
    names = {slice_name(node) for node in nodes}
    found: dict[str, list[str]] = {}
    for one in slices:
        name = one["metadata"]["name"]
        if not one["own"] and (one["driver"] == DRIVER or name in names):
            found.setdefault(one["driver"], []).append(name)
    return found


def device(nic: Nic, place: Place | None) -> Object:
    """Return a NIC as a device of a slice."""
    texts = {
        f"{_STANDARD}/pciBusID": nic.pci_address,
        f"{_STANDARD}/pcieRoot": nic.pcie_root,
        "rdmaDevice": nic.rdma_device,
        "interface": nic.interface,
        "mac": nic.mac,
        "leaf": place.leaf if place is not None else "",
    }
    attributes: dict[str, Any] = {
        key: {"string": text} for key, text in texts.items() if 0 < len(text.encode()) <= _MAX_TEXT
    }
    if nic.numa_node is not None:
        attributes[f"{_STANDARD}/numaNode"] = {"int": nic.numa_node}
    if place is not None:
        attributes["rail"] = {"int": place.rail}
    return {"name": nic.name, "attributes": attributes}


def slice_name(node: str) -> str:
    """Return the name of a node's slice."""
    name = f"{node}-{DRIVER}"
    return name if is_name(name) else f"{hashlib.sha256(node.encode()).hexdigest()[:16]}-{DRIVER}"


def new_slice(node: str, uid: str, devices: list[Object]) -> Object:
    """Return a new slice. It goes with its node, whose uid is `uid`."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
    return {
        "apiVersion": API_VERSION,
        "kind": "ResourceSlice",
        "metadata": {"name": slice_name(node), "ownerReferences": [owner]},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }


def patch_of(there: Object, devices: list[Object]) -> Object:
    """Return the merge patch of a slice with the next generation, at the version that was read."""
    pool = {"generation": int(there["pool"].get("generation", 0)) + 1, "resourceSliceCount": 1}
    return {
        "metadata": {"resourceVersion": there["metadata"]["resourceVersion"]},
        "spec": {"devices": devices, "pool": pool},
    }
