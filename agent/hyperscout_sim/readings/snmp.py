"""Writes the SNMP responses of the switches of a fabric, as .snmprec recordings for snmpsim.

The cables of the fabric represent Ethernet cables, as in `lldp`. A switch has the same identifiers in both
modules. Vendors write the same values in different ways. `STYLES` has the styles of known vendors.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from zlib import crc32

from hyperscout_formats.snmp.rows import ADDRESS, COUNTER, GAUGE, INTEGER, OID, STRING, TICKS, Row
from hyperscout_formats.snmp.values import is_printable

from hyperscout_sim.fabric.fabric import SimAdapter, SimFabric, SimSwitch
from hyperscout_sim.readings.lldp import (
    BLUEFIELD_SYSTEM,
    PLAIN_HOSTS,
    Hearing,
    bluefield_name,
    interface_of,
    mac_of,
    management_address,
)
from hyperscout_sim.readings.sysfs import rate_gbps

_SYSTEM: Final = (1, 3, 6, 1, 2, 1, 1)
_INTERFACE: Final = (1, 3, 6, 1, 2, 1, 2, 2, 1)
_INTERFACE_X: Final = (1, 3, 6, 1, 2, 1, 31, 1, 1, 1)
_LOCAL: Final = (1, 0, 8802, 1, 1, 2, 1, 3)
_REMOTE: Final = (1, 0, 8802, 1, 1, 2, 1, 4)
_CHASSIS_MAC, _PORT_MAC, _PORT_IFNAME, _PORT_LOCAL = 4, 3, 5, 7
_BRIDGE_AND_ROUTER, _STATION = 0x28, 0x01
_GUEST_MAC = "52:54:00"  # the prefix that QEMU gives to virtual machines
_UP, _DOWN = 1, 2
_TAGS: Final = {INTEGER: "2", STRING: "4", OID: "6", ADDRESS: "64", COUNTER: "65", GAUGE: "66", TICKS: "67"}
_SIM_OBJECT: Final = (1, 3, 6, 1, 4, 1, 8072, 3, 2, 10)  # net-snmp on Linux


@dataclass(frozen=True, slots=True)
class Style:
    """How a switch names and numbers its ports and writes values.

    The LLDP number of port p is `number[0] + p * number[1]`, and its ifIndex is `index[0] + p * index[1]`.
    """

    port_name: str = "swp{}"
    number: tuple[int, int] = (0, 1)
    index: tuple[int, int] = (100, 1)  # differs from the number, so that tests detect a mix-up
    id_is_index: bool = False  # ports announce their ifIndex
    time_mark: int = 0
    moving_marks: bool = False  # addresses of neighbours are listed under several other time marks
    tells_itself: bool = True  # reports lldpLocalSystemData
    tells_subtypes: bool = True  # reports the subtypes of its own port ids
    tells_addresses: bool = True  # reports addresses of neighbours
    address_length: bool = True  # the index of a neighbour's address contains its length
    mac_as_text: bool = False
    capabilities: str = "bits"  # or "text" ("28 00 2 4"), "text of text"
    private: bool = False  # names are removed
    twin_interfaces: bool = False  # each name occurs twice, once for an empty slot

    def name_of(self, port: int) -> str:
        return self.port_name.format(port)

    def number_of(self, port: int) -> int:
        return self.number[0] + port * self.number[1]

    def index_of(self, port: int) -> int:
        return self.index[0] + port * self.index[1]

    def id_of(self, port: int) -> str:
        """Return the port id that the port announces."""
        return str(self.index_of(port)) if self.id_is_index else self.name_of(port)


PLAIN: Final = Style()
STYLES: Final = {
    "linux": PLAIN,
    "nx-os": Style(
        "Ethernet1/{}",
        number=(436203520, 4096),
        index=(436203520, 4096),
        tells_itself=False,
        tells_subtypes=False,
        capabilities="text",
        private=True,
    ),
    "os10": Style(
        "ethernet1/1/{}",
        number=(512, 4),
        index=(12, 1),
        time_mark=4500,
        tells_addresses=False,
        capabilities="text of text",
    ),
    "dnos": Style("hundredGigE 1/{}", number=(2097154, 512), index=(2097154, 512), mac_as_text=True),
    "junos": Style("xe-0/0/{}", number=(508, 5), index=(508, 5), id_is_index=True, time_mark=35684499),
    "sonic": Style("Eth{0}(Port{0})", index=(0, 1), moving_marks=True, capabilities="text"),
    "slx-os": Style(
        "Ethernet 0/{}",
        index=(201326592, 8192),
        time_mark=471847600,
        address_length=False,
        capabilities="text",
        twin_interfaces=True,
    ),
}


class _Neighbour(NamedTuple):
    """What a port hears of one system. `addresses` are its management addresses."""

    chassis: bytes
    port_kind: int
    port_id: bytes
    port_description: str
    name: str
    description: str
    capabilities: int
    addresses: tuple[str, ...] = ()


class _End(NamedTuple):
    """The other end of a switch port's cable: the peer, its port, and the rate."""

    peer: SimSwitch | SimAdapter
    peer_port: int
    rate: str


