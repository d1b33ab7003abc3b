"""Writes the InfiniBand part of a host's /sys, and the same as facts.

Source of the layout: Linux, Documentation/ABI/stable/sysfs-class-infiniband.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath

from hyperscout_formats.facts.facts import InfinibandPort
from hyperscout_formats.infiniband.ibnetdiscover_line import LANE_GBPS

from hyperscout_sim.fabric.fabric import Cable, SimAdapter

# Signalling rate as ibnetdiscover writes it -> Gb/s of one lane. "GE" is for Ethernet below these rates.
_LANE_GBPS = {"GE": 1.0} | {rate.decode(): gbps for rate, gbps in LANE_GBPS.items()}
_BOARD_ID = "MT_0000000223"
_STATES = {"ACTIVE": "4: ACTIVE", "DOWN": "1: DOWN"}
_PHYSICAL_STATES = {"LinkUp": "5: LinkUp", "Polling": "2: Polling"}
_SM_LID = 1


def rate_gbps(rate: str) -> float:
    """Return the rate in Gb/s: `4xHDR` -> 200."""
    width, _, speed = rate.partition("x")
    return int(width) * _LANE_GBPS[speed]


def port_facts(adapter: SimAdapter, cable: Cable | None, link_downed: int = 0) -> InfinibandPort:
    """Return the fact of the adapter's first port, with this cable or without a cable."""
    return InfinibandPort(
        device=adapter.device,
        port=1,
        node_guid=adapter.guid,
        port_guid=adapter.port_guid,
        system_image_guid=adapter.guid,
        state="ACTIVE" if cable else "DOWN",
        physical_state="LinkUp" if cable else "Polling",
        rate_gbps=rate_gbps(cable.rate) if cable else 10.0,  # rate of a port without a partner: 4X QDR
        lid=1 + (adapter.guid >> 4) % 0xBFFF if cable else 0xFFFF,
        sm_lid=_SM_LID if cable else 0,
        node_description=adapter.description,
        link_layer="InfiniBand",
        board_id=_BOARD_ID,
        link_downed=link_downed,
    )


def in_slot(port: InfinibandPort) -> InfinibandPort:
    """Return the fact of a port whose device is in a slot of its own; two NUMA zones have four slots each."""
    number = int("".join(filter(str.isdecimal, port.device.rpartition("_")[2])) or 0)
    root = f"{number // 8:04x}:{number % 8 * 32:02x}"
    bus = f"{number // 8:04x}:{number % 8 * 32 + 1:02x}"
    return replace(port, pci_address=f"{bus}:00.0", pcie_root=f"pci{root}", numa_node=number % 8 // 4)


def tree(ports: Mapping[SimAdapter, Cable | None]) -> dict[str, bytes]:
    """Return path below /sys/class/infiniband -> content, for all adapters of one host."""
    files: dict[str, bytes] = {}
    for adapter, cable in ports.items():
        fact = port_facts(adapter, cable)
        rate = f"{fact.rate_gbps:g} Gb/sec ({cable.rate.replace('x', 'X ')})" if cable else "10 Gb/sec (4X)"
        base = PurePosixPath(adapter.device)
        values = {
            base / "node_guid": _guid(adapter.guid),
            base / "sys_image_guid": _guid(adapter.guid),
            base / "node_desc": adapter.description,
            base / "node_type": "1: CA",
            base / "board_id": _BOARD_ID,
            base / "ports/1/state": _STATES[fact.state],
            base / "ports/1/phys_state": _PHYSICAL_STATES[fact.physical_state],
            base / "ports/1/rate": rate,
            base / "ports/1/lid": f"0x{fact.lid:x}",
            base / "ports/1/sm_lid": f"0x{fact.sm_lid:x}",
            base / "ports/1/link_layer": fact.link_layer,
            base / "ports/1/gids/0": f"fe80:0000:0000:0000:{_guid(adapter.port_guid)}",
            base / "ports/1/counters/link_downed": str(fact.link_downed),
        }
        files |= {str(path): f"{value}\n".encode() for path, value in values.items()}
    return files


def _guid(guid: int) -> str:
    text = f"{guid:016x}"
    return ":".join(text[i : i + 4] for i in range(0, 16, 4))
