"""Reads the positions of GPUs and NICs in the PCI tree from sysfs, to find the nearest NICs of a GPU.

A path below /sys/devices contains every bridge between the processor and a device. The longer the common
prefix of two paths, the nearer the two devices. Only names, links and small files are read, which is cheap
and needs no privileges. Parts that cannot be read are omitted.
"""

import contextlib
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hyperscout_formats.nvidia.nvml_values import pci_address

_NVIDIA: Final = "0x10de"
_DISPLAY_CLASSES: Final = ("0x0300", "0x0302")  # VGA and 3D controllers
_MAX_DEVICES: Final = 4096
_PASSED_THROUGH: Final = "vfio-pci"  # passed through to a virtual machine, so not usable by this host


@dataclass(frozen=True, slots=True)
class PciDevice:
    """A PCI function. `path`: the steps from the root complex to it. `driver`: "" when none is bound."""

    address: str
    path: tuple[str, ...]
    numa_node: int | None
    driver: str = ""


@dataclass(frozen=True, slots=True)
class PciTree:
    """NVIDIA GPUs by address, and NICs by name. GPUs of virtual machines are omitted.

    NICs are RDMA devices if there are any, else network interfaces. Virtual functions are omitted.
    """

    gpus: Mapping[str, PciDevice]
    nics: Mapping[str, PciDevice]

    def nearest_nics(self, address: str) -> tuple[str, ...]:
        """Return the names of the NICs with the longest path in common with a GPU.

        Among these, NICs on the GPU's NUMA node are preferred.
        """
        gpu = self.gpus.get(address)
        if gpu is None or not self.nics:
            return ()

        def nearness(nic: PciDevice) -> tuple[int, bool]:
            same_numa = gpu.numa_node is not None and gpu.numa_node == nic.numa_node
            steps = zip(gpu.path, nic.path, strict=False)
            return sum(1 for _ in itertools.takewhile(lambda step: step[0] == step[1], steps)), same_numa

        best = max(nearness(nic) for nic in self.nics.values())
        return tuple(sorted(name for name, nic in self.nics.items() if nearness(nic) == best))


def read_pci_tree(sysfs: Path = Path("/sys")) -> PciTree:
    """Read the current tree. Raises nothing; parts that cannot be read are omitted."""
    gpus = {}
    for device in _listed(sysfs / "bus/pci/devices"):
        if _text(device / "vendor") == _NVIDIA and _text(device / "class")[:6] in _DISPLAY_CLASSES:
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
    steps: list[str] = []
    for step in reversed(path.parts):
        steps.append(step)
        if step.startswith("pci"):  # "pci0000:00", the root complex
            break
    driver = path / "driver"
    numa = _text(path / "numa_node")
    return PciDevice(
        pci_address(path.name),
        tuple(reversed(steps)),
        int(numa) if numa.isascii() and numa.isdigit() else None,  # "-1" = unknown
        driver.resolve().name if driver.exists() else "",
    )


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())[:_MAX_DEVICES]
    except OSError:
        return []


def _text(file: Path) -> str:
    with contextlib.suppress(OSError, ValueError), file.open(encoding="ascii") as stream:
        return stream.read(64).strip()
    return ""
