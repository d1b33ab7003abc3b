"""Find the NVLink domain of each host from what its GPUs report, and the faults of its NVLinks.

A domain is a cluster UUID and a clique in it. A GPU without a complete fabric registration does not vote.
An all-zero UUID means that the host's NVLinks end at switches inside the host.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from hyperscout_formats.facts.facts import Gpu
from hyperscout_topology.topology import Adapter, Endpoint, Topology

from hyperscout_inference.fabric.network import unused

SOURCE = "nvlink"
_UUID = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

# Threshold on the share of GPUs of one model that have the link of this number up. Above it, a GPU with the
# link down has a fault. Below it, the machines are built that way (bridges that were not installed).
_USUAL = 0.5


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault on one host. `kind` as in `Anomaly`."""

    host: str
    kind: str
    subject: Endpoint
    confidence: float
    message: str


@dataclass(frozen=True, slots=True)
class NvlinkDomains:
    """`key`: (cluster UUID, clique) of each host in a domain of several hosts. `tied`: of hosts with GPUs
    in several domains, all domains that share the most votes, if there are two or more. `local`: hosts with
    NVLinks that end inside the host, or without NVLinks. `switched`: the local hosts with switches inside. A
    host in neither `key` nor `local` does not report its domain yet. `adapters`: all GPUs, by UUID.
    `managed`: the hosts whose domain a manager of NVLink reports, or only a label.
    """

    key: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    tied: Mapping[str, frozenset[tuple[str, int]]] = field(default_factory=dict)
    local: frozenset[str] = frozenset()
    switched: frozenset[str] = frozenset()
    faults: Sequence[Fault] = ()
    adapters: Sequence[Adapter] = ()
    managed: frozenset[str] = frozenset()


def with_own_ids(
    gpus: Mapping[str, tuple[Gpu, ...]], previous: Topology | None
) -> Mapping[str, tuple[Gpu, ...]]:
    """Return the GPUs with ids that no other device has: an agent can report any text as a UUID.

    A UUID that several nodes report stays with the node that was published with it, else with the first one.
    All other ids, and a UUID that a node reports twice, are replaced by `GPU-NODE/ADDRESS`.
    """
    ids = [gpu.uuid for mine in gpus.values() for gpu in mine]
    if len(set(ids)) == len(ids) and all(map(_UUID.fullmatch, ids)):
        return gpus
    claims = Counter((gpu.uuid, node) for node, mine in gpus.items() for gpu in mine)
    owner = dict(sorted(claims, reverse=True))  # of several nodes the first by name
    owner |= {x.id: x.node for x in (previous.adapters if previous else ()) if (x.id, x.node) in claims}

    def own(node: str, mine: Sequence[Gpu]) -> Iterable[Gpu]:
        used: set[str] = set()
        for gpu in mine:
            uuid = gpu.uuid
            if owner[uuid] != node or claims[uuid, node] > 1 or not _UUID.fullmatch(uuid):
                uuid = unused(f"GPU-{node}/{gpu.pci_address}", used)
            used.add(uuid)
            yield gpu if uuid == gpu.uuid else replace(gpu, uuid=uuid)

    return {node: tuple(own(node, mine)) for node, mine in gpus.items()}


def nvlink_domains(gpus: Mapping[str, Sequence[Gpu]]) -> NvlinkDomains:
    """Return the domains and faults of all hosts. Keys of `gpus` are node names."""
    keys: dict[str, tuple[str, int]] = {}
    tied: dict[str, frozenset[tuple[str, int]]] = {}
    local: set[str] = set()
    switched: set[str] = set()
    faults: list[Fault] = []
    usual = _usual_links(gpus)
    everywhere = Counter(key for mine in gpus.values() for gpu in mine if (key := _key(gpu)) is not None)
    for host in sorted(gpus):
        mine = sorted(gpus[host], key=_address)
        votes = Counter(key for gpu in mine if (key := _key(gpu)) is not None)
        if votes:
            # With equal votes, the domain with more GPUs in the whole cluster wins.
            most = min(votes, key=lambda key: (-votes[key], -everywhere[key], key))
            if len(rivals := frozenset(key for key in votes if votes[key] == votes[most])) > 1:
                tied[host] = rivals
            if most[0]:
                keys[host] = most
            else:
                local.add(host)
                switched.add(host)
            faults += _in_other_domains(host, mine, most, votes, 0.5 if host in tied else 0.9)
        elif mine and not any(gpu.fabric is not None and gpu.fabric.state != "not-supported" for gpu in mine):
            local.add(host)
        faults += [fault for gpu in mine for fault in _faults_of(host, gpu, usual)]
    adapters = [
        Adapter(gpu.uuid, host, gpu.pci_address)
        for host in sorted(gpus)
        for gpu in sorted(gpus[host], key=_address)
    ]
    return NvlinkDomains(keys, tied, frozenset(local), frozenset(switched), faults, adapters)


