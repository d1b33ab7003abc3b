"""Where a host's GPUs and NICs sit in its PCI tree, from sysfs: which NIC is nearest to which GPU.

A path below /sys/devices names every bridge between the processor and a device, so two devices are the nearer
the longer the beginning that their paths share. Only names and links are read, which is cheap and needs no
rights; a part that cannot be read is as if it were not there.
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
_PASSED_THROUGH: Final = "vfio-pci"  # given to a virtual machine: not this host's any more


@dataclass(frozen=True, slots=True)
class PciDevice:
    """`path`: the steps from the root complex down to it. `driver`: "" where none is bound."""

    address: str
    path: tuple[str, ...]
    numa_node: int | None
    driver: str = ""


@dataclass(frozen=True, slots=True)
class PciTree:
    """NVIDIA's GPUs by address, those of virtual machines left out; and NICs by name.

    NICs are RDMA devices where there are some, else network interfaces; virtual functions are neither.
    """

    gpus: Mapping[str, PciDevice]
    nics: Mapping[str, PciDevice]

    def nearest_nics(self, address: str) -> tuple[str, ...]:
        """Names of the NICs that share most of the way with a GPU, and its NUMA node if any of those do."""
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
    """The tree as it is now. Raises nothing: what cannot be read is left out."""
    gpus = {}
    for device in _listed(sysfs / "bus/pci/devices"):
        if _text(device / "vendor") == _NVIDIA and _text(device / "class")[:6] in _DISPLAY_CLASSES:
            found = _device(device)
            if found is not None and found.driver != _PASSED_THROUGH:
                gpus[found.address] = found
    nics = _nics(_listed(sysfs / "class/infiniband"))
    return PciTree(gpus, nics or _nics(_listed(sysfs / "class/net")))


def _nics(entries: Iterable[Path]) -> dict[str, PciDevice]:
    """Those that are PCI functions of their own: no bridges, tunnels or virtual functions."""
    found = {}
    for entry in entries:
        device = entry / "device"
        if device.exists() and not (device / "physfn").exists() and (nic := _device(device)) is not None:
            found[entry.name] = nic
    return found


def _device(link: Path) -> PciDevice | None:
    """What `link` points at, or the PCI function above it (a virtio NIC hangs one step below its own)."""
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
        int(numa) if numa.isascii() and numa.isdigit() else None,  # "-1" = not known
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
