"""Reads this host's Ethernet ports from sysfs (Linux, Documentation/ABI/testing/sysfs-class-net).

This module uses only the standard library, because the privileged listener imports it.
"""

import contextlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_MAX_PORTS = 256
_ETHERNET = "1"  # ARPHRD_ETHER; IPoIB is 32
# A NIC in switchdev mode adds a representor for each virtual function and subfunction. It has no cable.
_REPRESENTOR = re.compile(r"(c\d+)?pf\d+((vf|sf)\d+)?")


class PatternError(ValueError):
    """The pattern for port names is not a valid regular expression."""


@dataclass(frozen=True, slots=True)
class PortState:
    """The kernel's state of one port.

    `speed_mbps`: Mbit/s, 0 when unknown. `carrier_changes`: number of changes since the port appeared.
    `device`: path of its device below /sys/devices, "" for a virtual function or without a device.
    `numa_node`: as the kernel writes it, "-1" or "" = unknown.
    """

    name: str
    mac: str
    carrier: bool
    speed_mbps: int
    carrier_changes: int
    device: str = ""
    numa_node: str = ""


def compiled(pattern: str | None) -> re.Pattern[str] | None:
    """Compile a pattern; None stays None. Raises PatternError with the reason."""
    if pattern is None:
        return None
    try:
        return re.compile(pattern)
    except re.error as error:
        raise PatternError(f"{pattern!r}: expected a regular expression: {error}") from error


def physical_ports(sysfs: Path, pattern: re.Pattern[str] | None = None, limit: int = _MAX_PORTS) -> list[str]:
    """Return the sorted names of the physical ports, or of all ports that match `pattern`.

    A pattern must match the whole name, unless it begins with ^: then it must match the name's beginning.
    Physical ports include the members of a bond. They exclude the bond itself, bridges, veth devices, VLANs,
    virtual functions and representors. At most `limit` names are returned.
    """
    names = []
    for folder in _folders(sysfs / "class/net"):
        if pattern is not None:
            if _takes(pattern, folder.name):
                names.append(folder.name)
        elif _is_physical(folder):
            names.append(folder.name)
    return sorted(names)[:limit]


def read_port(sysfs: Path, name: str) -> PortState | None:
    """Return the state of a port, None when the port does not exist."""
    folder = sysfs / "class/net" / name
    if not folder.is_dir():
        return None
    # All members of a bond show the bond's address. This file has the member's own address.
    mac = _text(folder / "bonding_slave/perm_hwaddr") or _text(folder / "address")
    carrier = _text(folder / "carrier") == "1"  # not readable while the port is administratively down
    speed = _number(folder / "speed") if carrier else 0
    device = folder / "device"
    is_physical = device.exists() and not (device / "physfn").exists()
    return PortState(
        name,
        mac.lower(),
        carrier,
        speed,
        _number(folder / "carrier_changes"),
        os.path.realpath(device) if is_physical else "",
        _text(device / "numa_node"),
    )


def read_ports(sysfs: Path, names: Iterable[str]) -> list[PortState]:
    """Return the states of the ports that exist."""
    return [port for name in names if (port := read_port(sysfs, name)) is not None]


def read_statistics(sysfs: Path, name: str, counters: Iterable[str]) -> dict[str, bytes]:
    """Return the raw content of a port's counter files, by counter name. Missing files are omitted."""
    folder = sysfs / "class/net" / name / "statistics"
    found = {}
    for counter in counters:
        with contextlib.suppress(OSError), (folder / counter).open("rb") as file:
            found[counter] = file.read(64)
    return found


def _takes(pattern: re.Pattern[str], name: str) -> bool:
    match = pattern.match if pattern.pattern.startswith("^") else pattern.fullmatch
    return match(name) is not None


def _is_physical(folder: Path) -> bool:
    if _text(folder / "type") != _ETHERNET or (folder / "wireless").exists():
        return False
    if (folder / "bonding_slave").exists():
        return True
    if not (folder / "device").exists() or (folder / "device/physfn").exists():
        return False
    return not _REPRESENTOR.fullmatch(_text(folder / "phys_port_name"))


def _folders(parent: Path) -> list[Path]:
    try:
        return [entry for entry in parent.iterdir() if entry.is_dir()]
    except OSError:
        return []


def _text(path: Path) -> str:
    """Return the text of a small file, "" when it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(256).decode("ascii", "replace").strip()
    except OSError:
        return ""


def _number(path: Path) -> int:
    """Return a counter or a speed, 0 when it is unknown (the kernel reports -1)."""
    text = _text(path)
    return int(text) if text.isdecimal() and len(text) < 12 else 0
