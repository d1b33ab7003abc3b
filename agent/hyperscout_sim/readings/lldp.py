"""Writes LLDP frames of the switches of a fabric, and lldpd's output about them.

The cables of the fabric represent Ethernet cables: a host's adapter of rail n is its interface `ethn`, and
port n of a switch is `swpn`.
"""

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from hyperscout_sim.fabric.fabric import Cable, SimAdapter, SimFabric, SimSwitch

TTL_S = 120
_GROUP_ADDRESS = bytes.fromhex("0180c200000e")  # IEEE 802.1AB, nearest bridge
_ETHERTYPE = 0x88CC
_LOCALLY_ADMINISTERED = 0x02
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
    """Return the interface of an adapter: `mlx5_3` -> `eth3`."""
    return f"eth{adapter.device.rpartition('_')[2]}"


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


def lldpctl_json0(links: Sequence[Uplink]) -> bytes:
    """Return what `lldpctl -f json0` of lldpd 1.0.16 prints on a host with these cables."""
    interfaces = [_interface(n, link) for n, link in enumerate(links, start=1)]
    return json.dumps({"lldp": [{"interface": interfaces}]}, indent=2).encode() + b"\n"


def _interface(number: int, link: Uplink) -> dict[str, object]:
    switch = link.switch
    port = f"swp{link.switch_port}"
    return {
        "name": link.interface,
        "via": "LLDP",
        "rid": str(number),
        "age": "0 day, 00:10:00",
        "chassis": [
            {
                "id": [{"type": "mac", "value": mac_of(switch.guid)}],
                "name": [{"value": switch.name}],
                "descr": [{"value": switch.description}],
                "mgmt-ip": [{"value": management_address(switch)}],
                "mgmt-iface": [{"value": "1"}],
                "capability": [{"type": "Bridge", "enabled": True}, {"type": "Router", "enabled": True}],
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
