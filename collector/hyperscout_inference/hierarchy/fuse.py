"""Join the evidence of all sources into one `Network` (step 1 of inference)."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
from hyperscout_formats.facts.facts import Gpu, InfinibandPort, LldpPort
from hyperscout_topology.connected_parts import connected_parts
from hyperscout_topology.memo import MemoByNode, changed_nodes, memoized
from hyperscout_topology.topology import Endpoint, Topology

from hyperscout_inference.ethernet.compute import Ports, gpu_models, near_gpus, nearest_nics
from hyperscout_inference.ethernet.fusion import EthernetPart, ethernet
from hyperscout_inference.fabric.foreign import reporting_nodes
from hyperscout_inference.fabric.infiniband import infiniband
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions
from hyperscout_inference.fabric.network import PORT_TEXTS, Ints, Network, distinct, unused
from hyperscout_inference.fabric.part import Mask, Part

_Fact = TypeVar("_Fact")
_Name = TypeVar("_Name")


def fuse(inputs: FabricInputs, options: InferOptions, previous: Topology | None = None) -> Network:
    """Return one graph of all fabrics. It does not depend on the order in which evidence arrived. `previous`
    decides where reporters disagree and nothing else does."""
    parts: list[Part] = []
    shapes: list[Mask] = []
    near = frozenset[str]()
    ib = infiniband(inputs, options, previous)
    if ib is not None:
        compute, near = _compute_infiniband(ib, inputs, options)
        parts.append(ib)
        shapes.append(compute)
    if (found := ethernet(inputs, options, previous)) is not None:
        mine = found.compute
        if options.compute_ports is None and ib is not None and shapes[0].any():
            shapes[0], mine = _chosen(ib, shapes[0], near, found, mine, inputs)
        others = _gpus(inputs.gpus), *([ib.ids] if ib is not None else [])
        if (taken := _taken(found.part.ids, *others)) is not None:
            _rename_taken(found.part, taken, inputs.lldp.keys() | (options.cluster_nodes or frozenset()))
        parts.append(found.part)
        shapes.append(mine)
    return _join(parts, shapes, inputs, options)


def _chosen(
    ib: Part, swept: Mask, near: Collection[str], found: EthernetPart, heard: Mask, inputs: FabricInputs
) -> tuple[Mask, Mask]:
    """Return which cables of InfiniBand and of Ethernet shape the hierarchy, out of `swept` and `heard`.

    InfiniBand is the compute fabric where there is any, unless most hosts have their nearest NICs on
    Ethernet. `near`: the hosts with nearest NICs on InfiniBand.
    """
    if not found.near:
        return swept, np.zeros_like(heard)
    if not _are_most(found.near, inputs, ib):
        return swept, _with_trunks(found.part, found.near - _cabled_hosts(ib), heard)
    return swept if len(near) > 1 else swept & _at_hosts(ib, near), heard


def _cabled_hosts(part: Part) -> set[str | None]:
    return {part.hosts[i] for i in distinct(np.concatenate([part.a, part.b])).tolist()} - {None}


def _are_most(near: Collection[str], inputs: FabricInputs, ib: Part) -> bool:
    """Return whether hosts with these nearest NICs decide for all: most of those that report GPUs, and two at
    least, unless InfiniBand has one host. So no single agent decides for other hosts."""
    return 2 * len(near) > len(inputs.gpus) and (len(near) > 1 or len(near) >= len(_cabled_hosts(ib)))


def _with_trunks(part: Part, hosts: Collection[str], shapes: Mask) -> Mask:
    """Return the cables of these hosts, and those between the switches that they reach."""
    own = shapes & _at_hosts(part, hosts)
    between = shapes & part.is_switch[part.a] & part.is_switch[part.b]
    ends = part.a[between].astype(np.int64), part.b[between].astype(np.int64)
    chain = connected_parts(len(part.ids), *ends)
    reached = chain[np.concatenate([part.a[own], part.b[own]])]
    return own | (between & np.isin(chain[part.a], reached))


def _at_hosts(part: Part, hosts: Collection[str]) -> npt.NDArray[np.bool_]:
    """Return (cables,) whether an end is at one of the hosts."""
    mine = np.array([host in hosts for host in part.hosts], np.bool_)
    return mine[part.a] | mine[part.b]


def _compute_infiniband(
    part: Part, inputs: FabricInputs, options: InferOptions
) -> tuple[Mask, frozenset[str]]:
    """Return (cables,) which are of the compute fabric, and the hosts with NICs nearest to GPUs in it."""
    if options.compute_ports is not None:
        pattern = re.compile(options.compute_ports)
        compute = part.is_switch | np.array([bool(pattern.search(label)) for label in part.labels], np.bool_)
        shapes = compute[part.a] & compute[part.b]
        # A fabric without a port that matches does not shape the hierarchy.
        of_endpoints = ~(part.is_switch[part.a] & part.is_switch[part.b])
        return shapes & np.isin(part.fabric, part.fabric[shapes & of_endpoints]), frozenset()
    has_near: frozenset[str] = frozenset()
    if near := nearest_nics(inputs.gpus):
        names, host, nearest = _near_adapters(part.hosts, part.labels, near, gpu_models(inputs.gpus))
        cabled = np.zeros(len(part.ids), np.bool_)
        cabled[part.a] = cabled[part.b] = True
        with_near = np.zeros(len(names), np.bool_)
        with_near[host[nearest & cabled]] = True
        has_near = _names_at(names, with_near)
    if len(part.fabrics) > 1 and not (has_near and _are_most(has_near, inputs, part)):
        return ~np.isin(part.fabric, part.idle_fabrics), has_near
    if not has_near:
        return np.ones(len(part.a), np.bool_), has_near
    compute = nearest | ~with_near[host]
    if compute.all():  # hosts have no other NICs
        return np.ones(len(part.a), np.bool_), has_near
    # Switches that only the other NICs of hosts are connected to are not of the compute fabric.
    meets = [np.zeros(len(part.ids), np.bool_) for _ in range(2)]
    for near_end, far_end in ((part.a, part.b), (part.b, part.a)):
        for mine, met in zip((compute, ~compute), meets, strict=True):
            met[near_end[mine[far_end] & ~part.is_switch[far_end]]] = True
    compute &= ~(part.is_switch & meets[1] & ~meets[0])
    return compute[part.a] & compute[part.b], has_near


@memoized
def _near_adapters(
    hosts: Sequence[str | None],
    labels: Sequence[str],
    near: Mapping[str, Collection[str]],
    models: Mapping[str, str],
) -> tuple[Sequence[str | None], Ints, Mask]:
    """Return the distinct hosts, (devices,) the index of each device's host among them, and (devices,) what
    `near_gpus` returns."""
    of_hosts, of_labels = _numbered(hosts), _numbered(labels)
    return *of_hosts, near_gpus(Ports(*of_hosts, *of_labels), near, models)


@memoized
def _names_at(names: Sequence[str | None], mask: Mask) -> frozenset[str]:
    return frozenset(name for name in compress(names, mask) if name is not None)


def _numbered(names: Sequence[_Name]) -> tuple[Sequence[_Name], Ints]:
    """Return the distinct names, and (names,) the index of each name among them."""
    numbers = {name: i for i, name in enumerate(dict.fromkeys(names))}
    return list(numbers), np.fromiter(map(numbers.__getitem__, names), np.int32, len(names))


def _join(
    parts: list[Part],
    shapes: list[Mask],
    inputs: FabricInputs,
    options: InferOptions,
) -> Network:
    # Hosts that need no cable.
    measured = _measured(inputs.gpus, inputs.pairs.nodes, inputs.answering, inputs.labels)
    hosts, index = _hosts([part.hosts for part in parts], measured)
    offsets = np.cumsum([0, *(len(part.ids) for part in parts)]).tolist()
    fabric_offsets = np.cumsum([0, *(len(part.fabrics) for part in parts)]).tolist()
    source_offsets = np.cumsum([0, *(len(part.source_sets) for part in parts)]).tolist()
    texts: list[str] = []
    none = np.zeros(0, np.int32)

    def ints(
        columns: list[npt.NDArray[np.int32]],
    ) -> npt.NDArray[np.int32]:
        return np.concatenate([none, *columns])

    a: list[Ints] = []
    b: list[Ints] = []
    a_port: list[Ints] = []
    b_port: list[Ints] = []
    for part, offset in zip(parts, offsets, strict=False):
        a.append(part.a + np.int32(offset))
        b.append(part.b + np.int32(offset))
        for column, out in ((part.a_port, a_port), (part.b_port, b_port)):
            moved = np.where(column >= PORT_TEXTS, column + np.int32(len(texts)), column) if texts else column
            out.append(moved.astype(np.int32, copy=False))
        texts += part.port_texts
    bools = [np.zeros(0, np.bool_)]
    unclaimed = np.zeros(len(hosts), np.bool_)
    for part, mine in zip(parts, index, strict=True):
        unclaimed[mine[part.unclaimed]] = True
    return Network(
        ids=_ids([part.ids for part in parts]),
        names=_names([part.names for part in parts]),
        is_switch=np.concatenate(bools + [part.is_switch for part in parts]),
        host=ints(index),
        labels=_labels([part.labels for part in parts]),
        hosts=hosts,
        unclaimed=unclaimed,
        a=ints(a),
        a_port=ints(a_port),
        b=ints(b),
        b_port=ints(b_port),
        rate_gbps=np.concatenate([np.zeros(0, np.float32), *(part.rate_gbps for part in parts)]),
        width=np.concatenate([np.zeros(0, np.uint8), *(part.width for part in parts)]),
        shapes=np.concatenate(bools + shapes),
        fabric=ints([part.fabric + np.int32(o) for part, o in zip(parts, fabric_offsets, strict=False)]),
        sources=ints([part.sources + np.int32(o) for part, o in zip(parts, source_offsets, strict=False)]),
        fabrics=[name for part in parts for name in part.fabrics],
        source_sets=[names for part in parts for names in part.source_sets],
        port_texts=texts,
        vanished=tuple(
            v for part in parts for v in part.vanished
        ),  # only the first part (InfiniBand) has any
        down_ports=_all_down(_down_ports(inputs.infiniband)),
        dark_ports=_all_dark(_dark_ports(inputs.lldp)),
        whole=_whole(inputs.infiniband),
        claimed=_claimed(reporting_nodes(inputs, options), list(inputs.node_map.values()), measured),
        sharp=np.concatenate(bools + [part.sharp for part in parts]),
        anomalies=tuple(x for part in parts for x in part.anomalies),
        mute=np.concatenate(
            bools + [np.zeros(len(p.ids), np.bool_) if p.mute is None else p.mute for p in parts]
        ),
        notes={
            first + row: note
            for part, first in zip(parts, np.cumsum([0, *(len(p.a) for p in parts)]).tolist(), strict=False)
            for row, note in part.notes.items()
        },
    )


def _union(*names: Collection[str]) -> frozenset[str]:
    return frozenset().union(*names)


_measured, _claimed = memoized(_union), memoized(_union)


# Tuples: for most nodes they are empty, and an empty set takes 216 bytes.
def _down_of(node: str, ports: Sequence[InfinibandPort]) -> Collection[tuple[str, str, int]]:
    return tuple(
        (node, x.device, x.port) for x in ports if x.state == "DOWN" and x.link_layer == "InfiniBand"
    )


def _whole_of(node: str, ports: Sequence[InfinibandPort]) -> bool:
    return bool(ports) and all(port.state == "ACTIVE" for port in ports)


def _dark_of(node: str, ports: Sequence[LldpPort]) -> Collection[tuple[str, str]]:
    dark = {port.interface for port in ports if port.carrier is False}
    lit = {port.interface for port in ports if port.carrier} if dark else dark
    return tuple((node, interface) for interface in sorted(dark - lit))


class _OfAll(Generic[_Fact]):
    """Returns the facts of all nodes, which differ by node. It keeps those of nodes that do not change."""

    def __init__(self) -> None:
        self._last: tuple[Mapping[str, Collection[_Fact]], frozenset[_Fact]] = {}, frozenset()

    def __call__(self, found: Mapping[str, Collection[_Fact]]) -> frozenset[_Fact]:
        before, facts = self._last
        if changed := changed_nodes(before, found):
            gone, come = ({x for node in changed for x in y.get(node, ())} for y in (before, found))
            facts = facts - gone | come
        self._last = found, facts
        return facts


_down_ports, _whole, _dark_ports = MemoByNode(_down_of), MemoByNode(_whole_of), MemoByNode(_dark_of)
_all_down, _all_dark = _OfAll[tuple[str, str, int]](), _OfAll[tuple[str, str]]()


@memoized
def _taken(ids: Sequence[str], *others: Collection[str]) -> frozenset[str] | None:
    """Return which ids are among the others; None if there are none, and none of `ids` is there twice."""
    own = frozenset(ids)
    taken = frozenset().union(*map(own.intersection, others))
    return taken if taken or len(own) < len(ids) else None


@memoized
def _gpus(gpus: Mapping[str, Sequence[Gpu]]) -> list[str]:
    return [gpu.uuid for mine in gpus.values() for gpu in mine]


def _rename_taken(part: Part, taken: Collection[str], nodes: Collection[str]) -> None:
    """Change ids of an Ethernet part that are `taken`, or that others in it have: `ID (2)`.

    A chassis id is any text that a device announces. It can be a GUID, or the name of a host. `nodes`: names
    that keep their ids. Then come switches, and devices that only announce a name.
    """
    old = part.ids
    used, ids = set(taken), list(old)
    rank = [
        0 if host in nodes else 1 if is_switch else 2
        for host, is_switch in zip(part.hosts, part.is_switch, strict=True)
    ]
    for i in sorted(range(len(ids)), key=rank.__getitem__):
        ids[i] = unused(old[i], used)
        used.add(ids[i])
    ends = list(zip(old, part.names, ids, strict=True))
    # An anomaly may be about either of two devices with one id and one name, so it keeps that id.
    kept = {(one, name) for one, name, id_ in ends if id_ == one}
    new = {(one, name): id_ for one, name, id_ in ends if (one, name) not in kept}

    def renamed(end: Endpoint) -> Endpoint:
        return replace(end, device=new.get((end.device, end.name), end.device))

    part.ids = ids
    part.anomalies = [
        replace(x, subject=renamed(x.subject), peer=None if x.peer is None else renamed(x.peer))
        for x in part.anomalies
    ]


@memoized
def _hosts(of_parts: Sequence[Sequence[str | None]], others: Collection[str]) -> tuple[list[str], list[Ints]]:
    """Return all hosts, sorted, and of each part (devices,) the index of its host; -1 = none."""
    found = set[str | None](others).union(*of_parts)
    hosts = sorted([host for host in found if host is not None])
    at: dict[str | None, int] = {host: i for i, host in enumerate(hosts)}
    at[None] = -1
    return hosts, [np.fromiter(map(at.__getitem__, part), np.int32, len(part)) for part in of_parts]


def _joined(texts: Sequence[Sequence[str]]) -> Sequence[str]:
    """Concatenate sequences; a single one is not copied."""
    return texts[0] if len(texts) == 1 else [text for part in texts for text in part]


_ids, _names, _labels = memoized(_joined), memoized(_joined), memoized(_joined)