def _address(gpu: Gpu) -> str:
    return gpu.pci_address


def _key(gpu: Gpu) -> tuple[str, int] | None:
    """Return a GPU's domain, or None where it reports none or its registration failed."""
    if gpu.fabric is None or gpu.fabric.state != "completed" or gpu.fabric.status:
        return None
    return (gpu.fabric.cluster_uuid, gpu.fabric.clique_id)


def _in_other_domains(
    host: str, gpus: Sequence[Gpu], most: tuple[str, int], votes: Mapping[tuple[str, int], int], sure: float
) -> list[Fault]:
    """Return one fault per GPU in another domain than most GPUs of the host."""
    return [
        Fault(
            host,
            "ErroringLink",
            _end(host, gpu),
            sure,
            f"{host}/{gpu.pci_address} is in NVLink {_called(key, most[0])}, "
            f"{votes[most]} of the host's {len(gpus)} GPUs are in {_called(most)}",
        )
        for gpu in gpus
        if (key := _key(gpu)) is not None and key != most
    ]


_NUMBER, _ACTIVE = attrgetter("link"), attrgetter("active")


def _faults_of(host: str, gpu: Gpu, usual: Mapping[tuple[str, int], float]) -> list[Fault]:
    found = []
    fabric = gpu.fabric
    if fabric is not None and fabric.state in ("not-started", "in-progress"):
        why = f" ({fabric.status})" if fabric.status else ""
        text = f"the NVLink fabric of {host}/{gpu.pci_address} is not complete: {fabric.state}{why}"
        found.append(Fault(host, "ErroringLink", _end(host, gpu), 0.9, text))
    elif fabric is not None and (fabric.status or fabric.health):
        why = ", ".join((*((fabric.status,) if fabric.status else ()), *fabric.health))
        text = f"the NVLink fabric of {host}/{gpu.pci_address} is unhealthy: {why}"
        found.append(Fault(host, "ErroringLink", _end(host, gpu), 0.9, text))
    up = list(map(_ACTIVE, gpu.links))
    if all(up):
        return found
    # Behind NVLink switches every link is cabled, so a link that is down on most GPUs is a fault as well.
    switched = fabric is not None and fabric.state == "completed"
    most_up = 2 * sum(up) > len(up)
    for link in gpu.links:
        if not link.active and (usual[gpu.model, link.link] > _USUAL or (switched and most_up)):
            text = f"NVLink {link.link} of {host}/{gpu.pci_address} is down"
            found.append(Fault(host, "MissingLink", _end(host, gpu, f"/nvlink{link.link}"), 0.95, text))
    return found


def _usual_links(gpus: Mapping[str, Sequence[Gpu]]) -> dict[tuple[str, int], float]:
    """Return, by model and link number, the share of GPUs with the link up. Identical GPUs are counted first,
    because most GPUs are identical."""
    alike = Counter(
        (gpu.model, tuple(map(_NUMBER, gpu.links)), tuple(map(_ACTIVE, gpu.links)))
        for mine in gpus.values()
        for gpu in mine
    )
    there: Counter[tuple[str, int]] = Counter()
    up: Counter[tuple[str, int]] = Counter()
    for (model, numbers, actives), count in alike.items():
        for number, active in zip(numbers, actives, strict=True):
            there[model, number] += count
            up[model, number] += count * active
    return {key: up[key] / count for key, count in there.items()}


def _end(host: str, gpu: Gpu, port: str = "") -> Endpoint:
    return Endpoint(gpu.uuid, host, f"{gpu.pci_address}{port}")


def _called(key: tuple[str, int], known: str = "") -> str:
    """Return a domain's text. `known`: a cluster that the message names elsewhere."""
    uuid, clique = key
    if not uuid:
        return "its own host alone"
    return f"clique {clique}" if uuid == known else f"clique {clique} of cluster {uuid}"
