"""Reads the positions of GPUs and NICs in the PCI tree from sysfs, to find the nearest NICs of a GPU.

A path below /sys/devices contains every bridge between the processor and a device. The longer the common
prefix of two paths, the nearer the two devices. Only names, links and small files are read, which is cheap
and needs no privileges. Parts that cannot be read are omitted.
"""

import contextlib
import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from hyperscout_formats.facts.facts import Gpu
from hyperscout_formats.facts.pci import numa_node
from hyperscout_formats.nvidia.nvml_values import pci_address

NVIDIA: Final = "0x10de"
AMD: Final = "0x1002"
HUAWEI: Final = "0x19e5"
_CLASSES: Final = {
    NVIDIA: ("0x0300", "0x0302"),  # VGA and 3D controllers
    AMD: ("0x0300", "0x0302", "0x0380", "0x1200"),  # and other displays, and accelerators
    HUAWEI: ("0x1200",),
}
_MAX_DEVICES: Final = 4096
# Share of data in the bits of a lane, by its GT/s: 8b/10b, 128b/130b, and 236 of the 256 bytes of a flit (PCI
# Express Base Specification 6.0, 4.2).
_DATA_SHARE: Final = {2.5: 0.8, 5.0: 0.8, 8.0: 128 / 130, 16.0: 128 / 130, 32.0: 128 / 130, 64.0: 236 / 256}
_SPEED = re.compile(r"(\d{1,3}(?:\.\d)?) GT/s")
_MAX_LANES: Final = 32
_PASSED_THROUGH: Final = "vfio-pci"  # passed through to a virtual machine, so not usable by this host


@dataclass(frozen=True, slots=True)
class PciDevice:
    """A PCI function. `path`: the steps from the root complex to it. `driver`: "" when none is bound.

    `link_gbps`: (steps,) what the link to each step can carry in one direction, 0 = unknown.
    """

    address: str
    path: tuple[str, ...]
    numa_node: int | None
    driver: str = ""
    link_gbps: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class PciTree:
    """GPUs of one vendor by address, and NICs by name. GPUs of virtual machines are omitted.

    NICs are RDMA devices if there are any, else network interfaces. Virtual functions are omitted.
    """

    gpus: Mapping[str, PciDevice]
    nics: Mapping[str, PciDevice]

    def placed(self, gpu: Gpu) -> Gpu:
        """Return the GPU with its NUMA node, its nearest NICs and the bandwidth to them."""
        device = self.gpus.get(gpu.pci_address)
        return replace(
            gpu,
            numa_node=device.numa_node if device else None,
            nearest_nics=self.nearest_nics(gpu.pci_address),
            pcie_gbps=self.nic_gbps(gpu.pci_address),
        )

    def nearest_nics(self, address: str) -> tuple[str, ...]:
        """Return the names of the NICs with the longest path in common with a GPU.

        Among these, NICs on the GPU's NUMA node are preferred.
        """
        gpu = self.gpus.get(address)
        if gpu is None or not self.nics:
            return ()

        def nearness(nic: PciDevice) -> tuple[int, bool]:
            same_numa = gpu.numa_node is not None and gpu.numa_node == nic.numa_node
            return _shared_steps(gpu, nic), same_numa

        best = max(nearness(nic) for nic in self.nics.values())
        return tuple(sorted(name for name, nic in self.nics.items() if nearness(nic) == best))

    def nic_gbps(self, address: str) -> float:
        """Return what the slowest link between a GPU and its nearest NICs can carry; 0 = unknown.

        The lanes are those in use, the speed of a lane is the highest: an idle GPU lowers it to save power.
        """
        nics = [self.nics[name] for name in self.nearest_nics(address)]
        links = [
            gbps
            for nic in nics
            for shared in (_shared_steps(self.gpus[address], nic),)
            for device in (self.gpus[address], nic)
            for gbps in device.link_gbps[shared:]
        ]
        return min(filter(None, links), default=0.0)


def _shared_steps(one: PciDevice, other: PciDevice) -> int:
    steps = zip(one.path, other.path, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda step: step[0] == step[1], steps))


def read_pci_tree(sysfs: Path = Path("/sys"), vendor: str = NVIDIA) -> PciTree:
    """Read the current tree. Raises nothing; parts that cannot be read are omitted.

    `vendor`: NVIDIA, AMD or HUAWEI.
    """
    gpus = {}
    for device in _listed(sysfs / "bus/pci/devices"):
        if _text(device / "vendor") == vendor and _text(device / "class")[:6] in _CLASSES[vendor]:
            found = _device(device)
            if found is not None and found.driver != _PASSED_THROUGH:
                gpus[found.address] = found
    nics = _nics(_listed(sysfs / "class/infiniband"))
    return PciTree(gpus, nics or _nics(_listed(sysfs / "class/net")))


def _nics(entries: Iterable[Path]) -> dict[str, PciDevice]:
    """Return the NICs that are physical PCI functions: no bridges, tunnels or virtual functions."""
    found = {}
    for entry in entries:
        device = entry / "device"
        if device.exists() and not (device / "physfn").exists() and (nic := _device(device)) is not None:
            found[entry.name] = nic
    return found


def _device(link: Path) -> PciDevice | None:
    """Return the PCI function at or above the target of `link`.

    A virtio NIC, for example, is one step below its PCI function.
    """
    path = link.resolve()
    while not pci_address(path.name):
        if path == path.parent:
            return None
        path = path.parent
    steps: list[Path] = []
    for step in (path, *path.parents):
        steps.append(step)
        if step.name.startswith("pci"):  # "pci0000:00", the root complex
            break
    steps.reverse()
    driver = path / "driver"
    return PciDevice(
        pci_address(path.name),
        tuple(step.name for step in steps),
        numa_node(_text(path / "numa_node")),
        driver.resolve().name if driver.exists() else "",
        tuple(map(_link_gbps, steps)),
    )


def _link_gbps(function: Path) -> float:
    speed, lanes = _SPEED.match(_text(function / "max_link_speed")), _text(function / "current_link_width")
    if speed is None or not (lanes.isascii() and lanes.isdigit()) or int(lanes) > _MAX_LANES:
        return 0.0
    return round(float(speed[1]) * int(lanes) * _DATA_SHARE.get(float(speed[1]), 0.0), 1)


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())[:_MAX_DEVICES]
    except OSError:
        return []


def _text(file: Path) -> str:
    with contextlib.suppress(OSError, ValueError), file.open(encoding="ascii") as stream:
        return stream.read(64).strip()
    return ""
