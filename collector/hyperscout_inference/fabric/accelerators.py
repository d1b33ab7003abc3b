"""Find the accelerator domain of each host from what its GPUs report, and the faults of their links.

An NVLink domain is a cluster UUID and a clique in it, an Ascend super pod its id, and an xGMI hive is within
one host. A GPU without a complete fabric registration does not vote. An all-zero UUID means that the host's
NVLinks end at switches inside the host.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from hyperscout_formats.facts.accelerators import KINDS, NVLINK
from hyperscout_formats.facts.facts import Gpu
from hyperscout_formats.text.counts import first_few
from hyperscout_topology.memo import memoized
from hyperscout_topology.topology import Adapter, Endpoint, Topology

from hyperscout_inference.fabric.network import unused

_UUID = re.compile(r"GPU-([0-9a-f]{16}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})")

# Threshold on the share of GPUs of one model (`_usual_links`) that have the link of this number up. Above it,
# a GPU with the link down has a fault. Below it, the machines are built that way (bridges that were not
# installed).
_USUAL = 0.5
_UNSURE = 0.5  # of a fault that either of two hosts may have
_NO_FAULT = 0.4  # of what may be so by intention: it changes no condition
_ORDER = {name: n for n, name in enumerate(KINDS)}


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault on one host, or of it and one other (`peer`). `kind` as in `Anomaly`; `source`: of fabric."""

    host: str
    kind: str
    subject: Endpoint
    confidence: float
    message: str
    source: str = NVLINK
    peer: Endpoint | None = None


@dataclass(frozen=True, slots=True)
class AcceleratorDomains:
    """`key`: (cluster UUID, clique) of each host in a domain of several hosts, or ("ascend/ID", 0). `tied`:
    of hosts with GPUs in several domains, all domains that share the most votes, if there are two or more.
    `local`: hosts with links that end inside the host, or without links. `switched`: the local hosts with
    switches inside. A host in neither `key` nor `local` does not report its domain yet. `kind`: of each host
    with GPUs. `adapters`: all GPUs, by UUID. `managed`: the hosts whose domain a manager of NVLink reports,
    or only a label.
    """

    key: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    tied: Mapping[str, frozenset[tuple[str, int]]] = field(default_factory=dict)
    local: frozenset[str] = frozenset()
    switched: frozenset[str] = frozenset()
    kind: Mapping[str, str] = field(default_factory=dict)
    faults: Sequence[Fault] = ()
    adapters: tuple[Adapter, ...] = ()
    managed: frozenset[str] = frozenset()


def with_own_ids(
    gpus: Mapping[str, tuple[Gpu, ...]], previous: Topology | None
) -> Mapping[str, tuple[Gpu, ...]]:
    """Return the GPUs with ids that no other device has: an agent can report any text as a UUID.

    A UUID that several nodes report stays with the node that was published with it, else with the first one.
    All other ids, and a UUID that a node reports twice, are replaced by `GPU-NODE/ADDRESS`.
    """
    if _have_own_ids(gpus):
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


@memoized
def _have_own_ids(gpus: Mapping[str, Sequence[Gpu]]) -> bool:
    ids = [gpu.uuid for mine in gpus.values() for gpu in mine]
    return len(set(ids)) == len(ids) and all(map(_UUID.fullmatch, ids))


@memoized
def accelerator_domains(gpus: Mapping[str, Sequence[Gpu]]) -> AcceleratorDomains:
    """Return the domains and faults of all hosts. Keys of `gpus` are node names."""
    keys: dict[str, tuple[str, int]] = {}
    tied: dict[str, frozenset[tuple[str, int]]] = {}
    local: set[str] = set()
    switched: set[str] = set()
    kinds: dict[str, str] = {}
    faults: list[Fault] = []
    usual = _usual_links(gpus)
    everywhere = Counter(key for mine in gpus.values() for gpu in mine if (key := _key(gpu)) is not None)
    for host in sorted(gpus):
        every = sorted(gpus[host], key=_address)
        if every:
            kinds[host] = _main_kind(every)
        mine = [gpu for gpu in every if gpu.kind == kinds[host]]
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
            faults += _in_other_domains(host, mine, most, votes, _UNSURE if host in tied else 0.9)
        elif mine and not any(gpu.fabric is not None and gpu.fabric.state != "not-supported" for gpu in mine):
            local.add(host)
        faults += [fault for gpu in every for fault in _faults_of(host, gpu, usual)]
    adapters = tuple(
        Adapter(gpu.uuid, host, gpu.pci_address)
        for host in sorted(gpus)
        for gpu in sorted(gpus[host], key=_address)
    )
    faults += _shared_numbers(gpus, keys)
    return AcceleratorDomains(keys, tied, frozenset(local), frozenset(switched), kinds, faults, adapters)


def _main_kind(gpus: Sequence[Gpu]) -> str:
    """Return the kind that most of a host's GPUs have."""
    kinds = Counter(gpu.kind for gpu in gpus)
    return min(kinds, key=lambda kind: (-kinds[kind], _ORDER[kind]))


def _address(gpu: Gpu) -> str:
    return gpu.pci_address


def _key(gpu: Gpu) -> tuple[str, int] | None:
    """Return a GPU's domain, or None where it reports none or its registration failed."""
    if gpu.fabric is None or gpu.fabric.state != "completed" or gpu.fabric.status:
        return None
    if gpu.kind == NVLINK:
        return (gpu.fabric.cluster_uuid, gpu.fabric.clique_id)
    joins = KINDS[gpu.kind].spans_hosts and gpu.fabric.domain
    return (f"{gpu.kind}/{gpu.fabric.domain}" if joins else "", 0)