def recordings(fabric: SimFabric, styles: Sequence[Style] = (PLAIN,)) -> Iterator[tuple[SimSwitch, bytes]]:
    """Yield each switch and its recording. The n-th switch of the fabric has the n-th style, in turn."""
    for switch, rows in walks(fabric, styles):
        yield switch, snmprec(rows)


def walks(
    fabric: SimFabric, styles: Sequence[Style] = (PLAIN,), hearing: Hearing = PLAIN_HOSTS
) -> Iterator[tuple[SimSwitch, list[Row]]]:
    """Yield each switch and its rows, in order of OIDs."""
    style_of = {switch.guid: styles[i % len(styles)] for i, switch in enumerate(fabric.switches)}
    devices: dict[int, SimSwitch | SimAdapter] = {x.guid: x for x in fabric.switches}
    devices |= {x.guid: x for x in fabric.adapters}
    chassis_of: dict[str, str] = {}
    for adapter in fabric.adapters:
        chassis_of.setdefault(adapter.host, mac_of(adapter.guid))
    ends: dict[int, dict[int, _End]] = defaultdict(dict)
    for a, a_port, b, b_port, rate in fabric.cables:
        ends[a][a_port] = _End(devices[b], b_port, rate)
        ends[b][b_port] = _End(devices[a], a_port, rate)
    for switch in fabric.switches:
        style = style_of[switch.guid]
        rows = [
            *_system(switch, style),
            *_local(switch, style),
            *_interfaces(switch, style, ends[switch.guid]),
        ]
        for port, end in ends[switch.guid].items():
            for heard, neighbour in enumerate(_neighbours(style, end, style_of, chassis_of, hearing)):
                rows += _remote(style, port, port + heard * (1 << 16), neighbour)
        rows.sort()
        yield switch, rows


def snmprec(rows: Iterable[Row]) -> bytes:
    """Return rows in the format that snmpsim reads: OID|TYPE|VALUE, in order of OIDs."""
    return b"".join(_line(row) for row in rows)


def walk_text(rows: Iterable[Row]) -> bytes:
    """Return rows as `snmpwalk -On` prints them without MIBs."""
    return b"".join(b".%s = %s\n" % (_dotted(row.oid), _printed(row)) for row in rows)


def _system(switch: SimSwitch, style: Style) -> Iterator[Row]:
    name = b"<private>" if style.private else switch.name.encode()
    yield Row((*_SYSTEM, 1, 0), STRING, switch.description.encode())
    yield Row((*_SYSTEM, 2, 0), OID, _SIM_OBJECT)
    yield Row((*_SYSTEM, 3, 0), TICKS, 8_640_000)
    yield Row((*_SYSTEM, 5, 0), STRING, name)


def _local(switch: SimSwitch, style: Style) -> Iterator[Row]:
    if style.tells_itself:
        yield Row((*_LOCAL, 1, 0), INTEGER, _CHASSIS_MAC)
        yield Row((*_LOCAL, 2, 0), STRING, _mac(mac_of(switch.guid), style))
        yield Row((*_LOCAL, 3, 0), STRING, switch.name.encode())
        address = _octets(management_address(switch))
        yield Row((*_LOCAL, 8, 1, 5, 1, 4, *address), INTEGER, 1)
    for port in range(1, switch.port_count + 1):
        number = style.number_of(port)
        if style.tells_subtypes:
            kind = _PORT_LOCAL if style.id_is_index else _PORT_IFNAME
            yield Row((*_LOCAL, 7, 1, 2, number), INTEGER, kind)
        yield Row((*_LOCAL, 7, 1, 3, number), STRING, style.id_of(port).encode())
        yield Row((*_LOCAL, 7, 1, 4, number), STRING, style.name_of(port).encode())


def _interfaces(switch: SimSwitch, style: Style, ends: dict[int, _End]) -> Iterator[Row]:
    for port in range(1, switch.port_count + 1):
        end = ends.get(port)
        index = style.index_of(port)
        mac = bytes.fromhex(mac_of(switch.guid, port).replace(":", ""))
        mbps = round(rate_gbps(end.rate) * 1000) if end else 0
        yield from _interface(index, style.name_of(port), mac, mbps)
        if style.twin_interfaces:
            yield from _interface(index + 320, style.name_of(port), mac, 0)


def _interface(index: int, name: str, mac: bytes, mbps: int) -> Iterator[Row]:
    yield Row((*_INTERFACE, 2, index), STRING, name.encode())
    yield Row((*_INTERFACE, 6, index), STRING, mac)
    yield Row((*_INTERFACE, 8, index), INTEGER, _UP if mbps else _DOWN)
    for column in (13, 14, 19, 20):
        yield Row((*_INTERFACE, column, index), COUNTER, 0)
    yield Row((*_INTERFACE_X, 1, index), STRING, name.encode())
    yield Row((*_INTERFACE_X, 15, index), GAUGE, mbps)
    yield Row((*_INTERFACE_X, 18, index), STRING, b"")


