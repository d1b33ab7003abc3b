"""Join sweeps and the adapters that agents report into one InfiniBand part.

A cable that appears in two records or in two sweeps is one cable. Where two cables claim one port, the newer
sweep wins, then the cable that both ends report; the other cable is dropped. It becomes a `SourcesDisagree`
finding unless it comes from an older sweep. A cable that only a manager reports is a `SourcesDisagree`
finding where a complete sweep of its devices lacks it. Of many such findings in a fabric only the first are
kept, with the number of the others.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from hyperscout_formats.infiniband.ibnetdiscover import ROUTER, SWITCH
from hyperscout_topology.memo import memoized
from hyperscout_topology.topology import Anomaly, Endpoint, Topology, say

from hyperscout_inference.fabric.adapter_owners import (
    adapter_owners,
    of_shown_hosts,
    published_nodes,
    still_reported,
)
from hyperscout_inference.fabric.compute_fabrics import other_fabrics
from hyperscout_inference.fabric.few_findings import few_findings
from hyperscout_inference.fabric.foreign import leave_out_foreign_names, reporting_nodes
from hyperscout_inference.fabric.identify import (
    Devices,
    any_sharp,
    claim_columns,
    claims,
    shown_devices,
    switch_name,
)
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions, SweepSeen
from hyperscout_inference.fabric.manager_sweeps import MANAGERS, by_authority, with_node_guids
from hyperscout_inference.fabric.network import RETURNED, distinct, order_of, with_id
from hyperscout_inference.fabric.part import Guids, Longs, Part, join_port, split_port
from hyperscout_inference.fabric.returned import (
    add_returned,
    as_sweeps,
    drop_cables_reported_down,
    returned_cables,
    with_guids,
)


def infiniband(inputs: FabricInputs, options: InferOptions, previous: Topology | None = None) -> Part | None:
    """Return all sweeps as one part, or None where there is no sweep.

    A published adapter that its agent reports stays a device of the part while its port is down and no sweep
    shows it, if sweeps show another one of its host.
    """
    if not inputs.sweeps:
        return None
    owners = adapter_owners(inputs, options, previous)
    sweeps = sorted(with_node_guids(inputs.sweeps, inputs.infiniband, owners.node), key=by_authority)
    returned = returned_cables(inputs, previous)
    reported = still_reported(published_nodes(previous), owners.node)
    adapters = of_shown_hosts(reported, tuple(sweeps), owners.node)
    adapters = with_guids(adapters, [cable.own[0] for cable in returned])
    # Sweeps overrule the cables that are back, and these overrule managers, which may confirm them.
    if managers := sum(seen.source in MANAGERS for seen in sweeps):
        sweeps[managers:managers] = as_sweeps(returned)
        returned = []
    swept, guids, seen_at_ns = _swept(
        tuple(sweeps),
        inputs.node_map,
        inputs.node_names,
        owners.node,
        owners.label,
        owners.disputed,
        adapters,
    )
    anomalies = [*owners.anomalies, *inputs.sweep_claims, *swept.anomalies]
    part = replace(swept, anomalies=anomalies, vanished=[])
    seen_at_ns = add_returned(part, guids, seen_at_ns, returned)
    leave_out_foreign_names(part, reporting_nodes(inputs, options))
    part.idle_fabrics = other_fabrics(part)
    drop_cables_reported_down(part, guids, seen_at_ns, inputs)
    return part


@memoized  # a port that goes down or returns changes neither sweeps nor owners
def _swept(
    sweeps: tuple[SweepSeen, ...],
    node_map: Mapping[int, str],
    node_names: Mapping[str, str],
    node: Mapping[int, str],
    label: Mapping[int, str],
    disputed: Collection[int],
    adapters: Guids,
) -> tuple[Part, Guids, Longs]:
    """Return all cables that sweeps show, the GUIDs of the devices, and when each cable was last reported.

    `node`, `label`, `disputed`: see `AdapterOwners`. `adapters`: see `shown_devices`.
    """
    devices, texts, places, declared = shown_devices([seen.sweep for seen in sweeps], adapters)
    seen_by = tuple(sorted({seen.source for seen in sweeps} - {RETURNED}))
    part = _devices(devices, texts, node_map, node_names, node, label, disputed, seen_by)
    group, fabrics = _fabrics(sweeps, places, devices.kind)
    part = replace(part, fabrics=fabrics, anomalies=[*part.anomalies])
    return part, devices.guids, _cables(part, sweeps, places, group, declared)


def _devices(
    shown: Devices,
    texts: Sequence[str],
    node_map: Mapping[int, str],
    node_names: Mapping[str, str],
    node: Mapping[int, str],
    of_guid: Mapping[int, str],
    disputed: Collection[int],
    seen_by: tuple[str, ...],
) -> Part:
    guids, kind, ids = shown.guids, shown.kind, shown.ids
    hosts: list[str | None] = [None] * len(ids)
    names = list(ids)
    switches = np.flatnonzero(kind == SWITCH)
    for i, guid in zip(switches.tolist(), guids[switches].tolist(), strict=True):
        names[i] = node_map.get(guid) or switch_name(texts[i]) or ids[i]
    shared = Counter(names[i] for i in switches.tolist())
    for i in switches.tolist():
        if shared[names[i]] > 1:
            names[i] = with_id(names[i], ids[i])
    labels = [""] * len(ids)
    unclaimed, sharp = np.zeros(len(ids), np.bool_), np.zeros(len(ids), np.bool_)
    anomalies: list[Anomaly] = []
    routers = set(np.flatnonzero(kind == ROUTER).tolist())
    ends = guids[shown.endpoint].tolist()
    described = [texts[i] for i in shown.endpoint]
    rest: Sequence[int] = range(len(ends))
    if node and not (routers or any_sharp(described)):  # the common case: only other descriptions matter
        rest = []
        columns = shown.endpoint, map(node.get, ends), map(of_guid.get, ends)
        for k, (i, known, name) in enumerate(zip(*columns, strict=True)):
            if known and name:
                hosts[i] = names[i] = known
                labels[i] = name
            else:
                rest.append(k)
    for k, claimed, label, is_sharp in zip(rest, *claim_columns(described, node_names, rest), strict=True):
        i, guid = shown.endpoint[k], ends[k]
        labels[i] = of_guid.get(guid, label)
        host = node.get(guid) or node_map.get(guid)
        known = host or claimed
        if known and not is_sharp and i not in routers:
            hosts[i] = names[i] = known
            continue
        if host is None and i not in routers and not is_sharp:
            if not claimed:
                host = ids[i]
                unclaimed[i] = True
                if guid not in disputed:
                    # By itself the description names a host: another adapter has the same one.
                    named = claims([texts[i]])[0].host
                    why = _CLONED if named and node_names.get(named) != "" else _OF_TWO if named else _UNNAMED
                    anomalies.append(_unknown(ids[i], texts[i], why, seen_by))
            else:
                host = claimed
        elif is_sharp:
            sharp[i] = True
        hosts[i] = host
        names[i] = host or claimed or texts[i] or ids[i]
    none = np.zeros(0, np.int32)
    return Part(
        ids,
        names,
        kind == SWITCH,
        hosts,
        labels,
        unclaimed,
        sharp,
        none,
        none,
        none,
        none,
        np.zeros(0, np.float32),
        np.zeros(0, np.uint8),
        none,
        [],
        none,
        [],
        anomalies=anomalies,
    )


# Why an adapter belongs to no host.
_UNNAMED = "is claimed by no agent, map or description"
_CLONED = "has the description of another adapter and is claimed by no agent or map"
_OF_TWO = "has the name of nodes of several clusters and is claimed by no agent or map"


def _unknown(guid: str, text: str, why: str, seen_by: tuple[str, ...]) -> Anomaly:
    message = f'adapter {guid} ("{text[:64]}") {why}: run an agent on its host, or name it in the node map'
    return Anomaly("UnknownHost", Endpoint(guid, guid), None, None, seen_by, 0.9, message)


def _fabrics(
    sweeps: Sequence[SweepSeen],
    places: Sequence[npt.NDArray[np.intp]],
    kind: npt.NDArray[np.uint8],
) -> tuple[list[int], list[str]]:
    """Return the fabric index of each sweep and the fabrics' names. Sweeps that share a switch cover the same
    fabric."""
    switches = [distinct(place[kind[place] == SWITCH]) for place in places]
    group = list(range(len(sweeps)))
    last = np.full(len(kind), -1, np.int64)  # the last sweep that contains each device
    for i, mine in enumerate(switches):
        met = {group[j] for j in distinct(last[mine]).tolist() if j >= 0}
        if met:
            lowest = min(met)
            group = [lowest if g in met or k == i else g for k, g in enumerate(group)]
        last[mine] = i
    first: dict[int, int] = {}
    for g, mine in zip(group, switches, strict=True):
        first[g] = min(first.get(g, len(kind)), int(mine[0]) if len(mine) else len(kind))
    order = sorted(set(group), key=lambda g: (first[g], g))
    names = ["infiniband"] if len(order) == 1 else [f"infiniband-{k}" for k in range(1, len(order) + 1)]
    return [order.index(g) for g in group], names


def _cables(
    part: Part,
    sweeps: Sequence[SweepSeen],
    places: Sequence[npt.NDArray[np.intp]],
    group: list[int],
    declared: npt.NDArray[np.bool_],
) -> Longs:
    """Fill in the cables of `part`. Returns when each cable was last reported, (cables,) Unix ns."""
    ka, kb, rate, width, rank = [], [], [], [], []
    for r, (seen, place) in enumerate(zip(sweeps, places, strict=True)):
        sweep = seen.sweep
        ka.append(join_port(place[sweep.device], sweep.port))
        kb.append(join_port(place[sweep.peer], sweep.peer_port))
        rate.append(sweep.rate_gbps)
        width.append(sweep.width)
        rank.append(np.full(len(sweep.device), r, np.int32))
    one, other = np.concatenate(ka), np.concatenate(kb)
    rates, widths, ranks = np.concatenate(rate), np.concatenate(width), np.concatenate(rank)
    low, high = np.minimum(one, other), np.maximum(one, other)
    order = order_of(low)
    same_low = low[order][1:] == low[order][:-1]
    if np.any(same_low & (high[order][1:] != high[order][:-1])):
        order = np.lexsort((high, low))
    low, high, upward = low[order], high[order], (one <= other)[order]
    rates, widths, ranks = rates[order], widths[order], ranks[order]
    new = np.ones(len(low), np.bool_)
    new[1:] = (low[1:] != low[:-1]) | (high[1:] != high[:-1])
    start = np.flatnonzero(new)
    if not len(start):
        return np.zeros(0, np.int64)
    newest = np.maximum.reduceat(ranks, start)
    names = sorted({s.source for s in sweeps})
    bit = np.array([1 << names.index(s.source) for s in sweeps], np.int64)
    source_bits = np.bitwise_or.reduceat(bit[ranks], start) if len(names) > 1 else None
    fastest, widest = np.maximum.reduceat(rates, start), np.maximum.reduceat(widths, start)
    from_low = np.logical_or.reduceat(upward, start)
    from_high = np.logical_or.reduceat(~upward, start) | (low[start] == high[start])
    low, high = low[start], high[start]
    fabric = np.array(group, np.int32)[newest]
    both = from_low & from_high
    keep = _confirmed(part, low, high, newest, fabric, sweeps, places)
    keep[keep] = _settle(part, low[keep], high[keep], newest[keep], fabric[keep], both[keep], sweeps)
    low, high, newest = low[keep], high[keep], newest[keep]
    from_low, both = from_low[keep], both[keep]
    part.a, part.a_port = split_port(low)
    part.b, part.b_port = split_port(high)
    part.rate_gbps, part.width = fastest[keep], widest[keep]
    part.fabric = fabric[keep]
    masks = distinct(source_bits[keep]) if source_bits is not None else bit[:1]
    part.source_sets = [
        tuple(name for i, name in enumerate(names) if mask >> i & 1) for mask in masks.tolist()
    ]
    if source_bits is None:
        part.sources = np.zeros(len(low), np.int32)
    else:
        part.sources = np.searchsorted(masks, source_bits[keep]).astype(np.int32)

    def one_sided(i: int) -> Anomaly:
        ends = (part.a[i], part.a_port[i]), (part.b[i], part.b_port[i])
        a, b = (_end(part, *end) for end in (ends if from_low[i] else ends[::-1]))
        text = f"{say(a)} reports a cable to {say(b)}, which does not report it"
        return Anomaly("SourcesDisagree", a, b, None, part.source_sets[part.sources[i]], 0.9, text)

    unanswered = np.flatnonzero(~both & declared[part.a] & declared[part.b]).tolist()
    part.anomalies += few_findings(
        unanswered, part.fabric.item, one_sided, "of this fabric are reported by one of their ends only"
    )
    return np.array([seen.observed_at_ns for seen in sweeps], np.int64)[newest]


def _confirmed(
    part: Part,
    low: Longs,
    high: Longs,
    newest: npt.NDArray[np.int32],
    fabric: npt.NDArray[np.int32],
    sweeps: Sequence[SweepSeen],
    places: Sequence[npt.NDArray[np.intp]],
) -> npt.NDArray[np.bool_]:
    """Return which cables to keep. A cable that only a manager reports is dropped if either device was
    swept."""
    managed = np.array([s.source in MANAGERS for s in sweeps], np.bool_)
    if not managed.any() or managed.all():
        return np.ones(len(low), np.bool_)
    swept = np.zeros(len(part.ids), np.bool_)
    for seen, place in zip(sweeps, places, strict=True):
        if seen.source not in MANAGERS and not seen.partial:
            swept[place] |= seen.sweep.declared
    stays: npt.NDArray[np.bool_] = ~(managed[newest] & (swept[low >> 20] | swept[high >> 20]))

    def not_swept(i: int) -> Anomaly:
        a, b = (_end(part, p >> 20, p & 0xFFFFF) for p in (int(low[i]), int(high[i])))
        source = sweeps[newest[i]].source
        text = f"{source} reports a cable from {say(a)} to {say(b)}, which a sweep of these devices lacks"
        return Anomaly("SourcesDisagree", a, b, None, (source,), 0.5, text)

    part.anomalies += few_findings(
        np.flatnonzero(~stays).tolist(),
        fabric.item,
        not_swept,
        "of this fabric are reported by a manager, not by sweeps",
    )
    return stays


def _settle(
    part: Part,
    low: Longs,
    high: Longs,
    newest: npt.NDArray[np.int32],
    fabric: npt.NDArray[np.int32],
    both: npt.NDArray[np.bool_],
    sweeps: Sequence[SweepSeen],
) -> npt.NDArray[np.bool_]:
    """Return which cables to keep where two claim one port."""
    keep = np.ones(len(low), np.bool_)
    if len(sweeps) == 1 and both.all():
        return keep  # a sweep's text lists each port once as its own, so no port is in two cables
    ends = np.sort(np.concatenate([low, high[high != low]]))
    twice = distinct(ends[1:][ends[1:] == ends[:-1]])
    if not len(twice):
        return keep
    rivals = np.flatnonzero(np.isin(low, twice) | np.isin(high, twice)).tolist()
    rivals.sort(key=lambda i: (-int(newest[i]), not both[i], int(low[i]), int(high[i])))
    holder: dict[int, int] = {}
    against: list[int] = []
    for i in rivals:
        ports = (int(low[i]), int(high[i]))
        taken = next((holder[p] for p in ports if p in holder), None)
        if taken is None:
            holder.update(dict.fromkeys(ports, i))
            continue
        keep[i] = False
        if newest[i] >= newest[taken]:  # not of an older sweep; the port may have been recabled since
            against.append(i)

    def rival(i: int) -> Anomaly:
        a, b = (_end(part, p >> 20, p & 0xFFFFF) for p in (int(low[i]), int(high[i])))
        text = f"{say(a)} to {say(b)} is reported, but another cable already holds one of these ports"
        return Anomaly("SourcesDisagree", a, b, None, (sweeps[newest[i]].source,), 0.9, text)

    part.anomalies += few_findings(
        against,
        fabric.item,
        rival,
        "of this fabric are reported, but other cables already hold their ports",
    )
    return keep


def _end(part: Part, device: int, port: int) -> Endpoint:
    return Endpoint(part.ids[device], part.names[device], str(port), part.labels[device])
