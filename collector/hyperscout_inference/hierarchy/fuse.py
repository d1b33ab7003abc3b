"""Join the evidence of all sources into one `Network` (step 1 of inference)."""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from hyperscout_topology.topology import Anomaly, Endpoint, Topology

from hyperscout_inference.ethernet.compute import near_gpus, nearest_nics
from hyperscout_inference.ethernet.fusion import ethernet
from hyperscout_inference.fabric.compute_fabrics import other_fabrics
from hyperscout_inference.fabric.infiniband import infiniband
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions
from hyperscout_inference.fabric.network import PORT_TEXTS, Ints, Network
from hyperscout_inference.fabric.part import Part


def fuse(inputs: FabricInputs, options: InferOptions, previous: Topology | None = None) -> Network:
    """Return one graph of all fabrics. It does not depend on the order in which evidence arrived. `previous`
    decides where reporters disagree and nothing else does."""
    parts: list[Part] = []
    shapes: list[npt.NDArray[np.bool_]] = []
    near_infiniband = False
    ib = infiniband(inputs, options, previous)
    if ib is not None:
        compute, near_infiniband = _compute_infiniband(ib, inputs, options)
        parts.append(ib)
        shapes.append(compute)
    if (found := ethernet(inputs, options, previous)) is not None:
        # InfiniBand is the compute fabric if there is any, unless `compute_ports` or the NICs nearest to GPUs
        # decide otherwise.
        mine = np.array(found.compute, np.bool_)
        if options.compute_ports is None and any(s.any() for s in shapes):
            if not found.by_gpus:
                mine[:] = False
            elif not near_infiniband:
                shapes[0][:] = False
        parts.append(found.part)
        shapes.append(mine)
    return _join(parts, shapes, inputs, options)


def _compute_infiniband(
    part: Part, inputs: FabricInputs, options: InferOptions
) -> tuple[npt.NDArray[np.bool_], bool]:
    """Return (cables,) which are of the compute fabric, and whether the NICs nearest to GPUs decided it."""
    shapes = np.ones(len(part.a), np.bool_)
    if options.compute_ports is None and (near := nearest_nics(inputs.gpus)):
        nearest = near_gpus(list(zip(part.hosts, part.labels, strict=True)), near, inputs.gpus)
        cabled = np.zeros(len(part.ids), np.bool_)
        cabled[part.a] = cabled[part.b] = True
        has_near = {part.hosts[i] for i in np.flatnonzero(np.array(nearest, np.bool_) & cabled).tolist()}
        if has_near:
            further = [host in has_near and not mine for host, mine in zip(part.hosts, nearest, strict=True)]
            compute = ~np.array(further, np.bool_)
            # Switches that only the other NICs of hosts are connected to are not of the compute fabric.
            meets = [np.zeros(len(part.ids), np.bool_) for _ in range(2)]
            for near_end, far_end in ((part.a, part.b), (part.b, part.a)):
                for mine, met in zip((compute, ~compute), meets, strict=True):
                    met[near_end[mine[far_end] & ~part.is_switch[far_end]]] = True
            compute &= ~(part.is_switch & meets[1] & ~meets[0])
            return compute[part.a] & compute[part.b], True
    if options.compute_ports is not None:
        pattern = re.compile(options.compute_ports)
        compute = part.is_switch | np.array([bool(pattern.search(label)) for label in part.labels], np.bool_)
        shapes = compute[part.a] & compute[part.b]
        # A fabric without a port that matches does not shape the hierarchy.
        of_endpoints = ~(part.is_switch[part.a] & part.is_switch[part.b])
        shapes &= np.isin(part.fabric, part.fabric[shapes & of_endpoints])
    elif len(part.fabrics) > 1:
        shapes = ~np.isin(part.fabric, other_fabrics(part))
    return shapes, False


