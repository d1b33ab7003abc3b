"""Where PCI functions are, from paths below /sys/devices."""

import pytest
from hyperscout_formats.facts.pci import PciSlot, is_pci_slot, pci_slot
from hypothesis import given
from hypothesis import strategies as st

NIC = "/sys/devices/pci0000:15/0000:15:01.0/0000:18:00.0"


@pytest.mark.parametrize(
    ("path", "slot"),
    [
        (NIC, PciSlot("0000:18:00.0", "pci0000:15")),
        (f"{NIC}/virtio3", PciSlot("0000:18:00.0", "pci0000:15")),
        # Behind a VMD controller there is a second root; Kubernetes names the first.
        (
            "/sys/devices/pci0000:c9/0000:c9:00.5/pci10002:00/10002:00:01.0",
            PciSlot("10002:00:01.0", "pci0000:c9"),
        ),
        ("/sys/devices/virtual/net/veth0", PciSlot()),
        ("/sys/devices/pci0000:15", PciSlot()),
        ("/sys/devices/0000:18:00.0", PciSlot()),
        ("/sys/devices/pci0000:15/0000:18:00.8", PciSlot()),
        ("", PciSlot()),
    ],
)
def test_a_slot(path: str, slot: PciSlot) -> None:
    assert pci_slot(path) == slot


@given(st.text() | st.lists(st.sampled_from(["pci0000:15", "0000:18:00.0", "..", "x"])).map("/".join))
def test_what_is_read_is_valid(path: str) -> None:
    assert is_pci_slot(pci_slot(path))


@pytest.mark.parametrize(
    "slot",
    [
        PciSlot("0000:18:00.0"),
        PciSlot("", "pci0000:15"),
        PciSlot("0000:18:00.0\n", "pci0000:15"),
        PciSlot("0000:18:00.0", "pci0000:15/"),
        PciSlot("x" * 10_000, "pci0000:15"),
    ],
)
def test_what_is_no_slot(slot: PciSlot) -> None:
    assert not is_pci_slot(slot)
