"""Reads the AMD GPUs of this host and their xGMI hives and links from /sys/class/kfd/kfd/topology/nodes.

The reader is pure: it takes the contents of the files. Source of names and values: Linux,
drivers/gpu/drm/amd/amdkfd/kfd_topology.c (`node_show`, `iolink_show`) and kfd_crat.h. A GPU that is divided
into partitions has one node for each partition, all with its `unique_id`; it is one GPU here.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from hyperscout_formats.facts.accelerators import XGMI
from hyperscout_formats.facts.facts import Gpu, NvlinkFabric, NvlinkLink
from hyperscout_formats.text.errors import Problem
from hyperscout_formats.text.problems import Problems

MAX_FILE_BYTES: Final = 4096  # one page, the maximum of sysfs
MAX_GPUS: Final = 64
_XGMI_LINK: Final = "11"  # CRAT_IOLINK_TYPE_XGMI
_PATH: Final = re.compile(r"(\d{1,4})/(gpu_id|properties|io_links/\d{1,4}/properties)", re.ASCII)
_LINE: Final = re.compile(r"([a-z0-9_]{1,60}) (\d{1,20})", re.ASCII)
_MEGABYTES: Final = 1000  # per gigabyte


@dataclass(frozen=True, slots=True)
class _Node:
    """`gpu`: without links. `to_gbytes_per_s`: by node at the other end of an xGMI link, its bandwidth."""

    gpu: Gpu
    identity: str
    to_gbytes_per_s: Mapping[int, float]


def parse(
    tree: Mapping[str, bytes], source: str = "/sys/class/kfd/kfd/topology/nodes"
) -> tuple[tuple[Gpu, ...], tuple[Problem, ...]]:
    """Return the GPUs in order of their PCI addresses, and the nodes that could not be read.

    `tree` maps a path below the folder to its content: `2/gpu_id`, `2/properties` and
    `2/io_links/0/properties`. A node of a processor has `gpu_id` 0 and is no GPU.

    Each GPU has one link for each other GPU of the host, by its place in their order. The link is active if
    the kernel lists an xGMI link to that GPU.
    """
    problems = Problems(source)
    nodes: dict[int, _Node] = {}
    for number in sorted({int(match[1]) for path in tree if (match := _PATH.fullmatch(path))}):
        if _text(tree, f"{number}/gpu_id").strip() == "0":
            continue
        found = _node(tree, number)
        if isinstance(found, str):
            problems.add(0, f"node {number}: {found}")
        else:
            nodes[number] = found
    gpus: dict[str, Gpu] = {}  # by identity; of several nodes the first
    for node in nodes.values():
        gpus.setdefault(node.identity, node.gpu)
    for address, several in Counter(gpu.pci_address for gpu in gpus.values()).items():
        if several > 1:
            problems.add(0, f"{several} GPUs have the PCI address {address}; they are not read")
            gpus = {one: gpu for one, gpu in gpus.items() if gpu.pci_address != address}
    order = sorted(gpus, key=lambda identity: gpus[identity].pci_address)
    if len(order) > MAX_GPUS:
        problems.add(0, f"{len(order)} GPUs; only the first {MAX_GPUS} are read")
    reached: dict[tuple[str, str], float] = {}
    for node in nodes.values():
        for number, gbytes_per_s in node.to_gbytes_per_s.items():
            if number in nodes:
                ends = node.identity, nodes[number].identity
                reached[ends] = max(reached.get(ends, 0.0), gbytes_per_s)
    order = order[:MAX_GPUS]
    listed: list[Gpu] = []
    for one in order:
        links = (_link(gpus, reached, one, n, other) for n, other in enumerate(order) if other != one)
        listed.append(replace(gpus[one], links=tuple(links)))
    return tuple(listed), problems.listed()


def _link(
    gpus: Mapping[str, Gpu], reached: Mapping[tuple[str, str], float], one: str, number: int, other: str
) -> NvlinkLink:
    return NvlinkLink(
        number,
        active=(one, other) in reached,
        remote_type="gpu",
        remote_pci_address=gpus[other].pci_address,
        gbytes_per_s=reached.get((one, other), 0.0),
    )


def _node(tree: Mapping[str, bytes], number: int) -> _Node | str:
    """Return a node of a GPU, or why it cannot be read."""
    unread = [name for name in ("gpu_id", "properties") if not _text(tree, f"{number}/{name}")]
    if unread:
        return f"its {' and '.join(unread)} cannot be read"
    found = _properties(_text(tree, f"{number}/properties"))
    location, domain = found.get("location_id"), found.get("domain", 0)
    if location is None or domain > 0xFFFF:
        return "its properties have no location_id, or an impossible domain"
    # Linux 6.10 and newer: a partition's number is in bits 28 to 31.
    bus, device, function = location >> 8 & 0xFF, location >> 3 & 0x1F, location & 7
    address = f"{domain:04x}:{bus:02x}:{device:02x}.{function}"
    unique, hive = found.get("unique_id", 0), found.get("hive_id", 0)
    links: dict[int, float] = {}
    for path in tree:
        if path.startswith(f"{number}/io_links/"):
            link = _properties(_text(tree, path))
            if not link:
                return f"its {path.removeprefix(f'{number}/')} cannot be read"
            if str(link.get("type")) == _XGMI_LINK and "node_to" in link:
                to = link["node_to"]
                links[to] = links.get(to, 0.0) + min(link.get("max_bandwidth", 0), 1 << 32) / _MEGABYTES
    return _Node(
        Gpu(
            f"GPU-{unique:016x}" if 0 < unique < 1 << 64 else "",
            f"AMD {found.get('device_id', 0) & 0xFFFF:#06x}",
            address,
            fabric=NvlinkFabric("completed", domain=f"{hive:x}") if 0 < hive < 1 << 64 else None,
            kind=XGMI,
        ),
        str(unique) if unique else address,
        links,
    )


def error_count(text: bytes) -> int:
    """Return the content of the file `xgmi_error`: 0 = no error since the last reading, 1 = one, 2 = several.

    Source: `amdgpu_xgmi_show_error` in drivers/gpu/drm/amd/amdgpu/amdgpu_xgmi.c, which clears the status that
    it reads, and the enumeration `rsmi_xgmi_status_t` of ROCm SMI. Anything else counts as no error.
    """
    return {b"1": 1, b"2": 2}.get(text.strip(), 0)


def _properties(text: str) -> dict[str, int]:
    """Return the numbers by name: each line is `name number`. Other lines are ignored."""
    return {match[1]: int(match[2]) for line in text.splitlines() if (match := _LINE.fullmatch(line))}


def _text(tree: Mapping[str, bytes], path: str) -> str:
    return tree.get(path, b"")[:MAX_FILE_BYTES].decode("ascii", "replace")