def _join(
    parts: list[Part],
    shapes: list[npt.NDArray[np.bool_]],
    inputs: FabricInputs,
    options: InferOptions,
) -> Network:
    # Hosts that need no cable.
    measured = {*inputs.gpus, *inputs.pairs.nodes, *inputs.answering, *inputs.labels}
    hosts = sorted({host for part in parts for host in part.hosts if host is not None} | measured)
    at: dict[str | None, int] = {host: i for i, host in enumerate(hosts)}
    at[None] = -1
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
            out.append(np.where(column >= PORT_TEXTS, column + np.int32(len(texts)), column).astype(np.int32))
        texts += part.port_texts
    index = [np.fromiter((at[host] for host in part.hosts), np.int32, len(part.hosts)) for part in parts]
    bools = [np.zeros(0, np.bool_)]
    unclaimed = np.zeros(len(hosts), np.bool_)
    for part, mine in zip(parts, index, strict=True):
        unclaimed[mine[part.unclaimed]] = True
    down = {
        (node, port.device)
        for node, ports in inputs.infiniband.items()
        for port in ports
        if port.state == "DOWN" and port.link_layer == "InfiniBand"
    }
    host, is_switch = ints(index), np.concatenate(bools + [part.is_switch for part in parts])
    reported, names = _joined([part.ids for part in parts]), _joined([part.names for part in parts])
    ids = _distinct(reported, is_switch, host)
    return Network(
        ids=ids,
        names=names,
        is_switch=is_switch,
        host=host,
        labels=_joined([part.labels for part in parts]),
        hosts=hosts,
        unclaimed=unclaimed,
        a=ints(a),
        a_port=ints(a_port),
        b=ints(b),
        b_port=ints(b_port),
        rate_gbps=np.concatenate([np.zeros(0, np.float32), *(part.rate_gbps for part in parts)]),
        shapes=np.concatenate(bools + shapes),
        fabric=ints([part.fabric + np.int32(o) for part, o in zip(parts, fabric_offsets, strict=False)]),
        sources=ints([part.sources + np.int32(o) for part, o in zip(parts, source_offsets, strict=False)]),
        fabrics=[name for part in parts for name in part.fabrics],
        source_sets=[names for part in parts for names in part.source_sets],
        port_texts=texts,
        vanished=tuple(
            v for part in parts for v in part.vanished
        ),  # only the first part (InfiniBand) has any
        down_ports=frozenset(down),
        whole=frozenset(
            node
            for node, ports in inputs.infiniband.items()
            if ports and all(port.state == "ACTIVE" for port in ports)
        ),
        claimed=frozenset(inputs.node_map.values())
        | frozenset(inputs.infiniband)
        | frozenset(inputs.lldp)
        | measured
        | (options.cluster_nodes or frozenset()),
        sharp=np.concatenate(bools + [part.sharp for part in parts]),
        anomalies=_with_ids([x for part in parts for x in part.anomalies], reported, names, ids),
        mute=np.concatenate(
            bools + [np.zeros(len(p.ids), np.bool_) if p.mute is None else p.mute for p in parts]
        ),
        notes={
            first + row: note
            for part, first in zip(parts, np.cumsum([0, *(len(p.a) for p in parts)]).tolist(), strict=False)
            for row, note in part.notes.items()
        },
    )


def _distinct(ids: Sequence[str], is_switch: npt.NDArray[np.bool_], host: Ints) -> Sequence[str]:
    """Return ids of which none is there twice. Hosts keep theirs, then switches.

    A chassis id is any text that a device announces. It can be the name of a host, or a GUID.
    """
    if len(set(ids)) == len(ids):
        return ids
    found, taken = list(ids), set[str]()
    for i in np.lexsort((~is_switch, host < 0)).tolist():
        number = 2
        while found[i] in taken:
            found[i] = f"{ids[i]} ({number})"
            number += 1
        taken.add(found[i])
    return found


def _with_ids(
    anomalies: list[Anomaly], reported: Sequence[str], names: Sequence[str], ids: Sequence[str]
) -> tuple[Anomaly, ...]:
    """Return the anomalies with the ids of their ends, which `_distinct` may have changed."""
    if ids is reported:
        return tuple(anomalies)
    new = {(old, name): id_ for old, name, id_ in zip(reported, names, ids, strict=True) if id_ != old}

    def renamed(end: Endpoint) -> Endpoint:
        return replace(end, device=new.get((end.device, end.name), end.device))

    return tuple(
        replace(x, subject=renamed(x.subject), peer=None if x.peer is None else renamed(x.peer))
        for x in anomalies
    )


def _joined(texts: list[Sequence[str]]) -> Sequence[str]:
    """Concatenate sequences; a single one is not copied."""
    return texts[0] if len(texts) == 1 else [text for part in texts for text in part]