def _shared_numbers(
    gpus: Mapping[str, Sequence[Gpu]], keys: Mapping[str, tuple[str, int]]
) -> Iterable[Fault]:
    """Yield one fault for each number in a domain that several hosts have, and for a host with several. Hosts
    with one number may be of two super pods with one id, or one of them was given a wrong number."""
    hosts: dict[tuple[str, int], list[str]] = {}
    for host, (domain, _) in sorted(keys.items()):
        if domain.partition("/")[0] not in KINDS:
            continue
        mine = [x.fabric for x in gpus[host] if _key(x) == keys[host]]
        numbers = {x.server_index for x in mine if x is not None and x.server_index is not None}
        if len(numbers) > 1:
            text = f"{host} reports {len(numbers)} server indexes in {_called(keys[host])}: a host has one"
            yield Fault(host, "SourcesDisagree", Endpoint(host, host), _NO_FAULT, text)
        for number in numbers if len(numbers) == 1 else ():
            hosts.setdefault((domain, number), []).append(host)
    for (domain, number), (one, *others) in hosts.items():
        if others:
            kind = KINDS[domain.partition("/")[0]]
            text = (
                f"{one} and {first_few(others, 1)} report the same server index {number} in "
                f"{_called((domain, 0))}: compare `{kind.command}` on both"
            )
            ends = Endpoint(one, one), Endpoint(others[0], others[0])
            yield Fault(one, "SourcesDisagree", ends[0], _NO_FAULT, text, kind.name, ends[1])


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
            f"{host}/{gpu.pci_address} is in {'NVLink ' * (gpu.kind == NVLINK)}{_called(key, most[0])}, "
            f"{votes[most]} of the host's {len(gpus)} GPUs are in {_called(most)}",
            gpu.kind,
        )
        for gpu in gpus
        if (key := _key(gpu)) is not None and key != most
    ]


_NUMBER, _ACTIVE = attrgetter("link"), attrgetter("active")


def _faults_of(host: str, gpu: Gpu, usual: Mapping[tuple[str, int], float]) -> list[Fault]:
    found = []
    fabric, kind = gpu.fabric, KINDS[gpu.kind]
    if fabric is not None and fabric.state in ("not-started", "in-progress"):
        why = f" ({fabric.status})" if fabric.status else ""
        text = f"the {kind.fabric} fabric of {host}/{gpu.pci_address} is not complete: {fabric.state}{why}"
        found.append(Fault(host, "ErroringLink", _end(host, gpu), 0.9, text, kind.name))
    elif fabric is not None and (fabric.status or fabric.health):
        why = ", ".join((*((fabric.status,) if fabric.status else ()), *fabric.health))
        text = f"the {kind.fabric} fabric of {host}/{gpu.pci_address} is unhealthy: {why}"
        found.append(Fault(host, "ErroringLink", _end(host, gpu), 0.9, text, kind.name))
    up = list(map(_ACTIVE, gpu.links))
    if all(up):
        return found
    # Behind NVLink switches every link is cabled, so a link that is down on most GPUs is a fault as well.
    switched = gpu.kind == NVLINK and fabric is not None and fabric.state == "completed"
    most_up = 2 * sum(up) > len(up)
    for link in gpu.links:
        if not link.active and (usual[gpu.model, link.link] > _USUAL or (switched and most_up)):
            to = f" (to {link.remote_pci_address})" if link.remote_pci_address else ""
            text = f"{kind.link} {link.link} of {host}/{gpu.pci_address}{to} is down"
            end = _end(host, gpu, f"/{kind.name}{link.link}")
            found.append(Fault(host, "MissingLink", end, 0.95, text, kind.name))
    return found


def _usual_links(gpus: Mapping[str, Sequence[Gpu]]) -> dict[tuple[str, int], float]:
    """Return, by model and link number, the share of GPUs with the link up.

    All GPUs of a model on a host together count once, so that one host alone cannot make a link usual. Alike
    GPUs are counted first, because most GPUs are alike.
    """
    alike: dict[tuple[str, tuple[int, ...], tuple[bool, ...]], float] = {}
    for mine in gpus.values():
        models = Counter(gpu.model for gpu in mine)
        for gpu in mine:
            key = (gpu.model, tuple(map(_NUMBER, gpu.links)), tuple(map(_ACTIVE, gpu.links)))
            alike[key] = alike.get(key, 0.0) + 1 / models[gpu.model]
    there: dict[tuple[str, int], float] = {}
    up: dict[tuple[str, int], float] = {}
    for (model, numbers, actives), weight in alike.items():
        for number, active in dict(zip(numbers, actives, strict=True)).items():  # each number once
            there[model, number] = there.get((model, number), 0.0) + weight
            up[model, number] = up.get((model, number), 0.0) + weight * active
    return {key: round(up[key] / total, 6) for key, total in there.items()}


def _end(host: str, gpu: Gpu, port: str = "") -> Endpoint:
    return Endpoint(gpu.uuid, host, f"{gpu.pci_address}{port}")


def _called(key: tuple[str, int], known: str = "") -> str:
    """Return a domain's text. `known`: a cluster that the message names elsewhere."""
    uuid, clique = key
    if not uuid:
        return "its own host alone"
    kind, slash, ident = uuid.partition("/")
    if slash and kind in KINDS:
        return f"{KINDS[kind].domain} {ident}"
    return f"clique {clique}" if uuid == known else f"clique {clique} of cluster {uuid}"
