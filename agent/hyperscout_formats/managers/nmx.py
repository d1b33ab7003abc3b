"""Reads NVLink domains from the responses of their manager: domain and partition of the GPUs of each host.

The input is the arrays of `/nmx/v1/compute-nodes` and `/nmx/v1/gpus` (NVIDIA NMX Manager, now part of NetQ:
"NVLink Management"). They contain neither the cables of switches nor the UUIDs that drivers report for GPUs.
They contain the host, its domain, and the partition of each GPU. The driver calls domain and partition
"cluster UUID" and "clique". The compute nodes alone are enough where no partitions exist.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from hyperscout_formats.facts.facts import Gpu, NvlinkFabric
from hyperscout_formats.nvidia import nvml_values
from hyperscout_formats.text import json_document
from hyperscout_formats.text.errors import FormatError, Problem
from hyperscout_formats.text.json_document import listed, name_in
from hyperscout_formats.text.problems import Problems

NODES, GPUS = "compute-nodes", "gpus"
MAX_BYTES: Final = 64 << 20
"""A host with four GPUs takes about 1000 bytes in the form that `text` writes."""
MAX_NODES: Final = 200_000
MAX_GPUS: Final = 128
"""GPUs of one host."""
_KEPT: Final = {
    NODES: ("ID", "Name", "DomainUUID", "GpuIDList", "Health"),
    GPUS: ("ID", "DeviceID", "DomainUUID", "PartitionID", "Health"),
}
_ILL: Final = frozenset({"unhealthy", "degraded", "nonvlink", "degraded_bandwidth"})
_EXPECTED: Final = "expected the JSON of /nmx/v1/compute-nodes, alone or with /gpus"


@dataclass(frozen=True, slots=True)
class Domains:
    """GPUs by the name of their host in the manager.

    Only the domain, clique and health of a GPU are known.
    """

    gpus: Mapping[str, tuple[Gpu, ...]]
    problems: tuple[Problem, ...]


def text(nodes: Iterable[Mapping[str, Any]], gpus: Iterable[Mapping[str, Any]]) -> bytes:
    """Return the input of `parse`. The result changes only if the domains, partitions or health change."""
    document = {
        key: sorted(({k: _sorted(x[k]) for k in _KEPT[key] if k in x} for x in items), key=_order)
        for key, items in ((NODES, nodes), (GPUS, gpus))
    }
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def parse(data: bytes, source: str = "nmx") -> Domains:
    """Read the result of `text`, or a saved response with the array of the compute nodes.

    Raises FormatError for other text.
    """
    document = _document(data, source)
    problems = Problems(source)
    by_id = {
        ident: gpu
        for gpu in listed(document.get(GPUS))
        if isinstance(gpu, Mapping) and (ident := name_in(gpu.get("ID")))
    }
    found: dict[str, tuple[Gpu, ...]] = {}
    nodes = [node for node in listed(document.get(NODES)) if isinstance(node, Mapping)]
    if len(nodes) > MAX_NODES:
        raise FormatError(source, 0, f"{len(nodes)} compute nodes; expected at most {MAX_NODES}")
    for node in nodes:
        name, domain = name_in(node.get("Name")), _domain(node.get("DomainUUID"))
        if not name or not domain:
            problems.add(0, f"a compute node without a name or a domain: {(name or domain)[:60]!a}")
        elif name in found:
            problems.add(0, f"a second compute node {name[:60]!a}; the first is used")
        else:
            found[name] = tuple(_gpus(node, name, domain, by_id, problems))
    if not found:
        raise FormatError(source, 0, f"no compute node with a name and a domain; {_EXPECTED}")
    return Domains(dict(sorted(found.items())), problems.listed())


def _document(data: bytes, source: str) -> Mapping[str, Any]:
    document = json_document.document(data, source, MAX_BYTES, _EXPECTED)
    if isinstance(document, list):
        return {NODES: document}
    if not isinstance(document, Mapping):
        raise FormatError(source, 0, f"neither an array nor an object; {_EXPECTED}")
    return document


def _gpus(
    node: Mapping[str, Any],
    name: str,
    domain: str,
    by_id: Mapping[str, Mapping[str, Any]],
    problems: Problems,
) -> Iterable[Gpu]:
    idents = sorted({ident for item in listed(node.get("GpuIDList")) if (ident := name_in(item))})
    if len(idents) > MAX_GPUS:
        problems.add(0, f"{name}: {len(idents)} GPUs; only {MAX_GPUS} are kept")
    known = [(ident, by_id[ident]) for ident in idents[:MAX_GPUS] if ident in by_id]
    # If the GPUs of a host are unknown, one entry represents all of them: the host is still in a domain.
    for ident, gpu in known or [(name_in(node.get("ID")) or name, node)]:
        number = gpu.get("DeviceID")
        ill = name_in(gpu.get("Health")).lower() in _ILL
        yield Gpu(
            uuid=f"nmx:{ident}",
            model="",
            pci_address=f"GPU {number}" if type(number) is int else "all GPUs",
            fabric=NvlinkFabric(
                "completed",
                cluster_uuid=_domain(gpu.get("DomainUUID")) or domain,
                clique_id=_number(gpu.get("PartitionID")),
                health=(nvml_values.UNHEALTHY,) if ill else (),
            ),
        )


def _sorted(value: Any) -> Any:
    return sorted(map(name_in, value)) if isinstance(value, list) else value


def _order(item: Mapping[str, Any]) -> tuple[str, str]:
    return name_in(item.get("ID")), name_in(item.get("Name"))


def _domain(value: Any) -> str:
    """Return the domain UUID in lower case, "" = none or all zero."""
    text_ = name_in(value).lower()
    return "" if not text_.strip("0-") else text_


def _number(value: Any) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 9:
        value = int(value)
    return value if type(value) is int and 0 <= value < 1 << 31 else 0
