"""Selects the interfaces that ping: compute-fabric interfaces with an address, or those of a pattern.

Round trips over the management network do not describe the compute fabric. On a host with InfiniBand only
IP over InfiniBand interfaces are selected; on others the fastest physical ports and bonds.

Addresses come from rtnetlink(7), which needs no privileges. Link-local addresses are omitted, because a
peer in another subnet cannot reach them. Tentative, failed and deprecated addresses, temporary IPv6 addresses
and secondary IPv4 addresses are omitted too.
"""

import re
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from hyperscout_agent.runtime.ports import physical_ports, read_ports
from hyperscout_agent.runtime.rtnetlink import attributes, messages

MAX_INTERFACES = 64
MAX_ADDRESSES = 8  # per interface

_RTM_NEWADDR, _RTM_GETADDR = 20, 22
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_REQUEST_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_REQUEST = struct.Struct("=IHHIIBxxxi")  # nlmsghdr, then ifaddrmsg: family, index
_ADDRESS = struct.Struct("=BBBBi")  # ifaddrmsg: family, prefix length, flags, scope, index
_IFA_ADDRESS, _IFA_LOCAL, _IFA_FLAGS = 1, 2, 8
# IFA_F_TEMPORARY, which is IFA_F_SECONDARY for IPv4; IFA_F_DADFAILED, IFA_F_DEPRECATED, IFA_F_TENTATIVE.
# Secondary IPv4 addresses are omitted on purpose: the interface has a primary address in the same subnet,
# which the same peers reach, and a secondary address is often a virtual one that moves to another host.
_UNUSABLE = 0x01 | 0x08 | 0x20 | 0x40
_INFINIBAND = "32"  # ARPHRD_INFINIBAND: IP over InfiniBand
_TIMEOUT_S = 2.0
_RECEIVE_BYTES = 64 * 1024
_MAX_DUMP_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class PingInterface:
    """An interface that pings. `rdma_port`: for example "mlx5_0/1"; "" when there is none."""

    name: str
    addresses: tuple[str, ...]
    rdma_port: str = ""


def ping_interfaces(sysfs: Path, pattern: re.Pattern[str] | None) -> list[PingInterface]:
    """Return the selected interfaces of this network namespace, by name.

    May block. Raises OSError when the kernel does not return its addresses.
    """
    addresses = read_addresses()
    if pattern is not None:
        names = [name for name in addresses if pattern.fullmatch(name)]
    else:
        names = _compute(sysfs)
    return [
        PingInterface(name, addresses[name][:MAX_ADDRESSES], rdma_port(sysfs, name))
        for name in sorted(set(names) & addresses.keys())
    ][:MAX_INTERFACES]


def rdma_port(sysfs: Path, name: str) -> str:
    """Return the RDMA device and port behind an interface, "" when there is none."""
    folder = sysfs / "class/net" / name
    try:
        devices = sorted(entry.name for entry in (folder / "device/infiniband").iterdir())
        number = (folder / "dev_port").read_text().strip()
    except OSError:
        return ""
    return f"{devices[0]}/{int(number) + 1}" if devices and number.isdecimal() and len(number) < 4 else ""


def read_addresses() -> dict[str, tuple[str, ...]]:
    """Return the usable addresses by interface, IPv4 before IPv6. Raises OSError."""
    names = dict(socket.if_nameindex())
    found: dict[str, list[str]] = {}
    for index, address in parse_addresses(_dump()):
        if index in names:
            found.setdefault(names[index], []).append(address)
    return {name: tuple(sorted(some, key=lambda one: ":" in one)) for name, some in found.items()}


def parse_addresses(data: bytes) -> Iterator[tuple[int, str]]:
    """Yield (interface index, address) for each usable address. Malformed parts are skipped."""
    for kind, body in messages(data):
        if kind != _RTM_NEWADDR or len(body) < _ADDRESS.size:
            continue
        family, _, flags, _, index = _ADDRESS.unpack_from(body)
        size = {socket.AF_INET: 4, socket.AF_INET6: 16}.get(family)
        raw: dict[int, bytes] = {}
        for attribute, value in attributes(body[_ADDRESS.size :]):
            if attribute in (_IFA_ADDRESS, _IFA_LOCAL) and len(value) == size:
                raw[attribute] = value
            elif attribute == _IFA_FLAGS and len(value) == 4:
                flags = int(struct.unpack("=I", value)[0])
        # On a point-to-point link IFA_ADDRESS is the peer's address.
        mine = raw.get(_IFA_LOCAL) or raw.get(_IFA_ADDRESS)
        if mine is None or flags & _UNUSABLE:
            continue
        address = ip_address(mine)
        if not (address.is_link_local or address.is_multicast or address.is_unspecified):
            yield index, str(address)


def _dump() -> bytes:
    request = _REQUEST.pack(_REQUEST.size, _RTM_GETADDR, _REQUEST_DUMP, 1, 0, socket.AF_UNSPEC, 0)
    found = b""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as ask:
        ask.settimeout(_TIMEOUT_S)
        ask.send(request)
        while len(found) < _MAX_DUMP_BYTES:
            piece = ask.recv(_RECEIVE_BYTES)
            found += piece
            if any(kind in (_NLMSG_DONE, _NLMSG_ERROR) for kind, _ in messages(piece)):
                break
    return found


def _compute(sysfs: Path) -> list[str]:
    """Return the names of the compute-fabric interfaces, with or without an address."""
    try:
        folders = list((sysfs / "class/net").iterdir())
    except OSError:
        return []
    if _has_infiniband(sysfs):
        return [one.name for one in folders if _is_ipoib(one)]
    # The bond has the addresses, not its members.
    names = [*physical_ports(sysfs), *(one.name for one in folders if (one / "bonding").is_dir())]
    speed = {port.name: port.speed_mbps for port in read_ports(sysfs, names)}
    fastest = max(speed.values(), default=0)
    return [name for name in speed if speed[name] == fastest]


def _has_infiniband(sysfs: Path) -> bool:
    """Whether an RDMA device of this host has an InfiniBand port."""
    for layer in (sysfs / "class/infiniband").glob("*/ports/*/link_layer"):
        try:
            if layer.read_text().strip() == "InfiniBand":
                return True
        except OSError:
            continue
    return False


def _is_ipoib(folder: Path) -> bool:
    try:
        return (folder / "type").read_text().strip() == _INFINIBAND and (folder / "device").exists()
    except OSError:
        return False
