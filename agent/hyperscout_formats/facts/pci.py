"""Reads where a PCI function is from its path below /sys/devices, and checks what others report about it.

A path names each bridge from the root complex to the function:
/sys/devices/pci0000:15/0000:15:01.0/0000:18:00.0. The root is written as Kubernetes writes the attribute
`resource.kubernetes.io/pcieRoot` (k8s.io/dynamic-resource-allocation, deviceattribute).
"""

import re
from typing import Final, NamedTuple

from hyperscout_formats.facts.facts import MAX_NUMA_NODES

PCI_ADDRESS: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
PCIE_ROOT: Final = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")


class PciSlot(NamedTuple):
    """`address`: "0000:18:00.0"; `root`: "pci0000:15". Both are "" for a device that is not on PCI."""

    address: str = ""
    root: str = ""


def pci_slot(path: str) -> PciSlot:
    """Return the last function in a path, and the first root complex in it."""
    steps = path.split("/")
    address = next((step for step in reversed(steps) if PCI_ADDRESS.fullmatch(step)), None)
    root = next((step for step in steps if PCIE_ROOT.fullmatch(step)), None)
    return PciSlot(address, root) if address and root else PciSlot()


def is_pci_slot(slot: PciSlot) -> bool:
    """Return whether both are valid, or both are ""."""
    if not slot.address or not slot.root:
        return slot == PciSlot()
    return bool(PCI_ADDRESS.fullmatch(slot.address) and PCIE_ROOT.fullmatch(slot.root))


def numa_node(text: str) -> int | None:
    """Return the NUMA node in Linux's file; "-1" = unknown."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and int(text) < MAX_NUMA_NODES else None