def _neighbours(
    style: Style, end: _End, style_of: dict[int, Style], chassis_of: dict[str, str], hearing: Hearing
) -> Iterator[_Neighbour]:
    """Yield the systems that a port hears: the one at the end of its cable, then its virtual machines."""
    peer = end.peer
    if isinstance(peer, SimSwitch):
        other = style_of[peer.guid]
        yield _Neighbour(
            _mac(mac_of(peer.guid), style),
            _PORT_LOCAL if other.id_is_index else _PORT_IFNAME,
            other.id_of(end.peer_port).encode(),
            other.name_of(end.peer_port),
            peer.name,
            "",
            _BRIDGE_AND_ROUTER,
            (management_address(peer),),
        )
        return
    own = _mac(mac_of(peer.guid), style)
    if peer.host in hearing.dpu:
        can = _BRIDGE_AND_ROUTER | _STATION
        yield _Neighbour(own, _PORT_IFNAME, b"p0", "p0", bluefield_name(peer), BLUEFIELD_SYSTEM, can)
        return
    can = _BRIDGE_AND_ROUTER | _STATION if peer.host in hearing.routes else _STATION
    chassis = _mac(chassis_of[peer.host], style)
    yield _Neighbour(chassis, _PORT_MAC, own, interface_of(peer), peer.host, "", can)
    for guest in hearing.guests.get(peer.host, ()):
        mac = _mac(f"{_GUEST_MAC}:{(crc32(guest.encode()) & 0xFFFFFF).to_bytes(3).hex(':')}", style)
        yield _Neighbour(mac, _PORT_MAC, mac, "eth0", guest, "", _STATION)


def _remote(style: Style, port: int, index: int, heard: _Neighbour) -> Iterator[Row]:
    """Yield the rows of one neighbour: of lldpRemTable, and of lldpRemManAddrTable for its addresses.

    `index` is its lldpRemIndex, which differs between the neighbours of a switch.
    """
    key = (style.time_mark, style.number_of(port), index)
    capabilities = _capabilities(heard.capabilities, style)
    for column, kind, value in (
        (4, INTEGER, _CHASSIS_MAC),
        (5, STRING, heard.chassis),
        (6, INTEGER, heard.port_kind),
        (7, STRING, heard.port_id),
        (8, STRING, heard.port_description.encode()),
        (9, STRING, b"<private>" if style.private else heard.name.encode()),
        (10, STRING, heard.description.encode()),
        (11, STRING, capabilities),
        (12, STRING, capabilities),
    ):
        yield Row((*_REMOTE, 1, 1, column, *key), kind, value)
    if style.tells_addresses:
        marks = (527540, 527550, 527560) if style.moving_marks else (style.time_mark,)
        for address in heard.addresses:
            length = (4,) if style.address_length else ()
            for mark in marks:
                at = (mark, *key[1:], 1, *length, *_octets(address))
                yield Row((*_REMOTE, 2, 1, 3, *at), INTEGER, 2)


def _capabilities(bits: int, style: Style) -> bytes:
    if style.capabilities == "bits":
        return bytes((bits, 0))
    said = f"{bits:02x} " + " ".join(str(bit) for bit in range(8) if bits & 0x80 >> bit)
    if style.capabilities == "text of text":
        said = said.encode().hex(" ") + " 2 3 10"
    return said.encode()


def _mac(text: str, style: Style) -> bytes:
    return text.replace(":", " ").encode() if style.mac_as_text else bytes.fromhex(text.replace(":", ""))


def _octets(address: str) -> tuple[int, ...]:
    return tuple(map(int, address.split(".")))


def _dotted(oid: tuple[int, ...]) -> bytes:
    return ".".join(map(str, oid)).encode()


def _line(row: Row) -> bytes:
    tag = _TAGS[row.kind]
    if isinstance(row.value, bytes):
        if row.kind == STRING and is_printable(row.value):
            value = row.value
        else:
            tag, value = tag + "x", row.value.hex().encode()
    else:
        value = _dotted(row.value) if isinstance(row.value, tuple) else b"%d" % row.value
    return b"%s|%s|%s\n" % (_dotted(row.oid), tag.encode(), value)


def _printed(row: Row) -> bytes:
    if isinstance(row.value, bytes):
        if not row.value:
            return b'""'
        if is_printable(row.value):
            return b'STRING: "%s"' % row.value.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
        return b"Hex-STRING: " + row.value.hex(" ").upper().encode() + b" "
    if isinstance(row.value, tuple):
        return b"OID: ." + _dotted(row.value)
    if row.kind == TICKS:
        return b"Timeticks: (%d) 1 day, 0:00:00.00" % row.value
    return {INTEGER: b"INTEGER", COUNTER: b"Counter32", GAUGE: b"Gauge32"}[row.kind] + b": %d" % row.value
