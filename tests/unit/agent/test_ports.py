"""Which interfaces are ports with a cable, told from trees of files as sysfs has them."""

from dataclasses import replace
from pathlib import Path

import pytest
from hyperscout_agent.probes.lldp import fact
from hyperscout_agent.runtime.ports import (
    PatternError,
    PortState,
    compiled,
    physical_ports,
    read_port,
)


def interface(root: Path, name: str, **files: str | None) -> None:
    """`None` makes a folder, a text a file; double underscores in names are slashes."""
    folder = root / "class/net" / name
    folder.mkdir(parents=True)
    for path, text in {"type": "1", "address": "02:00:00:00:00:01", **files}.items():
        target = folder / path.replace("__", "/")
        if text is None:
            target.mkdir(parents=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text + "\n")


@pytest.mark.parametrize(
    ("files", "physical"),
    [
        pytest.param({"device": None}, True, id="a NIC"),
        pytest.param({}, False, id="veth, bridge, VLAN, dummy: nothing behind it"),
        pytest.param({"device": None, "type": "772"}, False, id="loopback"),
        pytest.param({"device": None, "type": "32"}, False, id="IPoIB"),
        pytest.param({"device__physfn": None}, False, id="a virtual function"),
        pytest.param({"device": None, "phys_port_name": "p0"}, True, id="a switchdev uplink"),
        pytest.param({"device": None, "phys_port_name": "pf0vf3"}, False, id="a VF's representor"),
        pytest.param({"device": None, "phys_port_name": "c1pf0sf88"}, False, id="an SF's representor"),
        pytest.param({"device": None, "phys_port_name": "pf0"}, False, id="a host PF's representor on a DPU"),
        pytest.param({"device": None, "bonding_slave__state": "active"}, True, id="a member of a bond"),
        pytest.param({"bonding__mode": "802.3ad 4"}, False, id="the bond"),
        pytest.param({"device": None, "wireless": None}, False, id="a radio"),
    ],
)
def test_physical_ports(tmp_path: Path, files: dict[str, str | None], physical: bool) -> None:
    interface(tmp_path, "x0", **files)
    assert physical_ports(tmp_path) == (["x0"] if physical else [])


def test_a_pattern_overrides(tmp_path: Path) -> None:
    interface(tmp_path, "veth1")
    interface(tmp_path, "veth12")
    interface(tmp_path, "eth0", device=None)
    assert physical_ports(tmp_path, compiled("veth.")) == ["veth1"], "the whole name counts"
    with pytest.raises(PatternError, match="expected a regular expression"):
        compiled("(")


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("eth[0-3]", ["eth0"]),
        ("^eth", ["eth0", "eth0.100", "eth10"]),
        ("^eth[0-9]+$", ["eth0", "eth10"]),
    ],
)
def test_the_documented_patterns_take_what_is_said(tmp_path: Path, pattern: str, names: list[str]) -> None:
    for name in ("eth0", "eth10", "eth0.100", "xeth0"):
        interface(tmp_path, name)
    assert physical_ports(tmp_path, compiled(pattern)) == names


def test_no_sysfs_is_no_ports(tmp_path: Path) -> None:
    assert physical_ports(tmp_path / "nowhere") == []
    assert read_port(tmp_path, "eth0") is None


def test_reading_a_port(tmp_path: Path) -> None:
    interface(tmp_path, "eth0", carrier="1", speed="400000", carrier_changes="3", address="AA:00:00:00:00:01")
    assert read_port(tmp_path, "eth0") == PortState("eth0", "aa:00:00:00:00:01", True, 400_000, 3)
    interface(tmp_path, "eth1", carrier="0", speed="-1", bonding_slave__perm_hwaddr="02:00:00:00:00:99")
    assert read_port(tmp_path, "eth1") == PortState("eth1", "02:00:00:00:00:99", False, 0, 0)
    interface(tmp_path, "eth2", carrier="1", speed="nonsense", carrier_changes="9" * 40)
    assert read_port(tmp_path, "eth2") == PortState("eth2", "02:00:00:00:00:01", True, 0, 0)


def test_the_slot_of_a_port(tmp_path: Path) -> None:
    slots = [tmp_path / f"devices/pci0000:15/0000:18:00.{n}" for n in (0, 2)]
    for name, slot in zip(("eth0", "eth1"), slots, strict=True):
        interface(tmp_path, name)
        slot.mkdir(parents=True)
        (slot / "numa_node").write_text("1\n")
        (tmp_path / "class/net" / name / "device").symlink_to(slot)
    (slots[1] / "physfn").symlink_to(slots[0])
    port, virtual = read_port(tmp_path, "eth0"), read_port(tmp_path, "eth1")
    assert port is not None
    assert virtual is not None
    assert (port.device, port.numa_node) == (str(slots[0]), "1")
    assert virtual.device == ""
    assert (fact(port).pci_address, fact(port).pcie_root, fact(port).numa_node) == (
        "0000:18:00.0",
        "pci0000:15",
        1,
    )
    assert fact(virtual) == replace(
        fact(port), interface="eth1", pci_address="", pcie_root="", numa_node=None
    )
