"""Reads the RDMA ports of the local host from files of /sys/class/infiniband.

The reader is pure: it takes the contents of the files, which `tree` reads. Source of names and texts: Linux,
Documentation/ABI/stable/sysfs-class-infiniband.
"""

import re
from collections.abc import Mapping
from typing import Final

from hyperscout_formats.facts.facts import InfinibandPort
from hyperscout_formats.facts.pci import numa_node, pci_slot
from hyperscout_formats.infiniband.counters import SYSFS_NAMES, port_counters
from hyperscout_formats.text.clean_text import cleaned
from hyperscout_formats.text.errors import Problem
from hyperscout_formats.text.host_list import natural_key
from hyperscout_formats.text.lldp_text import text_of_bytes
from hyperscout_formats.text.problems import Problems

DEVICE_FILES: Final = ("node_guid", "sys_image_guid", "node_desc", "board_id", "device/numa_node")
DEVICE_LINK: Final = "device"
"""Not a file, but a link to the PCI function: its content is the path below /sys/devices."""
PORT_FILES: Final = (
    "state",
    "phys_state",
    "rate",
    "lid",
    "sm_lid",
    "link_layer",
    "gids/0",
    "counters/link_downed",
)
COUNTER_FILES: Final = tuple(f"counters/{name}" for name in SYSFS_NAMES)
MAX_FILE_BYTES: Final = 4096  # one page, the maximum of sysfs
MAX_PORTS: Final = 1024
"""Ports of one host. Virtual functions count, so the bound is far above the number of slots."""

_OF_DEVICE: Final = frozenset((*DEVICE_FILES, DEVICE_LINK))
_GUID: Final = re.compile(r"[0-9a-f]{4}(:[0-9a-f]{4}){3}")
_GID: Final = re.compile(r"[0-9a-f]{4}(:[0-9a-f]{4}){7}")
_STATE: Final = re.compile(r"\d+: *(\w[\w ]*)")  # `4: ACTIVE`
_RATE: Final = re.compile(r"(\d{1,6}(?:\.\d{1,3})?) Gb/sec\b.*")  # `200 Gb/sec (4X HDR)`
_LID: Final = re.compile(r"0x[0-9a-f]{1,8}")
_COUNT: Final = re.compile(r"\d{1,19}")


def parse(
    tree: Mapping[str, bytes], source: str = "/sys/class/infiniband"
) -> tuple[tuple[InfinibandPort, ...], tuple[Problem, ...]]:
    """Return ports in order of device and number, and the ports that could not be read.

    `tree` maps a path below /sys/class/infiniband to its content: `mlx5_0/node_guid`, `mlx5_0/ports/1/state`
    and so on (`DEVICE_FILES`, `DEVICE_LINK`, `PORT_FILES`, `COUNTER_FILES`).

    A port needs the `node_guid` of its device, `state` and `link_layer`. Without them it is reported as a
    problem. Every other missing value is 0 or "": a virtual function has no counters.
    """
    problems = Problems(source)
    names: set[tuple[str, int]] = set()
    for path in tree:
        parts = path.split("/")
        if len(parts) > 3 and parts[1] == "ports" and re.fullmatch(r"\d{1,3}", parts[2], re.ASCII):
            names.add((parts[0], int(parts[2])))
    if len(names) > MAX_PORTS:
        problems.add(0, f"{len(names)} ports; only the first {MAX_PORTS} are read")
    ports: list[InfinibandPort] = []
    for device, port in sorted(names, key=lambda name: (natural_key(name[0]), name[1]))[:MAX_PORTS]:
        try:
            ports.append(_port(_Files(tree, device, port)))
        except _UnusableError as error:
            problems.add(0, str(error))
    return tuple(ports), problems.listed()


class _UnusableError(Exception):
    """A required file is missing, or a file has an impossible value."""


class _Files:
    """The files of one port and its device. A missing file is None. An invalid one raises _UnusableError."""

    def __init__(self, tree: Mapping[str, bytes], device: str, port: int) -> None:
        self._tree = tree
        self.device = device
        self.port = port

    def text(self, name: str) -> str | None:
        base = f"{self.device}/" if name in _OF_DEVICE else f"{self.device}/ports/{self.port}/"
        content = self._tree.get(base + name)
        return None if content is None else text_of_bytes(content[:MAX_FILE_BYTES].removesuffix(b"\n"))

    def matched(self, name: str, shape: re.Pattern[str]) -> re.Match[str] | None:
        text = self.text(name)
        if text is None or not text.strip():
            return None
        found = shape.fullmatch(text.strip().lower() if shape in {_GUID, _GID, _LID} else text.strip())
        if found is None:
            raise _UnusableError(f"{self.device}/ports/{self.port}: unexpected {name} {text[:60]!a}")
        return found

    def count(self, name: str) -> int:
        """Return a counter. A missing or invalid counter is 0, and does not make the port unusable."""
        text = (self.text(name) or "").strip()
        return int(text) if _COUNT.fullmatch(text) else 0

    def needed(self, name: str, shape: re.Pattern[str]) -> re.Match[str]:
        found = self.matched(name, shape)
        if found is None:
            raise _UnusableError(f"{self.device}/ports/{self.port}: {name} is missing")
        return found


def _port(files: _Files) -> InfinibandPort:
    link_layer = files.needed("link_layer", re.compile(r"\w+"))[0]
    node_guid = _guid(files.needed("node_guid", _GUID))
    if not node_guid:  # a virtual function that has no GUID yet
        raise _UnusableError(f"{files.device}/ports/{files.port}: node_guid is 0")
    gid = files.matched("gids/0", _GID) if link_layer == "InfiniBand" else None
    image = files.matched("sys_image_guid", _GUID)
    rate = files.matched("rate", _RATE)
    physical_state = files.matched("phys_state", _STATE)
    link_downed = files.matched("counters/link_downed", _COUNT)
    slot = pci_slot(files.text(DEVICE_LINK) or "")
    return InfinibandPort(
        device=cleaned(files.device),
        port=files.port,
        node_guid=node_guid,
        port_guid=_guid(gid) & 0xFFFF_FFFF_FFFF_FFFF if gid else 0,
        system_image_guid=_guid(image) if image else 0,
        state=files.needed("state", _STATE)[1],
        physical_state=physical_state[1] if physical_state else "",
        rate_gbps=float(rate[1]) if rate else 0.0,
        lid=_lid(files.matched("lid", _LID)),
        sm_lid=_lid(files.matched("sm_lid", _LID)),
        node_description=files.text("node_desc") or "",
        link_layer=link_layer,
        board_id=files.text("board_id") or "",
        link_downed=int(link_downed[0]) if link_downed else 0,
        numa_node=numa_node(files.text("device/numa_node") or ""),
        pci_address=slot.address,
        pcie_root=slot.root,
        counters=port_counters({name: files.count(f"counters/{file}") for file, name in SYSFS_NAMES.items()}),
    )


def _guid(found: re.Match[str]) -> int:
    return int(found[0].replace(":", ""), 16)


def _lid(found: re.Match[str] | None) -> int:
    return int(found[0], 16) if found else 0
