"""Writes LLDP frames of the switches of a fabric, and lldpd's output about them.

The cables of the fabric represent Ethernet cables: a host's adapter of rail n is its interface `ethn`, and
port n of a switch is `swpn`.
"""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from hyperscout_sim.fabric.fabric import Cable, SimAdapter, SimFabric, SimSwitch

TTL_S = 120
_GROUP_ADDRESS = bytes.fromhex("0180c200000e")  # IEEE 802.1AB, nearest bridge
_ETHERTYPE = 0x88CC
_LOCALLY_ADMINISTERED = 0x02
BLUEFIELD_SYSTEM: Final = "Ubuntu 22.04 BlueField"
# IEEE 802.1AB-2016, clause 8: TLV types and subtypes.
_END, _CHASSIS_ID, _PORT_ID, _TTL, _PORT_DESCRIPTION, _NAME, _DESCRIPTION, _CAPABILITIES, _MANAGEMENT = range(
    9
)
_BY_MAC, _BY_IFNAME = 4, 5
_BRIDGE_AND_ROUTER = 0x0014
_IPV4, _BY_IFINDEX = 1, 2


@dataclass(frozen=True, slots=True)
class Uplink:
    """A host's interface and the switch port at the other end of its cable."""

    interface: str
    adapter: SimAdapter
    switch: SimSwitch
    switch_port: int


@dataclass(frozen=True, slots=True)
class Hearing:
    """How hosts appear in LLDP. By default each host is a plain station.

    `routes`: hosts that announce the capabilities Bridge and Router. `guests`: host -> its virtual machines
    that switches hear, too. `dpu`: hosts whose adapters are BlueFields with an operating system of their own:
    the switch hears the BlueField, and so does the host.
    """

    routes: frozenset[str] = frozenset()
    guests: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    dpu: frozenset[str] = frozenset()


PLAIN_HOSTS: Final = Hearing()


def uplinks(fabric: SimFabric) -> dict[str, list[Uplink]]:
    """Return host -> its cabled interfaces, in adapter order."""
    switches = {x.guid: x for x in fabric.switches}
    cables: dict[int, Cable] = {c.a: c for c in fabric.cables if c.b in switches}
    found: dict[str, list[Uplink]] = {host: [] for host in fabric.hosts}
    for adapter in fabric.adapters:
        cable = cables.get(adapter.guid)
        if cable and not adapter.foreign:
            found[adapter.host].append(
                Uplink(interface_of(adapter), adapter, switches[cable.b], cable.b_port)
            )
    return found


def interface_of(adapter: SimAdapter) -> str:
    """Return the interface of an adapter: `mlx5_3` -> `eth3`. A device with another name is the interface."""
    prefix, _, number = adapter.device.rpartition("_")
    return f"eth{number}" if prefix == "mlx5" else adapter.device


def mac_of(guid: int, port: int = 0) -> str:
    """Return a locally administered MAC address for a device or a port, from the low half of the GUID."""
    number = ((guid & 0xFFFF_FFFF) << 8) + (port & 0xFF)
    return bytes((_LOCALLY_ADMINISTERED, *number.to_bytes(5, "big"))).hex(":")


def management_address(switch: SimSwitch) -> str:
    """Return an IPv4 address in 10.0.0.0/8."""
    low = switch.guid >> 6 & 0xFF_FFFF
    return f"10.{low >> 16}.{low >> 8 & 0xFF}.{low & 0xFF}"


def frame(switch: SimSwitch, port: int, ttl_s: int = TTL_S) -> bytes:
    """Return the Ethernet frame that this port sends, without preamble and check sequence."""
    chassis = bytes.fromhex(mac_of(switch.guid).replace(":", ""))
    address = bytes(int(x) for x in management_address(switch).split("."))
    name = f"swp{port}".encode()
    tlvs = (
        _tlv(_CHASSIS_ID, bytes((_BY_MAC,)) + chassis),
        _tlv(_PORT_ID, bytes((_BY_IFNAME,)) + name),
        _tlv(_TTL, struct.pack("!H", ttl_s)),
        _tlv(_PORT_DESCRIPTION, name),
        _tlv(_NAME, switch.name.encode()),
        _tlv(_DESCRIPTION, switch.description.encode()),
        _tlv(_CAPABILITIES, struct.pack("!HH", _BRIDGE_AND_ROUTER, _BRIDGE_AND_ROUTER)),
        _tlv(_MANAGEMENT, struct.pack("!BB4sBIB", 5, _IPV4, address, _BY_IFINDEX, 1, 0)),
        _tlv(_END, b""),
    )
    source = bytes.fromhex(mac_of(switch.guid, port).replace(":", ""))
    return _GROUP_ADDRESS + source + struct.pack("!H", _ETHERTYPE) + b"".join(tlvs)


def bluefield_name(adapter: SimAdapter) -> str:
    """Return the host name of the BlueField that this adapter is."""
    return f"{adapter.host}-bf-{interface_of(adapter)}"


def lldpctl_json0(links: Sequence[Uplink], *, dpu: bool = False) -> bytes:
    """Return what `lldpctl -f json0` of lldpd 1.0.16 prints on a host with these cables.

    `dpu`: the host's adapters are BlueFields in DPU mode.
    """
    interface = _behind_bluefield if dpu else _interface
    interfaces = [interface(n, link) for n, link in enumerate(links, start=1)]
    return json.dumps({"lldp": [{"interface": interfaces}]}, indent=2).encode() + b"\n"


def _interface(number: int, link: Uplink) -> dict[str, object]:
    switch = link.switch
    chassis = (mac_of(switch.guid), switch.name, switch.description, management_address(switch))
    return _neighbour(link.interface, number, chassis, f"swp{link.switch_port}", ("Bridge", "Router"))


def _behind_bluefield(number: int, link: Uplink) -> dict[str, object]:
    own = link.adapter
    chassis = (mac_of(own.guid), bluefield_name(own), BLUEFIELD_SYSTEM, "")
    return _neighbour(link.interface, number, chassis, f"pf{number - 1}hpf", ("Bridge", "Router", "Station"))


def _neighbour(
    interface: str, number: int, chassis: tuple[str, str, str, str], port: str, can: Sequence[str]
) -> dict[str, object]:
    """Return one interface. `chassis`: id, name, description, and management address, "" = none."""
    mac, name, description, address = chassis
    managed = {"mgmt-ip": [{"value": address}], "mgmt-iface": [{"value": "1"}]} if address else {}
    return {
        "name": interface,
        "via": "LLDP",
        "rid": str(number),
        "age": "0 day, 00:10:00",
        "chassis": [
            {
                "id": [{"type": "mac", "value": mac}],
                "name": [{"value": name}],
                "descr": [{"value": description}],
                **managed,
                "capability": [{"type": one, "enabled": True} for one in can],
            }
        ],
        "port": [
            {
                "id": [{"type": "ifname", "value": port}],
                "descr": [{"value": port}],
                "ttl": [{"value": str(TTL_S)}],
            }
        ],
    }


def _tlv(kind: int, value: bytes) -> bytes:
    return struct.pack("!H", kind << 9 | len(value)) + value
